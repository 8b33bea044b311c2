"""Graphs made of graphs: what is kept, in which order (that of DGL 1.1.3), and what is refused."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import networkx as nx
import pytest
import torch

import vgraph
from vgraph.errors import ArgumentError, FunctionError, GraphError, NameLookupError

SRC, DST = [3, 0, 0, 2, 4, 0, 5, 2], [1, 1, 4, 2, 3, 1, 0, 5]


def example(idtype: torch.dtype = torch.int64) -> vgraph.Graph:
    g = vgraph.graph((SRC, DST), num_nodes=7, idtype=idtype)
    g.ndata["h"], g.edata["w"] = torch.arange(7.0), torch.arange(8.0)
    return g


def typed() -> vgraph.Graph:
    edges = {("u", "f", "u"): ([0, 1, 2], [1, 2, 0]), ("u", "p", "g"): ([0, 2, 2], [1, 0, 1])}
    g = vgraph.heterograph(edges)
    g.ndata["h"] = {"u": torch.arange(3.0), "g": torch.arange(2.0)}
    g.edges["p"].data["w"] = torch.arange(3.0)
    return g


def described(g: vgraph.Graph) -> tuple[Any, ...]:
    """Edges, the ids of before, and that features came along."""
    ends = [end.tolist() for end in g.edges()]
    edges, nodes = (data["_ID"].tolist() if "_ID" in data else None for data in (g.edata, g.ndata))
    if "w" in g.edata and edges is not None:
        assert g.edata["w"].tolist() == edges
    if "h" in g.ndata and nodes is not None:
        assert g.ndata["h"].tolist() == nodes
    return (*ends, edges, nodes)


CASES: dict[str, tuple[Callable[[vgraph.Graph], vgraph.Graph], tuple[Any, ...]]] = {
    "nodes": (
        lambda g: vgraph.node_subgraph(g, [4, 0, 1, 3]),
        ([0, 1, 1, 1, 3], [3, 2, 0, 2, 2], [4, 1, 2, 5, 0], [4, 0, 1, 3]),
    ),
    "nodes where they are": (
        lambda g: vgraph.node_subgraph(g, [4, 0, 1, 3], relabel_nodes=False),
        ([4, 0, 0, 0, 3], [3, 1, 4, 1, 1], [4, 1, 2, 5, 0], None),
    ),
    "mask": (
        lambda g: g.subgraph(torch.tensor([False, True, False, True, True, False, False])),
        ([1, 2], [0, 1], [0, 4], [1, 3, 4]),
    ),
    "edges": (
        lambda g: vgraph.edge_subgraph(g, [4, 1, 3]),
        ([0, 1, 2], [3, 4, 2], [4, 1, 3], [4, 0, 2, 3, 1]),
    ),
    "edges, nodes where they are": (
        lambda g: g.edge_subgraph([4, 1, 3], relabel_nodes=False),
        ([4, 0, 2], [3, 1, 2], [4, 1, 3], None),
    ),
    "in": (lambda g: vgraph.in_subgraph(g, [3, 1]), ([4, 3, 0, 0], [3, 1, 1, 1], [4, 0, 1, 5], None)),
    "in, relabelled": (
        lambda g: g.in_subgraph([3, 1], relabel_nodes=True),
        ([0, 1, 2, 2], [1, 3, 3, 3], [4, 0, 1, 5], [4, 3, 0, 1]),
    ),
    "out": (lambda g: vgraph.out_subgraph(g, [2, 0]), ([2, 2, 0, 0, 0], [2, 5, 1, 4, 1], [3, 7, 1, 2, 5], None)),
    "1 hop in": (
        lambda g: vgraph.khop_in_subgraph(g, [1, 3], 1)[0],
        ([0, 0, 0, 2, 3], [1, 3, 1, 1, 2], [1, 2, 5, 0, 4], [0, 1, 3, 4]),
    ),
    "2 hops in": (
        lambda g: vgraph.khop_in_subgraph(g, 1, 2)[0],
        ([0, 0, 0, 2, 3, 4], [1, 3, 1, 1, 2, 0], [1, 2, 5, 0, 4, 6], [0, 1, 3, 4, 5]),
    ),
    "bidirected": (
        vgraph.to_bidirected,
        ([0, 0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5], [1, 4, 5, 0, 3, 2, 5, 1, 4, 0, 3, 0, 2], None, None),
    ),
    "simple": (vgraph.to_simple, ([0, 0, 2, 2, 3, 4, 5], [1, 4, 2, 5, 1, 3, 0], None, None)),
    "reverse edges": (
        vgraph.add_reverse_edges,
        ([*SRC, 1, 1, 4, 3, 1, 0, 5], [*DST, 3, 0, 0, 4, 0, 5, 2], None, None),
    ),
    "reverse edges of loops": (
        lambda g: vgraph.add_reverse_edges(g, exclude_self=False),
        ([*SRC, *DST], [*DST, *SRC], None, None),
    ),
    "line": (vgraph.line_graph, ([2, 3, 4, 6, 6, 6, 7], [4, 7, 0, 1, 2, 5, 6], None, None)),
    "line without the way back": (
        lambda g: g.line_graph(backtracking=False),
        ([2, 3, 4, 6, 6, 6, 7], [4, 7, 0, 1, 2, 5, 6], None, None),
    ),
    "compact": (
        vgraph.compact_graphs,
        ([0, 1, 1, 2, 3, 1, 4, 2], [5, 5, 3, 2, 0, 5, 1, 4], None, [3, 0, 2, 4, 5, 1]),
    ),
    "no loops": (vgraph.remove_self_loop, ([3, 0, 0, 4, 0, 5, 2], [1, 1, 4, 3, 1, 0, 5], None, None)),
    "2 steps": (lambda g: vgraph.khop_graph(g, 2), ([0, 2, 2, 2, 4, 5, 5, 5], [3, 0, 2, 5, 1, 1, 1, 4], None, None)),
    "by destination": (
        lambda g: vgraph.reorder_graph(g, edge_permute_algo="dst"),
        ([5, 3, 0, 0, 2, 4, 0, 2], [0, 1, 1, 1, 2, 3, 4, 5], [6, 0, 1, 5, 3, 4, 2, 7], [0, 1, 2, 3, 4, 5, 6]),
    ),
    "in an order of one's own": (
        lambda g: vgraph.reorder_graph(g, "custom", permute_config={"nodes_perm": [6, 5, 4, 3, 2, 1, 0]}),
        ([1, 2, 3, 4, 4, 6, 6, 6], [6, 3, 5, 4, 1, 5, 2, 5], [6, 4, 0, 3, 7, 1, 2, 5], [6, 5, 4, 3, 2, 1, 0]),
    ),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("idtype", [torch.int64, torch.int32])
def test_order_of_nodes_and_edges(name: str, idtype: torch.dtype) -> None:
    make, wanted = CASES[name]
    made = make(example(idtype))
    assert described(made) == wanted
    assert made.idtype == idtype
    assert all(made.edata["_ID"].dtype == idtype for _ in made.edata if "_ID" in made.edata)


def test_new_ids_of_the_nodes_given() -> None:
    assert vgraph.khop_in_subgraph(example(), [1, 3], 1)[1].tolist() == [1, 2]
    assert vgraph.khop_in_subgraph(example(), [1, 3], 2**62)[1].tolist() == [1, 3]  # it ends where nothing is new
    part, ids = vgraph.khop_in_subgraph(typed(), {"g": [0]}, 1)
    assert {t: part.nodes[t].data["_ID"].tolist() for t in part.ntypes} == {"g": [0], "u": [2]}
    assert {t: i.tolist() for t, i in ids.items()} == {"g": [0], "u": []}


def test_a_block_of_everything() -> None:
    block = vgraph.to_block(example(), torch.tensor([4, 1, 3, 2, 0, 5]))
    assert block.is_block
    assert [end.tolist() for end in block.edges()] == [[2, 4, 4, 3, 0, 4, 5, 3], [1, 1, 0, 3, 2, 1, 4, 5]]
    assert block.srcdata["_ID"].tolist() == block.dstdata["_ID"].tolist() == [4, 1, 3, 2, 0, 5]
    assert block.edata["_ID"].tolist() == list(range(8))
    assert (block.num_src_nodes(), block.num_dst_nodes(), block.num_nodes()) == (6, 6, 12)


def test_a_block_of_typed_edges() -> None:
    block = vgraph.to_block(vgraph.in_subgraph(typed(), {"g": [1]}), {"g": [1]})
    assert block.srcnodes["u"].data["_ID"].tolist() == [0, 2]
    assert block.dstnodes["g"].data["_ID"].tolist() == [1]
    assert block.num_dst_nodes("u") == 0
    block.srcdata["h"] = {"u": torch.ones(2, 1)}
    block.update_all(vgraph.function.copy_u("h", "m"), vgraph.function.sum("m", "s"), etype="p")
    assert block.dstnodes["g"].data["s"].tolist() == [[2.0]]
    plain = vgraph.block_to_graph(block)
    assert plain.ntypes == ["g_src", "u_src", "g_dst", "u_dst"]
    assert plain.num_edges("p") == 2


def test_blocks_refuse_what_they_cannot_do() -> None:
    with pytest.raises(GraphError, match=r"edge 0 of .* is at node 1, which is not among dst_nodes"):
        vgraph.to_block(example(), [4])
    with pytest.raises(GraphError, match="given twice"):
        vgraph.to_block(example(), [4, 4])
    block = vgraph.to_block(example())
    for change in (lambda: block.add_nodes(1), lambda: block.add_edges(0, 0), lambda: block.remove_edges(0)):
        with pytest.raises(GraphError, match=r"apart|do not change"):
            change()
    with pytest.raises(GraphError, match="no subgraphs"):
        vgraph.node_subgraph(block, [0])
    assert block.nodes["_N"].data is block.srcdata
    with pytest.raises(GraphError, match="is a block"):
        vgraph.batch([block, block])


def test_reverse_cuthill_mckee_narrows_the_band() -> None:
    path = torch.randperm(60)
    g = vgraph.to_bidirected(vgraph.graph((path[:-1], path[1:])))
    ordered = vgraph.reorder_graph(g, "rcmk")
    src, dst = ordered.edges()
    assert int((src - dst).abs().max()) == 1
    before = ordered.ndata["_ID"]
    pairs = set(zip(before[src].tolist(), before[dst].tolist(), strict=True))
    assert pairs == set(zip(*(end.tolist() for end in g.edges()), strict=True))


@pytest.mark.parametrize("count", [0, 1])
def test_reverse_cuthill_mckee_of_hardly_any_nodes(count: int) -> None:
    """SciPy fails without nodes; the order of one is a view with a negative stride, which torch refuses."""
    g = vgraph.graph(([0] * count, [0] * count), num_nodes=count)
    ordered = vgraph.reorder_graph(g, "rcmk")
    assert ordered.ndata["_ID"].tolist() == list(range(count)) and ordered.num_edges() == count


def test_counts_and_mappings_of_simple_graphs() -> None:
    simple, new = vgraph.to_simple(example(), writeback_mapping=True, copy_edata=True, aggregator="sum")
    assert simple.edata["count"].tolist() == [2, 1, 1, 1, 1, 1, 1]
    assert new.tolist() == [4, 0, 1, 2, 5, 0, 6, 3]
    assert simple.edata["w"].tolist() == [6.0, 2.0, 3.0, 7.0, 0.0, 4.0, 6.0]
    means = vgraph.to_simple(example(), None, copy_edata=True, aggregator="mean")
    assert (list(means.edata), means.edata["w"].tolist()[0]) == (["w"], 3.0)
    assert vgraph.to_simple(example(), copy_edata=True).edata["w"].tolist()[0] == 1.0


def test_self_loops_with_features() -> None:
    g = vgraph.graph(([0, 0, 2], [2, 1, 0]))
    g.edata["w"] = torch.tensor([1.0, 2.0, 5.0])
    g.edata["x"] = torch.ones(3, 2)
    assert vgraph.add_self_loop(g, ["w"], "sum").edata["w"].tolist() == [1.0, 2.0, 5.0, 5.0, 2.0, 1.0]
    assert vgraph.add_self_loop(g, ["w"], 7.0).edata["x"].tolist()[3:] == [[0.0, 0.0]] * 3
    assert vgraph.add_self_loop(typed(), etype="f").num_edges("f") == 6


def test_typed_graphs_made_of_typed_graphs() -> None:
    g = typed()
    assert vgraph.reverse(g).canonical_etypes == [("u", "f", "u"), ("g", "p", "u")]
    part = vgraph.edge_type_subgraph(g, ["p"])
    assert (part.ntypes, part.num_nodes("u"), part.edata["w"].tolist()) == (["g", "u"], 3, [0.0, 1.0, 2.0])
    assert vgraph.node_type_subgraph(g, ["u"]).is_homogeneous
    walks = vgraph.metapath_reachable_graph(g, ["f", "p"])
    assert [end.tolist() for end in walks.edges()] == [[1, 1, 2], [0, 1, 1]]
    sliced = g["p"]
    sliced.edata["w"] = torch.zeros(3)
    assert g.edges["p"].data["w"].tolist() == [0.0, 0.0, 0.0]
    assert (sliced.ntypes, g["u", :, "g"].canonical_etypes) == (["u", "g"], [("u", "p", "g")])
    assert sorted(g.metagraph().edges()) == [("u", "g"), ("u", "u")]


def test_the_graph_of_types_has_the_order_of_dgl() -> None:
    """Edges come by the type from which they go, in their own order; a type without edges is there, too."""
    triples = [("z", "a", "y"), ("x", "b", "z"), ("z", "c", "x"), ("x", "d", "x")]
    g = vgraph.heterograph({t: ([0], [0]) for t in triples}, num_nodes_dict=dict.fromkeys("xyzw", 1))
    metagraph = g.metagraph()
    assert list(metagraph.edges(keys=True)) == [("x", "z", "b"), ("x", "x", "d"), ("z", "y", "a"), ("z", "x", "c")]
    assert list(metagraph.nodes) == ["x", "z", "y", "w"]


def test_features_of_several_types_are_printed_as_they_are_read() -> None:
    g = typed()
    assert repr(g.ndata) == "{'h': {'g': float32 (2,), 'u': float32 (3,)}}"
    assert repr(g.edata) == "{'w': {('u', 'p', 'g'): float32 (3,)}}"
    assert g.ndata["h"].keys() == {"g", "u"}


@pytest.mark.parametrize(
    ("make", "error", "fact"),
    [
        (lambda g: vgraph.node_subgraph(g, [0, 0]), GraphError, "node 0 of type '_N' is given twice"),
        (lambda g: vgraph.node_subgraph(g, [9]), GraphError, "is 9, where there are 7 nodes"),
        (lambda g: vgraph.edge_subgraph(g, [8]), GraphError, "is 8, where there are 8 edges"),
        (lambda g: vgraph.reorder_graph(g, "best"), FunctionError, "there is no order 'best'"),
        (lambda g: vgraph.reorder_graph(g, "custom"), FunctionError, "permute_config has no 'nodes_perm'"),
        (
            lambda g: vgraph.reorder_graph(g, "custom", permute_config={"nodes_perm": [0, 0]}),
            GraphError,
            "does not name each of 7 ids once",
        ),
        (lambda g: vgraph.add_self_loop(g, fill_data="median"), FunctionError, "fill_data is 'median'"),
        (lambda g: vgraph.to_simple(g, aggregator="max"), FunctionError, "aggregator is 'max'"),
        (lambda g: g.in_degrees(etype="likes"), NameLookupError, "there is no edge type 'likes'; there is: "),
        (lambda g: g.num_nodes("user"), NameLookupError, "there is no node type 'user'; there is: '_N'"),
        (lambda g: vgraph.line_graph(typed()), GraphError, "line_graph needs a graph with one type"),
        (lambda g: vgraph.add_self_loop(typed(), etype="p"), GraphError, "cannot be self-loops"),
        (lambda g: typed().in_degrees(), GraphError, "the graph has 2 edge types: .*name one of them"),
        (lambda g: typed().nodes(), GraphError, "the graph has 2 node types: 'g', 'u'"),
        (lambda g: vgraph.node_subgraph(typed(), [0]), GraphError, "pass ids by type"),
        (lambda g: vgraph.metapath_reachable_graph(typed(), ["p", "f"]), GraphError, "those of .* begin in 'u'"),
        (lambda g: vgraph.metapath_reachable_graph(typed(), []), GraphError, "a path needs an edge"),
        (lambda g: vgraph.khop_graph(g, -1), ArgumentError, "k=-1"),
        (lambda g: vgraph.khop_adj(g, -1), ArgumentError, "k=-1"),
        (lambda g: typed().inc("both", etype="p"), GraphError, "edges begin and end in different nodes"),
        (
            lambda g: pickle.loads(pickle.dumps(typed())).nodes["u"].data["q"],
            NameLookupError,
            r"feature of type 'u' 'q'.*graph.nodes\['u'\].data\['q'\] = tensor",
        ),
        (lambda g: vgraph.compact_graphs([g, vgraph.graph(([0], [1]))]), GraphError, "graph 1 has nodes"),
        (lambda g: vgraph.slice_batch(g, 1), GraphError, "there is no graph 1 in a batch of 1"),
        (lambda g: vgraph.batch([g, typed()]), GraphError, "graph 1 has other types"),
    ],
)
def test_refusals(make: Callable[[vgraph.Graph], Any], error: type[Exception], fact: str) -> None:
    with pytest.raises(error, match=f"(?s){fact}"):
        make(example())


def test_networkx_agrees_on_line_graphs() -> None:
    g = vgraph.graph(([0, 1, 2, 0], [1, 2, 0, 2]))
    theirs = nx.line_graph(nx.DiGraph(list(zip(*(end.tolist() for end in g.edges()), strict=True))))
    made = vgraph.line_graph(g)
    pairs = [tuple(int(x) for x in pair) for pair in zip(*g.edges(), strict=True)]
    assert {(pairs[int(a)], pairs[int(b)]) for a, b in zip(*made.edges(), strict=True)} == set(theirs.edges())


@pytest.mark.parametrize("idtype", [torch.int32, torch.int64])
def test_sizes_of_batches_are_whole_numbers_of_64_bits(idtype: torch.dtype) -> None:
    """As DGL's are: products of them have room, and torch's functions take them as indices."""
    g = vgraph.graph(([0, 1], [1, 2]), idtype=idtype)
    for whole in (g, vgraph.batch([g, g])):
        assert whole.batch_num_nodes().dtype == whole.batch_num_edges().dtype == torch.int64


def test_edges_alike_know_which_of_them_they_are() -> None:
    g = vgraph.graph(([1, 0, 1], [2, 1, 2]))
    g.edata["w"] = torch.tensor([1.0, 2.0, 3.0])
    simple = vgraph.to_simple(g, copy_edata=True)
    assert simple.edata["_ID"].tolist() == [1, 0]
    assert torch.equal(g.edata["w"][simple.edata["_ID"]], simple.edata["w"])
    assert "_ID" not in vgraph.to_simple(g).edata
    assert "_ID" not in vgraph.to_simple(g, copy_edata=True, aggregator="sum").edata


def test_types_taken_together_have_names_in_order() -> None:
    g = vgraph.heterograph({("d", "m", "g"): ([0], [0]), ("g", "f", "d"): ([0], [0])})
    assert g[:, :, :].canonical_etypes == [("d+g", "f+m", "d+g")]
