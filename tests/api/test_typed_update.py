"""Messages of several edge types, subsets of them, and send and recv apart."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import vgraph
import vgraph.function as fn
from vgraph.errors import FunctionError, NameLookupError

FOLLOWS, PLAYS, MAKES = ("u", "follows", "u"), ("u", "plays", "g"), ("d", "makes", "g")


def example(idtype: torch.dtype = torch.int64) -> vgraph.Graph:
    edges: Any = {FOLLOWS: ([0, 1, 1], [1, 2, 0]), PLAYS: ([0, 2, 2], [1, 0, 1]), MAKES: ([0], [1])}
    g = vgraph.heterograph(edges, {"u": 3, "g": 3, "d": 2}, idtype)
    g.ndata["h"] = {t: torch.arange(1.0, 1 + g.num_nodes(t)).unsqueeze(1) for t in g.ntypes}
    return g


WAY = (fn.copy_u("h", "m"), fn.sum("m", "s"))


@pytest.mark.parametrize("idtype", [torch.int64, torch.int32])
@pytest.mark.parametrize(
    ("reducer", "wanted"),
    [
        ("sum", [[3.0], [5.0], [0.0]]),
        ("mean", [[1.5], [2.5], [0.0]]),
        ("max", [[3.0], [4.0], [0.0]]),
        ("min", [[0.0], [1.0], [0.0]]),
        ("stack", [[[0.0], [3.0]], [[1.0], [4.0]], [[0.0], [0.0]]]),
        (lambda rows: rows[0] - rows[1], [[-3.0], [-3.0], [0.0]]),
    ],
)
def test_what_arrives_along_several_types(reducer: Any, wanted: Any, idtype: torch.dtype) -> None:
    g = example(idtype)
    g.multi_update_all({"plays": WAY, MAKES: WAY, "follows": WAY}, reducer)
    assert g.nodes["g"].data["s"].tolist() == wanted
    assert g.nodes["u"].data["s"].reshape(-1).tolist() == [2.0, 1.0, 2.0]


def test_apply_functions_and_python_functions() -> None:
    g = example()

    def halve(nodes: Any) -> dict[str, Tensor]:
        return {"s": nodes.data["s"] / 2}

    def weigh(edges: Any) -> dict[str, Tensor]:
        return {"m": edges.src["h"] * 10}

    first = (weigh, lambda nodes: {"s": nodes.mailbox["m"].sum(1)}, halve)
    g.multi_update_all({"plays": first, "makes": WAY}, "sum", lambda nodes: {"t": nodes.data["s"] + 1})
    assert g.nodes["g"].data["t"].tolist() == [[16.0], [22.0], [1.0]]


def test_a_type_without_edges_counts_as_zeros() -> None:
    g = vgraph.heterograph({("a", "x", "b"): ([0], [0]), ("a", "y", "b"): ([], [])}, {"a": 1, "b": 2})
    g.nodes["a"].data["h"] = torch.ones(1, 1)
    g.multi_update_all({"x": WAY, "y": WAY}, "mean")
    assert g.nodes["b"].data["s"].tolist() == [[0.5], [0.0]]


def test_gradients_flow_through_all_types() -> None:
    g = example()
    h = torch.ones(3, 1, requires_grad=True)
    g.nodes["u"].data["h"] = h
    g.multi_update_all({"follows": WAY, "plays": WAY}, "sum")
    (g.nodes["u"].data["s"].sum() + g.nodes["g"].data["s"].sum()).backward()
    assert h.grad is not None
    assert h.grad.tolist() == [[2.0], [2.0], [2.0]]


def test_one_type_at_a_time() -> None:
    g = example()
    g.update_all(*WAY, etype="plays")
    assert "s" not in g.nodes["u"].data
    g.apply_edges(fn.u_add_v("h", "h", "e"), etype="plays")
    assert g.edges["plays"].data["e"].tolist() == [[3.0], [4.0], [5.0]]
    assert list(g.edges["makes"].data) == []
    g["makes"].update_all(fn.copy_u("h", "m"), fn.max("m", "t"))
    assert g.nodes["g"].data["t"].tolist() == [[0.0], [1.0], [0.0]]
    g.apply_nodes(lambda nodes: {"n": nodes.data["h"] + 1}, ntype="d")
    assert g.nodes["d"].data["n"].tolist() == [[2.0], [3.0]]


def test_subsets_touch_only_what_they_are_given() -> None:
    g = example()
    g.nodes["g"].data["s"] = torch.full((3, 1), -1.0)
    g.pull([2, 0], *WAY, etype="plays")
    assert g.nodes["g"].data["s"].tolist() == [[3.0], [-1.0], [0.0]]
    g.push([0], *WAY, etype="plays")
    assert g.nodes["g"].data["s"].tolist() == [[3.0], [1.0], [0.0]]
    g.send_and_recv([2], *WAY, etype="plays")
    assert g.nodes["g"].data["s"].tolist() == [[3.0], [3.0], [0.0]]


def test_send_and_recv_apart() -> None:
    g = vgraph.graph(([0, 1, 2, 0], [3, 3, 4, 4]), num_nodes=5)
    g.ndata["h"] = torch.arange(1.0, 6.0)
    g.send([0, 2], fn.copy_u("h", "m"))
    g.send([0, 1], lambda edges: {"m": edges.src["h"] * 10})
    g.recv([3], fn.sum("m", "h"))
    assert g.ndata["h"].tolist() == [1.0, 2.0, 3.0, 30.0, 5.0]
    g.recv(None, lambda nodes: {"h": nodes.mailbox["m"].sum(1) + nodes.data["h"]})
    assert g.ndata["h"].tolist() == [1.0, 2.0, 3.0, 30.0, 8.0]
    g.recv(None, fn.sum("m", "h"), lambda nodes: {"done": nodes.data["h"] > 2})
    assert g.ndata["h"].tolist() == [1.0, 2.0, 3.0, 30.0, 8.0]
    assert g.ndata["done"].tolist() == [False, False, True, True, True]


def test_messages_that_do_not_fit() -> None:
    g = vgraph.graph(([0, 1], [2, 2]))
    g.ndata["h"] = torch.ones(3)
    g.send([0], fn.copy_u("h", "m"))
    with pytest.raises(FunctionError, match=r"messages \['k'\] do not fit those that lie there: \['m'\]"):
        g.send([1], fn.copy_u("h", "k"))
    with g.local_scope():
        g.recv([2], fn.sum("m", "h"))
    g.recv([2], fn.sum("m", "s"))  # a scope gives messages back, too
    assert g.ndata["s"].tolist() == [0.0, 0.0, 1.0]


def test_refusals() -> None:
    g = example()
    with pytest.raises(FunctionError, match="there is no cross reducer 'median'"):
        g.multi_update_all({"plays": WAY}, "median")
    with pytest.raises(FunctionError, match="has no message and reduce function"):
        g.multi_update_all({"plays": WAY[:1]}, "sum")
    with pytest.raises(NameLookupError, match="there is no edge type 'buys'"):
        g.multi_update_all({"buys": WAY}, "sum")
