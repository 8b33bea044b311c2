"""What a function of edges or nodes sets in its batch: seen in the call, and features of edges stay, as in DGL."""

from __future__ import annotations

import logging
from typing import Any

import pytest
import torch
from torch import Tensor

import vgraph
import vgraph.function as fn
from vgraph.errors import FunctionError


def made(dst: tuple[int, ...] = (1, 2, 2)) -> vgraph.Graph:
    g = vgraph.graph(([0, 1, 2], list(dst)), num_nodes=4)
    g.ndata["h"] = torch.tensor([1.0, 2.0, 3.0, 4.0], requires_grad=True)
    g.edata["w"] = torch.zeros(3)
    return g


def message(edges: Any) -> dict[str, Tensor]:
    edges.data["w"] = edges.data["w"] + edges.src["h"] * 5
    edges.data["new"] = edges.dst["h"].square()
    edges.src["lost"] = edges.src["h"]
    return {"m": edges.data["w"] + edges.src["lost"]}


def uncaptured(edges: Any) -> dict[str, Tensor]:
    assert float(edges.src["h"].sum()) > 0
    return message(edges)


def reduce(nodes: Any) -> dict[str, Tensor]:
    nodes.data["k"] = nodes.mailbox["m"].sum(1)
    return {"s": nodes.data["k"] * 2, "names": torch.full((nodes.batch_size(),), float("k" in nodes.data))}


@pytest.mark.parametrize("send", [message, uncaptured])
@pytest.mark.parametrize("take", [reduce, fn.sum("m", "s")])
def test_update_all_keeps_what_a_message_function_sets_on_edges(send: Any, take: Any) -> None:
    g = made()
    g.update_all(send, take, lambda nodes: {"s": nodes.data["s"] + 1})
    factor = 2 if take is reduce else 1
    assert g.ndata["s"].tolist() == [1, 6 * factor + 1, 30 * factor + 1, 1]
    assert g.edata["w"].tolist() == [5, 10, 15] and g.edata["new"].tolist() == [4, 9, 9]
    assert "lost" not in g.ndata and "k" not in g.ndata and sorted(g.edata) == ["new", "w"]
    (slope,) = torch.autograd.grad(g.ndata["s"].sum() + g.edata["new"].sum(), g.ndata["h"])
    assert slope.tolist() == [6 * factor, 6 * factor + 4, 6 * factor + 12, 0]
    g.update_all(send, take)  # what was set is read by the next call
    assert g.edata["w"].tolist() == [10, 20, 30]


@pytest.mark.parametrize("send", [message, uncaptured])
def test_apply_edges_keeps_it_on_all_edges_and_not_on_some(send: Any) -> None:
    g = made()
    g.apply_edges(send)
    assert g.edata["w"].tolist() == [5, 10, 15] and g.edata["m"].tolist() == [6, 12, 18] and "new" in g.edata
    g = made()
    g.apply_edges(send, edges=[1])
    assert g.edata["w"].tolist() == [0, 0, 0] and g.edata["m"].tolist() == [0, 12, 0] and "new" not in g.edata


def test_parts_of_a_graph_and_scopes_leave_the_features_alone() -> None:
    g = made()
    for call in (
        lambda: g.pull([2], message, fn.sum("m", "s")),
        lambda: g.push([1], message, fn.sum("m", "s")),
        lambda: g.send_and_recv([1, 2], message, fn.sum("m", "s")),
    ):
        call()
        assert g.edata["w"].tolist() == [0, 0, 0] and list(g.edata) == ["w"]
    assert g.ndata["s"].tolist() == [0, 0, 30, 0]
    with g.local_scope():
        g.update_all(message, fn.sum("m", "s"))
        assert g.edata["w"].tolist() == [5, 10, 15]
    assert g.edata["w"].tolist() == [0, 0, 0]


def test_a_topological_walk_with_such_a_function_is_a_loop_of_pulls() -> None:
    g, other = made((1, 2, 3)), made((1, 2, 3))
    vgraph.prop_nodes_topo(g, message, fn.sum("m", "h"))
    for nodes in vgraph.topological_nodes_generator(other)[1:]:
        other.pull(nodes, message, fn.sum("m", "h"))
    assert g.ndata["h"].tolist() == other.ndata["h"].tolist() and g.edata["w"].tolist() == [0, 0, 0]


def test_several_types_and_nodes() -> None:
    g = vgraph.heterograph({("a", "r", "b"): ([0, 1], [0, 0]), ("b", "s", "b"): ([0], [0])})
    g.nodes["a"].data["h"], g.nodes["b"].data["h"] = torch.ones(2), torch.ones(1)
    g.edges["r"].data["w"] = torch.zeros(2)
    g.multi_update_all({"r": (message, fn.sum("m", "s")), "s": (fn.copy_u("h", "m"), fn.sum("m", "s"))}, "sum")
    assert g.nodes["b"].data["s"].tolist() == [13] and g.edges["r"].data["w"].tolist() == [5, 5]

    def doubled(nodes: Any) -> dict[str, Tensor]:
        nodes.data["h"] = nodes.data["h"] * 2
        return {"y": nodes.data["h"]}

    g.apply_nodes(doubled, ntype="a")
    assert g.nodes["a"].data["y"].tolist() == [2, 2] and g.nodes["a"].data["h"].tolist() == [1, 1]


def test_why_it_takes_two_steps_is_not_a_fall_back(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "vgraph"):
        made().update_all(message, fn.sum("m", "s"))
    assert "uncaptured" not in caplog.text and "degree by degree" not in caplog.text


@pytest.mark.parametrize("rows", [lambda edges: torch.ones(2), lambda edges: 3.0])
def test_what_is_set_has_one_row_an_edge(rows: Any) -> None:
    def wrong(edges: Any) -> dict[str, Tensor]:
        edges.data["w"] = rows(edges)
        return {"m": edges.src["h"]}

    g = made()
    with pytest.raises(FunctionError, match=r"'edges\.data:w' from wrong is .*\n.*\n?.*one row for each"):
        g.update_all(wrong, fn.sum("m", "s"))
    assert g.edata["w"].tolist() == [0, 0, 0] and "s" not in g.ndata


def test_nothing_is_removed_inside() -> None:
    def wrong(edges: Any) -> dict[str, Tensor]:
        del edges.data["w"]
        return {"m": edges.src["h"]}

    with pytest.raises(FunctionError, match="'w' is removed inside a function of rows"):
        made().apply_edges(wrong)
