"""Files of graphs that were written to do harm: whatever does not fit is refused before a graph is made."""

from __future__ import annotations

import io
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import vgraph
from tests.stored_by_dgl import dgl_bytes
from vgraph.errors import DataError


def whole() -> vgraph.Graph:
    edges: Any = {("u", "f", "u"): ([0, 1, 2], [1, 2, 0]), ("u", "p", "g"): ([0, 2, 2], [1, 0, 1])}
    g = vgraph.heterograph(edges)
    g.nodes["u"].data["h"], g.edges["p"].data["w"] = torch.rand(3, 2), torch.rand(3)
    return vgraph.batch([g, g])


def put(content: dict[str, Any], path: str, value: Any) -> None:
    """``graphs.0.edges.1.2``: the place of an item."""
    *steps, last = (int(step) if step.isdigit() else step for step in path.split("."))
    for step in steps:
        content = content[step]  # type: ignore[index]
    if isinstance(value, Callable):  # type: ignore[arg-type]
        value = value(content[last])  # type: ignore[index]
    content[last] = value  # type: ignore[index]


IDS = torch.tensor([0, 1, 2, 3, 4, 5])
CASES: list[tuple[str, Any, str]] = [
    ("graphs.0.edges.0.1", IDS + 2**30, "an end of the edges 'f' is 1073741829 where there are 6 nodes"),
    ("graphs.0.edges.0.2", IDS - 1, "an end of the edges 'f' is -1 where"),
    ("graphs.0.edges.0.2", IDS[:5], "have 6 sources and 5 destinations"),
    ("graphs.0.edges.0.1", IDS.float(), "the ends of 'f' are no list of int64 or int32"),
    ("graphs.0.edges.0.1", IDS[:, None], "the ends of 'f' are no list"),
    ("graphs.0.edges.0.1", IDS.to_sparse(), "the ends of 'f' are no list"),
    ("graphs.0.edges.0.1", IDS.int(), "of several dtypes"),
    ("graphs.0.edges.0.1", [0, 1], "the ends of 'f' are no list"),
    ("graphs.0.edges.0.3", 5, "'f' joins 5 and 6 nodes where there are others"),
    ("graphs.0.edges.0.0", ["u", "f"], "is no edge type"),
    ("graphs.0.edges.0.0", ["u", "f", "x"], "joins nodes that there are not"),
    ("graphs.0.edges.0.0", ["u", "p", "g"], "where there are others"),
    ("graphs.0.edges", [], "features have no type"),
    ("graphs.0.src.0.1", -1, "there are -1 nodes of type 'g'"),
    ("graphs.0.src.0.1", 4.0, "there are 4.0 nodes"),
    ("graphs.0.src.0.1", 2**40, "bytes name 1099511627776 nodes of type 'g'"),
    ("graphs.0.src.0.0", "u", "a type has features twice"),
    ("graphs.0.src.1.2.h", torch.ones(1, 2), r"feature 'h' is float32 \(1, 2\) for 6 rows"),
    ("graphs.0.src.1.2.h", torch.ones(1, 2).expand(6, 2), "feature 'h' has more rows than are stored"),
    ("graphs.0.src.1.2.h", torch.tensor(1.0), r"feature 'h' is float32 \(\) for 6 rows"),
    ("graphs.0.src.1.2.h", "x", "stands where a named tensor should"),
    ("graphs.0.src.1.2", [1], "stands where tensors by name should"),
    ("graphs.0.edata.1.2.w", torch.ones(5), "feature 'w' is float32"),
    ("graphs.0.edata.1.0", 7, "of graph 0"),
    ("graphs.0.gdata", {"y": torch.ones(3)}, "graph feature 'y'"),
    ("graphs.0.sizes.u", [7, -1], "do not have the 6 nodes of type 'u'"),
    ("graphs.0.sizes.u", [6], "different numbers of graphs"),
    ("graphs.0.sizes", {}, "do not have the 4 nodes"),
    ("graphs.0.sizes", {"u": [3, 3]}, "do not have the 4 nodes of type 'g'"),
    ("graphs.0", 5, "of graph 0"),
    ("graphs", 5, "it has no list of graphs"),
    ("labels", {"y": 1}, "of the labels, a int called 'y'"),
    ("labels", None, "of the labels"),
    ("format", "another", "it is of another kind"),
]


@pytest.mark.parametrize(("place", "value", "fact"), CASES)
def test_parts_that_do_not_fit(place: str, value: Any, fact: str, tmp_path: Path) -> None:
    vgraph.save_graphs(tmp_path / "g.bin", whole(), {"y": torch.ones(1)})
    vgraph.load_graphs(tmp_path / "g.bin")
    content = torch.load(tmp_path / "g.bin", weights_only=True)
    put(content, place, value)
    torch.save(content, tmp_path / "g.bin")
    with pytest.raises(DataError, match=fact) as caught:
        vgraph.load_graphs(tmp_path / "g.bin")
    assert caught.value.cure and "g.bin" in caught.value.fact


def test_a_flipped_bit_is_seen_wherever_it_is(tmp_path: Path) -> None:
    """In what is read: padding and the names of records that nobody asks for may be anything."""
    g = vgraph.graph(([0, 1, 2], [1, 2, 0]))
    g.ndata["h"] = torch.rand(3, 2)
    path = tmp_path / "g.bin"
    vgraph.save_graphs(path, g, {"y": torch.tensor([1])})
    good, refused = path.read_bytes(), 0
    for place in range(0, len(good), 7):
        path.write_bytes(good[:place] + bytes([good[place] ^ 0x10]) + good[place + 1 :])
        try:
            (found,), labels = vgraph.load_graphs(path)
        except DataError:
            refused += 1
        else:
            assert torch.equal(found.ndata["h"], g.ndata["h"]) and torch.equal(found.edges()[0], g.edges()[0])
            assert labels["y"].tolist() == [1]
    assert refused > 40


def test_graphs_saved_on_a_gpu_come_to_the_cpu(tmp_path: Path) -> None:
    path = tmp_path / "g.bin"
    vgraph.save_graphs(path, whole())
    assert path.read_bytes().count(b"X\x03\x00\x00\x00cpuq")
    with zipfile.ZipFile(io.BytesIO(path.read_bytes())) as old, zipfile.ZipFile(path, "w") as new:
        for info in old.infolist():
            new.writestr(info.filename, old.read(info).replace(b"X\x03\x00\x00\x00cpuq", b"X\x06\x00\x00\x00cuda:7q"))
    (found,), _ = vgraph.load_graphs(path)
    assert found.device.type == "cpu"


# ---------------------------------------------------------------- files of DGL
@pytest.mark.parametrize(
    ("old", "new", "fact"),
    [
        ((24, 2), 2**40, "says that it holds 1099511627776 graphs"),
        ((4096, None), 2**63, "is truncated"),
    ],
)
def test_numbers_at_the_front_of_a_file_of_dgl(old: Any, new: int, fact: str, tmp_path: Path) -> None:
    content = dgl_bytes("plain")
    (tmp_path / "g.bin").write_bytes(content[: old[0]] + struct.pack("<Q", new) + content[old[0] + 8 :])
    with pytest.raises(DataError, match=fact):
        vgraph.load_graphs(tmp_path / "g.bin")


def test_every_number_of_a_file_of_dgl(tmp_path: Path) -> None:
    """No number, however large, is another's error, and none makes a graph whose ids are out of range."""
    for name in ("plain", "typed", "rows", "batch"):
        content = dgl_bytes(name)
        for place in (*range(8, 40, 8), *range(4096, len(content) - 8, 4)):
            value = (2**31 - 1, 2**63, 2**64 - 1, 5)[place // 4 % 4]
            (tmp_path / "g.bin").write_bytes(content[:place] + struct.pack("<Q", value) + content[place + 8 :])
            try:
                graphs, _ = vgraph.load_graphs(tmp_path / "g.bin")
            except DataError:
                continue
            for g in graphs:
                assert all(len(g.in_degrees(etype=key)) == g.num_nodes(key[2]) for key in g.canonical_etypes)


def test_counts_of_bipartite_graphs_of_dgl(tmp_path: Path) -> None:
    (tmp_path / "g.bin").write_bytes(dgl_bytes("typed"))
    (g, _), _ = vgraph.load_graphs(tmp_path / "g.bin")
    t = g["p"].topology
    assert (t.num_src, t.num_dst) == (3, 2)
    assert g.in_degrees(etype="p").tolist() == [1, 2]
