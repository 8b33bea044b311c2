"""Rows of edges that no kernel holds: made for some of the edges at a time, with the same numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import vgraph
import vgraph.function as fn
from tests.tables import thorough
from vgraph.capture import capture
from vgraph.runtime import chunks, compiled

NUM_NODES, NUM_EDGES, WIDTH = 60, 900, 12
HUB = 7


def graph(kind: torch.dtype = torch.int64) -> vgraph.Graph:
    """With a hub of more edges than a chunk has, and vertices without in-edges, the last ones among them."""
    chance = torch.Generator().manual_seed(1)
    src = torch.randint(NUM_NODES, (NUM_EDGES,), generator=chance)
    dst = torch.randint(3, NUM_NODES - 3, (NUM_EDGES,), generator=chance)
    dst[:200] = HUB
    return vgraph.graph((src.to(kind), dst.to(kind)), num_nodes=NUM_NODES)


class Parameters:
    def __init__(self) -> None:
        torch.manual_seed(0)
        self.h = torch.randn(NUM_NODES, 5, dtype=torch.float64, requires_grad=True)
        self.e = torch.randn(NUM_EDGES, 3, dtype=torch.float64, requires_grad=True)
        self.first = torch.randn(13, WIDTH, dtype=torch.float64, requires_grad=True)
        self.norm = torch.nn.LayerNorm(WIDTH).double()
        self.leaves = [self.h, self.e, self.first, self.norm.weight, self.norm.bias]

    def message(self, edges: Any) -> dict[str, Tensor]:
        rows = torch.cat([edges.src["h"], edges.dst["h"], edges.data["e"]], 1)
        return {"m": self.norm(torch.tanh(rows @ self.first))}

    def dropped(self, edges: Any) -> dict[str, Tensor]:
        return {"m": self.norm(F.dropout(edges.src["h"] @ self.first[:5], 0.5))}


REDUCES: dict[str, Callable[[Any], dict[str, Tensor]]] = {
    "sum": fn.sum("m", "o"),
    "max": fn.max("m", "o"),
    "softmax": lambda v: {"o": (torch.softmax(v.mailbox["m"], 1) * v.mailbox["m"]).sum(1)},
    "of its own": lambda v: {"o": torch.tanh(v.mailbox["m"].mean(1)) + v.data["h"][:, :1]},
}


def outcome(given: Parameters, reduce: Any, g: vgraph.Graph, *, drops: bool = False) -> list[Tensor]:
    """Rows, gradients and second gradients."""
    capture.forget()
    torch.manual_seed(3)
    g.ndata["h"], g.edata["e"] = given.h, given.e
    g.update_all(given.dropped if drops else given.message, reduce)
    leaves = [leaf for leaf in given.leaves if not drops or leaf is not given.e]
    first = torch.autograd.grad(g.ndata["o"].square().sum(), leaves, create_graph=True)
    second = torch.autograd.grad(sum(t.square().sum() for t in first), leaves[:1])
    return [g.ndata["o"], *first, *second]


@pytest.fixture(params=["0", "1"], ids=["operators", "kernels"])
def kernels(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("VGRAPH_KERNELS", request.param)
    return request.param


def cut_small(monkeypatch: pytest.MonkeyPatch, num_bytes: int) -> list[int]:
    """Makes chunks small; gives the number of edges of each that runs."""
    seen: list[int] = []
    real = chunks.ChunkedCode.run

    def watched(self: Any, env: Any, given: Any, *rest: Any) -> None:
        seen.extend(chunk.e1 - chunk.e0 for chunk in given)
        real(self, env, given, *rest)

    monkeypatch.setattr(chunks.ChunkedCode, "run", watched)
    monkeypatch.setattr(compiled, "MOST_BYTES", num_bytes)
    return seen


@pytest.mark.usefixtures("kernels")
@pytest.mark.parametrize(
    "reduce", ["softmax", "of its own", *(pytest.param(r, marks=thorough) for r in ("sum", "max"))]
)
def test_chunks_give_what_all_edges_give(reduce: str, monkeypatch: pytest.MonkeyPatch) -> None:
    given, g = Parameters(), graph()
    wanted = outcome(given, REDUCES[reduce], g)
    seen = cut_small(monkeypatch, 40_000)
    found = outcome(given, REDUCES[reduce], g)
    for mine, theirs in zip(found, wanted, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-9, atol=1e-10)
    assert len(seen) > 12, "forward and derivatives ran in chunks"
    assert max(seen) < NUM_EDGES / 2, "no row an edge was stored for all edges"
    assert max(seen) >= 200, "the in-edges of one vertex stay together"


@pytest.mark.usefixtures("kernels")
@pytest.mark.parametrize("reduce", ["amax", "amin"])
def test_gradients_of_extrema_find_them_among_rows_that_are_rounded_otherwise(
    reduce: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """BLAS rounds products of a few rows otherwise: none was equal to the forward's extremum, and the gradient NaN."""
    capture.forget()
    count, target = 101, torch.arange(101) // 2
    g = vgraph.graph((torch.arange(count) % 40, target))
    e, weight = torch.randn(count, 75, requires_grad=True), torch.randn(75, 300)
    g.edata["e"] = e
    g.update_all(
        lambda edges: {"m": torch.tanh(edges.data["e"] @ weight)},
        lambda nodes: {"o": getattr(nodes.mailbox["m"], reduce)(1)},
    )
    seen = cut_small(monkeypatch, 100)
    (grad,) = torch.autograd.grad(g.ndata["o"].sum(), e)
    assert max(seen) == 2
    rows = torch.tanh(e @ weight)
    whole = rows.new_zeros(g.num_nodes(), 300).scatter_reduce(
        0, target.unsqueeze(1).expand(-1, 300), rows, reduce, include_self=False
    )
    (wanted,) = torch.autograd.grad(whole.sum(), e)
    torch.testing.assert_close(grad, wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.usefixtures("kernels")
def test_masks_do_not_depend_on_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    given, g = Parameters(), graph(torch.int32)
    wanted = outcome(given, REDUCES["sum"], g, drops=True)
    seen = cut_small(monkeypatch, 30_000)
    found = outcome(given, REDUCES["sum"], g, drops=True)
    assert seen
    for mine, theirs in zip(found, wanted, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-9, atol=1e-10)


@pytest.mark.usefixtures("kernels")
def test_rows_of_edges_that_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    given, g = Parameters(), graph()
    g.ndata["h"], g.edata["e"] = given.h, given.e
    g.apply_edges(given.message)
    wanted = g.edata["m"]
    (grad,) = torch.autograd.grad(wanted.square().sum(), given.first)
    seen = cut_small(monkeypatch, 30_000)
    capture.forget()
    g.apply_edges(given.message)
    torch.testing.assert_close(g.edata["m"], wanted)
    torch.testing.assert_close(torch.autograd.grad(g.edata["m"].square().sum(), given.first)[0], grad)
    assert seen


def test_two_runs_are_bitwise_equal(monkeypatch: pytest.MonkeyPatch) -> None:
    given, g = Parameters(), graph()
    cut_small(monkeypatch, 40_000)
    one, two = (outcome(given, REDUCES["softmax"], g) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(one, two, strict=True))


def test_a_function_that_mixes_edges_runs_on_all_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    g, seen = graph(), cut_small(monkeypatch, 1000)
    g.edata["e"] = torch.rand(NUM_EDGES, 3)
    capture.forget()
    g.apply_edges(lambda edges: {"m": edges.data["e"].cumsum(0)})
    torch.testing.assert_close(g.edata["m"], g.edata["e"].cumsum(0))
    assert not seen


@pytest.mark.usefixtures("kernels")
def test_flows_keep_the_order_of_their_frontiers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks of edges in the order of their ids, kept with the graph, are not those of a flow."""
    chance = torch.Generator().manual_seed(2)
    ends = torch.randint(NUM_NODES, (2, 400), generator=chance)
    ends = ends[:, ends[0] != ends[1]]
    g = vgraph.graph((ends.max(0).values, ends.min(0).values), num_nodes=NUM_NODES)  # leaves have the largest ids
    weight = torch.randn(3, 3, dtype=torch.float64, generator=chance).requires_grad_()
    h = torch.randn(NUM_NODES, 3, dtype=torch.float64, generator=chance)
    e = torch.randn(g.num_edges(), 3, dtype=torch.float64, generator=chance)

    def run() -> list[Tensor]:
        capture.forget()
        g.ndata["h"], g.ndata["k"], g.edata["e"] = h, h.cos(), e
        vgraph.prop_nodes_topo(
            g, lambda x: {"m": 0.1 * x.src["h"] + ((x.data["e"] + x.dst["k"]) @ weight).cumsum(1)},
            lambda v: {"h": v.mailbox["m"].mean(1)},
        )  # fmt: skip
        return [g.ndata["h"], *torch.autograd.grad(g.ndata["h"].sum(), weight)]

    wanted = run()
    seen = cut_small(monkeypatch, 1000)
    g.update_all(lambda x: {"m": ((x.data["e"] + x.dst["k"]) @ weight).cumsum(1)}, fn.sum("m", "s"))
    assert seen
    for mine, theirs in zip(run(), wanted, strict=True):
        torch.testing.assert_close(mine, theirs)
