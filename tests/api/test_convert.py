"""Conversions: NetworkX and SciPy there and back, self-loops."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest
import scipy.sparse
import torch
from hypothesis import given
from hypothesis import strategies as st

import vgraph
from vgraph.errors import FeatureError, GraphError, NameLookupError


@st.composite
def edge_lists(draw: st.DrawFn) -> tuple[list[int], list[int], int]:
    num_nodes = draw(st.integers(1, 7))
    ids = st.integers(0, num_nodes - 1)
    edges = draw(st.lists(st.tuples(ids, ids), max_size=15))
    return [u for u, _ in edges], [v for _, v in edges], num_nodes


def ends(g: vgraph.Graph) -> tuple[list[int], list[int]]:
    src, dst = g.coo()
    return src.tolist(), dst.tolist()


# ---------------------------------------------------------------- self-loops


def test_self_loops_are_added_last() -> None:
    g = vgraph.graph(([0, 1], [1, 1]), num_nodes=3)
    g.ndata["h"] = torch.ones(3)
    g.edata["w"] = torch.zeros(2, 2, requires_grad=True)
    g.edata["k"] = torch.zeros(2, dtype=torch.int32)
    looped = vgraph.add_self_loop(g)
    assert ends(looped) == ([0, 1, 0, 1, 2], [1, 1, 0, 1, 2])
    assert looped.ndata["h"] is g.ndata["h"]
    assert looped.edata["w"].tolist() == [[0, 0]] * 2 + [[1, 1]] * 3
    assert looped.edata["w"].requires_grad
    assert looped.edata["k"].tolist() == [0, 0, 1, 1, 1]
    assert vgraph.add_self_loop(g, fill_data=5).edata["k"].tolist() == [0, 0, 5, 5, 5]
    assert g.num_edges() == 2


def test_self_loops_are_removed() -> None:
    g = vgraph.graph(([0, 1, 2, 0], [1, 1, 2, 2]), idtype=torch.int32)
    g.edata["w"] = torch.arange(4.0, requires_grad=True)
    bare = vgraph.remove_self_loop(g)
    assert ends(bare) == ([0, 0], [1, 2])
    assert bare.idtype == torch.int32
    assert bare.edata["w"].tolist() == [0, 3]
    (grad,) = torch.autograd.grad(bare.edata["w"].sum(), g.edata["w"])
    assert grad.tolist() == [1, 0, 0, 1]


@given(edge_lists())
def test_self_loops_there_and_back(edges: tuple[list[int], list[int], int]) -> None:
    src, dst, num_nodes = edges
    g = vgraph.graph((src, dst), num_nodes=num_nodes)
    bare = vgraph.remove_self_loop(g)
    assert ends(vgraph.remove_self_loop(vgraph.add_self_loop(g))) == ends(bare)
    looped = vgraph.add_self_loop(bare)
    assert looped.num_edges() == bare.num_edges() + num_nodes
    assert all(looped.has_edges_between(v, v) for v in range(num_nodes))


def test_a_batch_stays_a_batch() -> None:
    pair = vgraph.graph(([0, 0], [1, 0]))
    g = vgraph.batch([pair, pair])
    g.gdata["q"] = torch.ones(2)
    assert vgraph.add_self_loop(g).batch_num_edges().tolist() == [4, 4]
    bare = vgraph.remove_self_loop(g)
    assert bare.batch_num_edges().tolist() == [1, 1]
    assert list(bare.gdata) == ["q"]


def test_reverse() -> None:
    g = vgraph.graph(([0, 2, 0], [1, 1, 2]))
    g.ndata["h"], g.edata["w"], g.gdata["q"] = torch.ones(3), torch.ones(3), torch.ones(1)
    turned = vgraph.reverse(g)
    assert ends(turned) == ([1, 1, 2], [0, 2, 0])
    assert turned.ndata["h"] is g.ndata["h"]
    assert (list(turned.edata), list(turned.gdata)) == ([], ["q"])
    both = vgraph.reverse(g, copy_ndata=False, copy_edata=True)
    assert (list(both.ndata), list(both.edata)) == ([], ["w"])
    assert turned.reverse().topology is g.topology


# ---------------------------------------------------------------- NetworkX


@given(edge_lists())
def test_networkx_round_trip(edges: tuple[list[int], list[int], int]) -> None:
    src, dst, num_nodes = edges
    g = vgraph.graph((src, dst), num_nodes=num_nodes)
    g.ndata["h"] = torch.randn(num_nodes, 2)
    g.edata["w"] = torch.randn(len(src))
    made = vgraph.to_networkx(g, node_attrs=["h"], edge_attrs=["w"])
    assert (made.number_of_nodes(), made.number_of_edges()) == (num_nodes, len(src))
    back = vgraph.from_networkx(made, ["h"], ["w"] if src else None, edge_id_attr_name="id")
    assert ends(back) == (src, dst)
    assert torch.equal(back.ndata["h"], g.ndata["h"])
    assert not src or torch.equal(back.edata["w"], g.edata["w"])


def test_undirected_edges_become_two() -> None:
    graph: Any = nx.Graph()
    graph.add_edge(1, 0, w=2.5)
    graph.add_edge(2, 2, w=1.0)
    g = vgraph.from_networkx(graph, edge_attrs=["w"])
    assert sorted(zip(*ends(g), g.edata["w"].tolist(), strict=True)) == [
        (0, 1, 2.5),
        (1, 0, 2.5),
        (2, 2, 1.0),
    ]


def test_names_are_numbered_in_order() -> None:
    graph: Any = nx.DiGraph([("c", "a"), ("b", "c")])
    assert ends(vgraph.from_networkx(graph)) == ([2, 1], [0, 2])
    mixed: Any = nx.DiGraph([("c", 7), (7, "b")])
    assert ends(vgraph.from_networkx(mixed)) == ([0, 1], [1, 2])


def test_attributes_of_every_kind() -> None:
    ones = np.ones(2)
    ones.flags.writeable = False
    graph: Any = nx.DiGraph()
    graph.add_node(1, k=1, x=1.5, b=True, a=ones, t=torch.ones(3))
    graph.add_node(0, k=2, x=2, b=False, a=np.zeros(2), t=torch.zeros(3))
    g = vgraph.from_networkx(graph, ["k", "x", "b", "a", "t"], idtype=torch.int32)
    assert g.idtype == torch.int32
    assert g.ndata["k"].tolist() == [2, 1]
    assert g.ndata["x"].tolist() == [2, 1.5]
    assert g.ndata["b"].tolist() == [False, True]
    assert g.ndata["a"].dtype == torch.float64
    assert g.ndata["t"].tolist() == [[0] * 3, [1] * 3]


@pytest.mark.parametrize(
    ("attributes", "error", "fact"),
    [
        ([{"x": 1}, {}], NameLookupError, "node 1 has no attribute 'x'"),
        (
            [{"x": 1}, {"x": "red"}],
            FeatureError,
            "attribute 'x' of node 1 is 'red', which is no number",
        ),
        ([{"x": [1, 2]}, {"x": [1]}], FeatureError, "of node 1 has shape (1,); the first has (2,)"),
    ],
)
def test_wrong_attributes(attributes: list[Any], error: type[Exception], fact: str) -> None:
    graph: Any = nx.DiGraph()
    graph.add_nodes_from(enumerate(attributes))
    with pytest.raises(error) as caught:
        vgraph.from_networkx(graph, node_attrs=["x"])
    assert fact in str(caught.value)
    assert Path(__file__).name in str(caught.value)


def test_edge_ids() -> None:
    graph: Any = nx.MultiDiGraph()
    graph.add_edge(0, 1, id=2)
    graph.add_edge(0, 1, id=0)
    graph.add_edge(1, 2, id=1)
    assert ends(vgraph.from_networkx(graph, edge_id_attr_name="id")) == ([0, 1, 0], [1, 2, 1])
    graph.add_edge(2, 0, id=7)
    with pytest.raises(GraphError, match="edge attribute 'id' does not number the edges 0 to 3"):
        vgraph.from_networkx(graph, edge_id_attr_name="id")
    with pytest.raises(NameLookupError, match=r"edge \(0, 1\) has no attribute 'no'"):
        vgraph.from_networkx(graph, edge_id_attr_name="no")
    with pytest.raises(GraphError, match="an undirected edge becomes two, which cannot share an id"):
        vgraph.from_networkx(nx.path_graph(3), edge_id_attr_name="id")


def test_networkx_names_of_features() -> None:
    g = vgraph.graph(([0], [1]))
    with pytest.raises(NameLookupError, match="there is no node feature 'h'"):
        vgraph.to_networkx(g, node_attrs=["h"])
    assert dict(vgraph.to_networkx(g).nodes(data=True)) == {0: {}, 1: {}}


# ---------------------------------------------------------------- SciPy


@given(edge_lists(), st.sampled_from(["csr", "csc", "coo", "lil"]))
def test_scipy_round_trip(edges: tuple[list[int], list[int], int], form: str) -> None:
    src, dst, num_nodes = edges
    g = vgraph.graph((src, dst), num_nodes=num_nodes)
    matrix = g.to_scipy().asformat(form)
    back = vgraph.from_scipy(matrix, eweight_name="count")
    assert back.idtype == torch.int64
    assert back.num_nodes() == num_nodes
    pairs = list(zip(src, dst, strict=True))
    counted = zip(*ends(back), back.edata["count"].tolist(), strict=True)
    assert {(u, v): n for u, v, n in counted} == {pair: pairs.count(pair) for pair in pairs}


def test_scipy_arrays_and_dtypes() -> None:
    array = scipy.sparse.coo_array((np.array([2.5, 0.5], np.float32), ([0, 0], [1, 1])), shape=(2, 2))
    g = vgraph.from_scipy(array, "w", idtype=torch.int32)
    assert ends(g) == ([0, 0], [1, 1])
    assert g.idtype == torch.int32
    assert g.edata["w"].tolist() == [2.5, 0.5]
    assert g.edata["w"].dtype == torch.float32


def test_dtype_and_device_may_stand_where_dgl_has_them() -> None:
    matrix, cpu = scipy.sparse.csr_matrix(np.eye(2, k=1)), torch.device("cpu")
    assert vgraph.from_scipy(matrix, None, torch.int32, cpu).idtype == torch.int32
    assert vgraph.from_networkx(nx.path_graph(2), None, None, None, torch.int32, cpu).idtype == torch.int32


@pytest.mark.parametrize(
    ("matrix", "fact"),
    [
        (np.eye(2), r"a ndarray of shape \(2, 2\) is no square sparse matrix"),
        (scipy.sparse.csr_matrix((2, 3)), r"a csr_matrix of shape \(2, 3\) is no square"),
        (None, "a NoneType of shape None"),
    ],
)
def test_wrong_matrices(matrix: Any, fact: str) -> None:
    with pytest.raises(GraphError, match=fact) as caught:
        vgraph.from_scipy(matrix)
    assert Path(__file__).name in str(caught.value)


def test_types_of_one_name_are_refused() -> None:
    g = vgraph.graph(([0, 1], [2, 2]))
    g.ndata["_TYPE"], g.edata["_TYPE"] = torch.tensor([0, 0, 1]), torch.tensor([0, 1])
    for ntypes, etypes in ((["a", "a"], ["x", "y"]), (["a", "b"], ["x", "x"])):
        with pytest.raises(GraphError, match="two types of"):
            vgraph.to_heterogeneous(g, ntypes, etypes)
    assert vgraph.to_heterogeneous(g, ["a", "b"], ["x", "y"]).num_edges() == 2
