"""Narrow rows that edges read at their other end: moved side by side or not, results are the same bits."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

import vgraph
from vgraph.runtime.cpu import kernels
from vgraph.runtime.cpu.kernels import CpuKernel

Message = Callable[[Any], dict[str, Tensor]]


@pytest.fixture(autouse=True)
def _compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VGRAPH_KERNELS", "1")


@pytest.fixture
def moved(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """How many rows were moved side by side, call by call."""
    counts, room = list[int](), CpuKernel._room_beside

    def noted(kernel: CpuKernel, given: list[Tensor], edges: int) -> Tensor | None:
        found = room(kernel, given, edges)
        counts.extend([] if found is None else [found.shape[0]])
        return found

    monkeypatch.setattr(CpuKernel, "_room_beside", noted)
    yield counts


def gated(edges: Any) -> dict[str, Tensor]:
    return {"m": torch.sigmoid(edges.src["a"] + edges.dst["b"]) * edges.src["c"]}


def three_of_one(edges: Any) -> dict[str, Tensor]:
    return {"m": torch.exp(edges.src["a"]) * edges.src["c"] - edges.src["b"] * edges.dst["a"]}


def run(message: Message, width: int, dtype: torch.dtype) -> list[Tensor]:
    """The result and the gradients of a graph with vertices that have no edge at one end."""
    torch.manual_seed(0)
    g = vgraph.graph((torch.randint(0, 300, (4000,)), torch.randint(5, 305, (4000,))), num_nodes=310)
    rows = {name: torch.randn(310, width, dtype=dtype, requires_grad=True) for name in "abc"}
    for name, value in rows.items():
        g.ndata[name] = value
    g.update_all(message, vgraph.function.sum("m", "o"))
    found = g.ndata["o"]
    weights = torch.randn_like(found)
    return [found.detach(), *torch.autograd.grad((found * weights).sum(), list(rows.values()))]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("width", [1, 3, 4])
@pytest.mark.parametrize("message", [gated, three_of_one])
def test_the_same_bits(
    monkeypatch: pytest.MonkeyPatch, moved: list[int], message: Message, width: int, dtype: torch.dtype
) -> None:
    apart = run(message, width, dtype)
    assert moved == [], "a cache holds rows as few as these"
    monkeypatch.setattr(kernels, "_MOST_CACHED", 0)
    together = run(message, width, dtype)
    assert moved and set(moved) == {310}
    for one, other in zip(apart, together, strict=True):
        assert torch.equal(one, other)


def test_few_edges_are_not_worth_it(monkeypatch: pytest.MonkeyPatch, moved: list[int]) -> None:
    monkeypatch.setattr(kernels, "_MOST_CACHED", 0)
    monkeypatch.setattr(kernels, "_EDGES_A_ROW", 13)
    run(gated, 4, torch.float32)  # 4,000 edges of 310 vertices
    assert moved == []


def test_rows_of_half_a_line_and_more_stay_where_they_are(monkeypatch: pytest.MonkeyPatch, moved: list[int]) -> None:
    monkeypatch.setattr(kernels, "_MOST_CACHED", 0)
    run(gated, 9, torch.float32)
    assert moved == []
    run(gated, 8, torch.float32)
    assert moved


def test_attention_reads_its_narrow_rows_side_by_side(monkeypatch: pytest.MonkeyPatch, moved: list[int]) -> None:
    """GAT's backward has four tensors of a number a head; a Tree-LSTM's loop, whose states are as narrow, none."""
    monkeypatch.setattr(kernels, "_MOST_CACHED", 0)
    torch.manual_seed(0)
    g = vgraph.graph((torch.randint(0, 100, (2000,)), torch.randint(0, 100, (2000,))), num_nodes=100)
    layer, x = vgraph.nn.GATConv(5, 3, 8, allow_zero_in_degree=True), torch.randn(100, 5, requires_grad=True)
    layer(g, x).square().sum().backward()
    assert moved == [100]
    moved.clear()
    tree = vgraph.graph(([0, 1, 3, 4, 5], [2, 2, 4, 5, 6]))
    vgraph.nn.ChildSumTreeLSTM(4, 4)(tree, x=torch.randn(7, 4, requires_grad=True))["h"].sum().backward()
    assert moved == []
