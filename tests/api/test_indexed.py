"""Functions that join rows by ids: what torch gives for the same ids, and why some are not captured."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from vgraph.api.messages.indexed import Joined, join
from vgraph.capture.errors import CaptureError
from vgraph.ir.topology import Topology

N, M, E, F = 7, 5, 20, 4  # sources, destinations, edges, features


class Case:
    """Rows of either end and of edges; every destination but the last has an edge."""

    def __init__(self) -> None:
        self.src, self.dst = torch.randint(0, N, (E,)), torch.cat([torch.arange(M - 1), torch.randint(0, M - 1, (16,))])
        self.x, self.w = torch.randn(N, F, requires_grad=True), torch.randn(E, requires_grad=True)
        self.y = torch.randn(M, F, requires_grad=True)

    def captured(self, function: Callable[..., Any]) -> Any:
        """The function of ids, rows and the number of destinations, as one program."""
        rows = {"src": {"x": self.x}, "dst": {"y": self.y}, "edge": {"w": self.w}}

        def on_examples(given: Joined) -> tuple[Any, dict[str, Tensor]]:
            ids, x, y = given.ids("dst"), given.at_edges("src", "x"), given.rows("dst", "y")
            return function(ids, x, y, given.rows("edge", "w"), given.count("dst")), {}

        topology = Topology(self.src, self.dst, N, M)
        return join(topology, rows, on_examples, (on_examples,), function.__code__, function.__name__)[0]

    def plain(self, function: Callable[..., Any]) -> Any:
        return function(self.dst, self.x[self.src], self.y, self.w, M)


def _added(ids: Tensor, x: Tensor, y: Tensor, w: Tensor, count: int) -> Tensor:
    return x.new_zeros(count, x.shape[1]).index_add_(0, ids, x * w.view(-1, 1)) + y


def _subtracted(ids: Tensor, x: Tensor, y: Tensor, w: Tensor, count: int) -> Tensor:
    return torch.index_add(y, 0, ids, x * w.view(-1, 1), alpha=-0.5)


def _scattered(ids: Tensor, x: Tensor, y: Tensor, w: Tensor, count: int) -> Tensor:
    wide = ids.view(-1, 1).expand_as(x)
    return torch.zeros_like(y).scatter_add(0, wide, torch.sigmoid(x + y[ids]))


def _largest(ids: Tensor, x: Tensor, y: Tensor, w: Tensor, count: int) -> Tensor:
    wide = ids.unsqueeze(-1).expand_as(x)
    return torch.full_like(y, 3.0).scatter_reduce_(0, wide, x, "amax", include_self=False)


def _with_itself(ids: Tensor, x: Tensor, y: Tensor, w: Tensor, count: int) -> Tensor:
    return y.scatter_reduce(0, ids.view(-1, 1).expand_as(x), x * w[:, None], "amin", include_self=True)


def _on_edges(ids: Tensor, x: Tensor, y: Tensor, w: Tensor, count: int) -> tuple[Tensor, Tensor]:
    total = torch.zeros_like(y).index_add(0, ids, x)
    return torch.tanh(total.index_select(0, ids) - x), total


def _counted(ids: Tensor, x: Tensor, y: Tensor, w: Tensor, count: int) -> Tensor:
    degree = x.new_zeros(count).scatter_add_(0, ids, x.new_ones(ids.numel()))
    return y / degree.clamp(min=1).unsqueeze(-1) if ids.numel() > 0 else y


@pytest.mark.guards
@pytest.mark.parametrize("function", [_added, _subtracted, _scattered, _largest, _with_itself, _on_edges, _counted])
def test_joined_rows_are_those_of_torch(function: Callable[..., Any]) -> None:
    case = Case()
    found, wanted = case.captured(function), case.plain(function)
    assert type(found) is type(wanted)
    for one, other in zip(_tensors(found), _tensors(wanted), strict=True):
        torch.testing.assert_close(one, other)
        inputs, weights = (case.x, case.w, case.y), torch.randn_like(other)
        first, second = (
            torch.autograd.grad(out, inputs, weights, retain_graph=True, allow_unused=True, materialize_grads=True)
            for out in (one, other)
        )
        torch.testing.assert_close(first, second)


def _tensors(given: Any) -> tuple[Tensor, ...]:
    return (given,) if isinstance(given, Tensor) else given


def _sum_of_all(ids: Tensor, x: Tensor, y: Tensor, w: Tensor, count: int) -> Tensor:
    return y * x.sum()


def _many_or_few(ids: Tensor, x: Tensor, y: Tensor, w: Tensor, count: int) -> Tensor:
    return y if ids.numel() > 30 else 2 * y


def _of_others(ids: Tensor, x: Tensor, y: Tensor, w: Tensor, count: int) -> Tensor:
    return x[ids]


def _looking(ids: Tensor, x: Tensor, y: Tensor, w: Tensor, count: int) -> Tensor:
    return y * int(ids.max())


def _no_rows(ids: Tensor, x: Tensor, y: Tensor, w: Tensor, count: int) -> Tensor:
    return torch.ones(3)


@pytest.mark.guards
@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (_sum_of_all, "mixes rows"),
        (_many_or_few, "branches on a number of rows"),
        (_of_others, "rows are read by ids of other rows"),
        (_looking, "looks at the data"),
        (_no_rows, "not one row a node or an edge"),
    ],
)
def test_what_is_not_captured(function: Callable[..., Any], reason: str) -> None:
    with pytest.raises(CaptureError, match=reason):
        Case().captured(function)
