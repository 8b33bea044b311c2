"""Graphs: how they are made, what they answer, and what every refusal says."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
import torch
from hypothesis import given
from hypothesis import strategies as st

import vgraph
from vgraph.api.graph import _restore
from vgraph.errors import DTypeError, GraphError

# an unsorted multigraph with a self-loop and an isolated node (5)
SRC, DST = [3, 0, 0, 2, 4, 0], [1, 1, 4, 2, 3, 1]


def example(idtype: torch.dtype = torch.int64) -> vgraph.Graph:
    return vgraph.graph((SRC, DST), num_nodes=6, idtype=idtype)


@st.composite
def edge_lists(draw: st.DrawFn) -> tuple[list[int], list[int], int]:
    num_nodes = draw(st.integers(1, 8))
    ids = st.integers(0, num_nodes - 1)
    edges = draw(st.lists(st.tuples(ids, ids), max_size=20))
    return [u for u, _ in edges], [v for _, v in edges], num_nodes


# ---------------------------------------------------------------- making one


@pytest.mark.parametrize(
    "ends",
    [
        (SRC, DST),
        (tuple(SRC), np.array(DST)),
        (torch.tensor(SRC), torch.tensor(DST)),
        torch.tensor([SRC, DST]),
        np.array([SRC, DST]),
        (torch.tensor(SRC, dtype=torch.int32), torch.tensor(DST)),
        (np.array(SRC, np.uint8), np.array(DST, np.int16)),
        (np.array(SRC, np.uint64), np.array(DST, np.uint64)),
    ],
)
def test_ends_of_every_kind(ends: Any) -> None:
    g = vgraph.graph(ends, num_nodes=6)
    src, dst = g.edges()
    assert (src.tolist(), dst.tolist()) == (SRC, DST)
    assert g.idtype == src.dtype == torch.int64
    assert src.is_contiguous()
    assert dst.is_contiguous()


def test_int32_is_kept() -> None:
    ends = torch.tensor([SRC, DST], dtype=torch.int32)
    assert vgraph.graph(ends).idtype == torch.int32
    assert vgraph.graph(ends.numpy()).idtype == torch.int32
    assert vgraph.graph(ends, idtype=torch.int64).idtype == torch.int64


def test_ids_are_copied() -> None:
    pairs = torch.tensor([[0, 1], [1, 2]])
    array = pairs.numpy().copy()
    array.flags.writeable = False
    g, other = vgraph.graph((pairs[:, 0], pairs[:, 1])), vgraph.graph(array)
    pairs.fill_(100)
    assert g.edges()[0].tolist() == other.edges()[0].tolist() == [0, 1]


@pytest.mark.parametrize("num_nodes", [None, 0, 3])
def test_no_edges(num_nodes: int | None) -> None:
    g = vgraph.graph(([], []), num_nodes=num_nodes)
    assert (g.num_nodes(), g.num_edges()) == (num_nodes or 0, 0)
    assert g.idtype == torch.int64
    assert g.in_degrees().tolist() == [0] * (num_nodes or 0)
    assert g.to_scipy().shape == (g.num_nodes(),) * 2
    assert g.in_edges([], "eid").tolist() == []
    assert g.csr()[0].tolist() == [0] * (g.num_nodes() + 1)


def test_no_edges_join_nothing() -> None:
    g = vgraph.graph(([], []), num_nodes=2)
    assert not g.has_edges_between(0, 1)
    assert g.batch_num_edges().tolist() == [0]


@pytest.mark.parametrize(
    ("ends", "num_nodes", "error", "fact", "cure"),
    [
        (
            ([0, 1], [1]),
            None,
            GraphError,
            "src has 2 ids and dst has 1: edge 1 has only a src",
            "every",
        ),
        (([0], [1, 2]), None, GraphError, "edge 1 has only a dst", "every edge"),
        (([0, -2], [1, 1]), None, GraphError, "src of edge 1 is -2", "number the nodes"),
        (([0, 1], [1, -7]), 9, GraphError, "dst of edge 1 is -7", "number the nodes"),
        (
            ([0, 5], [9, 1]),
            5,
            GraphError,
            "dst of edge 0 is 9 where there are 5 nodes",
            "num_nodes=10",
        ),
        (
            ([0, 5], [4, 1]),
            5,
            GraphError,
            "src of edge 1 is 5 where there are 5 nodes",
            "num_nodes=6",
        ),
        (([0.5, 1], [1, 1]), None, DTypeError, "src, which begins with 0.5, has dtype", "int64"),
        (
            ([0], torch.tensor([True])),
            None,
            DTypeError,
            "dst, which begins with True, has",
            "int64",
        ),
        ((torch.ones(0), []), None, DTypeError, "src has dtype torch.float32", "int64"),
        (([[0]], [[1]]), None, GraphError, "src has shape (1, 1); ids have one dim", "flatten"),
        ((torch.tensor(0), [1]), None, GraphError, "src has shape (); ids have one dim", "flatten"),
        ((["a"], [1]), None, DTypeError, "src begins with 'a', which is a name", "numpy.unique"),
        (([[0], [1, 2]], [1]), None, DTypeError, "src is no array of whole numbers", "a list"),
        (([2**70], [1]), None, DTypeError, "src is no array of whole numbers", "a list"),
        (([0],), None, GraphError, "given as a tuple, not as a pair", "(src, dst)"),
        ([[0, 1], [1, 2]], None, GraphError, "given as a list, not as a pair", "(src, dst)"),
        (torch.tensor(3), None, GraphError, "given as a Tensor, not as a pair", "(src, dst)"),
        (([0], [1]), -1, GraphError, "num_nodes is -1", "whole number"),
        (([0], [1]), 2.5, GraphError, "num_nodes is 2.5", "whole number"),
    ],
)
def test_wrong_ends_are_refused(ends: Any, num_nodes: Any, error: type[Exception], fact: str, cure: str) -> None:
    with pytest.raises(error) as caught:
        vgraph.graph(ends, num_nodes=num_nodes)
    text = str(caught.value)
    assert fact in text
    assert cure in text.partition("cure: ")[2]
    assert Path(__file__).name in text


def test_wrong_dtypes_and_devices_of_ids() -> None:
    with pytest.raises(DTypeError, match=r"idtype is torch\.int16"):
        vgraph.graph(([0], [1]), idtype=torch.int16)
    with pytest.raises(GraphError, match="2147483648 nodes and 1 edges cannot be numbered in int32"):
        vgraph.graph(([0], [1]), num_nodes=2**31, idtype=torch.int32)
    with pytest.raises(GraphError, match="cannot be numbered in int32"):
        vgraph.graph(([0], [1]), num_nodes=2**31).int()
    with pytest.raises(GraphError, match="src is on cpu and dst on meta"):
        vgraph.graph((torch.zeros(1).long(), torch.zeros(1, device="meta").long()))


def test_a_graph_is_not_made_by_its_class() -> None:
    with pytest.raises(GraphError, match=r"not from a tuple(.|\n)*vgraph.graph"):
        vgraph.Graph(([0], [1]))  # type: ignore[arg-type]


# ---------------------------------------------------------------- asking it


@pytest.mark.parametrize("idtype", [torch.int64, torch.int32])
def test_counts_and_degrees(idtype: torch.dtype) -> None:
    g = example(idtype)
    assert g.num_nodes() == g.number_of_nodes() == 6
    assert g.num_edges() == g.number_of_edges() == 6
    assert g.nodes().tolist() == [0, 1, 2, 3, 4, 5]
    assert g.in_degrees().tolist() == [0, 3, 1, 1, 1, 0]
    assert g.out_degrees().tolist() == [3, 0, 1, 1, 1, 0]
    assert g.in_degrees(1) == 3
    assert g.out_degrees([0, 5]).tolist() == [3, 0]
    assert {g.nodes().dtype, g.in_degrees().dtype, g.out_degrees([0]).dtype} == {idtype}
    assert (g.device.type, g.is_homogeneous, g.batch_size) == ("cpu", True, 1)
    assert g.srcdata is g.dstdata is g.ndata


def test_degrees_may_be_written_to() -> None:
    g = example()
    g.in_degrees().zero_()
    assert g.in_degrees().tolist() == [0, 3, 1, 1, 1, 0]


@pytest.mark.parametrize("idtype", [torch.int64, torch.int32])
def test_edges_in_every_form(idtype: torch.dtype) -> None:
    g = example(idtype)
    ends: Any = g.edges("all", order="srcdst")
    assert [end.tolist() for end in ends] == [
        [0, 0, 0, 2, 3, 4],
        [1, 1, 4, 2, 1, 3],
        [1, 5, 2, 3, 0, 4],
    ]
    assert {end.dtype for end in ends} == {idtype}
    assert g.all_edges("eid").tolist() == [0, 1, 2, 3, 4, 5]
    assert [end.tolist() for end in g.find_edges([4, 0])] == [[4, 3], [3, 1]]
    assert [end.tolist() for end in g.in_edges([1, 5, 4], "all")] == [
        [3, 0, 0, 0],
        [1, 1, 1, 4],
        [0, 1, 5, 2],
    ]
    assert [end.tolist() for end in g.out_edges([2, 0])] == [[2, 0, 0, 0], [2, 1, 4, 1]]
    assert g.out_edges(0, "eid").tolist() == [1, 2, 5]
    assert {end.dtype for end in g.in_edges(1, "all")} == {idtype}
    assert g.predecessors(1).tolist() == [3, 0, 0]
    assert g.successors(0).tolist() == [1, 4, 1]


def test_which_nodes_and_edges_there_are() -> None:
    g = example()
    assert g.has_nodes(5) is True
    assert g.has_nodes(6) is False
    assert g.has_nodes([-1, 0, 6]).tolist() == [False, True, False]
    assert g.has_edges_between(0, 4) is True
    assert g.has_edges_between([0, 1], [1, 0]).tolist() == [True, False]
    assert g.has_edges_between([0, 4, 2], 3).tolist() == [False, True, False]
    assert g.edge_ids(0, 1) == 1
    assert g.edge_ids([0, 2, 3], [1, 2, 1]).tolist() == [1, 3, 0]
    assert g.edge_ids([], []).tolist() == []


@pytest.mark.parametrize(
    ("ask", "fact"),
    [
        (lambda g: g.edge_ids([0, 4], [1, 5]), "there is no edge 4 -> 5"),
        (lambda g: g.edge_ids([0, 1, 2], [1, 2]), "there are 3 ids in u and 2 in v"),
        (lambda g: g.in_degrees(6), r"node ids\[0\] is 6, where there are 6 nodes"),
        (lambda g: g.has_edges_between(0, -1), "is -1, which is negative"),
        (lambda g: g.find_edges([0, 6]), r"edge ids\[1\] is 6, where there are 6 edges"),
        (lambda g: g.edges("vu"), "form is 'vu'"),
        (lambda g: g.edges(order="dst"), "order is 'dst'"),
        (lambda g: g.to_scipy(scipy_fmt="bsr"), "scipy_fmt is 'bsr'"),
    ],
)
def test_wrong_questions(ask: Any, fact: str) -> None:
    with pytest.raises(GraphError, match=fact) as caught:
        ask(example())
    assert Path(__file__).name in str(caught.value)


@given(edge_lists(), st.sampled_from([torch.int64, torch.int32]))
def test_compressed_forms_agree_with_scipy(edges: tuple[list[int], list[int], int], idtype: Any) -> None:
    src, dst, num_nodes = edges
    g = vgraph.graph((src, dst), num_nodes=num_nodes, idtype=idtype)
    shape = (num_nodes, num_nodes)
    dense = scipy.sparse.coo_matrix((np.ones(len(src)), (src, dst)), shape=shape).toarray()
    csr, csc = g.csr(), g.csc()
    assert {t.dtype for t in (*csr, *csc)} == {idtype}
    weights = torch.arange(len(src)) + 1.0
    weighed = scipy.sparse.coo_matrix((weights.numpy(), (src, dst)), shape=shape).toarray()
    for kind, (ptr, other, ids) in ((scipy.sparse.csr_matrix, csr), (scipy.sparse.csc_matrix, csc)):
        made = kind((weights[ids.long()].numpy(), other.numpy(), ptr.numpy()), shape=shape)
        assert (made.toarray() == weighed).all()
        for i in range(num_nodes):  # in order of edge ids
            group = ids[ptr[i] : ptr[i + 1]].tolist()
            assert group == sorted(group)
    for scipy_fmt in ("csr", "csc", "coo"):
        assert (g.to_scipy(scipy_fmt=scipy_fmt).toarray() == dense).all()
        assert (g.adj_external(True, scipy_fmt=scipy_fmt).toarray() == dense.T).all()


@given(edge_lists())
def test_incidence_agrees_with_the_edge_list(edges: tuple[list[int], list[int], int]) -> None:
    src, dst, num_nodes = edges
    g = vgraph.graph((src, dst), num_nodes=num_nodes)
    pairs = list(zip(src, dst, strict=True))
    for v in range(num_nodes):
        ids = [i for i, pair in enumerate(pairs) if pair[1] == v]
        assert g.in_edges(v, "eid").tolist() == ids
        assert g.predecessors(v).tolist() == [src[i] for i in ids]
        assert g.in_degrees(v) == len(ids)
        assert g.out_degrees(v) == len(g.successors(v)) == src.count(v)
        for u in range(num_nodes):
            assert g.has_edges_between(u, v) == ((u, v) in pairs)
    if pairs:
        assert g.edge_ids(src, dst).tolist() == [pairs.index(pair) for pair in pairs]


# ---------------------------------------------------------------- other graphs


def with_features(g: vgraph.Graph) -> vgraph.Graph:
    g.ndata["h"] = torch.arange(float(g.num_nodes()))
    g.edata["w"] = torch.arange(float(g.num_edges())).unsqueeze(1)
    g.gdata["q"] = torch.ones(g.batch_size, 2)
    return g


def assert_same(left: vgraph.Graph, right: vgraph.Graph) -> None:
    assert left.num_nodes() == right.num_nodes()
    assert left.idtype == right.idtype
    assert left.topology.graph_sizes == right.topology.graph_sizes
    for one, other in zip(left.coo(), right.coo(), strict=True):
        assert torch.equal(one, other)
    for one, other in (
        (left.ndata, right.ndata),
        (left.edata, right.edata),
        (left.gdata, right.gdata),
    ):
        assert list(one) == list(other)
        assert all(torch.equal(one[name], other[name]) for name in one)


def test_idtypes_and_devices() -> None:
    g = with_features(vgraph.batch([example(), example()]))
    assert g.long() is g
    assert g.cpu() is g
    assert g.to("cpu") is g
    small = g.int()
    assert small.idtype == small.nodes().dtype == torch.int32
    assert small.topology.parts is g.topology.parts
    assert_same(small.long(), g)
    moved = g.to(torch.device("meta"))
    assert moved.device == moved.ndata["h"].device == moved.gdata.device == torch.device("meta")
    moved.edata["x"] = torch.ones(12, device="meta")
    assert "device='meta'" in repr(moved)
    assert moved.batch_size == 2
    assert vgraph.graph(([0], [1]), device="meta").nodes().device.type == "meta"


def test_clones_share_the_topology() -> None:
    g = with_features(example())
    for other in (g.clone(), copy.copy(g)):
        assert_same(other, g)
        assert other.topology is g.topology
        other.ndata["h"] = torch.zeros(6)
    assert g.ndata["h"].sum() == 15


@pytest.mark.parametrize("idtype", [torch.int64, torch.int32])
def test_pickle(idtype: torch.dtype) -> None:
    g = with_features(vgraph.batch([example(idtype), example(idtype)]))
    assert_same(pickle.loads(pickle.dumps(g)), g)
    assert_same(copy.deepcopy(g), g)
    g.ndata["h"] = g.ndata["h"].requires_grad_() * 2
    assert_same(pickle.loads(pickle.dumps(g)), g)


def test_pickles_that_name_the_function_of_before() -> None:
    g = with_features(example())
    old = pickle.dumps(_AsBefore(g))
    assert b"vgraph.api.graph" in old
    assert_same(pickle.loads(old), g)


class _AsBefore:
    """Pickles as a Graph did before its data had a class of their own."""

    def __init__(self, g: vgraph.Graph) -> None:
        self.g = g

    def __reduce__(self) -> Any:
        _, (_, *parts) = self.g.__reduce__()
        return _restore, tuple(parts)


class _Named(vgraph.Graph):
    """A graph with a class of its own."""


def test_what_is_made_of_a_graph_is_of_its_class() -> None:
    g = _Named(example().topology)
    made = (
        g.reverse(), g.subgraph([0, 1]), g.line_graph(), g.long(), g.local_var(), vgraph.to_homogeneous(g),
        vgraph.batch([g, g]), *vgraph.unbatch(vgraph.batch([g, g])), vgraph.to_block(g), pickle.loads(pickle.dumps(g)),
    )  # fmt: skip
    assert {type(one) for one in made} == {_Named}


def test_pickle_of_a_view_leaves_the_rest_behind() -> None:
    big = vgraph.graph(([0], [1]), num_nodes=10_000)
    big.ndata["x"] = torch.ones(10_000, 8)
    one = vgraph.graph(([0], [1]))
    one.ndata["x"] = torch.ones(2, 8)
    part = vgraph.unbatch(vgraph.batch([big, one]))[1]
    assert len(pickle.dumps(part)) < 10_000
    assert_same(pickle.loads(pickle.dumps(part)), part)


def test_repr() -> None:
    g = with_features(vgraph.batch([example()]))
    assert repr(g) == (
        "Graph(num_nodes=6, num_edges=6, batch_size=1, ndata={'h': float32 (6,)}, "
        "edata={'w': float32 (6, 1)}, gdata={'q': float32 (1, 2)})"
    )


@pytest.mark.filterwarnings("ignore:Sparse (CSR|CSC) tensor support is in beta")
@pytest.mark.parametrize("layout", [torch.sparse_coo, torch.sparse_csr, torch.sparse_csc])
def test_a_sparse_matrix_of_torch_is_edges_from_rows_to_columns(layout: torch.layout) -> None:
    matrix = torch.tensor([[0.0, 2.0, 0.0], [0.0, 0.0, 3.0], [1.0, 0.0, 0.0], [0.0, 0.0, 0.0]])
    g = vgraph.graph(matrix.to_sparse(layout=layout))
    assert g.num_nodes() == 4
    assert sorted(zip(*(end.tolist() for end in g.edges()), strict=True)) == [(0, 1), (1, 2), (2, 0)]


def test_a_sparse_tensor_that_is_no_matrix() -> None:
    with pytest.raises(GraphError, match="a tensor of 3 dims"):
        vgraph.graph(torch.ones(2, 2, 2).to_sparse())
