"""What a graph's results keep alive: no earlier step, and after a backward nothing that was saved for it."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import vgraph
import vgraph.function as fn
from tests.runtime.engine_models import chain
from vgraph import native_part
from vgraph.capture.capture import forget


def small_graph() -> vgraph.Graph:
    g = vgraph.graph(([0, 1, 2, 2], [1, 2, 0, 1]))
    g.ndata["h"] = torch.rand(3, 4)
    g.edata["w"] = torch.rand(4, 1)
    return g


def by_update_all(g: vgraph.Graph, weight: Tensor) -> None:
    g.update_all(lambda e: {"m": (e.src["h"] @ weight) * e.data["w"]}, fn.sum("m", "o"))


def by_mean_of_slots(g: vgraph.Graph, weight: Tensor) -> None:
    g.update_all(lambda e: {"m": e.src["h"] @ weight}, lambda v: {"o": v.mailbox["m"].sort(1).values.sum(1)})


def by_apply(g: vgraph.Graph, weight: Tensor) -> None:
    g.update_all(fn.copy_u("h", "m"), fn.sum("m", "s"), lambda v: {"o": v.data["s"] @ weight})


def by_edges(g: vgraph.Graph, weight: Tensor) -> None:
    g.apply_edges(lambda e: {"o": e.src["h"] @ weight})
    g.ndata["o"] = g.edata["o"][:3]


class Passing(vgraph.VertexFunction):
    def __init__(self, weight: Tensor) -> None:
        super().__init__()
        self.weight = weight

    def forward(self, v: vgraph.Vertex) -> None:
        h = v.pull("h") @ self.weight + v.gather()["h"].sum()
        v.scatter(h=h)
        v.push(h=h)


@pytest.mark.parametrize("step", [by_update_all, by_mean_of_slots, by_apply, by_edges])
def test_results_kept_in_a_graph_do_not_keep_earlier_ones(step: Any) -> None:
    g, weight = small_graph(), torch.rand(4, 4, requires_grad=True)
    results: list[weakref.ref[Tensor]] = []
    for _ in range(4):
        step(g, weight)
        g.ndata["o"].sum().backward()
        results.append(weakref.ref(g.ndata["o"]))
    gc.collect()
    assert [one() is None for one in results] == [True, True, True, False]


def test_results_of_vertex_functions_do_not_keep_their_graph() -> None:
    function = Passing(torch.rand(4, 4, requires_grad=True))

    def step() -> weakref.ref[vgraph.Graph]:
        g = chain(5)
        g.ndata["h"] = torch.rand(5, 4)
        g.ndata["o"] = function(g)["h"]
        g.ndata["o"].sum().backward()
        return weakref.ref(g)

    kept = [step() for _ in range(2)]
    gc.collect()
    assert [one() for one in kept] == [None, None]


def test_a_backward_gives_the_arena_back_though_its_result_lives() -> None:
    function, g, x = Passing(torch.rand(64, 64, requires_grad=True)), chain(300), torch.rand(300, 64)
    pool = native_part.arenas
    pool._shelves.clear()  # what others left would be given up for larger buffers
    out = function(g, h=x)["h"]
    before = pool.num_idle_bytes()
    out.sum().backward(retain_graph=True)
    held = pool.num_idle_bytes()
    out.sum().backward()
    assert pool.num_idle_bytes() > held >= before
    with pytest.raises(RuntimeError, match="second time"):
        out.sum().backward()


def test_second_derivatives_where_the_first_graph_is_freed() -> None:
    """What a further derivative reads stays in its memory, though the first one let go of it."""
    function, g = Passing(torch.rand(4, 4, requires_grad=True, dtype=torch.float64)), chain(50)
    x = torch.rand(50, 4, dtype=torch.float64, requires_grad=True)
    seed = torch.rand(50, 4, dtype=torch.float64, requires_grad=True)
    (grad,) = torch.autograd.grad(function(g, h=x)["h"], x, seed, create_graph=True, retain_graph=False)
    noise = [function(g, h=torch.rand(50, 4, dtype=torch.float64))["h"] for _ in range(3)]
    (found,) = torch.autograd.grad(grad.square().sum(), seed)
    (again,) = torch.autograd.grad(function(g, h=x)["h"], x, seed, create_graph=True)
    assert len(noise) == 3
    assert torch.equal(found, torch.autograd.grad(again.square().sum(), seed)[0])


def test_memory_is_released() -> None:
    """What a training step leaves behind; results stay as they are."""
    function, g = Passing(torch.rand(4, 4, requires_grad=True, dtype=torch.float64)), chain(5000)
    x = torch.rand(5000, 4, dtype=torch.float64)
    out = function(g, h=x)["h"]
    expected = out.detach().clone()
    out.sum().backward()
    assert vgraph.release_memory() > 0
    assert vgraph.release_memory() == native_part.arenas.num_idle_bytes() == 0
    assert torch.equal(out, expected)
    assert torch.equal(function(g, h=x)["h"], expected)


@pytest.mark.parametrize("branches", [False, True])
def test_what_a_function_is_recorded_with_is_let_go(branches: bool) -> None:
    class Cell(vgraph.VertexFunction):
        def forward(self, v: Any) -> None:
            h = torch.tanh(v.pull("x") + v.gather()["h"].sum())
            h = h * 2 if branches and h.sum() > 0 else h
            v.scatter(h=h)
            v.push(h=h)

    forget()
    x = torch.rand(5, 3, requires_grad=True)
    kept = weakref.ref(x)
    Cell()(vgraph.graph(([0, 1, 2], [3, 3, 4]), num_nodes=5), x=x)["h"].sum().backward()
    del x
    gc.collect()
    assert kept() is None


# ---------------------------------------------------------------- objects that keep what was made of their results
class Keeps(nn.Module):
    """A layer whose messages it makes itself, or whose closure holds it."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.how, self.lin, self.last = how, nn.Linear(4, 4), None

    def message(self, edges: vgraph.EdgeBatch) -> dict[str, Tensor]:
        return {"m": torch.tanh(self.lin(edges.src["h"]))}

    def forward(self, x: Tensor) -> Tensor:
        g = small_graph()
        g.ndata["h"] = x
        message = self.message if self.how == "method" else lambda edges: self.message(edges)
        reduce = (lambda v: {"o": v.mailbox["m"].sort(1).values.sum(1)}) if self.how == "uncaptured" else None
        g.update_all(message, reduce or fn.sum("m", "o"))
        return g.ndata["o"]


class KeepsInVertex(vgraph.VertexFunction):
    def __init__(self) -> None:
        super().__init__()
        self.lin = nn.Linear(4, 4)

    def forward(self, v: vgraph.Vertex) -> None:
        h = torch.tanh(self.lin(v.pull("h")) + v.gather()["h"].sum())
        v.scatter(h=h)
        v.push(h=h)


class KeepsInPyG(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        geometric = pytest.importorskip("torch_geometric.nn")
        self.conv = vgraph.accelerate(geometric.GATConv(4, 4))
        self.conv.owner = [self]

    def forward(self, x: Tensor) -> Tensor:
        return self.conv(x, torch.stack(small_graph().edges()))


OWNERS: dict[str, Callable[[], nn.Module]] = {
    "bound method": lambda: Keeps("method"),
    "closure": lambda: Keeps("closure"),
    "sorted slots": lambda: Keeps("uncaptured"),
    "vertex function": KeepsInVertex,
    "PyG layer": KeepsInPyG,
}


def _result(owner: nn.Module, x: Tensor) -> Tensor:
    return owner(chain(3), h=x)["h"] if isinstance(owner, KeepsInVertex) else owner(x)


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("name", OWNERS)
def test_an_object_that_keeps_what_is_made_of_its_result_is_freed(name: str, order: int) -> None:
    """After a backward, as what was saved for it; autograd's nodes are out of reach of Python's collector."""
    owner, x = OWNERS[name](), torch.rand(3, 4, requires_grad=True)
    owner.last = _result(owner, x) * 2
    loss = owner.last.sum()
    if order == 2:
        (slope,) = torch.autograd.grad(loss, x, create_graph=True)
        loss = loss + slope.square().sum()
        del slope
    loss.backward()
    del loss
    kept = weakref.ref(owner)
    del owner
    gc.collect()
    assert kept() is None


@pytest.mark.parametrize("name", ["bound method", "closure", "vertex function"])
def test_an_object_that_keeps_its_result_itself_is_freed_without_a_backward(name: str) -> None:
    owner = OWNERS[name]()
    owner.last = _result(owner, torch.rand(3, 4, requires_grad=True))
    kept = weakref.ref(owner)
    del owner
    gc.collect()
    assert kept() is None


def test_a_graph_that_is_kept_has_further_derivatives_though_its_function_is_gone() -> None:
    x = torch.rand(3, 4, requires_grad=True)
    loss = Keeps("closure")(x).square().sum()
    gc.collect()
    (first,) = torch.autograd.grad(loss, x, retain_graph=True)
    (again,) = torch.autograd.grad(loss, x, create_graph=True)
    assert torch.equal(first, again)
    again.square().sum().backward()
    with pytest.raises(RuntimeError, match="second time"):
        torch.autograd.grad(loss, x)
