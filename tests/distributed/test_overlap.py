"""Vertices that read own rows are computed while others' come; one process shows it, whose halo is its own rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import vgraph.distributed as vd
from tests.distributed.full_graph_models import MODELS
from tests.distributed.in_memory import InMemory
from tests.distributed.small_graphs import homogeneous
from vgraph.api.messages.meanwhile import halves_of
from vgraph.distributed.dist_graph import halo_of
from vgraph.distributed.whole import SourceHalo
from vgraph.errors import GraphError
from vgraph.graphs.frame import Frame
from vgraph.runtime.compiled import CompiledProgram
from vgraph.runtime.distributed.halo_exchange import Exchange, Route, fold, spread
from vgraph.runtime.distributed.ranks import Arriving, Ranks, current_ranks


class Looped(SourceHalo):
    """Asks for rows of others although there is one rank."""

    def here(self, columns: Any) -> frozenset[str]:
        return self.whole.kept.here(self.ntype, columns)

    def rows(self, columns: Any, here: Any = None, made: Any = ()) -> dict[str, Tensor]:
        return dict(zip(columns, spread(self.route, list(columns.values()), "of a test"), strict=True))


def looped(*, overlap: bool = True) -> vd.DistGraph:
    """The graph in one process, of which a fifth of the edges begin at copies of own nodes that are sent."""
    g = homogeneous()
    own = vd.DistGraph(InMemory(g, {"_N": torch.zeros(48, dtype=torch.int64)}, 1), overlap=overlap)
    (etype, topology), whole = next(iter(own._topologies.items())), own.whole
    is_copy = (topology.dst % 4 == 1) & (topology.src % 5 > 0)
    copied = topology.src[is_copy].long().unique()
    src = topology.src.clone()
    src[is_copy] = 48 + torch.searchsorted(copied, src[is_copy]).to(src.dtype)
    whole.routes["_N"] = Route(whole.ranks, 48, copied, (len(copied),), (len(copied),), len(copied))
    known = {field.name: getattr(halo_of(topology), field.name) for field in fields(SourceHalo)}
    ids = {**topology.original_ids, "src": torch.cat([torch.arange(48), copied])}
    halo = Looped(**known | {"is_cut": True})
    cut = replace(topology, src=src, num_src=48 + len(copied), original_ids=ids, halo=halo)
    return type(own).of_types({etype: cut}, *own._frames_by(Frame.copy))


def step(name: str, g: Any) -> list[Tensor]:
    """What a model gives, gradients, and those of a penalty on gradients."""
    torch.manual_seed(7)
    model = MODELS[name]().double()
    g.edata["w1"] = g.edata["w"].unsqueeze(1)
    x = g.ndata["x"].clone().requires_grad_()
    torch.manual_seed(11)
    out = model(g, x)
    (slope,) = torch.autograd.grad(F.cross_entropy(out, g.ndata["y"]), x, create_graph=True)
    slope.square().sum().backward()
    assert x.grad is not None
    return [out.detach(), slope.detach(), x.grad, *(one.grad for one in model.parameters() if one.grad is not None)]


@pytest.mark.parametrize("name", ["narrowing", "dropout"])
def test_gives_what_waiting_gives(name: str) -> None:
    g = looped()
    found, wanted = step(name, g), step(name, homogeneous())
    halves = halves_of(next(iter(g._topologies.values())))
    assert min(len(halves.inner.vertex_ids), len(halves.outer.vertex_ids)) > 5
    for a, b in zip(found, wanted, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-12)


def test_columns_that_have_come_before_are_read_beside_those_that_come() -> None:
    g, whole = looped(), homogeneous()
    halo, x = halo_of(next(iter(g._topologies.values()))), g.ndata["x"]
    halo.whole.kept.keep("_N", "src:x", x, torch.cat([x, x[halo.route.sent_ids]]), 60)
    h = torch.randn(48, 7, dtype=torch.float64, requires_grad=True)
    slopes: list[Tensor] = []
    for graph in (g, whole):
        graph.ndata["h"] = h
        graph.apply_edges(lambda edges: {"k": edges.src["x"] * edges.src["h"].sin() - edges.dst["h"]})
        slopes += torch.autograd.grad((graph.edata["k"] ** 2).sum(), h)
    torch.testing.assert_close(g.edata["k"], whole.edata["k"][g.own_edge_ids()])
    torch.testing.assert_close(*slopes)


@pytest.fixture
def events(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What exchanges and functions of messages do, in order; functions by how many vertices they compute."""
    told: list[str] = []

    def noting(owner: type, name: str, said: Callable[..., str]) -> None:
        before = getattr(owner, name)

        def noted(*args: Any, **options: Any) -> Any:
            told.append(said(*args, **options))
            return before(*args, **options)

        monkeypatch.setattr(owner, name, noted)

    noting(Ranks, "start_all_to_all", lambda *_, what: what.split()[0])
    noting(Arriving, "wait", lambda _: "wait")
    noting(CompiledProgram, "__call__", lambda _, inputs, context: f"run {context.topology.num_dst}")
    return told


@pytest.mark.parametrize("overlap", [True, False])
def test_inner_vertices_run_before_rows_are_waited_for_and_after_gradients_have_left(
    events: list[str], overlap: bool
) -> None:
    g = looped(overlap=overlap)
    halves = halves_of(next(iter(g._topologies.values())))
    inner, outer = (f"run {len(half.vertex_ids)}" for half in (halves.inner, halves.outer))
    g.ndata["h"] = torch.ones(48, 3, requires_grad=True)

    def total() -> Tensor:
        g.apply_edges(lambda edges: {"k": torch.sigmoid(edges.src["h"] * edges.dst["h"])})
        return g.edata["k"].sum()

    total().backward()  # what is recorded is no matter of order
    events.clear()
    loss = total()
    assert events == (["halo", inner, "wait", outer] if overlap else ["halo", "wait", "run 48"])
    events.clear()
    loss.backward()
    assert events == ([outer, "fold", inner, "wait"] if overlap else ["run 48", "fold", "wait"])


def test_exchanges_are_each_others_transposes() -> None:
    ids = torch.tensor([2, 0, 2])
    route = Route(current_ranks(), 3, ids, (3,), (3,), 3)
    a, b = (torch.randn(3, width, dtype=torch.float64, requires_grad=True) for width in (2, 1))
    full = torch.randn(6, 2, dtype=torch.float64, requires_grad=True)

    def some(*columns: Tensor) -> tuple[Tensor, ...]:
        exchange = Exchange(route, [*columns, torch.arange(3)], "some", torch.tensor([1]))
        *rows, numbers = exchange.wait()
        assert numbers.tolist() == [1, 2, 0, 2]
        return *(own.sin() for own in exchange.own[:2]), *(one.cos() for one in rows)

    ways: list[tuple[Callable[..., Any], tuple[Tensor, ...]]] = [
        (lambda *columns: tuple(one.sin() for one in spread(route, columns, "all")), (a, b)),
        (lambda one: fold(route, [one], "all")[0].sin(), (full,)),
        (some, (a, b)),
    ]
    for way, given in ways:
        assert torch.autograd.gradcheck(way, given) and torch.autograd.gradgradcheck(way, given)
    (slope,) = torch.autograd.grad(spread(route, [a], "all")[0][:3].sum(), a)
    assert torch.equal(slope, torch.ones_like(a)), "what was sent and is not read has no gradient"


def test_windows_and_overlap_are_one_or_the_other() -> None:
    with pytest.raises(GraphError, match="windows of 64 bytes"):
        vd.DistGraph(
            InMemory(homogeneous(), {"_N": torch.zeros(48, dtype=torch.int64)}, 1), halo_bytes=64, overlap=True
        )
