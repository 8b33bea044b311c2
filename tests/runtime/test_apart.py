"""What a call returns lies in memory of its own, however its results come about."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import vgraph
from tests.runtime.engine_models import binary_tree
from vgraph.api import capture

pytestmark = pytest.mark.usefixtures("with_kernels")


class Twins(vgraph.VertexFunction):
    """Two parameters with one gradient; results that are the same, or parts of one another."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Parameter(torch.randn(4)), nn.Parameter(torch.randn(4))

    def forward(self, v: vgraph.Vertex) -> None:
        total = v.pull("x") + v.gather()["s"].sum()
        shifted = total + (self.a + self.b)
        v.scatter(s=total)
        v.push(total=total, again=total, half=shifted[:, :2], shifted=shifted, x=v.pull("x"))


def storages(tensors: list[torch.Tensor]) -> set[int]:
    return {t.untyped_storage().data_ptr() for t in tensors}


@pytest.mark.parametrize("trains", [True, False])
def test_no_two_results_share_memory(trains: bool) -> None:
    capture.forget()
    model, g = Twins(), binary_tree(5)
    x = torch.randn(g.num_nodes(), 4, requires_grad=trains)
    with torch.set_grad_enabled(trains):
        results = list(model(g, x=x).values())
    assert len(storages([*results, x])) == len(results) + 1
    if trains:
        grads = torch.autograd.grad(results[3].sum(), [model.a, model.b, x])
        assert torch.equal(grads[0], grads[1])
        assert len(storages([*grads, *results])) == len(grads) + len(results)
