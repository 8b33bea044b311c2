"""Files that ask for more than they hold, or say what no file says: every loader refuses them, and says where."""

from __future__ import annotations

import gzip
import io
import struct
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import vgraph
from vgraph import data
from vgraph.compat.collections import GINDataset, TUDataset
from vgraph.compat.data import check_sha1, load_info
from vgraph.compat.files import extract_archive, load_tensors
from vgraph.data.sst import flatten_forests, restore_forests
from vgraph.errors import DataError
from vgraph.files import read_arrays
from vgraph.sampling import open_features

LARGE = 20 << 20


def refused(load: Callable[[Path], Any], path: Path, content: bytes, fact: str) -> DataError:
    path.write_bytes(content)
    with pytest.raises(DataError, match=fact) as caught:
        load(path)
    assert caught.value.cure
    return caught.value


# ---------------------------------------------------------------- sizes that nothing holds
@pytest.mark.parametrize("number", [2**24 + 1, 2**32 + 1, 2**62])
def test_an_edge_list_of_few_edges_and_many_vertices(number: int, tmp_path: Path) -> None:
    error = refused(
        data.load_edge_list, tmp_path / "e.txt", f"0 1\n{number} 0\n1 0\n".encode(), f"{number + 1} vertices"
    )
    assert error.line == f"{tmp_path / 'e.txt'}:2"
    assert (
        data.load_edge_list(tmp_path / "e.txt", num_nodes=number + 1).num_nodes() == number + 1 if number < 2**40 else 1
    )


@pytest.mark.parametrize(
    "header",
    ["2147483647 2147483647 0 0 0", "2147483647 0 2147483647 0 0", "2147483647 0 0 0 2147483647", "0 0 0 2147483647 0"],
)
def test_a_circuit_of_34_bytes(header: str, tmp_path: Path) -> None:
    refused(data.load_aiger, tmp_path / "c.aig", f"aig {header}\n".encode(), "vertices; so few may name|cut short")


def npz(packing: int = zipfile.ZIP_STORED, **members: bytes) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", packing) as archive:
        for name, content in members.items():
            archive.writestr(f"{name}.npy", content)
    return made.getvalue()


def npy(shape: str, rows: bytes = b"", descr: str = "<f4") -> bytes:
    header = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}".ljust(117).encode() + b"\n"
    return b"\x93NUMPY\1\0" + struct.pack("<H", len(header)) + header + rows


@pytest.mark.parametrize(
    ("array", "fact"),
    [
        (npy("(4294967296,)"), "takes 17179869184 bytes, and there are 0"),
        (npy("(4294967296, 4294967296, 0)", b"1"), "takes 0 bytes, and there are 1"),
        (npy(f"({'9' * 300},)"), "of shape \\(99"),
        (npy("(1,)", bytes(4), "|O"), "holds object, no plain numbers; nothing is unpickled"),
        (npy("(1,)", bytes(8), "<M8"), "no plain numbers"),
        (npy("(-1,)"), "a header is"),
        (npy("(1,)", bytes(4), "<f4', 'x': '"), "a header is"),
        (npy("(" * 5000), "not a readable"),
        (b"\x93NUMPY\2\0" + struct.pack("<I", 2**31) + b"{}", "has 2147483648 bytes"),
        (b"\x93NUMPY\7\0", "does not begin as an array"),
        (b"", "does not begin as an array|index out of range"),
    ],
)
def test_headers_of_arrays(array: bytes, fact: str, tmp_path: Path) -> None:
    refused(read_arrays, tmp_path / "a.npz", npz(x=array), fact)
    refused(open_features, tmp_path / "a.npy", array, "no array can be mapped")


def test_arrays_as_numpy_writes_them(tmp_path: Path) -> None:
    rows = np.arange(6.0).reshape(2, 3)
    wanted = {"f": np.asfortranarray(rows), "big": rows.astype(">f8"), "text": np.array(["a", "bc"]), "none": rows[:0]}
    np.savez_compressed(tmp_path / "a.npz", **wanted, number=np.array(3), flags=np.array([True, False]))
    found = read_arrays(tmp_path / "a.npz")
    assert all(np.array_equal(found[name], array) for name, array in wanted.items())
    assert (found["number"].item(), found["flags"].tolist(), found["big"].dtype) == (3, [True, False], np.float64)
    assert all(array.flags.writeable for array in found.values())
    seven = read_arrays(write(tmp_path / "b.npz", npz(x=npy("(3,)", b"\7\0\1", "|b1"))))["x"]
    assert (seven.tolist(), int(torch.from_numpy(seven).sum())) == ([True, False, True], 2)


def write(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


def test_what_expands_without_end(tmp_path: Path) -> None:
    packed = npz(zipfile.ZIP_DEFLATED, x=npy(f"({LARGE},)", bytes(LARGE), "|u1"))
    refused(read_arrays, tmp_path / "a.npz", packed, "compressed bytes expand to 2")
    lines = gzip.compress((b"#" * 99 + b"\n") * (LARGE // 100))
    refused(
        data.load_rdf, tmp_path / "a.nt.gz", lines, "it has more than the 16777216 bytes that its length makes likely"
    )
    refused(data.load_rdf, tmp_path / "a.nt.gz", gzip.compress(bytes(LARGE), 1), "line 1 has 4194304 letters or more")


def test_sparse_features_of_a_file_that_are_dense_in_memory(tmp_path: Path) -> None:
    mask = {name: np.ones(3, bool) for name in ("train_mask", "val_mask", "test_mask")}
    members = {
        "feat_indptr": np.zeros(4, np.int32), "feat_indices": np.zeros(0, np.int32),
        "feat_data": np.zeros(0, np.float32),
        "label": np.zeros(3, int), "src": np.zeros(0, int), "dst": np.zeros(0, int),
    }  # fmt: skip
    np.savez(tmp_path / "c.npz", **members, **mask, feat_shape=np.array([3, 2**31 - 1]))
    with pytest.raises(DataError, match="asks for 25769803764 bytes, of a file of"):
        data.load_planetoid(tmp_path / "c.npz")
    np.savez(tmp_path / "c.npz", **members | {"label": np.array([0, 0, 2**20])}, **mask, feat_shape=np.array([3, 2]))
    with pytest.raises(DataError, match="member 'label' is 1048576 at 2"):
        data.load_planetoid(tmp_path / "c.npz")
    tags = "".join(f"{2 * i} 0\n" for i in range(20_000))
    write(tmp_path / "M.txt", f"1\n20000 0\n{tags}".encode())
    with pytest.raises(DataError, match="20000 different tags of 20000 vertices"):
        GINDataset("M", raw_dir=str(tmp_path))


@pytest.mark.parametrize(
    ("name", "value", "fact"),
    [
        ("node_labels", np.array([0, -1]), "node_labels run from -1"),
        ("node_labels", np.array([0, 2**40]), "node_labels run from 0 to 1099511627776"),
        ("node_labels", np.array(["a", "b"]), "member 'node_labels' has dtype <U1"),
        ("edges", np.array([[0.0, 1.0]]), "member 'edges' has dtype float64"),
        ("edges", np.array([[0, 2**63]], np.uint64), "edges name vertices from 0 to 9223372036854775808 of 2"),
        ("node_features", np.array([[1j], [2]]), "member 'node_features' has dtype complex128"),
        ("val_masks", np.array([["a", "b"]]), "member 'val_masks' has dtype"),
    ],
)
def test_members_of_odd_kinds(name: str, value: Any, fact: str, tmp_path: Path) -> None:
    members: dict[str, Any] = {"node_features": np.ones((2, 1)), "node_labels": np.array([0, 1])}
    members |= {
        "edges": np.array([[0, 1]]),
        **{f"{part}_masks": np.ones((1, 2), bool) for part in ("train", "val", "test")},
    }
    np.savez(tmp_path / "p.npz", **members | {name: value})
    with pytest.raises(DataError, match=fact):
        data.load_heterophilous(tmp_path / "p.npz")


# ---------------------------------------------------------------- what no file says
def test_weights_that_float32_does_not_hold(tmp_path: Path) -> None:
    refused(data.load_edge_list, tmp_path / "e.txt", b"0 1 1e300\n", "'1e300' is not a weight")


def test_rdf_of_nothing_and_of_names_that_meet(tmp_path: Path) -> None:
    refused(data.load_rdf, tmp_path / "g.nt", b"# nothing\n", "there is no triple")
    twins = b"<a> <x#knows> <b> .\n<a> <x#inverse-knows> <b> .\n"
    refused(data.load_rdf, tmp_path / "g.nt", twins, "the relation 'inverse-knows' is also the inverse of another")
    assert len(data.load_rdf(tmp_path / "g.nt", inverse=False).relations) == 2
    refused(
        data.load_rdf, tmp_path / "g.nt.gz", gzip.compress(b"\n\xff"), "it is not UTF-8, here or in one of the next"
    )


def test_sources_that_cannot_be_parsed() -> None:
    for source in ("def f(:", "x = 1\0", "(" * 5000, b"\xff"):
        with pytest.raises(DataError, match="it cannot be parsed"):
            data.parse_functions(source)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("only.parent", [-1, 0, 3]), ("only.parent", [0, 0, 0]), ("only.parent", [-1, -1, 0]), ("only.ptr", [0, 4]),
        ("only.ptr", [1, 3]), ("only.label", [9]), ("only.features.word", [-1, 0, 7]),
        ("only.features.word", [-2, 0, 1]),
        ("only.ptr", [[0, 3]]), ("only.label", []),
    ],
)  # fmt: skip
def test_a_cache_of_trees_that_are_none(name: str, value: list[Any]) -> None:
    arrays = flatten_forests(["only"], [data.parse_ptb("(1 (0 bad) (1 good))")])
    restore_forests(["only"], arrays, "c.npz")
    with pytest.raises(DataError, match="the arrays of only do not fit together"):
        restore_forests(["only"], {**arrays, name: np.array(value, np.int64)}, "c.npz")


TABLES = {
    "A": "1, 2\n2, 1\n3, 4\n4, 5\n", "graph_indicator": "1\n1\n2\n2\n2\n", "graph_labels": "-1\n1\n",
    "node_labels": "3\n4\n3\n5\n3\n",
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "content", "fact"),
    [
        ("A", "1, 2\n1, 1e18\n", "numbers that are not whole, or too large"),
        ("A", "1, 2\n1, 6\n", "names other vertices than the 5"),
        ("A", "1, 2\n1, 0\n", "names other vertices"),
        ("A", "1, 2, 3\n", "has 3 columns, not 2"),
        ("A", "", "no table can be read"),
        ("graph_indicator", "1\n1\n2\n2\n4294967297\n", "names other graphs than the 2"),
        ("graph_indicator", "1\n1\n2\n2\nnan\n", "not whole"),
        ("graph_labels", "1\n", "names other graphs than the 1"),
        ("node_labels", "1\n2\n", "has 2 rows for 5"),
        ("node_labels", "1\n2\n1\n1\n9223372036854775807\n", "too large"),
    ],
)
def test_tables_of_the_tu_collection(name: str, content: str, fact: str, tmp_path: Path) -> None:
    for table, text in (TABLES | {name: content}).items():
        (tmp_path / f"S_{table}.txt").write_text(text)
    (tmp_path / "S").mkdir()
    for path in tmp_path.glob("S_*.txt"):
        path.rename(tmp_path / "S" / path.name)
    with pytest.raises(DataError, match=fact):
        TUDataset("S", raw_dir=str(tmp_path))


def test_large_numbers_of_the_tu_collection(tmp_path: Path) -> None:
    (tmp_path / "S").mkdir()
    tables = TABLES | {"node_labels": "".join(f"{2**60 + i}\n" for i in range(5)), "graph_labels": "1.0\n2.0\n"}
    for table, text in tables.items():
        (tmp_path / "S" / f"S_{table}.txt").write_text(text)
    found = TUDataset("S", raw_dir=str(tmp_path))
    assert torch.cat([g.ndata["node_labels"] for g, _ in found]).flatten().tolist() == [0, 1, 2, 3, 4]
    assert [int(label) for _, label in found] == [0, 1]


# ---------------------------------------------------------------- archives
def tar(members: dict[str, bytes], **others: Any) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as archive:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            for key, value in others.items():
                setattr(info, key, value)
            archive.addfile(info, io.BytesIO(content))
    return made.getvalue()


def packed(name: str, members: dict[str, bytes]) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        for member, content in members.items():
            archive.writestr(member, content)
    return {"zip": made.getvalue(), "tar": tar(members), "gz": gzip.compress(tar(members), 1)}[name.rpartition(".")[2]]


@pytest.mark.parametrize("name", ["a.zip", "a.tar", "a.tar.gz"])
def test_archives(name: str, tmp_path: Path) -> None:
    write(tmp_path / name, packed(name, {"d/x.txt": b"one", "y.txt": b"two"}))
    extract_archive(tmp_path / name, tmp_path / "in" / "made")
    assert (tmp_path / "in" / "made" / "d" / "x.txt").read_bytes() == b"one"
    (tmp_path / "in" / "made" / "y.txt").write_bytes(b"old")
    extract_archive(tmp_path / name, tmp_path / "in" / "made")
    assert (tmp_path / "in" / "made" / "y.txt").read_bytes() == b"old"
    extract_archive(tmp_path / name, tmp_path / "in" / "made", overwrite=True)
    assert (tmp_path / "in" / "made" / "y.txt").read_bytes() == b"two"
    cases = {
        "outside|it cannot be unpacked": packed(name, {"../z.txt": b"three"}),
        "it cannot be unpacked": packed(name, {"d/x.txt": b"one"})[:90],
    }
    if name != "a.tar":
        cases["expand|more than the 16777216 bytes|names byte 209"] = packed(name, {"z.txt": bytes(LARGE)})
    for fact, content in cases.items():
        refused(lambda path: extract_archive(path, tmp_path / "in" / "other"), tmp_path / name, content, fact)
        assert sorted(path.name for path in (tmp_path / "in").iterdir()) == ["made"]
        assert not (tmp_path / "z.txt").exists()


def test_one_compressed_file(tmp_path: Path) -> None:
    write(tmp_path / "edges.csv.gz", gzip.compress(b"0,1"))
    extract_archive(tmp_path / "edges.csv.gz", tmp_path / "in" / "made")
    assert (tmp_path / "in" / "made" / "edges.csv").read_bytes() == b"0,1"
    for fact, content in {"cannot be unpacked": b"\x1f\x8bno", "more than the": gzip.compress(bytes(LARGE), 1)}.items():
        refused(lambda path: extract_archive(path, tmp_path / "in" / "other"), tmp_path / "big.gz", content, fact)
        assert sorted(path.name for path in (tmp_path / "in").iterdir()) == ["made"]


def test_a_tar_that_says_it_is_large(tmp_path: Path) -> None:
    content = bytearray(tar({"x.txt": b"one"}))
    content[124:136] = b"77777777777\0"  # its size
    content[148:156] = b"%06o\0 " % (sum(content[:148]) + 8 * 32 + sum(content[156:512]))
    refused(
        lambda path: extract_archive(path, tmp_path / "m"), tmp_path / "a.tar", bytes(content), "cannot be unpacked"
    )
    with pytest.raises(DataError, match="cannot read the data file"):
        extract_archive(tmp_path / "none.zip", tmp_path / "m")


def test_tensors_and_what_else_stands_by_name(tmp_path: Path) -> None:
    torch.save([torch.ones(1)], tmp_path / "t.bin")
    with pytest.raises(DataError, match="it holds no tensors by name"):
        load_tensors(tmp_path / "t.bin")
    with pytest.raises(DataError, match="it holds nothing by name"):
        load_info(tmp_path / "t.bin")
    torch.save({"f": vgraph.Graph}, tmp_path / "t.bin")
    with pytest.raises(DataError, match=r"names 'vgraph.api.graph Graph', which no data need"):
        load_info(tmp_path / "t.bin")
    with pytest.raises(DataError, match="cannot read the data file"):
        check_sha1(tmp_path / "none", "")
