"""Nodes and edges chosen by functions, graphs of points, encodings: what they refuse, and corners."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import vgraph
from vgraph.errors import DTypeError, FeatureError, FunctionError, GraphError, NameLookupError
from vgraph.nn import EdgePredictor, JumpingKnowledge, LabelPropagation


def a_graph(idtype: torch.dtype = torch.int64) -> vgraph.Graph:
    g = vgraph.graph((torch.tensor([0, 1, 2], dtype=idtype), torch.tensor([1, 2, 0], dtype=idtype)))
    g.ndata["h"], g.edata["w"] = torch.tensor([1.0, 2.0, 3.0]), torch.ones(3, 2)
    return g


def test_ids_are_of_the_graphs_dtype_and_in_the_order_asked_for() -> None:
    g = a_graph(torch.int32)
    nodes = g.filter_nodes(lambda nodes: nodes.data["h"] > 1, nodes=[2, 0, 1])
    edges = g.filter_edges(lambda edges: edges.src["h"] > 1, edges=[2, 0, 1])
    assert nodes.tolist() == [2, 1] and edges.tolist() == [2, 1] and nodes.dtype == edges.dtype == torch.int32
    assert g.filter_edges(lambda edges: edges.src["h"] > 1, edges=([2, 0], [0, 1])).tolist() == [2]
    assert sorted(g.ndata) == ["h"] and sorted(g.edata) == ["w"]


def test_a_batch_of_sets_of_points() -> None:
    x = torch.rand(3, 6, 2)
    g = vgraph.knn_graph(x, 2)
    assert g.batch_size == 3 and g.in_degrees().tolist() == [2] * 18
    assert all(part.in_degrees().tolist() == [2] * 6 for part in vgraph.unbatch(g))
    same = vgraph.knn_graph(x[0], 2, dist="cosine").edges()[0]
    assert torch.equal(same, vgraph.knn_graph(x[0] * torch.rand(6, 1).add(0.5), 2, dist="cosine").edges()[0])


def walks_by_arrays(g: vgraph.Graph, k: int) -> torch.Tensor:
    """How likely walks return, by powers of an array of all pairs of nodes."""
    steps = torch.zeros(g.num_nodes(), g.num_nodes(), dtype=torch.float64)
    steps.index_put_(g.edges(), g.edata["w"].double(), accumulate=True)
    steps /= steps.sum(1, keepdim=True) + 1e-30
    return torch.stack([torch.linalg.matrix_power(steps, i).diagonal() for i in range(1, k + 1)], 1).float()


@pytest.mark.parametrize("dtype", [torch.int64, torch.float16, torch.bfloat16])
def test_points_of_whole_numbers_and_of_16_bits(dtype: torch.dtype) -> None:
    """Distances of which torch does not compute."""
    x = torch.tensor([[0, 1], [1, 1], [5, 2], [7, 2]])
    for dist in ("euclidean", "cosine"):
        found, wanted = (vgraph.knn_graph(points, 2, dist=dist).edges() for points in (x.to(dtype), x.double()))
        assert torch.equal(found[0], wanted[0])
    g, apart = vgraph.radius_graph(x.to(dtype), 2.0, get_distances=True)
    assert sorted(zip(*(end.tolist() for end in g.edges()), strict=True)) == [(0, 1), (1, 0), (2, 3), (3, 2)]
    assert apart.tolist() == [[1], [1], [2], [2]] and apart.dtype == (torch.float32 if dtype == torch.int64 else dtype)


def test_no_points_have_no_distances() -> None:
    g, apart = vgraph.radius_graph(torch.zeros(0, 2), 1.0, get_distances=True)
    assert g.num_nodes() == 0 and apart.shape == (0, 1)


@pytest.mark.parametrize("num_edges", [0, 40, 60, 1500])
def test_random_walks_by_sparse_and_by_full_matrices(num_edges: int) -> None:
    g = vgraph.rand_graph(40, num_edges)
    g.edata["w"] = torch.rand(num_edges)
    torch.testing.assert_close(vgraph.random_walk_pe(g, 6, "w"), walks_by_arrays(g, 6))


def test_random_walks_on_many_graphs_take_no_array_of_all_pairs() -> None:
    """Of 200,000 nodes that would be 320 GB."""
    one = vgraph.to_bidirected(vgraph.graph(([0, 1, 2], [1, 2, 3])))
    found = vgraph.random_walk_pe(vgraph.batch([one] * 50_000), 4)
    assert torch.equal(found, vgraph.random_walk_pe(one, 4).repeat(50_000, 1))


def two_types() -> vgraph.Graph:
    return vgraph.heterograph({("a", "x", "b"): ([0], [1])})


REFUSALS: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "no truth values": (lambda: a_graph().filter_nodes(lambda v: v.data["h"] * 1j), FunctionError, "torch.complex"),
    "two an edge": (lambda: a_graph().filter_edges(lambda e: e.data["w"] > 0), FunctionError, "gives torch.bool"),
    "no such node": (lambda: a_graph().filter_nodes(lambda v: v.data["h"] > 0, [7]), GraphError, "is 7"),
    "no such edge": (lambda: a_graph().filter_edges(lambda e: e.src["h"] > 0, [7]), GraphError, "from 0 to 2"),
    "no such type": (lambda: a_graph().filter_nodes(lambda v: v.data["h"] > 0, ntype="x"), NameLookupError, "'x'"),
    "dims of points": (lambda: vgraph.knn_graph(torch.rand(3), 1), FeatureError, r"x is \(3,\)"),
    "complex points": (lambda: vgraph.knn_graph(torch.zeros(3, 1, dtype=torch.complex64), 1), DTypeError, "complex64"),
    "too many": (lambda: vgraph.knn_graph(torch.rand(3, 1), 4), GraphError, "4 nearest of 3 points"),
    "too many others": (
        lambda: vgraph.knn_graph(torch.rand(3, 1), 3, exclude_self=True), GraphError, "without the point itself"
    ),
    "distance": (lambda: vgraph.knn_graph(torch.rand(3, 1), 1, dist="hamming"), FunctionError, "'hamming'"),
    "sets": (lambda: vgraph.segmented_knn_graph(torch.rand(3, 1), 1, [2]), GraphError, "2 points in all"),
    "dims within a radius": (lambda: vgraph.radius_graph(torch.rand(3), 1.0), FeatureError, r"x is \(3,\)"),
    "vectors": (lambda: vgraph.lap_pe(a_graph(), 3), GraphError, "3 vectors of 3 nodes"),
    "vectors of a block": (lambda: vgraph.lap_pe(vgraph.to_block(a_graph()), 1), GraphError, "one type of nodes"),
    "networkx of types": (lambda: vgraph.to_networkx(two_types()), GraphError, "to_networkx needs a graph with one"),
    "weights": (lambda: vgraph.random_walk_pe(a_graph(), 2, "w"), FeatureError, "'w' has shape"),
    "mode": (lambda: JumpingKnowledge("sum"), NameLookupError, "there is no mode 'sum'"),
    "sizes": (lambda: JumpingKnowledge("lstm"), FunctionError, "without sizes"),
    "norm": (lambda: LabelPropagation(1, 0.5, "col"), NameLookupError, "there is no norm_type 'col'"),
    "operator": (lambda: EdgePredictor("sub"), NameLookupError, "there is no operator 'sub'"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSALS)
def test_refusals(name: str) -> None:
    call, kind, fact = REFUSALS[name]
    with pytest.raises(kind, match=fact) as caught:
        call()
    assert isinstance(caught.value, vgraph.VGraphError)
