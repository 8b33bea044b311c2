"""Propagation in an order: traversals as DGL 1.1.3 gives them, all steps of a DAG as one schedule."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

import vgraph
import vgraph.function as fn
from vgraph.errors import CycleError, GraphError

SRC, DST = [3, 0, 0, 2, 4, 0, 5, 2], [1, 1, 4, 2, 3, 1, 0, 5]


def cyclic() -> vgraph.Graph:
    return vgraph.graph((SRC, DST), num_nodes=7)


def diamond(idtype: torch.dtype = torch.int64) -> vgraph.Graph:
    return vgraph.graph(([0, 0, 1, 2, 3], [1, 2, 3, 3, 4]), idtype=idtype)


def lists(steps: list[Tensor]) -> list[list[int]]:
    return [step.tolist() for step in steps]


@pytest.mark.parametrize("idtype", [torch.int64, torch.int32])
def test_orders(idtype: torch.dtype) -> None:
    g = diamond(idtype)
    assert lists(vgraph.bfs_nodes_generator(g, 0)) == [[0], [1, 2], [3], [4]]
    assert lists(vgraph.bfs_nodes_generator(g, [0, 3])) == [[0, 3], [1, 2, 4]]
    assert lists(vgraph.bfs_nodes_generator(g, 4, reverse=True)) == [[4], [3], [1, 2], [0]]
    assert lists(vgraph.bfs_edges_generator(g, 0)) == [[0, 1], [2], [4]]
    assert lists(vgraph.topological_nodes_generator(g)) == [[0], [1, 2], [3], [4]]
    assert lists(vgraph.topological_nodes_generator(g, reverse=True)) == [[4], [3], [1, 2], [0]]
    assert lists(vgraph.dfs_edges_generator(g, 0)) == [[0], [2], [4], [1]]
    assert lists(vgraph.dfs_edges_generator(g, [0, 1])) == [[0, 2], [2, 4], [4], [1]]
    assert {step.dtype for step in vgraph.bfs_nodes_generator(g, 0)} == {idtype}


def test_orders_of_a_graph_with_cycles() -> None:
    g = cyclic()
    assert lists(vgraph.bfs_nodes_generator(g, 0)) == [[0], [1, 4], [3]]
    assert lists(vgraph.dfs_edges_generator(g, [0, 2])) == [[1, 7], [2, 6], [4, 1], [2], [4]]
    with pytest.raises(CycleError, match="has an edge to itself"):
        vgraph.topological_nodes_generator(g)


def test_labels() -> None:
    every: Any = {"has_reverse_edge": True, "has_nontree_edge": True}
    edges, labels = vgraph.dfs_labeled_edges_generator(diamond(), 0, **every)
    assert lists(edges) == [[0], [2], [4], [4], [2], [0], [1], [3], [1]]
    assert lists(labels) == [[0], [0], [0], [1], [1], [1], [0], [2], [1]]
    plain = vgraph.dfs_labeled_edges_generator(diamond(), 0, return_labels=False)
    assert lists(plain) == lists(vgraph.dfs_edges_generator(diamond(), 0))


# ---------------------------------------------------------------- all steps at once
class Cell(nn.Module):
    """A child-sum cell in DGL's words: states h and c, a plain feature x, an edge feature."""

    def __init__(self) -> None:
        super().__init__()
        self.w, self.u = nn.Linear(3, 8), nn.Linear(4, 8, bias=False)

    def message(self, edges: Any) -> dict[str, Tensor]:
        return {"h": edges.src["h"] * edges.data["w"], "c": edges.src["c"], "x": edges.src["x"]}

    def reduce(self, nodes: Any) -> dict[str, Tensor]:
        mailbox = nodes.mailbox
        weights = torch.softmax(mailbox["h"], 1)
        return {"h": (weights * mailbox["h"]).sum(1), "c": mailbox["c"].mean(1) + mailbox["x"].sum(1).sum(-1, True)}

    def apply(self, nodes: Any) -> dict[str, Tensor]:
        i, u = (self.w(nodes.data["x"]) + self.u(nodes.data["h"])).chunk(2, -1)
        c = torch.sigmoid(i) * torch.tanh(u) + nodes.data["c"]
        return {"h": torch.tanh(c), "c": c}


@st.composite
def dags(draw: st.DrawFn) -> tuple[list[int], list[int], int]:
    count = draw(st.integers(1, 9))
    pairs = draw(st.lists(st.tuples(st.integers(0, count - 1), st.integers(0, count - 1)), max_size=20))
    ordered = [(min(p), max(p)) for p in pairs if p[0] != p[1]]
    return [a for a, _ in ordered], [b for _, b in ordered], count


def with_features(edges: tuple[list[int], list[int], int]) -> vgraph.Graph:
    g = vgraph.graph((edges[0], edges[1]), num_nodes=edges[2])
    g.ndata["x"] = torch.randn(edges[2], 3, dtype=torch.float64, requires_grad=True)
    g.ndata["h"], g.ndata["c"] = (torch.randn(edges[2], 4, dtype=torch.float64, requires_grad=True) for _ in "hc")
    g.edata["w"] = torch.rand(len(edges[0]), 1, dtype=torch.float64, requires_grad=True)
    return g


def outcome(g: vgraph.Graph, cell: Cell, run: Callable[[vgraph.Graph], None]) -> list[Tensor]:
    """New features and every gradient."""
    inputs = [g.ndata["x"], g.ndata["h"], g.ndata["c"], g.edata["w"], *cell.parameters()]
    with g.local_scope():
        run(g)
        found = [g.ndata["h"], g.ndata["c"]]
    grads = torch.autograd.grad(sum((t * t).sum() for t in found), inputs, materialize_grads=True)
    return [*found, *grads]


@given(dags())
def test_one_schedule_is_a_loop_of_pulls(edges: tuple[list[int], list[int], int]) -> None:
    g, cell = with_features(edges), Cell().double()

    def at_once(g: vgraph.Graph) -> None:
        vgraph.prop_nodes_topo(g, cell.message, cell.reduce, apply_node_func=cell.apply)

    def one_by_one(g: vgraph.Graph) -> None:
        g.prop_nodes(vgraph.topological_nodes_generator(g), cell.message, cell.reduce, cell.apply)

    for ours, wanted in zip(outcome(g, cell, at_once), outcome(g, cell, one_by_one), strict=True):
        torch.testing.assert_close(ours, wanted)


REDUCTIONS: dict[str, Callable[[Any], dict[str, Tensor]]] = {
    "gates": lambda n: {"i": n.mailbox["h"].sum(1), "c": (torch.sigmoid(n.mailbox["h"]) * n.mailbox["c"]).sum(1)},
    "products": lambda n: {"i": n.mailbox["h"].sum(1), "c": (n.mailbox["h"] * n.mailbox["h"] * n.mailbox["c"]).sum(1)},
    "a state that goes nowhere": lambda n: {"i": 3 * n.mailbox["h"].sum(1), "c": n.mailbox["h"].mean(1)},
}


@pytest.mark.parametrize("name", REDUCTIONS)
def test_gradients_through_every_use_of_a_state(name: str) -> None:
    found: list[list[Tensor]] = []
    for run in (
        lambda g, *f: vgraph.prop_nodes_topo(g, *f[:2], apply_node_func=f[2]),
        lambda g, *f: vgraph.prop_nodes(g, vgraph.topological_nodes_generator(g), *f),
    ):
        torch.manual_seed(0)
        g = vgraph.graph(([0, 1, 2, 1], [2, 2, 3, 3]))
        i = torch.randn(4, 2, dtype=torch.float64, requires_grad=True)
        g.ndata["h"] = g.ndata["c"] = torch.zeros(4, 2, dtype=torch.float64)
        g.ndata["i"] = i
        run(
            g, lambda e: {"h": e.src["h"], "c": e.src["c"]}, REDUCTIONS[name],
            lambda n: {"h": torch.tanh(n.data["c"] + n.data["i"]), "c": n.data["c"] + n.data["i"]},
        )  # fmt: skip
        found.append([g.ndata["h"], *torch.autograd.grad(g.ndata["h"].sum(), i)])
    for ours, wanted in zip(*found, strict=True):
        torch.testing.assert_close(ours, wanted)


def test_it_is_one_schedule(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    g, cell = with_features((list(range(8)), list(range(1, 9)), 9)), Cell().double()
    calls: list[Any] = []
    monkeypatch.setattr(vgraph.Graph, "pull", lambda *given: calls.append(given))
    with caplog.at_level(logging.INFO, "vgraph"):
        vgraph.prop_nodes_topo(g, cell.message, cell.reduce, apply_node_func=cell.apply)
    assert (calls, caplog.records) == ([], [])


def test_second_derivatives() -> None:
    g, cell = with_features(([0, 1, 2], [2, 2, 3], 4)), Cell().double()

    def run(x: Tensor, w: Tensor) -> Tensor:
        with g.local_scope():
            g.ndata["x"], g.edata["w"] = x, w
            vgraph.prop_nodes_topo(g, cell.message, cell.reduce, apply_node_func=cell.apply)
            return g.ndata["h"].sum()

    assert torch.autograd.gradgradcheck(run, (g.ndata["x"], g.edata["w"]))


def test_what_cannot_be_captured_goes_step_by_step(caplog: pytest.LogCaptureFixture) -> None:
    g = diamond()
    g.ndata["h"] = torch.ones(5, 1)

    def strange(nodes: Any) -> dict[str, Tensor]:
        return {"h": torch.tensor(nodes.mailbox["m"].sum(1).tolist())}

    with caplog.at_level(logging.INFO, "vgraph"):
        vgraph.prop_nodes_topo(g, fn.copy_u("h", "m"), strange)
    assert g.ndata["h"].squeeze(1).tolist() == [1.0, 1.0, 1.0, 2.0, 2.0]
    assert "runs step by step" in caplog.text


def test_states_that_begin_with_apply() -> None:
    """Leaves get their state from the apply function alone, as in DGL's Tree-LSTM."""
    tree = vgraph.batch([vgraph.graph(([0, 1, 2, 3], [2, 2, 4, 4]))] * 2)
    tree.ndata["x"] = torch.arange(10.0).unsqueeze(1)
    tree.ndata["s"] = torch.zeros(10, 1)
    vgraph.prop_nodes_topo(
        tree, fn.copy_u("h", "m"), fn.sum("m", "s"),
        apply_node_func=lambda nodes: {"h": nodes.data["x"] + nodes.data["s"]},
    )  # fmt: skip
    assert tree.ndata["h"].squeeze(1).tolist() == [0.0, 1.0, 3.0, 3.0, 10.0, 5.0, 6.0, 18.0, 8.0, 35.0]


def test_other_orders() -> None:
    add = (fn.copy_u("h", "m"), fn.sum("m", "h"))
    g = diamond()
    for run in (
        lambda: vgraph.prop_nodes_bfs(g, 0, *add),
        lambda: vgraph.prop_nodes_topo(g, *add),
        lambda: g.prop_nodes([[1, 2], [3], [4]], *add),
        lambda: g.prop_edges([[0, 1], [2, 3], [4]], *add),
    ):
        g.ndata["h"] = torch.tensor([1.0, 0.0, 0.0, 0.0, 0.0])
        run()
        assert g.ndata["h"].tolist() == [1.0, 1.0, 1.0, 2.0, 2.0]
    vgraph.prop_edges_dfs(g, 0, *add)
    assert g.ndata["h"].tolist() == [1.0, 1.0, 1.0, 1.0, 1.0]
    vgraph.prop_nodes_topo(g, *add, reverse=True)
    assert g.ndata["h"].tolist() == [1.0, 1.0, 1.0, 2.0, 1.0]


def test_timing_of_a_circuit() -> None:
    """Arrival times over two types of edges, level by level: nets copy, cells add their delay and take the latest."""
    net, cell = ([0, 1, 2, 4, 4], [2, 3, 5, 6, 7]), ([2, 3, 6], [4, 4, 8])
    edges: Any = {("pin", "net", "pin"): net, ("pin", "cell", "pin"): cell}
    g = vgraph.heterograph(edges, {"pin": 9})
    delay = torch.tensor([1.0, 3.0, 5.0], requires_grad=True)
    g.edges["cell"].data["d"] = delay.unsqueeze(1)
    g.ndata["t"] = torch.zeros(9, 1)
    through_net = (fn.copy_u("t", "m"), fn.max("m", "t"))
    through_cell = (lambda e: {"m": e.src["t"] + e.data["d"]}, lambda n: {"t": n.mailbox["m"].max(1).values})
    for level, etype, way in (
        ([2, 3], "net", through_net), ([4], "cell", through_cell), ([6, 7, 5], "net", through_net),
        ([8], "cell", through_cell),
    ):  # fmt: skip
        g.pull(level, *way, etype=etype)
    assert g.ndata["t"].squeeze(1).tolist() == [0.0, 0.0, 0.0, 0.0, 3.0, 0.0, 3.0, 3.0, 8.0]
    (slope,) = torch.autograd.grad(g.ndata["t"][8].sum(), delay)
    assert slope.tolist() == [0.0, 1.0, 1.0]


def test_refusals() -> None:
    typed = vgraph.heterograph({("a", "x", "b"): ([0], [0])})
    with pytest.raises(GraphError, match="a traversal needs a graph with one type"):
        vgraph.bfs_nodes_generator(typed, 0)
    with pytest.raises(GraphError, match="is 7, where there are 7 nodes"):
        vgraph.dfs_edges_generator(cyclic(), 7)
    with pytest.raises(CycleError, match="has an edge to itself"):
        vgraph.prop_nodes_topo(cyclic(), fn.copy_u("h", "m"), fn.sum("m", "h"))
