"""Errors of message passing: the fact, the user's own line, the cure; and nothing is changed."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import vgraph
import vgraph.function as fn
from tests.api.agreement import DST, SRC
from vgraph.errors import FunctionError, GraphError, NameLookupError, VGraphError


def make_graph() -> vgraph.Graph:
    g = vgraph.graph((SRC, DST), num_nodes=7)
    g.ndata["x"] = torch.randn(7, 3)
    g.edata["w"] = torch.randn(len(SRC), 3)
    return g


def no_dict(batch: Any) -> Any:
    return batch.data["w"] if hasattr(batch, "src") else batch.data["x"]


def no_tensor(batch: Any) -> Any:
    return {"m": 3, "out": 3}


def wrong_rows(batch: Any) -> Any:
    return {"m": torch.zeros(5, 3), "out": torch.zeros(5, 3)}


def no_rows(batch: Any) -> Any:
    return {"m": torch.zeros(()), "out": torch.zeros(())}


def other_message(nodes: Any) -> Any:
    return {"out": nodes.mailbox["message"].sum(1)}


def missing_source(edges: Any) -> Any:
    return {"m": edges.src["y"]}


def missing_edge(edges: Any) -> Any:
    return {"m": edges.data["x"]}


def missing_node(nodes: Any) -> Any:
    return {"out": nodes.data["w"]}


COPY, SUM = fn.copy_u("x", "m"), fn.sum("m", "out")
BAD: list[tuple[Any, Any, type[VGraphError], str, str]] = [
    (no_dict, SUM, FunctionError, "no_dict returned Tensor, not a dict", 'return {"name": tensor}'),
    (no_tensor, SUM, FunctionError, "'m' from no_tensor is int", "edges.batch_size"),
    (wrong_rows, SUM, FunctionError, r"'m' from wrong_rows is \(5, 3\)", "each of 12 edges"),
    (no_rows, SUM, FunctionError, r"'m' from no_rows is \(\)", "one row"),
    (COPY, no_dict, FunctionError, "no_dict returned Tensor, not a dict", 'return {"name": tensor}'),
    (COPY, no_tensor, FunctionError, "'m' from no_tensor is int", "one row"),
    (COPY, wrong_rows, FunctionError, r"'m' from wrong_rows is \(5, 3\)", "nodes"),
    (COPY, other_message, NameLookupError, "no message 'message'", r"one of \['m'\] is there"),
    (missing_source, SUM, NameLookupError, "no feature at the source 'y'", r"\['x'\]"),
    (missing_edge, SUM, NameLookupError, "no edge feature 'x'", r"\['w'\]"),
    (COPY, missing_node, NameLookupError, "no feature at the destination 'w'", r"\['x'\]"),
]


@pytest.mark.parametrize("partly", [False, True])
@pytest.mark.parametrize("case", BAD, ids=lambda case: case[3])
def test_bad_functions(case: tuple[Any, Any, type[VGraphError], str, str], partly: bool) -> None:
    message, reduce, kind, fact, cure = case
    g = make_graph()
    before = {name: column.clone() for name, column in g.ndata.items()}
    if partly and "12 edges" in cure:
        cure = "edges"
    for _ in range(2):  # the second time it is no less clear
        with pytest.raises(kind, match=fact) as caught:
            if partly:
                g.send_and_recv([0, 1, 2], message, reduce)
            else:
                g.update_all(message, reduce)
        text = str(caught.value)
        assert "cure: " in text
        with pytest.raises(VGraphError, match=cure):
            raise caught.value
        mine = [f for f in (message, reduce) if f.__name__ in text and f.__name__ != "<lambda>"]
        if mine:
            assert f"{__file__}:{mine[0].__code__.co_firstlineno}" in text
    assert set(g.ndata) == {"x"}
    assert set(g.edata) == {"w"}
    assert all(torch.equal(g.ndata[name], column) for name, column in before.items())


def test_missing_names_give_the_users_line() -> None:
    g = make_graph()
    for message, reduce in ((missing_source, SUM), (COPY, other_message)):
        with pytest.raises(NameLookupError) as caught:
            g.update_all(message, reduce)
        mine = message if message is missing_source else reduce
        assert f"{__file__}:{mine.__code__.co_firstlineno + 1}" in str(caught.value)


def test_a_feature_that_comes_later_is_found() -> None:
    g = make_graph()
    with pytest.raises(NameLookupError):
        g.update_all(missing_source, SUM)
    g.ndata["y"] = torch.ones(7, 3)
    g.update_all(missing_source, SUM)
    assert g.ndata["out"].sum() == 3 * len(SRC)


def fails(edges: Any) -> Any:
    return {"m": edges.src["x"] @ torch.ones(7, 2)}  # no such shape


def raises(nodes: Any) -> Any:
    if nodes.mailbox["m"].shape[1] > 2:
        raise ZeroDivisionError("as the user wrote it")
    return {"out": nodes.mailbox["m"].sum(1)}


@pytest.mark.parametrize(
    ("message", "reduce", "kind", "line"),
    [(fails, SUM, RuntimeError, 1), (COPY, raises, ZeroDivisionError, 2)],
)
def test_exceptions_of_the_user_keep_their_line(message: Any, reduce: Any, kind: type[Exception], line: int) -> None:
    g = make_graph()
    with pytest.raises(kind) as caught:
        g.update_all(message, reduce)
    mine = message if message is fails else reduce
    lines = [(str(entry.path), entry.lineno + 1) for entry in caught.traceback]
    assert (__file__, mine.__code__.co_firstlineno + line) in lines
    assert set(g.ndata) == {"x"}


def test_apply_functions() -> None:
    g = make_graph()
    with pytest.raises(FunctionError, match="no_dict returned"):
        g.apply_edges(no_dict)
    with pytest.raises(FunctionError, match="'m' from wrong_rows"):
        g.apply_edges(wrong_rows)
    with pytest.raises(NameLookupError, match="no feature 'w'"):
        g.apply_nodes(missing_node)
    with pytest.raises(FunctionError, match="'m' from wrong_rows"):
        g.apply_nodes(wrong_rows)
    with pytest.raises(FunctionError, match="no_dict returned"):
        g.update_all(COPY, SUM, no_dict)
    assert set(g.ndata) == {"x"}
    assert set(g.edata) == {"w"}


@pytest.mark.parametrize("edges", [[0, 12], [-1], [0.5], [2**40]])
def test_bad_edge_ids(edges: list[Any]) -> None:
    g = make_graph()
    with pytest.raises(GraphError, match="from 0 to 11"):
        g.send_and_recv(edges, COPY, SUM)
    with pytest.raises(GraphError, match="eid"):
        g.apply_edges(COPY, edges)


@pytest.mark.parametrize("nodes", [[0, 7], [-1], [0.5]])
@pytest.mark.parametrize("name", ["pull", "push", "apply_nodes"])
def test_bad_node_ids(name: str, nodes: list[Any]) -> None:
    g = make_graph()
    with pytest.raises(GraphError, match="from 0 to 6"):
        if name == "apply_nodes":
            g.apply_nodes(lambda n: {"y": n.data["x"]}, nodes)
        else:
            getattr(g, name)(nodes, COPY, SUM)
    assert set(g.ndata) == {"x"}


def test_a_mask_of_another_length() -> None:
    with pytest.raises(GraphError, match="12 edges"):
        make_graph().send_and_recv(torch.ones(5, dtype=torch.bool), COPY, SUM)


def degree_shaped(nodes: Any) -> Any:
    return {"out": nodes.mailbox["m"].flatten(1)}


def test_shapes_that_depend_on_the_degree() -> None:
    with pytest.raises(FunctionError, match="not the same shape for every degree"):
        make_graph().update_all(COPY, degree_shaped)


@pytest.mark.parametrize("reduce", [fn.max("m", "o"), lambda v: {"o": v.mailbox["m"].softmax(1).sum(1)}])
def test_extremes_of_complex_numbers(reduce: Any) -> None:
    g = vgraph.graph(([0, 1], [1, 1]))
    g.ndata["z"] = torch.ones(2, 3, dtype=torch.complex64)
    with pytest.raises(vgraph.VGraphError, match=r"of complex numbers, which have no order(.|\n)*cure: reduce \.abs"):
        g.update_all(fn.copy_u("z", "m"), reduce)
    g.update_all(fn.copy_u("z", "m"), lambda v: {"o": v.mailbox["m"].var(1)})
    assert torch.equal(g.ndata["o"], torch.zeros(2, 3)), "a real number, as torch's"


def test_sparse_features() -> None:
    g = vgraph.graph(([0, 1], [1, 1]))
    g.ndata["s"] = torch.eye(2).to_sparse()
    with pytest.raises(vgraph.VGraphError, match=r"has the layout torch\.sparse_coo(.|\n)*cure: give it as \.to_dense"):
        g.update_all(fn.copy_u("s", "m"), fn.sum("m", "o"))
