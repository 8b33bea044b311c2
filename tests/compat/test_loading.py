"""Clusters, halos, collators and edges that are left out, as ``dgl.dataloading`` and ``dgl.partition`` have them."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader as TorchLoader

import vgraph
from vgraph.compat import graph_index, loading, partition
from vgraph.compat.modules import lookup
from vgraph.errors import DataError, DTypeError, FeatureError, FunctionError
from vgraph.sampling import DataLoader, MultiLayerFullNeighborSampler, NeighborSampler, Uniform

needs_metis = pytest.mark.skipif(importlib.util.find_spec("pymetis") is None, reason="pymetis is not installed")


def cliques(count: int = 6, size: int = 10) -> vgraph.Graph:
    """Cliques in a ring, each joined to the next by one edge, without direction; nodes are in no order."""
    inside = torch.combinations(torch.arange(size))
    pairs = [inside + size * i for i in range(count)]
    pairs.append(torch.tensor([[size * i, size * ((i + 1) % count) + 1] for i in range(count)]))
    order = torch.randperm(count * size, generator=torch.Generator().manual_seed(0))
    src, dst = order[torch.cat(pairs)].T
    g = vgraph.to_bidirected(vgraph.graph((src, dst)))
    g.ndata["clique"] = order.argsort() // size
    return g


@needs_metis
@pytest.mark.parametrize(("mode", "objtype"), [("k-way", "cut"), ("k-way", "vol"), ("recursive", "cut")])
def test_metis_finds_the_cliques(mode: str, objtype: str) -> None:
    g = cliques()
    parts = partition.metis_partition_assignment(g, 6, mode=mode, objtype=objtype)
    assert parts.dtype == torch.int64 and parts.bincount().tolist() == [10] * 6
    assert len(torch.unique(torch.stack([parts, g.ndata["clique"]]), dim=1).T) == 6


def test_metis_refuses() -> None:
    with pytest.raises(FunctionError, match="by halves"):
        partition.metis_partition_assignment(cliques(), 2, mode="recursive", objtype="vol")


@needs_metis
def test_cluster_gcn(tmp_path: Path) -> None:
    g, path = cliques(), tmp_path / "parts.pkl"
    sampler = loading.ClusterGCNSampler(g, 6, path)
    again = loading.ClusterGCNSampler(g, 6, path)
    assert torch.equal(sampler.partition_node_ids, again.partition_node_ids)
    seen = []
    for part in DataLoader(g, torch.arange(6), again, batch_size=2, shuffle=True):
        ids = part.ndata["_ID"]
        assert part.num_nodes() == 20 and part.num_edges() == g.subgraph(ids).num_edges() >= 180
        assert torch.equal(part.ndata["clique"], g.ndata["clique"][ids])
        seen += ids.tolist()
    assert sorted(seen) == list(range(60))
    with pytest.raises(DataError, match="has 6 parts of 60 nodes, where 5 of 60 are needed"):
        loading.ClusterGCNSampler(g, 5, path)
    path.write_bytes(b"something else")
    with pytest.raises(DataError, match="holds no parts"):
        loading.ClusterGCNSampler(g, 6, path)
    order = sampler.partition_node_ids.numpy()
    for offset, ids, fact in [
        ([0, 10, 30, 20, 40, 50, 60], order, "do not follow one another"),
        ([0, 10, 20, 30, 40, 50, 70], order, "do not follow one another"),
        ([0, 10, 20, 30, 40, 50, 60], np.zeros_like(order), "do not hold each node once"),
        ([0, 10, 20, 30, 40, 50, 60], order + 1, "do not hold each node once"),
    ]:
        with path.open("wb") as file:
            np.savez(file, offset=np.array(offset), node_ids=ids)
        with pytest.raises(DataError, match=fact):
            loading.ClusterGCNSampler(g, 6, path)


@pytest.mark.parametrize("reshuffle", [False, True])
@pytest.mark.parametrize("hops", [0, 1, 2])
def test_halos(hops: int, reshuffle: bool) -> None:
    random = torch.Generator().manual_seed(0)
    src, dst = torch.randint(0, 40, (2, 90), generator=random)
    g = vgraph.graph((src, dst), num_nodes=40)
    parts = torch.randint(0, 3, (40,), generator=random)
    found, nodes, edges = partition.partition_graph_with_halo(g, parts, hops, reshuffle)
    assert (nodes is not None) is (edges is not None) is reshuffle and sorted(found) == [0, 1, 2]
    for part, one in found.items():
        ids, own = (one.ndata["orig_id" if reshuffle else "_ID"], one.ndata["inner_node"].bool())
        edge_ids = one.edata["orig_id" if reshuffle else "_ID"]
        assert sorted(ids[own].tolist()) == (parts == part).nonzero()[:, 0].tolist()
        assert torch.equal(one.ndata["part_id"], parts[ids]) and own.tolist() == sorted(own.tolist(), reverse=True)
        assert torch.equal(torch.stack([ids[e] for e in one.edges()]), torch.stack(g.find_edges(edge_ids)))
        assert set(edge_ids.tolist()) == _edges_near(g, parts == part, hops)
        assert torch.equal(one.edata["inner_edge"].bool(), parts[g.find_edges(edge_ids)[1]] == part)
        if reshuffle:
            inner = one.ndata["_ID"][own]
            assert torch.equal(inner, torch.arange(len(inner)) + inner[0])


def _edges_near(g: vgraph.Graph, inner: torch.Tensor, hops: int) -> set[int]:
    """By hand: within the part; into it and into what lies up to so many hops before it; and out of it."""
    pairs = list(zip(*(end.tolist() for end in g.edges()), strict=True))
    own = set(inner.nonzero()[:, 0].tolist())
    if not hops:
        return {i for i, (u, v) in enumerate(pairs) if u in own and v in own}
    reached = set(own)
    found: set[int] = set()
    for _ in range(hops):
        found |= {i for i, (_, v) in enumerate(pairs) if v in reached}
        reached |= {u for u, v in pairs if v in reached}
    return found | {i for i, (u, _) in enumerate(pairs) if u in own}


def test_collators() -> None:
    g = cliques()
    sampler = MultiLayerFullNeighborSampler(1)
    nodes = loading.NodeCollator(g, torch.arange(10), sampler)
    loader = TorchLoader(nodes.dataset, batch_size=4, collate_fn=nodes.collate)
    assert [outputs.tolist() for _, outputs, _ in loader] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    typed = vgraph.heterograph({("a", "r", "b"): ([0, 1, 2], [0, 0, 1]), ("b", "s", "a"): ([0, 1], [1, 2])})
    mixed = loading.NodeCollator(typed, {"a": [1], "b": [0, 1]}, sampler)
    assert [(kind, int(i)) for kind, i in mixed.dataset] == [("a", 1), ("b", 0), ("b", 1)]
    assert {k: v.tolist() for k, v in mixed.collate(mixed.dataset)[1].items()} == {"a": [1], "b": [0, 1]}
    pairs = loading.EdgeCollator(g, torch.arange(20), sampler, exclude="self", negative_sampler=Uniform(2))
    _, positive, negative, blocks = pairs.collate(pairs.dataset[:5])
    assert positive.edata["_ID"].tolist() == [0, 1, 2, 3, 4] and negative.num_edges() == 10
    assert not set(range(5)) & set(blocks[0].edata["_ID"].tolist())
    bare = vgraph.graph(([0], [1]), num_nodes=60)
    assert loading.EdgeCollator(g, [0], sampler, g_sampling=bare).collate([0])[2][0].num_edges() <= 1
    assert loading.GraphCollator().collate([(g, 1), (g, 2)])[0].batch_size == 2


def test_masks_for_collators_are_of_all_nodes_or_edges() -> None:
    g, sampler = vgraph.graph(([0, 1, 2], [1, 2, 3])), MultiLayerFullNeighborSampler(1)
    assert loading.NodeCollator(g, torch.tensor([False, True, False, True]), sampler).dataset.tolist() == [1, 3]
    assert loading.EdgeCollator(g, torch.tensor([False, True, True]), sampler).dataset.tolist() == [1, 2]
    short = torch.ones(2, dtype=torch.bool)
    with pytest.raises(DTypeError, match="a mask of 4, one for each node; this has 2"):
        loading.NodeCollator(g, short, sampler)
    with pytest.raises(DTypeError, match="a mask of 3, one for each edge; this has 2"):
        loading.EdgeCollator(g, {"_E": short}, sampler)
    assert loading.SpotTarget(g, "self", 2)(torch.tensor([False, True, True])).tolist() == [1, 2]


def test_edges_of_ends_with_few_others_are_left_out() -> None:
    g = vgraph.graph(([0, 1, 2, 3, 4, 4], [4, 4, 4, 4, 0, 1]))
    reverse = torch.tensor([4, 5, 2, 3, 0, 1])
    spot = loading.SpotTarget(g, "reverse_id", 1, reverse)
    assert sorted(spot(torch.tensor([0, 1, 2])).tolist()) == [2, 2]  # only node 2 has no in-edge
    assert sorted(set(loading.SpotTarget(g, "reverse_id", 2, reverse)(torch.tensor([0, 3])).tolist())) == [0, 3, 4]
    assert loading.find_exclude_eids(g, torch.tensor([1]), None) is None
    assert loading.find_exclude_eids(g, torch.tensor([1]), lambda ids: ids + 1).tolist() == [2]
    typed = vgraph.heterograph({("a", "r", "b"): ([0, 1], [0, 0]), ("b", "s", "a"): ([0, 0], [0, 1])})
    found = loading.find_exclude_eids(typed, {"r": [1]}, "reverse_types", reverse_etypes={"r": "s"})
    assert {key: ids.tolist() for key, ids in found.items()} == {("a", "r", "b"): [1], ("b", "s", "a"): [1]}


def test_fused_neighbors_are_a_block() -> None:
    g = cliques()
    g.edata["w"] = torch.rand(g.num_edges())
    block = loading.sample_neighbors_fused(g, [3, 5], 4)
    ids = block.srcdata["_ID"]
    assert block.is_block and block.in_degrees().tolist() == [4, 4] and block.dstdata["_ID"].tolist() == [3, 5]
    assert torch.equal(block.srcdata["clique"], g.ndata["clique"][ids])
    assert torch.equal(block.edata["w"], g.edata["w"][block.edata["_ID"]])
    src, dst = g.find_edges(block.edata["_ID"])
    assert torch.equal(ids[block.edges()[0]], src) and torch.equal(ids[block.edges()[1]], dst)
    bare = loading.sample_neighbors_fused(g, [3], -1, copy_ndata=False, copy_edata=False, exclude_edges=[0])
    assert list(bare.srcdata) == list(bare.edata) == ["_ID"]
    assert len(NeighborSampler([4]).sample(g, [3])[0]) == 5 and 0 not in bare.edata["_ID"]
    assert loading.sample_neighbors_fused(g, [3, 5, 3], 1).dstdata["_ID"].tolist() == [3, 5]
    with pytest.raises(FunctionError, match="blocks compute what edges end at"):
        loading.sample_neighbors_fused(g, [3], 1, "out")


def test_biased_neighbours_are_drawn_by_their_tags() -> None:
    g = vgraph.graph(([1, 2, 3, 4, 5, 1], [0, 0, 0, 0, 0, 6]))
    tag = torch.tensor([0, 0, 1, 2, 1, 2, 0])
    for edge_dir, sort, whole in (("in", "sort_csc_by_tag", g), ("out", "sort_csr_by_tag", vgraph.reverse(g))):
        ordered = lookup("dgl", sort)(whole, tag)
        drawn = loading.sample_neighbors_biased(ordered, [0, 6], 2, [0.0, 1.0, 0.0], edge_dir)
        far, near = drawn.edges() if edge_dir == "in" else reversed(drawn.edges())
        assert (sorted(far.tolist()), near.tolist()) == ([2, 4], [0, 0]) and list(drawn.edata) == ["_ID"]
    with pytest.raises(FeatureError, match="for 3 tags"):
        loading.sample_neighbors_biased(ordered, [0], 2, [1.0], "out")
    with pytest.raises(FunctionError, match="edge_dir"):
        loading.sample_neighbors_biased(ordered, [0], 2, [1.0] * 3, "both")


def test_a_matrix_has_its_entries_in_order_of_edges() -> None:
    g = vgraph.graph(([0, 0, 1], [2, 1, 0]))
    assert g.adj_external(scipy_fmt="csr").indices.tolist() == [2, 1, 0]
    twice = vgraph.graph(([0, 0, 0], [2, 1, 2])).adj_external(scipy_fmt="csr")
    assert (twice.indices.tolist(), twice.data.tolist()) == ([1, 2], [1, 2])
    squares = lookup("dgl.nn.pytorch.factory", "pairwise_squared_distance")(torch.tensor([[0.0, 3.0], [4.0, 0.0]]))
    assert squares.tolist() == [[0, 25], [25, 0]]


def test_words_of_graphs_that_programs_of_dgl_say() -> None:
    g = vgraph.heterograph({("u", "to", "v"): ([0, 1, 2], [0, 0, 1])})
    assert (g.srcnodes().tolist(), g.dstnodes().tolist()) == ([0, 1, 2], [0, 1])
    g.edata["w"] = torch.tensor([1.0, 3.0, 2.0])
    heaviest = lookup("dgl.sampling", "select_topk")(g, {"to": 1}, "w")
    assert heaviest.edata["w"].tolist() == [3, 2]
    back = lookup("dgl", "add_reverse_edges")(vgraph.graph(([0, 1], [1, 1])), copy_edata=True)
    assert back.edata["_ID"].tolist() == [0, 1, 0]
    index = graph_index.HeteroGraphIndex(g).formats(["csr"])
    assert "csr" in index.formats()["created"] and "csc" in index.reverse().formats()["created"]
    assert index.metagraph.find_edge(0) == index.reverse().metagraph.find_edge(0)[::-1] == (0, 1)
    assert (index.metagraph.number_of_nodes(), index.metagraph.number_of_edges()) == (2, 1)
