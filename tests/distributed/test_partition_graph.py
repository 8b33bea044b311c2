"""Graphs divided into parts on disk: nothing is lost, nothing is there twice, and all counts are true."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import vgraph
import vgraph.distributed as vd
from vgraph.distributed.partition.numbering import order_parts
from vgraph.errors import ArgumentError, DataError, FeatureError, FunctionError, GraphError, NameLookupError

METHODS = ("metis", "ldg", "fennel", "hash")


def drawn_graph(seed: int, *, typed: bool) -> vgraph.Graph:
    random = torch.Generator().manual_seed(seed)

    def number(low: int, high: int) -> int:
        return int(torch.randint(low, high, (), generator=random))

    def ends(edges: int, *counts: int) -> tuple[Tensor, ...]:
        return tuple(torch.randint(count, (edges,), generator=random) for count in counts)

    users, items = number(1, 40), number(1, 40)
    relations: dict[Any, Any] = {("user", "follows", "user"): ends(number(0, 150), users, users)}
    counts = {"user": users}
    if typed:
        relations["user", "likes/it", "item"] = ends(number(0, 150), users, items)
        relations["item", "liked.by", "user"] = ends(number(0, 150), items, users)
        counts["item"] = items
    g = vgraph.heterograph(relations, counts)
    for ntype in g.ntypes:
        frame = g.nodes[ntype].data
        frame["orig"] = torch.randn(counts[ntype], 3, generator=random)
        frame["train_mask"] = torch.rand(counts[ntype], generator=random) < 0.5
    for etype in g.canonical_etypes:
        g.edges[etype].data["w"] = torch.randn(g.num_edges(etype), generator=random).bfloat16()
    return g


def every(stored: vd.PartitionedGraph, read: Any) -> Tensor:
    return torch.cat([read(stored.part(p)) for p in range(stored.num_parts)])


@settings(max_examples=30)
@given(st.integers(0, 10_000), st.sampled_from(METHODS), st.integers(1, 7), st.booleans())
def test_nothing_is_lost(seed: int, method: str, num_parts: int, typed: bool) -> None:
    g = drawn_graph(seed, typed=typed)
    with TemporaryDirectory() as folder:
        summary = vd.partition_graph(g, folder, num_parts, method, seed=seed, both=True)
        stored = vd.PartitionedGraph.open(folder)
        for ntype in g.ntypes:
            check_nodes(g, stored, ntype)
        for etype in g.canonical_etypes:
            check_in_edges(g, stored, etype)
            check_out_edges(g, stored, etype)
        check_halo(g, stored)
        assert summary.halo_rows == sum(int(stored.halo_rows(t).sum()) for t in g.ntypes)


def check_nodes(g: vgraph.Graph, stored: vd.PartitionedGraph, ntype: str) -> None:
    new_ids, orig = stored.new_ids(ntype).long(), every(stored, lambda part: part.orig(ntype)).long()
    assert torch.equal(new_ids[orig], torch.arange(g.num_nodes(ntype)))
    assert torch.equal(stored.rows(ntype, "orig", new_ids), g.nodes[ntype].data["orig"])
    mask = every(stored, lambda part: part.node_data(ntype, "train_mask"))
    assert torch.equal(mask, g.nodes[ntype].data["train_mask"][orig])
    for part in range(stored.num_parts):
        own = stored.part(part).orig(ntype)
        assert bool((own[1:] > own[:-1]).all())
        first = int(stored.bounds(ntype)[part])
        assert stored.owners(ntype, torch.arange(first, first + len(own))).tolist() == [part] * len(own)


def check_in_edges(g: vgraph.Graph, stored: vd.PartitionedGraph, etype: Any) -> None:
    src, dst = g.edges(etype=etype)
    new_src, new_dst = stored.new_ids(etype[0]).long(), stored.new_ids(etype[2]).long()
    edges = every(stored, lambda part: part.eid(etype)).long()
    assert torch.equal(edges.sort().values, torch.arange(g.num_edges(etype)))
    assert torch.equal(every(stored, lambda part: part.src(etype)).long(), new_src[src[edges]])
    degrees = every(stored, lambda part: part.ptr(etype).diff())
    ends = torch.arange(g.num_nodes(etype[2])).repeat_interleave(degrees)
    assert torch.equal(ends, new_dst[dst[edges]])
    assert bool(((ends[1:] > ends[:-1]) | (edges[1:] > edges[:-1])).all()), "lists keep the order of edges"
    weights = every(stored, lambda part: part.edge_data(etype, "w"))
    assert torch.equal(weights, g.edges[etype].data["w"][edges])
    orig = every(stored, lambda part: part.orig(etype[0])).long()
    assert torch.equal(every(stored, lambda part: part.outdeg(etype)).long(), g.out_degrees(etype=etype)[orig])
    own = stored.owners(etype[0], new_src[src]) == stored.owners(etype[2], new_dst[dst])
    assert stored.manifest.edges[etype].cut == int((~own).sum())


def check_out_edges(g: vgraph.Graph, stored: vd.PartitionedGraph, etype: Any) -> None:
    src, dst = g.edges(etype=etype)
    edges = every(stored, lambda part: part.out_eid(etype)).long()
    assert torch.equal(edges.sort().values, torch.arange(g.num_edges(etype)))
    ends = every(stored, lambda part: part.out_dst(etype)).long()
    assert torch.equal(ends, stored.new_ids(etype[2]).long()[dst[edges]])
    degrees = every(stored, lambda part: part.out_ptr(etype).diff())
    begins = torch.arange(g.num_nodes(etype[0])).repeat_interleave(degrees)
    assert torch.equal(begins, stored.new_ids(etype[0]).long()[src[edges]])


def check_halo(g: vgraph.Graph, stored: vd.PartitionedGraph) -> None:
    read: dict[str, set[tuple[int, int]]] = {t: set() for t in g.ntypes}  # (part, node)
    for etype in g.canonical_etypes:
        src, dst = g.edges(etype=etype)
        parts = stored.owners(etype[2], stored.new_ids(etype[2])[dst])
        read[etype[0]] |= set(zip(parts.tolist(), stored.new_ids(etype[0])[src].tolist(), strict=True))
    for ntype, pairs in read.items():
        expected = torch.zeros(stored.num_parts, stored.num_parts, dtype=torch.int64)
        for part, node in pairs:
            owner = int(stored.owners(ntype, torch.tensor([node])))
            expected[part, owner] += owner != part
        assert torch.equal(stored.halo_rows(ntype), expected)


def test_graph_without_types(tmp_path: Path) -> None:
    g = vgraph.graph(([0, 1, 2], [1, 2, 0]), num_nodes=4)
    vd.partition_graph(g, tmp_path / "g.vg", 2)
    stored = vd.PartitionedGraph.open(tmp_path / "g.vg")
    assert stored.ntypes == ["_N"] and stored.canonical_etypes == [("_N", "_E", "_N")]
    names = {path.name for path in (tmp_path / "g.vg" / "part-00000").iterdir()}
    assert names == {"E.ptr.npy", "E.src.npy", "E.eid.npy", "E.outdeg.npy", "_N.orig.npy"}


def test_same_seed_same_partition(tmp_path: Path) -> None:
    g = drawn_graph(3, typed=True)
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        vd.partition_graph(g, tmp_path / name, 4, "hash", seed=seed)
    digests = [vd.PartitionedGraph.open(tmp_path / name).digest for name in "abc"]
    assert digests[0] == digests[1] != digests[2]


def test_what_is_written_stays_in_the_process(tmp_path: Path) -> None:
    g = vgraph.graph(([0], [1]))
    g.ndata["h"] = torch.ones(2)
    vd.partition_graph(g, tmp_path / "g.vg", 1)
    vd.PartitionedGraph.open(tmp_path / "g.vg").part(0).node_data("_N", "h").zero_()
    assert vd.PartitionedGraph.open(tmp_path / "g.vg").part(0).node_data("_N", "h").tolist() == [1, 1]


def test_balance(tmp_path: Path) -> None:
    torch.manual_seed(0)
    src = torch.randint(400, (6000,))
    g = vgraph.graph((src, (src + torch.randint(1, 20, (6000,))) % 400), num_nodes=400)
    g.ndata["train_mask"] = torch.arange(400) < 100  # neighbours all
    g.ndata["label"] = torch.arange(400) // 134
    free = vd.partition_graph(g, tmp_path / "free.vg", 4)
    held = vd.partition_graph(g, tmp_path / "held.vg", 4, balance="train, edges,label")
    assert list(free.largest) == ["nodes", "edges", "train"]
    assert list(held.largest) == ["nodes", "edges", "train", "label=0", "label=1", "label=2"]
    assert max(held.largest.values()) < 1.35, held
    loads = vd.PartitionedGraph.open(tmp_path / "held.vg").manifest.loads
    assert sum(loads["train"]) == 100 and sum(loads["label=2"]) == 132
    masks = [vd.PartitionedGraph.open(tmp_path / "free.vg").part(p).node_data("_N", "train_mask") for p in range(4)]
    assert max(int(mask.sum()) for mask in masks) >= 40, "without balance one part has most of them"


def test_neighbours_are_numbered_near_to_one_another() -> None:
    parts = np.random.default_rng(0).permutation(32)
    between = np.zeros((32, 32), np.int64)
    between[parts[:-1], parts[1:]] = 5  # a path
    rank = order_parts(between)
    assert (np.abs(np.diff(rank[parts])) == 1).all()


def test_parts_that_share_nothing() -> None:
    assert sorted(order_parts(np.zeros((5, 5), np.int64)).tolist()) == [0, 1, 2, 3, 4]


# ------------------------------------------------------------------ bad input
def test_bad_calls(tmp_path: Path) -> None:
    g = vgraph.graph(([0], [1]))
    with pytest.raises(FunctionError, match=r"there is no method 'kahip'"):
        vd.partition_graph(g, tmp_path / "g.vg", 2, "kahip")
    with pytest.raises(ArgumentError, match="num_parts=0"):
        vd.partition_graph(g, tmp_path / "g.vg", 0)
    with pytest.raises(NameLookupError, match=r"nothing is called 'train'"):
        vd.partition_graph(g, tmp_path / "g.vg", 2, balance="train")
    with pytest.raises(GraphError, match=r"a block is a part"):
        vd.partition_graph(vgraph.to_block(g), tmp_path / "g.vg", 2)
    g.ndata["h"] = torch.eye(2).to_sparse()
    with pytest.raises(FeatureError, match=r"'h' has the layout"):
        vd.partition_graph(g, tmp_path / "g.vg", 2)
    assert not list(tmp_path.iterdir())


def test_balance_of_numbers_that_are_no_classes(tmp_path: Path) -> None:
    g = vgraph.graph(([0], [1]))
    g.ndata["h"], g.ndata["id"] = torch.ones(2), torch.tensor([0, 1000])
    with pytest.raises(FunctionError, match=r"'h' is \(2,\) torch.float32"):
        vd.partition_graph(g, tmp_path / "g.vg", 2, balance="h")
    with pytest.raises(FunctionError, match=r"'id' has 1001 classes"):
        vd.partition_graph(g, tmp_path / "g.vg", 2, balance="id")


def test_batches_of_graphs_with_features(tmp_path: Path) -> None:
    g = vgraph.batch([vgraph.graph(([0], [1])), vgraph.graph(([0], [1]))])
    g.gdata["y"] = torch.ones(2)
    with pytest.raises(GraphError, match=r"features of whole graphs \('y'\)"):
        vd.partition_graph(g, tmp_path / "g.vg", 2)


def test_other_folders_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("all of it")
    with pytest.raises(DataError, match=r"holds no partitioned graph"):
        vd.partition_graph(vgraph.graph(([0], [1])), tmp_path, 2)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def test_replaced_as_a_whole(tmp_path: Path) -> None:
    path = tmp_path / "g.vg"
    vd.partition_graph(vgraph.graph(([0], [1])), path, 3)
    vd.partition_graph(vgraph.graph(([0], [1])), path, 1)
    assert vd.PartitionedGraph.open(path).num_parts == 1
    assert not (path / "part-00001").exists() and [p.name for p in tmp_path.iterdir()] == ["g.vg"]


def test_all_ranks_at_once(tmp_path: Path) -> None:
    g = drawn_graph(5, typed=True)

    def write(_: int) -> int:
        return vd.partition_graph(g, tmp_path / "g.vg", 3, "hash").halo_rows

    with ThreadPoolExecutor(4) as pool:
        assert len(set(pool.map(write, range(12)))) == 1
    vd.check_graph(tmp_path / "g.vg")
    assert [path.name for path in tmp_path.iterdir()] == ["g.vg"]


def test_a_damaged_graph_is_written_again(tmp_path: Path) -> None:
    g = drawn_graph(5, typed=False)
    vd.partition_graph(g, tmp_path / "g.vg", 2, "hash")
    path = tmp_path / "g.vg" / "part-00000" / "user.orig.npy"
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    vd.partition_graph(g, tmp_path / "g.vg", 2, "hash")
    vd.check_graph(tmp_path / "g.vg")


def test_an_error_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "g.vg"
    g = vgraph.graph(([0], [1]))
    vd.partition_graph(g, path, 3)
    g.ndata["n" * 300] = torch.ones(2)
    with pytest.raises(GraphError, match=r"makes a file's name of"):
        vd.partition_graph(g, path, 1)
    assert vd.PartitionedGraph.open(path).num_parts == 3 and [p.name for p in tmp_path.iterdir()] == ["g.vg"]


def test_metis_that_cannot_fit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vgraph.distributed.partition.metis.free_memory", lambda: 100)
    with pytest.raises(GraphError, match=r"METIS would take about .* GiB for 1 edges; 0.0 are free"):
        vd.partition_graph(vgraph.graph(([0], [1])), tmp_path / "g.vg", 2)


def test_metis_that_is_not_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(vgraph.VGraphError, match=r"METIS needs pymetis"):
        vd.partition_graph(vgraph.graph(([0], [1])), tmp_path / "g.vg", 2)


def test_missing_arrays_and_parts(tmp_path: Path) -> None:
    vd.partition_graph(vgraph.graph(([0], [1])), tmp_path / "g.vg", 2)
    stored = vd.PartitionedGraph.open(tmp_path / "g.vg")
    etype = stored.canonical_etypes[0]
    with pytest.raises(GraphError, match=r"there is no part 2 of 2"):
        stored.part(2)
    with pytest.raises(NameLookupError, match=r"there is no feature 'h' of '_N'; there is: none"):
        stored.part(0).node_data("_N", "h")
    with pytest.raises(GraphError, match=r"holds no out-edges"):
        stored.part(0).out_ptr(etype)
    (tmp_path / "g.vg" / "part-00001" / "E.src.npy").unlink()
    stored.part(0).src(etype)
    with pytest.raises(DataError, match=r"(?s)cannot read.*part-00001/E.src.npy"):
        stored.part(1).src(etype)
