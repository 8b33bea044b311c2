"""What inference mode meets first may be trained afterwards: nothing that is kept then is a tensor of that mode."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import vgraph
from vgraph import ops
from vgraph import sparse as sp

TYPES = torch.tensor([0, 1, 0])
MATRICES = torch.randn(2, 4, 3)


def product(a: sp.SparseMatrix) -> Tensor:
    return (a @ a).val


CALLS: dict[str, Callable[[vgraph.Graph, Tensor], Tensor]] = {
    "softmax": lambda g, x: ops.edge_softmax(g, x[:3]),
    "degrees": lambda g, x: x * g.in_degrees().unsqueeze(1) * g.out_degrees().unsqueeze(1),
    "broadcast": lambda g, x: vgraph.broadcast_nodes(g, x[:1]),
    "gather_mm": lambda g, x: ops.gather_mm(x[:3], MATRICES, idx_b=TYPES),
    "typed_sum": lambda g, x: ops.typed_sum(g, x, MATRICES, TYPES),
    "sparse softmax": lambda g, x: sp.softmax(sp.val_like(g.adj(), x[:3, 0])).val,
    "sparse product": lambda g, x: product(sp.val_like(g.adj(), x[:3, 0]).coalesce()),
}


@pytest.mark.parametrize("name", CALLS)
def test_inference_first(name: str) -> None:
    g = vgraph.graph(([0, 1, 2], [1, 2, 1]), num_nodes=4)  # of which two have no in-edge
    x = torch.randn(4, 4, requires_grad=True)
    with torch.inference_mode():
        before = CALLS[name](g, x)
    after = CALLS[name](g, x)
    after.sum().backward()
    assert torch.equal(before, after)
    assert x.grad is not None
