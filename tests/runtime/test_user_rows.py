"""Loops move rows from and to the user's order: whatever the order, results lie in memory of their own."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import vgraph
from vgraph.capture import capture

pytestmark = pytest.mark.usefixtures("with_kernels")
WIDTH = 5


class Twice(vgraph.VertexFunction):
    """Reads a feature at every vertex in the loop, and pushes one state under two names."""

    def __init__(self) -> None:
        super().__init__()
        self.U = nn.Linear(WIDTH, WIDTH)

    def forward(self, v: vgraph.Vertex) -> None:
        h = torch.tanh(self.U(v.gather()["h"].sum()) * v.pull("x"))
        v.scatter(h=h)
        v.push(h=h, again=h, other=h * 2)


def shuffled() -> vgraph.Graph:
    """A tree whose children have larger ids than their parents, so that rows do not follow ids."""
    return vgraph.graph(([8, 7, 6, 5, 4, 3, 2], [3, 3, 1, 1, 2, 0, 0]), num_nodes=9)


def in_order() -> vgraph.Graph:
    return vgraph.graph(([0, 1, 2, 3], [4, 4, 5, 5]), num_nodes=6)


def outcome(model: Twice, g: vgraph.Graph, cotangent: Callable[[Tensor], Tensor]) -> list[Tensor]:
    x = torch.linspace(-1, 1, g.num_nodes() * WIDTH, dtype=torch.float64).view(-1, WIDTH).requires_grad_()
    found = model(g, x=x)
    total = sum((one * cotangent(one)).sum() for one in found.values())
    assert isinstance(total, Tensor)
    return [*(one.detach() for one in found.values()), *torch.autograd.grad(total, (x, *model.parameters()))]


@pytest.mark.parametrize("make", [shuffled, in_order])
@pytest.mark.parametrize("cotangent", [torch.ones_like, lambda h: torch.ones(1, dtype=h.dtype).expand_as(h), torch.cos])
def test_rows_are_those_of_torchs_operators(
    make: Callable[[], vgraph.Graph], cotangent: Callable[[Tensor], Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    model, g = Twice().double(), make()
    got = outcome(model, g, cotangent)
    monkeypatch.setenv("VGRAPH_KERNELS", "0")
    capture.forget()
    for one, two in zip(got, outcome(model, make(), cotangent), strict=True):
        torch.testing.assert_close(one, two, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("make", [shuffled, in_order])
def test_results_may_be_written_to(make: Callable[[], vgraph.Graph]) -> None:
    model, g, x = Twice().double(), make(), torch.ones(9, WIDTH, dtype=torch.float64)[: make().num_nodes()]
    x.requires_grad_()
    (wanted,) = torch.autograd.grad(model(g, x=x)["h"].sum(), x)
    found = model(g, x=x)
    total = found["h"].sum()
    others = [found["again"].detach().clone(), found["other"].detach().clone()]
    with torch.no_grad():
        found["h"].zero_()
    assert torch.equal(found["again"], others[0]) and torch.equal(found["other"], others[1])
    (got,) = torch.autograd.grad(total, x)
    torch.testing.assert_close(got, wanted)
