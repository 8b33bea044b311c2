"""Functions cut where what sources send is narrowest: the same numbers and derivatives, and nothing wider is sent."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import vgraph
import vgraph.function as fn
from tests.distributed.small_graphs import homogeneous
from vgraph import config
from vgraph.api.messages.propagate import evaluate_edges, propagate
from vgraph.ir.halo import EdgesElsewhere
from vgraph.ir.topology import Topology

WIDE, NARROW = 7, 2


@dataclass(frozen=True)
class OneRank(EdgesElsewhere):
    """A halo without rows: notes what would be sent."""

    is_cut: bool = True
    sent: list[dict[str, int]] = field(default_factory=list[dict[str, int]])

    def here(self, columns: Mapping[str, Tensor]) -> frozenset[str]:
        return frozenset()

    def preferred(self, columns: Mapping[str, Tensor]) -> frozenset[str]:
        return frozenset()

    def rows(
        self, columns: Mapping[str, Tensor], here: Collection[str] | None = None, made: Collection[str] = ()
    ) -> dict[str, Tensor]:
        self.sent.append({name: rows.shape[1:].numel() for name, rows in columns.items()})
        return dict(columns)


def divided(topology: Topology) -> Topology:
    ids = {"vertex": topology.num_dst, "edge": topology.num_edges, "src": topology.num_src}
    degrees = tuple(topology.in_degrees.unique().tolist())[1:]
    halo = OneRank(topology.num_src, topology.num_edges, degrees=degrees)
    return replace(topology, halo=halo, original_ids={name: torch.arange(count) for name, count in ids.items()})


class Halved(torch.autograd.Function):
    """Its derivative is not that of what it computes."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return torch.sin(x) * 1.0

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        return grads[0] / 2


def without_gradient(rows: Tensor) -> Tensor:
    with torch.no_grad():
        return torch.tanh(rows)


def written(rows: Tensor) -> Tensor:
    rows = rows * 1.0
    rows += 1
    return rows


def slope(rows: Tensor, of: Tensor) -> Tensor:
    given = torch.ones_like(rows)
    return torch.autograd.grad(rows.sin(), of, given, create_graph=True)[0]


def quiet_slope(rows: Tensor, of: Tensor) -> Tensor:
    given = torch.ones_like(rows)
    return torch.autograd.grad(rows.sin(), of, given, create_graph=True, allow_unused=True, materialize_grads=True)[0]


Message = Callable[[Any], dict[str, Tensor]]


def messages(inner: nn.Linear, back: nn.Linear) -> dict[str, tuple[Message, dict[str, int]]]:
    """Message functions, and the columns that each sends."""
    x, z, short = "src:x", "src:z", {"src:*0": NARROW}
    return {
        "linear": (lambda e: {"m": inner(e.src["x"]) * e.data["w"]}, short),
        "relu": (lambda e: {"m": torch.relu(inner(e.src["x"]))}, short),
        "two columns": (lambda e: {"m": inner(e.src["x"]) * inner(e.src["z"]) + e.dst["y"]}, short),
        "one of two": (lambda e: {"m": inner(e.src["x"]) * (e.src["z"] * e.dst["x"]).sum(1, keepdim=True)},
                       {"src:*0": NARROW, z: WIDE}),
        "wider": (lambda e: {"m": back(inner(e.src["x"])) + e.data["w"]}, short),
        "as it is": (lambda e: {"m": e.src["x"] * e.data["w"]}, {x: WIDE}),
        "read at both ends": (lambda e: {"m": inner(e.src["x"]) + (e.src["x"] * e.dst["x"]).sum(1, True)}, {x: WIDE}),
        "one column": (lambda e: {"m": e.src["x"].sum(1, keepdim=True) * e.data["w"]}, {"src:*0": 1}),
        "turned": (lambda e: {"m": (e.data["w"] * inner(e.src["x"])).view(-1, NARROW, 1).flatten(1)}, short),
        "softmax": (lambda e: {"m": F.softmax(inner(e.src["x"]), 1) * e.data["w"]}, short),
        "own derivative": (lambda e: {"m": Halved.apply(inner(Halved.apply(e.src["x"]))) * e.data["w"]}, short),
        "detached": (lambda e: {"m": inner(e.src["x"]) * e.data["w"] + inner(e.src["x"]).detach()},
                     {"src:*0": NARROW, "src:*1": NARROW}),
        "without gradient": (lambda e: {"m": inner(without_gradient(e.src["x"])) * e.data["w"]}, short),
        "dropped ahead": (lambda e: {"m": inner(F.dropout(e.src["x"], 0.5)) * e.data["w"]}, {x: WIDE}),
        "dropped behind": (lambda e: {"m": F.dropout(inner(e.src["x"]), 0.5)}, short),
        "written": (lambda e: {"m": written(inner(e.src["x"])) * e.data["w"]}, short),
        "written itself": (lambda e: {"m": inner(e.src["x"]).mul_(e.data["w"]) * e.dst["y"]}, {x: WIDE}),
        "looks back": (lambda e: {"m": slope(inner(e.src["x"]) * e.data["w"], e.src["x"])}, {x: WIDE}),
        "looks back quietly": (lambda e: {"m": quiet_slope(inner(e.src["x"]) * e.data["w"], e.src["x"])}, {x: WIDE}),
    }  # fmt: skip


NAMES = list(messages(nn.Linear(WIDE, NARROW), nn.Linear(NARROW, WIDE)))


def results(topology: Topology, g: vgraph.Graph, name: str, inner: nn.Linear, back: nn.Linear) -> list[Tensor]:
    """What a function gives, its gradients, and gradients of one of those."""
    message, _ = messages(inner, back)[name]
    torch.manual_seed(3)
    x, z = (g.ndata["x"].clone().requires_grad_() for _ in range(2))
    frames = {
        "src": {"x": x, "z": z},
        "dst": {"x": g.ndata["x"], "y": g.ndata["x"][:, :NARROW]},
        "edge": {"w": g.edata["w"][:, None]},
    }
    out = propagate(topology, frames, message, fn.sum("m", "out"))["out"]
    given = [x, z, *inner.parameters(), *back.parameters()]
    grads = torch.autograd.grad(out.square().sum(), given, create_graph=True, allow_unused=True)
    slopes = [grad for grad in grads if grad is not None]
    again = torch.autograd.grad(sum(grad.square().sum() for grad in slopes), given, allow_unused=True)
    return [out, *(torch.zeros(()) if grad is None else grad for grad in (*grads, *again))]


@pytest.mark.parametrize("name", NAMES)
def test_numbers_and_derivatives_are_those_of_the_whole(name: str) -> None:
    g = homogeneous()
    inner, back = nn.Linear(WIDE, NARROW).double(), nn.Linear(NARROW, WIDE).double()
    parts = divided(g.topology)
    wanted = results(g.topology, g, name, inner, back)
    for found, one in zip(results(parts, g, name, inner, back), wanted, strict=True):
        found, one = found.detach(), one.detach()
        assert float((found - one).abs().max()) <= 1e-12 * max(1.0, float(one.abs().max()))
    assert isinstance(parts.halo, OneRank)
    if not config.looks_up_captures():  # some run uncaptured then
        assert parts.halo.sent == [messages(inner, back)[name][1]]


def test_functions_of_edges_are_cut_too() -> None:
    g, inner = homogeneous(), nn.Linear(WIDE, NARROW).double()
    parts = divided(g.topology)
    frames = {"src": {"x": g.ndata["x"]}, "dst": {"x": g.ndata["x"]}, "edge": {}}

    def both(edges: Any) -> dict[str, Tensor]:
        return {"sum": inner(edges.src["x"]) + inner(edges.dst["x"]), "src": inner(edges.src["x"])}

    for grad in (True, False):
        with torch.set_grad_enabled(grad):
            found, wanted = (evaluate_edges(topology, frames, both) for topology in (parts, g.topology))
        for name, rows in wanted.items():
            torch.testing.assert_close(found[name], rows, rtol=1e-12, atol=1e-12)
    assert isinstance(parts.halo, OneRank)
    with_gradients, alone = {"src:x": WIDE}, {"src:*0": NARROW, "src:*1": NARROW}  # which would come back
    assert parts.halo.sent == [with_gradients, alone]


def test_a_whole_graph_has_no_cut() -> None:
    """What all ranks have of each other's rows is nothing: one function, as in one process."""
    g, inner = homogeneous(), nn.Linear(WIDE, NARROW).double()
    alone = divided(g.topology)
    alone = replace(alone, halo=replace(alone.halo, is_cut=False))
    propagate(
        alone,
        {"src": {"x": g.ndata["x"]}, "dst": {}, "edge": {}},
        lambda e: {"m": inner(e.src["x"])},
        fn.sum("m", "out"),
    )
    assert isinstance(alone.halo, OneRank)
    assert alone.halo.sent == [{"src:x": WIDE}]
