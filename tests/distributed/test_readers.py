"""Graphs of every format are read as they are; what is damaged is told."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pytest
import torch

import vgraph
from tests.distributed.stored_graphs import store_all, store_chunked, store_dist_dgl, store_ogb, typed_graph
from vgraph.distributed.readers.read_graph import read_graph
from vgraph.errors import DataError

NAMES = ("ogb", "pair", "npy", "csr", "csc", "coo", "bin", "chunked", "dist_dgl")
PLAIN = {"name": "numpy"}
FEATURES = {"ogb": {"feat", "label", "train_mask"}, "npy": set(), "csr": set(), "csc": set(), "coo": set()}


def pairs(src: torch.Tensor, dst: torch.Tensor) -> list[tuple[int, int]]:
    return list(zip(src.tolist(), dst.tolist(), strict=True))


@pytest.mark.parametrize("name", NAMES)
def test_graph_is_read(name: str, tmp_path: Path) -> None:
    path, g = store_all(tmp_path)[name]
    raw = read_graph(path, tmp_path / "made")
    assert raw.num_nodes == {t: g.num_nodes(t) for t in g.ntypes}
    for etype in g.canonical_etypes:
        src, dst = (torch.cat(ends) for ends in zip(*raw.edges[etype].blocks(), strict=True))
        expected = pairs(*g.edges(etype=etype))
        summed = set(expected) if name in ("csr", "csc") else expected
        assert sorted(pairs(src, dst)) == sorted(summed)
    for ntype, data in raw.node_data.items():
        for feature, column in data.items():
            if feature == "train_mask":
                assert column.nonzero().flatten().tolist() == [1, 3]
            else:
                assert torch.equal(column, g.nodes[ntype].data[feature])
    features = {f for data in raw.node_data.values() for f in data}
    assert features == FEATURES.get(name, {"feat"})


@pytest.mark.parametrize("name", ["bin", "chunked", "dist_dgl"])
def test_edges_keep_their_features(name: str, tmp_path: Path) -> None:
    path, g = store_all(tmp_path)[name]
    raw = read_graph(path, tmp_path / "made")
    etype = ("user", "likes", "item")
    src, dst = (torch.cat(ends) for ends in zip(*raw.edges[etype].blocks(), strict=True))
    found = sorted(zip(src.tolist(), dst.tolist(), raw.edge_data[etype]["w"].tolist(), strict=True))
    assert found == sorted(zip(*(x.tolist() for x in (*g.edges(etype=etype), g.edges["likes"].data["w"])), strict=True))


def test_weights_of_a_matrix(tmp_path: Path) -> None:
    raw = read_graph(store_all(tmp_path)["coo"][0], tmp_path / "made")
    assert raw.edge_data["_N", "_E", "_N"]["weight"].tolist() == list(range(1, 41))


def test_edges_alone_name_the_nodes(tmp_path: Path) -> None:
    np.save(tmp_path / "e.npy", np.array([[0, 1, 6], [1, 2, 0]]))
    assert read_graph(tmp_path / "e.npy", tmp_path).num_nodes == {"_N": 7}


# ------------------------------------------------------------------ what is wrong
def test_unknown_formats(tmp_path: Path) -> None:
    (tmp_path / "g.txt").write_text("0 1")
    with pytest.raises(DataError, match=r"(?s)of no known format.*g.txt.*cure: give a .npz of OGB"):
        read_graph(tmp_path / "g.txt", tmp_path)
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match=r"it holds no arrays"):
        read_graph(tmp_path / "empty", tmp_path)
    (tmp_path / "g.json").write_text("[1]")
    with pytest.raises(DataError, match=r"neither chunks nor partitions"):
        read_graph(tmp_path / "g.json", tmp_path)


def test_ends_beyond_the_nodes(tmp_path: Path) -> None:
    np.savez(tmp_path / "data.npz", edge_index=np.array([[0, 3], [1, 1]]), num_nodes_list=np.array([3]))
    with pytest.raises(DataError, match=r"source 3 is none of 3 nodes"):
        read_graph(tmp_path / "data.npz", tmp_path / "made")
    np.savez(tmp_path / "data.npz", edge_index=np.array([[0], [1]]), num_nodes_list=np.array([2**40]))
    with pytest.raises(DataError, match=r"bytes name 1099511627776 vertices"):
        read_graph(tmp_path / "data.npz", tmp_path / "again")


def test_split_that_names_no_node(tmp_path: Path) -> None:
    g = store_all(tmp_path / "all")["ogb"][1]
    path = store_ogb(g, tmp_path / "ogb")
    (path / "split" / "time" / "valid.csv.gz").write_bytes(gzip.compress(b"1\n12\n"))
    with pytest.raises(DataError, match=r"(?s)'12' is no node.*valid.csv.gz:2"):
        read_graph(path, tmp_path / "made")


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("num_nodes_per_chunk", [[5, 4], [3, -2]], r"ends|nodes|vertices"),
        ("num_nodes_per_chunk", [["5"], [3]], r"it describes no chunks"),
        ("node_type", ["user"], r"it describes no chunks"),
        ("edges", {"user:likes": {}}, r"no edge type SOURCE:NAME:DESTINATION"),
        ("edges", {"user:likes:item": {"format": {"name": "parquet"}, "data": []}}, r"it names the format 'parquet'"),
        (
            "edges",
            {"user:likes:item": {"format": PLAIN, "data": ["w.npy"]}},
            r"edges have the shape \(20,\)",
        ),
        ("edges", {"user:likes:item": {"format": PLAIN, "data": ["none.npy"]}}, r"no file 'none.npy'"),
        ("node_data", {"shop": {}}, r"features to types that it does not name"),
    ],
)
def test_damaged_metadata(key: str, value: object, said: str, tmp_path: Path) -> None:
    path = store_chunked(typed_graph(), tmp_path / "chunked")
    content = json.loads((path / "metadata.json").read_text())
    (path / "metadata.json").write_text(json.dumps({**content, key: value}))
    with pytest.raises(DataError, match=said):
        read_graph(path, tmp_path / "made")


@pytest.mark.parametrize("line", ["0 1 2\n", "0 x\n", "0 99\n", "0 99999999999999999999\n", "\xff"])
def test_damaged_csv(line: str, tmp_path: Path) -> None:
    path = store_chunked(typed_graph(), tmp_path / "chunked")
    with (path / "follows1.csv").open("a", encoding="latin1") as file:
        file.write(line)
    with pytest.raises(DataError, match=r"follows1.csv"):
        read_graph(path, tmp_path / "made")


def test_damaged_partitions_of_dist_dgl(tmp_path: Path) -> None:
    path = store_dist_dgl(typed_graph(), tmp_path / "d")
    content = json.loads((path / "shop.json").read_text())
    for key, value, said in (
        ("num_parts", 3, "it describes no partitions"),
        ("node_map", {"user": [[0, 5], [8, 12]], "item": [[5, 8]]}, "ranges of 'item'"),
        ("node_map", {"user": [[0, 5], [8, 13]], "item": [[5, 8], [13, 14]]}, "is none of 'item'"),
        ("edge_map", {**content["edge_map"], "user:likes:item": [[0, 1], [1, 2]]}, "it does not hold the edges"),
    ):
        (path / "shop.json").write_text(json.dumps({**content, key: value}))
        with pytest.raises(DataError, match=said):
            read_graph(path, tmp_path / f"made {said}")
    vgraph.save_graphs(path / "part0" / "graph.dgl", [vgraph.graph(([0], [1]))])
    (path / "shop.json").write_text(json.dumps(content))
    with pytest.raises(DataError, match=r"(?s)do not say which ones they are.*part0/graph.dgl"):
        read_graph(path, tmp_path / "last")
