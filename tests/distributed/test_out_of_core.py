"""Graphs partitioned from files, within a limit of memory: the same bytes as of a graph in memory."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import vgraph
import vgraph.distributed as vd
from tests.distributed.stored_graphs import store_all
from tests.distributed.test_partition_graph import drawn_graph
from vgraph.distributed import out_of_core
from vgraph.distributed.partition import group_edges
from vgraph.distributed.partition.raw_graph import EdgeSegment, RawEdges, RawGraph
from vgraph.errors import DataError, GraphError

HERE = Path("edges.npy")


def raw_of(g: vgraph.Graph, num_segments: int) -> RawGraph:
    edges = {}
    for etype in g.canonical_etypes:
        src, dst = (end.tensor_split(num_segments) for end in g.edges(etype=etype))
        edges[etype] = RawEdges([EdgeSegment(s, d, HERE) for s, d in zip(src, dst, strict=True)])
    return RawGraph(
        {t: g.num_nodes(t) for t in g.ntypes},
        edges,
        {t: dict(g.nodes[t].data) for t in g.ntypes},
        {e: dict(g.edges[e].data) for e in g.canonical_etypes},
    )


@settings(max_examples=25)
@given(st.integers(0, 1000), st.sampled_from(["metis", "ldg", "fennel", "hash"]), st.integers(1, 5), st.booleans())
def test_as_in_memory(seed: int, method: str, num_segments: int, typed: bool) -> None:
    g = drawn_graph(seed, typed=typed)
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        vd.partition_graph(g, folder + "/memory", 5, method, "edges,train", seed=seed, both=bool(seed % 2))
        raw = raw_of(g, num_segments)
        raw.check(HERE)
        patch.setattr(group_edges, "LEAST_EDGES", 7)  # many buckets, some of one long list
        patch.setattr(group_edges, "EDGES_AT_ONCE", 3)
        patch.setattr(group_edges, "BYTES_AN_EDGE", 1 << 40)
        patch.setattr(out_of_core, "read_graph", lambda source, place: raw)
        vd.partition_files(HERE, folder + "/files", 5, method, "edges,train", seed=seed, both=bool(seed % 2))
        opened = [vd.PartitionedGraph.open(f"{folder}/{name}") for name in ("memory", "files")]
        assert opened[0].manifest == opened[1].manifest
        assert {path.name for path in Path(folder).iterdir()} == {"memory", "files"}


@pytest.mark.parametrize("name", ["ogb", "pair", "npy", "csr", "csc", "coo", "bin", "chunked", "dist_dgl"])
def test_every_format(name: str, tmp_path: Path) -> None:
    path, g = store_all(tmp_path / "all")[name]
    summary = vd.partition_files(path, tmp_path / "g.vg", 3)
    vd.check_graph(tmp_path / "g.vg")
    assert summary.num_nodes == g.num_nodes() and summary.num_parts == 3
    stored = vd.PartitionedGraph.open(tmp_path / "g.vg")
    for ntype in stored.ntypes:
        for feature in stored.node_schemes(ntype):
            rows = stored.rows(ntype, feature, stored.new_ids(ntype))
            assert feature == "train_mask" or torch.equal(rows, g.nodes[ntype].data[feature])


def test_memory_that_is_too_little(tmp_path: Path) -> None:
    path, _ = store_all(tmp_path / "all")["npy"]
    with pytest.raises(GraphError, match=r"0.1 GiB are too little for 12 nodes"):
        vd.partition_files(path, tmp_path / "g.vg", 2, memory=0.1)
    assert [path.name for path in tmp_path.iterdir()] == ["all"]


def test_metis_within_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, _ = store_all(tmp_path / "all")["npy"]
    monkeypatch.setattr("vgraph.distributed.partition.metis.BYTES_AN_EDGE", 1 << 28)
    with pytest.raises(GraphError, match=r"METIS would take about 10.0 GiB for 40 edges; 1.0 are free"):
        vd.partition_files(path, tmp_path / "g.vg", 2, "metis", memory=1)


@pytest.mark.parametrize(
    ("src", "dst", "said"),
    [
        ([0, 5], [1, 1], r"source 5 is none of 3 nodes"),
        ([0, 1], [1, -1], r"destination -1 is none of 3 nodes"),
        ([0.0, 1.0], [1, 1], r"a source is torch.float32"),
    ],
)
def test_ends_that_are_no_nodes(src: list[float], dst: list[int], said: str) -> None:
    segment = EdgeSegment(torch.tensor(src), torch.tensor(dst), HERE)
    with pytest.raises(DataError, match=said):
        RawGraph({"n": 3}, {("n", "e", "n"): RawEdges([segment])}).check(HERE)


def test_features_of_other_lengths() -> None:
    edges = RawEdges([EdgeSegment(torch.tensor([0]), torch.tensor([1]), HERE)])
    raw = RawGraph({"n": 2}, {("n", "e", "n"): edges}, {"n": {"x": torch.ones(3)}})
    with pytest.raises(DataError, match=r"the feature 'x' is \(3,\), and there are 2 nodes"):
        raw.check(HERE)
