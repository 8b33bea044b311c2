"""What a recording made goes with it: no node of autograd holds itself by what it has saved."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator

import pytest
import torch
from torch import nn

import vgraph
from vgraph.capture.capture import forget


@pytest.fixture(autouse=True)
def _nothing_is_known() -> Iterator[None]:
    forget()
    yield
    forget()


def update(*, second: bool) -> None:
    """A message and a reduce function of their own each time, whose operators save what they give."""
    layer, g = nn.Linear(2, 2), vgraph.graph(([0, 1, 2], [1, 2, 2]))
    x = g.ndata["h"] = torch.randn(3, 2, requires_grad=True)
    g.update_all(
        lambda edges: {"m": torch.tanh(layer(edges.src["h"])) * edges.dst["h"].exp()},
        lambda nodes: {"o": nodes.mailbox["m"].softmax(1).amax(1) + nodes.mailbox["m"].sum(1).sigmoid()},
    )
    differentiate(g.ndata["o"], x, second=second)


def evaluate(*, second: bool) -> None:
    """A vertex function of its own each time."""

    class Cell(vgraph.VertexFunction):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(2, 2)

        def forward(self, v: vgraph.Vertex) -> None:
            h = torch.tanh(self.layer(v.pull("x")) + v.gather()["h"].sum())
            v.scatter(h=h)
            v.push(h=h)

    x = torch.randn(3, 2, requires_grad=True)
    differentiate(Cell()(vgraph.graph(([0, 1], [2, 2])), x=x)["h"], x, second=second)


def differentiate(out: torch.Tensor, x: torch.Tensor, *, second: bool) -> None:
    (grad,) = torch.autograd.grad(out.sum(), x, create_graph=second)
    if second:
        grad.square().sum().backward()


def left_after(run: Callable[[], None]) -> tuple[int, int]:
    """How many tensors and nodes of autograd there are."""
    run()
    forget()
    gc.collect()
    there = gc.get_objects()
    return sum(isinstance(x, torch.Tensor) for x in there), sum(type(x).__name__.endswith("Backward") for x in there)


@pytest.mark.parametrize("second", [False, True])
@pytest.mark.parametrize("run", [update, evaluate])
def test_a_recording_that_is_forgotten_is_freed(run: Callable[..., None], second: bool) -> None:
    first = left_after(lambda: run(second=second))
    later = left_after(lambda: run(second=second))
    assert all(now <= before for now, before in zip(later, first, strict=True))  # what other tests left may go
