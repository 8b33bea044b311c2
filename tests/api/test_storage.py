"""Graphs on disk and of other libraries: nothing is lost, nothing runs code, DGL's files are read."""

from __future__ import annotations

import pickle
import re
import struct
import sys
import types
from pathlib import Path
from typing import Any

import networkx as nx
import pytest
import torch

import vgraph
from tests.stored_by_dgl import dgl_bytes, first_format
from vgraph.errors import DataError, FeatureError, FunctionError, GraphError, NameLookupError


def typed() -> vgraph.Graph:
    edges: Any = {("u", "f", "u"): ([0, 1, 2], [1, 2, 0]), ("u", "p", "g"): ([0, 2, 2], [1, 0, 1])}
    g = vgraph.heterograph(edges)
    g.ndata["h"] = {"u": torch.rand(3, 2), "g": torch.rand(2, 2)}
    g.edges["p"].data["w"] = torch.arange(3, dtype=torch.bfloat16)
    return g


def same(a: vgraph.Graph, b: vgraph.Graph) -> None:
    assert (a.canonical_etypes, a.ntypes, a.idtype, a.is_block) == (b.canonical_etypes, b.ntypes, b.idtype, b.is_block)
    for key in a.canonical_etypes:
        assert all(torch.equal(x, y) for x, y in zip(a.edges(etype=key), b.edges(etype=key), strict=True))
        assert a.batch_num_edges(key).tolist() == b.batch_num_edges(key).tolist()
    for frames, others in ((a.src_frames, b.src_frames), (a.dst_frames, b.dst_frames), (a.edge_frames, b.edge_frames)):
        for key, frame in frames.items():
            assert frame.num_rows == others[key].num_rows
            assert frame.keys() == others[key].keys()
            assert all(torch.equal(column, others[key][name]) for name, column in frame.items())


def samples() -> list[vgraph.Graph]:
    plain = vgraph.graph(([0, 1, 1], [1, 1, 2]), num_nodes=4, idtype=torch.int32)
    plain.ndata["h"], plain.edata["w"] = torch.rand(4, 2, requires_grad=True), torch.ones(3, dtype=torch.bool)
    block = vgraph.to_block(vgraph.graph(([0, 2], [1, 1])))
    return [plain, typed(), vgraph.batch([plain, plain]), vgraph.batch([typed(), typed()]), block, vgraph.Graph()]


@pytest.mark.parametrize("index", range(6))
def test_what_is_written_is_read(index: int, tmp_path: Path) -> None:
    g = samples()[index]
    vgraph.save_graphs(tmp_path / "g.bin", g, {"y": torch.tensor([1, 2])})
    graphs, labels = vgraph.load_graphs(tmp_path / "g.bin")
    same(graphs[0], g)
    assert labels["y"].tolist() == [1, 2]
    same(pickle.loads(pickle.dumps(g)), g)


def test_some_of_the_graphs(tmp_path: Path) -> None:
    vgraph.save_graphs(str(tmp_path / "g.bin"), samples()[:3])
    (found,), _ = vgraph.load_graphs(str(tmp_path / "g.bin"), [1])
    assert found.ntypes == ["g", "u"]
    for wrong, fact in (([3], "there is no graph 3 in a file of 3"), ([0.5], "no graph 0.5"), (1, "1 is no list")):
        with pytest.raises(FunctionError, match=re.escape(fact)):
            vgraph.load_graphs(tmp_path / "g.bin", wrong)  # type: ignore[arg-type]


def test_files_run_no_code(tmp_path: Path) -> None:
    path = tmp_path / "g.bin"
    torch.save({"format": "vgraph graphs", "graphs": [print]}, path)
    with pytest.raises(DataError, match="holds no graphs, or is damaged"):
        vgraph.load_graphs(path)
    path.write_bytes(pickle.dumps([1]))
    with pytest.raises(DataError, match="holds no graphs, or is damaged"):
        vgraph.load_graphs(path)
    torch.save({"format": "vgraph graphs", "version": 9}, path)
    with pytest.raises(DataError, match="has version 9"):
        vgraph.load_graphs(path)
    with pytest.raises(DataError, match="cannot read"):
        vgraph.load_graphs(tmp_path / "nothing")
    with pytest.raises(DataError, match="cannot write"):
        vgraph.save_graphs(tmp_path / "no" / "folder", [])
    with pytest.raises(FunctionError, match="item 0 is a int"):
        vgraph.save_graphs(path, [1])  # type: ignore[list-item]
    with pytest.raises(FunctionError, match="the label 'y' is no tensor"):
        vgraph.save_graphs(path, [], {"y": 1})  # type: ignore[dict-item]


def dgl_file(name: str, folder: Path) -> Path:
    path = folder / f"{name}.bin"
    path.write_bytes(dgl_bytes(name))
    return path


def test_files_of_dgl(tmp_path: Path) -> None:
    (g,), labels = vgraph.load_graphs(dgl_file("plain", tmp_path))
    assert [end.tolist() for end in g.edges()] == [[0, 1, 2], [1, 2, 0]]
    assert (g.ndata["h"].tolist(), g.edata["w"].tolist()) == ([0.0, 1.0, 2.0], [[0, 1], [2, 3], [4, 5]])
    assert labels["y"].tolist() == [1, 2]
    (one, two), labels = vgraph.load_graphs(dgl_file("typed", tmp_path))
    assert one.canonical_etypes == two.canonical_etypes == [("u", "f", "u"), ("u", "p", "g")]
    assert [end.tolist() for end in two.edges(etype="p")] == [[0, 2, 2], [1, 0, 1]]
    assert one.nodes["g"].data["z"].tolist() == [[1.0, 1.0], [1.0, 1.0]]
    (rows,), _ = vgraph.load_graphs(dgl_file("rows", tmp_path))
    assert [end.tolist() for end in rows.edges()] == [[0, 1], [1, 2]]
    (last,), labels = vgraph.load_graphs(dgl_file("batch", tmp_path), [1])
    assert (last.idtype, last.num_nodes(), sorted(labels)) == (torch.int32, 3, ["a", "b"])
    assert vgraph.load_labels(dgl_file("plain", tmp_path))["y"].tolist() == [1, 2]


def test_files_of_dgl_before_its_second_format(tmp_path: Path) -> None:
    path = tmp_path / "old.bin"
    path.write_bytes(whole := first_format())
    (one, two), labels = vgraph.load_graphs(path)
    assert [end.tolist() for end in one.edges()] == [[1, 2, 0], [2, 1, 2]] and one.num_nodes() == 3
    assert (one.ndata["n"].tolist(), one.edata["w"].tolist(), labels["y"].tolist()) == (
        [0, 1, 2],
        [[5], [6], [7]],
        [4, 8],
    )
    assert [end.tolist() for end in two.edges()] == [[1], [0]] and vgraph.load_labels(path)["y"].tolist() == [4, 8]
    (last,), _ = vgraph.load_graphs(path, [1])
    assert last.num_nodes() == 2
    for size in (4100, 4150, 4200, len(whole) - 3):
        path.write_bytes(whole[:size])
        with pytest.raises(DataError, match="is truncated"):
            vgraph.load_graphs(path)
    for at, number, fact in (
        (4096, 3, "says that it holds 3 graphs, and where 2 begin"),
        (4104, 2**60, "is truncated"),
        (4112, 2**63, "is truncated"),
        (4112, 4096, "not laid out as expected"),
    ):
        path.write_bytes(whole[:at] + struct.pack("<Q", number) + whole[at + 8 :])
        with pytest.raises(DataError, match=fact):
            vgraph.load_graphs(path)


def test_damaged_files_of_dgl(tmp_path: Path) -> None:
    path = dgl_file("plain", tmp_path)
    whole = path.read_bytes()
    for size in (40, 4100, 4300, len(whole) - 60):
        path.write_bytes(whole[:size])
        with pytest.raises(DataError, match="is truncated"):
            vgraph.load_graphs(path)
    path.write_bytes(whole.replace(bytes.fromhex("bf4a2235be9f58dd"), bytes(8)))
    with pytest.raises(DataError, match="is not laid out as expected"):
        vgraph.load_graphs(path)
    path.write_bytes(whole[:8] + bytes(24) + whole[32:])
    with pytest.raises(DataError, match=r"is of DGL's format 0\.0"):
        vgraph.load_graphs(path)
    with pytest.raises(FunctionError, match="there is no graph 7"):
        vgraph.load_graphs(dgl_file("plain", tmp_path), [7])


# ---------------------------------------------------------------- types as features
def test_types_as_features_and_back() -> None:
    g = typed()
    made, nodes, edges = vgraph.to_homogeneous(g, ndata=["h"], return_count=True)
    assert [end.tolist() for end in made.edges()] == [[2, 3, 4, 2, 4, 4], [3, 4, 2, 1, 0, 1]]
    assert (made.ndata["_ID"].tolist(), made.ndata["_TYPE"].tolist()) == ([0, 1, 0, 1, 2], [0, 0, 1, 1, 1])
    assert (made.edata["_ID"].tolist(), made.edata["_TYPE"].tolist()) == ([0, 1, 2, 0, 1, 2], [0, 0, 0, 1, 1, 1])
    assert (nodes, edges) == ([2, 3], [3, 3])
    back = vgraph.to_heterogeneous(made, g.ntypes, g.etypes)
    assert back.canonical_etypes == g.canonical_etypes
    for key in g.canonical_etypes:
        assert [end.tolist() for end in back.edges(etype=key)] == [end.tolist() for end in g.edges(etype=key)]
    assert torch.equal(back.nodes["u"].data["h"], g.nodes["u"].data["h"])
    assert back.nodes["u"].data["_ID"].tolist() == [2, 3, 4]
    triples = vgraph.to_heterogeneous(made, g.ntypes, g.canonical_etypes)
    assert triples.canonical_etypes == g.canonical_etypes


def test_types_that_do_not_fit() -> None:
    g = typed()
    g.nodes["g"].data["h"] = torch.ones(2)
    with pytest.raises(FeatureError, match="the node feature 'h' is not alike in all types"):
        vgraph.to_homogeneous(g, ndata=["h"])
    made = vgraph.to_homogeneous(g)
    with pytest.raises(GraphError, match="node types are numbered from 0 to 1; 1 have names"):
        vgraph.to_heterogeneous(made, ["g"], ["f", "p"])
    with pytest.raises(NameLookupError, match="names a node type that there is not"):
        vgraph.to_heterogeneous(made, ["g", "u"], [("u", "f", "x"), ("u", "p", "g")])
    with pytest.raises(GraphError, match=r"edge 0 of type \('u', 'f', 'g'\) is at a node that is no 'g'"):
        vgraph.to_heterogeneous(made, ["g", "u"], [("u", "f", "g"), ("u", "p", "g")])
    many = vgraph.heterograph({("u", "f", "g"): ([0], [0])}, {"u": 2**31 - 1, "g": 2}, torch.int32)
    with pytest.raises(GraphError, match="cannot be numbered in int32"):
        vgraph.to_homogeneous(many)


# ---------------------------------------------------------------- other libraries
class Data(types.SimpleNamespace):
    """What PyG's Data answers."""

    def keys(self) -> list[str]:
        return list(vars(self))

    def __getitem__(self, name: str) -> Any:
        return getattr(self, name)

    def is_node_attr(self, name: str) -> bool:
        return name in ("x", "pos")

    def is_edge_attr(self, name: str) -> bool:
        return name.startswith("edge")


def test_graphs_of_pyg(monkeypatch: pytest.MonkeyPatch) -> None:
    index = torch.tensor([[0, 1, 2], [1, 2, 0]])
    data = Data(edge_index=index, x=torch.rand(3, 2), edge_attr=torch.rand(3, 1), y=torch.tensor([1]), num_nodes=3)
    g = vgraph.from_pyg(data)
    assert (list(g.ndata), list(g.edata), list(g.gdata)) == (["x"], ["edge_attr"], ["y"])
    with pytest.raises(FunctionError, match="to_pyg needs torch_geometric"):
        monkeypatch.setitem(sys.modules, "torch_geometric.data", None)
        vgraph.to_pyg(g)
    library = types.ModuleType("torch_geometric.data")
    library.Data = Data  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch_geometric", types.ModuleType("torch_geometric"))
    monkeypatch.setitem(sys.modules, "torch_geometric.data", library)
    back = vgraph.to_pyg(g)
    assert torch.equal(back.edge_index, index)
    assert torch.equal(back.x, data.x)
    g.ndata["edge_attr"] = torch.ones(3)
    with pytest.raises(FeatureError, match="nodes and edges have a feature 'edge_attr'"):
        vgraph.to_pyg(g)
    with pytest.raises(GraphError, match="there is no edge_index"):
        vgraph.from_pyg(Data(x=torch.ones(1)))


def test_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    g = vgraph.from_pandas({"a": [0, 1], "b": [1, 2], "w": [0.5, 1.5]}, "a", "b", ["w"], num_nodes=4)
    assert (g.num_nodes(), g.edata["w"].tolist()) == (4, [0.5, 1.5])
    with pytest.raises(NameLookupError, match="there is no column 'src'; there is: 'a', 'b'"):
        vgraph.from_pandas({"a": [0], "b": [1]})
    with pytest.raises(FeatureError, match="the column 'w' holds no numbers"):
        vgraph.from_pandas({"src": [0], "dst": [1], "w": [None]}, edge_attrs=["w"])
    with pytest.raises(FeatureError, match="the column 'w' holds no numbers"):
        vgraph.from_pandas({"src": [0], "dst": [1], "w": ["x"]}, edge_attrs=["w"])
    monkeypatch.setitem(sys.modules, "pandas", types.SimpleNamespace(DataFrame=dict))  # type: ignore[arg-type]
    table = vgraph.to_pandas(g, ["w"])
    assert (table["src"].tolist(), table["dst"].tolist(), [float(w) for w in table["w"]]) == (
        [0, 1],
        [1, 2],
        [0.5, 1.5],
    )
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(FunctionError, match="to_pandas needs pandas"):
        vgraph.to_pandas(g)


def test_bipartite_graphs_of_networkx() -> None:
    made: Any = nx.DiGraph()
    made.add_node("x", bipartite=0)
    made.add_node("y")
    with pytest.raises(GraphError, match="node 'y' has bipartite=None"):
        vgraph.bipartite_from_networkx(made, "a", "to", "b")
    made.add_node("y", bipartite=1)
    made.add_edge("y", "x")
    with pytest.raises(GraphError, match="does not lead from bipartite=0"):
        vgraph.bipartite_from_networkx(made, "a", "to", "b")


class _Data(types.SimpleNamespace):
    """What PyG's ``Data`` is to vgraph."""


@pytest.mark.parametrize("has_ptr", [True, False])
def test_batches_of_pyg(monkeypatch: pytest.MonkeyPatch, has_ptr: bool) -> None:
    sizes = torch.tensor([3, 1, 2])
    ptr = {"ptr": torch.tensor([0, 3, 4, 6])} if has_ptr else {}
    given = _Data(
        edge_index=torch.tensor([[0, 1, 4, 4], [1, 2, 5, 5]]), x=torch.ones(6, 1), num_nodes=6, y=torch.ones(3, 2),
        batch=torch.arange(3).repeat_interleave(sizes), **ptr,
    )  # fmt: skip
    g = vgraph.from_pyg(given)
    assert g.batch_num_nodes().tolist() == [3, 1, 2] and g.batch_num_edges().tolist() == [2, 0, 2]
    assert vgraph.sum_nodes(g, "x").tolist() == [[3.0], [1.0], [2.0]]
    assert (set(g.ndata), set(g.gdata)) == ({"x"}, {"y"})
    monkeypatch.setitem(sys.modules, "torch_geometric.data", types.SimpleNamespace(Data=_Data))
    back = vgraph.to_pyg(g)
    assert back.batch.tolist() == [0, 0, 0, 1, 2, 2] and back.ptr.tolist() == [0, 3, 4, 6]
    assert vgraph.from_pyg(back).batch_num_nodes().tolist() == [3, 1, 2]
    assert not hasattr(vgraph.to_pyg(vgraph.graph(([0], [1]))), "batch")


def test_nodes_in_no_order_of_graphs_are_no_batch() -> None:
    given = _Data(edge_index=torch.tensor([[0], [1]]), num_nodes=3, batch=torch.tensor([1, 0, 1]))
    g = vgraph.from_pyg(given)
    assert g.batch_size == 1 and g.ndata["batch"].tolist() == [1, 0, 1]
