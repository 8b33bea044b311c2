"""What DGL's own tests ask for, cause by cause: each was one of their failures."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest
import torch
from scipy import sparse
from torch import Tensor

import vgraph
import vgraph.function as fn
from vgraph.compat import arguments, draws, files, functional, names, ndarray, nearest, partition, sparse_ops
from vgraph.compat.graph_index import INTERNALS, HeteroGraphIndex, create_graph_index
from vgraph.errors import ArgumentError, DataError, FunctionError, GraphError


def types() -> vgraph.Graph:
    """b0 is reached along x alone, b1 along both types."""
    return vgraph.heterograph({("a", "x", "b"): ([0, 0], [0, 1]), ("c", "y", "b"): ([0], [1])})


# ---------------------------------------------------------------- graphs as programs of DGL 0.x make them
@pytest.mark.parametrize(
    "edges",
    [
        [(0, 1), (1, 2)],
        ([0, 1], [1, 2]),
        nx.DiGraph([(0, 1), (1, 2)]),
        sparse.coo_matrix((np.ones(2), ([0, 1], [1, 2])), (3, 3)),
        vgraph.graph(([0, 1], [1, 2])).topology,
    ],
    ids=["pairs", "ends", "networkx", "scipy", "topology"],
)
def test_a_graph_is_made_of_what_programs_give(edges: object) -> None:
    g = names.DGLGraph(edges, readonly=True)
    assert [end.tolist() for end in g.edges()] == [[0, 1], [1, 2]]
    assert g.num_nodes() == 3 and isinstance(g, names.DGLGraph) and isinstance(g, vgraph.Graph)
    assert type(pickle.loads(pickle.dumps(g))) is names.DGLGraph


def test_every_graph_is_a_graph_of_dgl() -> None:
    class Own(names.DGLGraph):
        pass

    assert isinstance(types(), names.DGLGraph) and issubclass(vgraph.Graph, names.DGLGraph)
    assert not isinstance(types(), Own) and not isinstance(3, names.DGLGraph) and isinstance(Own(), Own)
    assert names.DGLGraph().num_nodes() == 0


# ---------------------------------------------------------------- structures
def test_what_dgl_keeps_for_itself() -> None:
    g = types()
    index: HeteroGraphIndex = INTERNALS["_graph"](g)
    assert (index.num_nodes(1), index.num_edges(0), index.is_metagraph_unibipartite()) == (2, 2, True)
    assert [part.tolist() for part in index.edges(0)] == [[0, 0], [0, 1], [0, 1]]
    assert [part.tolist() for part in index.reverse().edges(0)] == [[0, 1], [0, 0], [0, 1]]
    assert index.adjacency_matrix_scipy(0, False, "csr").toarray().tolist() == [[0, 1]]
    twice = vgraph.heterograph({("a", "x", "b"): ([0], [0]), ("a", "x", "a"): ([0], [0]), ("a", "y", "a"): ([0], [0])})
    assert INTERNALS["_etype2canonical"](twice) == {"x": (), "y": ("a", "y", "a")}


def test_a_structure_is_built() -> None:
    index = create_graph_index(None, False)
    index.add_nodes(3)
    index.add_edges(arguments.toindex([0, 0]), arguments.toindex([1, 2]))
    again: HeteroGraphIndex = copy.deepcopy(index)
    assert [part.tolist() for part in again.edges()] == [[0, 0], [1, 2], [0, 1]] and again.num_nodes() == 3


def test_products_of_structures() -> None:
    a, b = (HeteroGraphIndex(vgraph.graph(ends, num_nodes=3)) for ends in (([0, 1], [1, 2]), ([1, 2], [0, 1])))
    made, weights = sparse_ops.csrmm(a, torch.tensor([2.0, 3.0]), b, torch.tensor([5.0, 7.0]), 1)
    assert [part.tolist() for part in made.edges()[:2]] == [[0, 1], [0, 1]] and weights.tolist() == [10, 21]
    made, weights = sparse_ops.csrsum([a, b], [torch.tensor([2.0, 3.0]), torch.tensor([5.0, 7.0])])
    assert made.num_edges() == 4 and float(weights.sum()) == 17
    assert sparse_ops.csrmask(b, torch.tensor([5.0, 7.0]), made).tolist() == [0.0, 5.0, 0.0, 7.0]


def test_products_of_adjacencies_have_gradients() -> None:
    a, b = vgraph.graph(([0, 0], [1, 2]), num_nodes=3), vgraph.graph(([1, 2], [0, 0]), num_nodes=3)
    weights = [torch.tensor([2.0, 3.0], requires_grad=True), torch.tensor([5.0, 7.0], requires_grad=True)]
    a.edata["w"], b.edata["w"] = weights
    product = functional.adj_product_graph(a, b, "w")
    assert [end.tolist() for end in product.edges()] == [[0], [0]] and product.edata["w"].tolist() == [31]
    whole = functional.adj_sum_graph([a, b], "w")
    assert whole.edata["w"].tolist() == [2, 3, 5, 7]
    (product.edata["w"].sum() + whole.edata["w"].sum()).backward()
    assert [w.grad.tolist() for w in weights if w.grad is not None] == [[6, 8], [3, 4]]


# ---------------------------------------------------------------- words
def test_edges_in_order_of_tags() -> None:
    g = vgraph.graph(([0, 0, 0, 1], [1, 2, 0, 0]))
    g.edata["id"] = torch.arange(4)
    tags = torch.tensor([0, 2, 0])
    by_end = functional.sort_csr_by_tag(g, tags)
    assert by_end.edata["id"].tolist() == [1, 2, 0, 3]
    assert by_end.srcdata["_TAG_OFFSET"].tolist() == [[0, 2, 2, 3], [0, 1, 1, 1], [0, 0, 0, 0]]
    by_start = functional.sort_csc_by_tag(g, torch.tensor([1, 0, 0, 0]), "at", tag_type="edge")
    assert by_start.edata["id"].tolist() == [2, 3, 0, 1]
    assert by_start.dstdata["at"].tolist() == [[0, 2, 2], [0, 0, 1], [0, 1, 1]]


def test_items_drawn_at_random() -> None:
    items = torch.tensor([5, 6, 7])
    assert sorted(draws.choice(items, 3, replace=False).tolist()) == [5, 6, 7]
    assert draws.choice(items, (2, 4)).shape == (2, 4) and int(draws.choice(4, 50).max()) < 4
    assert set(draws.choice(3, 20, prob=torch.tensor([0.0, 1.0, 1.0])).tolist()) <= {1, 2}
    with pytest.raises(FunctionError, match="3 of 2 items"):
        draws.choice(3, 3, replace=False, prob=torch.tensor([0.0, 1.0, 1.0]))


def test_words_for_ids() -> None:
    ids = arguments.toindex([4, 1])
    assert type(ids.tousertensor()) is Tensor and ids.tonumpy().tolist() == [4, 1] and ids.slice_data() is None
    some = arguments.toindex(slice(5, 7))
    assert some.slice_data() == slice(5, 7) and some.tousertensor().tolist() == [5, 6] and len(some) == 2
    assert arguments.toindex(some) is some and vgraph.graph((ids, some)).num_edges() == 2
    found = arguments.Filter(ids.tousertensor())
    asked = torch.tensor([1, 2, 4])
    assert found.find_included_indices(asked).tolist() == [0, 2] and found.find_excluded_indices(asked).tolist() == [1]
    ordered = [arguments.is_sorted_srcdst(torch.tensor(src), torch.tensor(dst)) for src, dst in _EDGES]
    assert ordered == [(True, True), (True, False), (False, False)]


_EDGES = [([0, 0, 1], [1, 2, 0]), ([0, 0, 1], [2, 1, 0]), ([1, 0], [0, 1])]


def test_rows_of_ends_along_one_type() -> None:
    g = types()
    assert names.copy_u(g, torch.tensor([[7.0]]), etype="x").tolist() == [[7], [7]]
    assert names.copy_v(g, torch.tensor([1.0, 2.0]), etype="y").tolist() == [2]


def test_arrays_share_memory() -> None:
    rows = torch.zeros(2)
    array = ndarray.from_dlpack(rows)
    rows[0] = 1
    assert array.asnumpy().tolist() == [1, 0] and isinstance(array, ndarray.NDArray)
    made = ndarray.array(np.zeros(2))
    torch.from_dlpack(made.to_dlpack())[1] = 3
    assert made.asnumpy().tolist() == [0, 3]


def test_nearest_points_are_batches_of_what_there_is() -> None:
    x = torch.arange(8.0).unsqueeze(1)
    assert nearest.KNNGraph(2)(x.view(2, 4, 1)).batch_num_nodes().tolist() == [4, 4]
    with pytest.warns(names.DGLWarning, match="5 nearest of 2"):
        g = nearest.SegmentedKNNGraph(5)(x, [3, 5], exclude_self=True)
    assert g.batch_num_nodes().tolist() == [3, 5] and g.in_degrees().tolist() == [2] * 8
    for call in (lambda: nearest.knn_graph(x, 0), lambda: nearest.segmented_knn_graph(x, 1, [3])):
        with pytest.raises((ArgumentError, GraphError)):
            call()


@pytest.mark.parametrize("formats", ["csr", ["csc", "csr"], None])
def test_formats_that_are_there_when_graphs_are_loaded(formats: Any, tmp_path: Path) -> None:
    names.save_graphs(tmp_path / "made" / "g.bin", types(), formats=formats)
    created = vgraph.load_graphs(tmp_path / "made" / "g.bin")[0][0].formats()["created"]
    assert created == ["coo", *sorted([formats] if isinstance(formats, str) else formats or (), reverse=True)]
    with pytest.raises(GraphError, match="'dense'"):
        vgraph.save_graphs(tmp_path / "g.bin", types(), formats="dense")
    torch.save(
        {"format": "vgraph graphs", "version": 1, "graphs": [], "labels": {}, "formats": ["x"]}, tmp_path / "g.bin"
    )
    with pytest.raises(DataError, match="other formats"):
        vgraph.load_graphs(tmp_path / "g.bin")


# ---------------------------------------------------------------- parts
RING = ([0, 1, 2, 3, 4, 5, 0], [1, 2, 3, 4, 5, 0, 3])
PARTS = [0, 0, 1, 1, 0, 0]


@pytest.mark.parametrize(("hops", "edges"), [(0, [2]), (1, [1, 2, 3, 6]), (2, [0, 1, 2, 3, 5, 6])])
def test_parts_with_halos(hops: int, edges: list[int]) -> None:
    found, nodes, _ = partition.partition_graph_with_halo(vgraph.graph(RING), PARTS, hops)
    own = found[1]
    assert nodes is None and sorted(own.edata["_ID"].tolist()) == edges
    assert own.ndata["_ID"][own.ndata["inner_node"].bool()].tolist() == [2, 3]
    ends = [own.ndata["_ID"][end].tolist() for end in own.edges()]
    assert ends == [[RING[side][e] for e in own.edata["_ID"].tolist()] for side in (0, 1)]
    assert own.edata["inner_edge"].tolist() == [int(v in (2, 3)) for v in ends[1]]


def test_parts_numbered_anew() -> None:
    found, nodes, edges = partition.partition_graph_with_halo(vgraph.graph(RING), PARTS, 1, reshuffle=True)
    assert nodes is not None and edges is not None
    assert nodes.tolist() == [0, 1, 4, 5, 2, 3] and edges.tolist() == [5, 0, 3, 4, 1, 2, 6]  # as DGL 1.1.3 says
    assert found[1].ndata["orig_id"][:2].tolist() == [2, 3] and found[1].ndata["_ID"][:2].tolist() == [4, 5]
    own = [found[1].ndata["orig_id"][end].tolist() for end in found[1].edges()]
    assert own == [[RING[side][e] for e in found[1].edata["orig_id"].tolist()] for side in (0, 1)]


def test_parts_by_metis() -> None:
    pytest.importorskip("pymetis")
    cliques = [(u + base, v + base) for base in (0, 6) for u in range(6) for v in range(6)]
    g = vgraph.graph([*cliques, (0, 6)])
    parts = partition.metis_partition_assignment(g, 2, balance_ntypes=[0, 1] * 6, balance_edges=True)
    assert len(set(parts[:6].tolist())) == len(set(parts[6:].tolist())) == 1 and parts[0] != parts[6]
    assert [own.ndata["inner_node"].sum() for own in partition.metis_partition(g, 2).values()] == [6, 6]
    ordered = partition.reorder_graph(g, "metis", permute_config={"k": 2}).ndata["_ID"]
    assert {frozenset(ordered[:6].tolist()), frozenset(ordered[6:].tolist())} == {
        frozenset(range(6)),
        frozenset(range(6, 12)),
    }


@pytest.mark.parametrize(
    ("call", "error", "said"),
    [
        (lambda g: partition.reorder_graph(g, "metis"), FunctionError, "not told how many parts"),
        (lambda g: partition.metis_partition(g.int(), 2), GraphError, "ids are torch.int32"),
        (lambda g: partition.metis_partition(g, 2, mode="other"), FunctionError, "no way 'other'"),
        (lambda g: partition.metis_partition(g, 2, balance_ntypes=[0]), GraphError, "1 classes of 6 nodes"),
        (
            lambda g: partition.metis_partition(vgraph.rand_graph(70, 9), 2, balance_ntypes=list(range(70))),
            FunctionError,
            "'balance_ntypes' has 70 classes",
        ),
        (lambda g: partition.partition_graph_with_halo(g, [0], 1), GraphError, r"parts \(1,\) of 6 nodes"),
        (lambda g: partition.reorder_nodes(g, [0] * 6), GraphError, "no permutation"),
    ],
)
def test_what_parts_refuse(call: Any, error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        call(vgraph.graph(RING))


def test_nodes_with_other_numbers() -> None:
    g = partition.reorder_nodes(vgraph.graph(([0, 1], [1, 2])), [2, 0, 1])
    assert [end.tolist() for end in g.edges()] == [[2, 0], [0, 1]] and g.ndata["orig_id"].tolist() == [1, 2, 0]


# ---------------------------------------------------------------- messages and features
@pytest.mark.parametrize(("name", "h", "wanted"), [("max", -1.0, [-1, -1]), ("min", 1.0, [1, 1]), ("sum", 1.0, [1, 3])])
def test_types_that_bring_nothing_are_not_the_largest(name: str, h: float, wanted: list[int]) -> None:
    g = types()
    g.nodes["a"].data["h"], g.nodes["c"].data["h"] = torch.tensor([h]), torch.tensor([2 * h])
    way = (fn.copy_u("h", "m"), getattr(fn, name)("m", "y"))
    g.multi_update_all({"x": way, "y": way}, name)
    assert g.nodes["b"].data["y"].tolist() == wanted
    names_apart = {"x": way, "y": (fn.copy_u("h", "m"), getattr(fn, name)("m", "z"))}
    g.multi_update_all(names_apart, name)
    assert g.nodes["b"].data["z"].tolist() == [0, 2 * h]


def test_a_softmax_over_types_leaves_no_type_without_gradient() -> None:
    g = vgraph.heterograph({("a", "x", "b"): ([0, 0], [0, 0]), ("a", "y", "c"): ([0], [0])})
    x, y = torch.zeros(2, requires_grad=True), torch.zeros(1, requires_grad=True)
    found = vgraph.ops.edge_softmax(g, {"x": x, "y": y})
    assert found["a", "x", "b"].tolist() == [0.5, 0.5] and found["a", "y", "c"].tolist() == [1]
    found["a", "x", "b"][0].backward()
    assert x.grad is not None and x.grad.tolist() == [0.25, -0.25] and y.grad is not None and y.grad.tolist() == [0]
    apart = vgraph.ops.edge_softmax(g, {"x": x, "y": y.reshape(1, 1)})  # rows of two shapes
    assert apart["a", "x", "b"].tolist() == [0.5, 0.5] and apart["a", "y", "c"].tolist() == [[1]]


def test_parts_by_type_share_features() -> None:
    g = types()
    by_edges, by_nodes = vgraph.edge_type_subgraph(g, ["x"]), vgraph.node_type_subgraph(g, ["a", "b"])
    g.nodes["b"].data["h"] = torch.ones(2)
    by_edges.edata["w"] = torch.zeros(2)
    assert "h" in by_nodes.nodes["b"].data and "h" in by_edges.nodes["b"].data and "w" in g.edges["x"].data


def test_sides_have_names_where_no_type_is_at_both_ends() -> None:
    g = types()
    assert g.nodes["SRC/a"].data is g.nodes["a"].data and g.num_nodes("DST/b") == 2
    with pytest.raises(vgraph.errors.NameLookupError, match="no node type 'b'"):
        g.num_nodes("SRC/b")


def test_a_block_of_some_types_of_destinations() -> None:
    g = vgraph.heterograph({("a", "x", "b"): ([0, 1], [1, 1]), ("b", "y", "a"): ([0], [0])})
    block = vgraph.to_block(g, {"b": [1]})
    assert (block.num_edges("x"), block.num_edges("y"), block.num_dst_nodes("a")) == (2, 0, 0)
    assert block.edges["x"].data["_ID"].tolist() == [0, 1] and block.srcnodes["b"].data["_ID"].tolist() == [1]


def test_tensors_of_a_file_as_arrays(tmp_path: Path) -> None:
    files.save_tensors(tmp_path / "t", {"a": torch.ones(1)})
    assert files.load_tensors(tmp_path / "t", True)["a"].asnumpy().tolist() == [1]
    assert type(files.load_tensors(tmp_path / "t")["a"]) is Tensor


def test_joined_types_say_what_nodes_were() -> None:
    g = vgraph.heterograph({("a", "x", "b"): ([0], [1]), ("a", "y", "b"): ([1], [0])})
    joined = g["a", :, "b"]
    assert joined.nodes["a"].data["_ID"].tolist() == [0, 1] and joined.nodes["b"].data["_TYPE"].tolist() == [1, 1]
    assert "_ID" not in g.nodes["a"].data


def test_predicates_may_give_numbers() -> None:
    g = vgraph.graph(([0, 1], [2, 2]))
    assert g.filter_nodes(lambda nodes: torch.tensor([0.0, 2.0, 1.0])).tolist() == [1, 2]
    g.edata["w"] = torch.tensor([0, 3])
    assert g.filter_edges(lambda edges: edges.data["w"]).tolist() == [1]


def test_a_walk_without_edges_stays() -> None:
    g = vgraph.khop_graph(vgraph.graph(([0, 1], [1, 2])), 0)
    assert [end.tolist() for end in g.edges()] == [[0, 1, 2], [0, 1, 2]]


def test_ids_of_edges_may_be_arrays_of_one() -> None:
    g = nx.DiGraph()
    g.add_edge(0, 1, eid=np.array([1]))
    g.add_edge(1, 0, eid=np.array([0]))
    assert vgraph.from_networkx(g, edge_id_attr_name="eid").edges()[0].tolist() == [1, 0]


def test_eigenvectors_of_equal_eigenvalues_are_those_of_dgl() -> None:
    g = vgraph.graph(([2, 1, 0, 3, 1, 1], [3, 1, 1, 2, 1, 0]))
    assert vgraph.lap_pe(g, 2).abs()[:, 0].tolist() == pytest.approx([0.5, 0.75**0.5, 0, 0])


def test_products_and_sums_of_graphs_add_parallel_edges() -> None:
    g = vgraph.graph(([0, 0, 1], [1, 1, 0]))
    g.edata["w"] = torch.tensor([1.0, 2.0, 5.0], requires_grad=True)
    product = functional.adj_product_graph(g, g, "w")
    assert product.edata["w"].tolist() == [15.0, 15.0]
    product.edata["w"].sum().backward()
    assert g.edata["w"].grad is not None
    assert g.edata["w"].grad.tolist() == [10.0, 10.0, 6.0]
    assert functional.adj_sum_graph([g, g], "w").edata["w"].tolist() == [6.0, 10.0]


# ---------------------------------------------------------------- of several shortest ways the one that DGL gives
def test_the_ways_round_a_square() -> None:
    g = vgraph.graph(([0, 1, 2, 3, 1, 2, 3, 0], [1, 2, 3, 0, 0, 1, 2, 3]))
    ways = functional.shortest_dist(g, return_paths=True)[1]
    from_each = [functional.shortest_dist(g, root, return_paths=True)[1] for root in range(4)]
    across = [(root, (root + 2) % 4) for root in range(4)]
    assert [ways[root, end].tolist() for root, end in across] == [[0, 1], [4, 7], [5, 4], [3, 0]]
    assert [from_each[root][end].tolist() for root, end in across] == [[7, 6], [1, 2], [2, 3], [6, 5]]
