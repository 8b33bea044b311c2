"""Data sets of a user's own tables, as ``dgl.data.CSVDataset`` reads them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
import torch

from vgraph.compat.datasets.csv_set import CSVDataset
from vgraph.errors import DataError

pytest.importorskip("yaml")
META = "dataset_name: own\nnode_data:\n- file_name: nodes.csv\nedge_data:\n- file_name: edges.csv\n"
ONE = {
    "meta.yaml": META,
    "nodes.csv": 'node_id,feat,kind,train\nc,"0.5,1",2,True\na,"2,3",0,False\nb,"4,5",1,True\n',
    "edges.csv": "src_id,dst_id,w\na,b,1.5\nc,a,\n",
}
MANY = {
    "meta.yaml": "version: 1.0.0\ndataset_name: many\nseparator: ';'\nnode_data:\n- file_name: u.csv\n  ntype: u\n"
    "- file_name: i.csv\n  ntype: i\n  node_id_field: item\nedge_data:\n- file_name: e.csv\n  etype: [u, likes, i]\n"
    "graph_data:\n  file_name: g.csv\n",
    "u.csv": "graph_id;node_id\n7;0\n7;1\n3;0\n",
    "i.csv": "item;graph_id;x\n5;7;0.5\n6;7;1.5\n5;3;2.5\n",
    "e.csv": "graph_id;src_id;dst_id\n7;1;6\n3;0;5\n7;0;5\n",
    "g.csv": "graph_id;label\n7;1\n3;0\n",
}


def write(folder: Path, files: Mapping[str, str]) -> str:
    for name, text in files.items():
        (folder / name).write_text(text)
    return str(folder)


def test_one_graph(tmp_path: Path) -> None:
    data = CSVDataset(write(tmp_path, ONE))
    g = data[0]
    assert len(data) == 1 and g.edges()[0].tolist() == [0, 2] and g.edges()[1].tolist() == [1, 0]
    assert g.ndata["feat"].tolist() == [[2, 3], [4, 5], [0.5, 1]] and g.ndata["feat"].dtype == torch.float32
    assert g.ndata["kind"].tolist() == [0, 1, 2] and g.ndata["train"].tolist() == [False, True, True]
    assert g.edata["w"][0] == 1.5 and g.edata["w"][1].isnan()


def test_many_graphs_with_labels_and_what_is_kept(tmp_path: Path) -> None:
    path = write(tmp_path, MANY)
    for data in (CSVDataset(path), CSVDataset(path)):  # the second reads what the first has written
        g, label = data[0]
        assert len(data) == 2 and label.tolist() == [1] and data.labels.tolist() == [[1], [0]]
        assert g.num_nodes("u") == 2 and g.nodes["i"].data["x"].tolist() == [0.5, 1.5]
        assert [ends.tolist() for ends in g.edges(etype="likes")] == [[1, 0], [1, 0]]
        assert [part[1].tolist() for part in data[torch.tensor([1])]] == [[0]]
    (tmp_path / "g.csv").write_text("graph_id;label\n3;5\n7;4\n")
    assert CSVDataset(path, force_reload=True).labels.tolist() == [[5], [4]]


def test_a_programs_own_parser(tmp_path: Path) -> None:
    pytest.importorskip("pandas")
    data = CSVDataset(write(tmp_path, ONE), ndata_parser={"_V": lambda frame: {"twice": frame["kind"] * 2}})
    assert data[0].ndata["twice"].tolist() == [0, 2, 4] and list(data[0].ndata) == ["twice"]


@pytest.mark.parametrize(
    ("name", "text", "fact", "line"),
    [
        ("meta.yaml", None, "'meta.yaml' is not in", ""),
        ("meta.yaml", "dataset_name: [", "it is no YAML", "meta.yaml:1"),
        ("meta.yaml", "- 1", "it has no names", "meta.yaml"),
        ("meta.yaml", f"version: 2\n{META}", "version is 2", "meta.yaml"),
        ("meta.yaml", META.replace("own", "[1]"), "dataset_name or separator", "meta.yaml"),
        ("meta.yaml", f"{META}- file_name: more.csv\n", "edge_data names a type twice", "meta.yaml"),
        ("meta.yaml", f"{META}  etype: [a, b]\n", "an entry of edge_data is not whole", "meta.yaml"),
        ("meta.yaml", "dataset_name: own\n", "node_data names no table", "meta.yaml"),
        ("nodes.csv", "id\n1\n", "there is no column 'node_id'", "nodes.csv:1"),
        ("nodes.csv", "node_id,x\na,1\nb,2\na,3\n", "node a was there before", "nodes.csv:4"),
        ("nodes.csv", "node_id,x\na,1\nb,red\nc,2\n", "'red' is no number", "nodes.csv:3"),
        ("nodes.csv", "node_id,x\na,inf\nb,1e99\nc,2\n", "'1e99' is beyond float32", "nodes.csv:3"),
        ("nodes.csv", 'node_id,x\na,"1,2"\nb,"3,4"\nc,"5.0,-1e39"\n', "'5.0,-1e39' is beyond float32", "nodes.csv:4"),
        ("nodes.csv", 'node_id,x\na,"1,2"\nb,"1,2,3"\nc,"1,2"\n', "not as many numbers", "nodes.csv:3"),
        ("nodes.csv", "node_id,x\na,{}\nb,{}\nc,{}\n", "not of numbers", "nodes.csv:2"),
        ("edges.csv", "src_id,dst_id\na,b\na,z\n", "graph 0 has no node 'z' of type '_V'", "edges.csv:3"),
        ("edges.csv", "src_id,dst_id\na,b,c\n", "there are 3 fields", "edges.csv:2"),
    ],
)
def test_what_is_malformed(tmp_path: Path, name: str, text: str | None, fact: str, line: str) -> None:
    folder = write(tmp_path, {**ONE, name: text} if text is not None else {k: v for k, v in ONE.items() if k != name})
    with pytest.raises(DataError) as raised:
        CSVDataset(folder)
    assert fact in str(raised.value) and line in str(raised.value)


def test_graphs_without_a_line(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no line for graph 3"):
        CSVDataset(write(tmp_path, {**MANY, "g.csv": "graph_id;label\n7;1\n"}))
