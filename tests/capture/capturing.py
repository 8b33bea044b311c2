"""A vertex function around any function, and a count of captures."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

import vgraph
from tests.api.recursion import DAG
from vgraph.capture.capture import num_captures

X = torch.linspace(-1, 1, DAG.num_nodes(), dtype=torch.float64).unsqueeze(1) + torch.eye(7, 3)


class Apply(vgraph.VertexFunction):
    """Applies a function to a feature; parents do not use what children made of theirs."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, v: vgraph.Vertex) -> None:
        h = self.function(v.pull("x"))
        v.scatter(h=h)
        v.push(h=h, past=v.gather()["h"].sum())


def call(function: Callable[[Tensor], Tensor], x: Tensor = X) -> Tensor:
    """What a captured function gives for every vertex; the same as the function itself."""
    out = Apply(function)(DAG, x=x)["h"]
    torch.testing.assert_close(out, function(x), rtol=1e-6, atol=1e-6)
    return out


@contextlib.contextmanager
def captures(at_most: int) -> Iterator[None]:
    before = num_captures()
    yield
    made = num_captures() - before
    assert made <= at_most, f"{made} captures, {at_most} allowed"
