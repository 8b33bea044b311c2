"""One byte flipped, or a file cut short or missing, is told with the file's name."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

import vgraph.distributed as vd
from tests.distributed.stored_graphs import typed_graph
from vgraph.distributed.stored.manifest import FileRecord, Manifest, read_manifest
from vgraph.errors import DataError


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("check") / "g.vg"
    vd.partition_graph(typed_graph(), path, 2, "ldg", "types", both=True)
    return path


@pytest.fixture
def copy(folder: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(folder, tmp_path / "g.vg"))


def test_what_was_written(folder: Path) -> None:
    told: list[str] = []
    vd.check_graph(folder, progress=lambda what, done, total: told.append(f"{what} {done == total}"))
    assert "checksums True" in told and "ids and counts True" in told


def test_one_byte_flipped_in_each_file(folder: Path, copy: Path) -> None:
    draw = np.random.default_rng(0)
    for path in sorted(path for path in copy.rglob("*") if path.is_file()):
        data = path.read_bytes()
        for place in {0, len(data) - 1, int(draw.integers(len(data)))}:
            path.write_bytes(data[:place] + bytes([data[place] ^ 1 << int(draw.integers(8))]) + data[place + 1 :])
            with pytest.raises(DataError) as caught:
                vd.check_graph(copy)
            assert path.name in str(caught.value), (path, place)
        path.write_bytes(data)
    vd.check_graph(copy)


def test_each_file_cut_and_missing(copy: Path) -> None:
    for path in sorted(path for path in copy.rglob("*") if path.is_file()):
        data = path.read_bytes()
        for length in (0, len(data) // 2, len(data) - 1):
            path.write_bytes(data[:length])
            with pytest.raises(DataError) as caught:
                vd.check_graph(copy)
            assert path.name in str(caught.value), (path, length)
        path.unlink()
        with pytest.raises(DataError, match=r"cannot read"):
            vd.check_graph(copy)
        path.write_bytes(data)


def test_cut_files_are_told_at_load(copy: Path) -> None:
    path = copy / "part-00001" / "item.feat.npy"
    path.write_bytes(path.read_bytes()[:-1])
    part = vd.PartitionedGraph.open(copy).part(1)
    with pytest.raises(DataError, match=r"(?s)was written with.*item.feat.npy"):
        part.node_data("item", "feat")


def test_parts_of_this_machine(copy: Path) -> None:
    shutil.rmtree(copy / "part-00000")
    vd.check_graph(copy, [1])
    with pytest.raises(DataError, match=r"part-00000"):
        vd.check_graph(copy)


# ------------------------------------------------------------------ checksums that fit, content that does not
def sealed(copy: Path, name: str, array: torch.Tensor) -> None:
    """Writes another array, and a manifest that believes it."""
    from hashlib import sha256

    np.save(copy / name, array.numpy())
    data = (copy / name).read_bytes()
    manifest, _ = read_manifest(copy)
    files = {**manifest.files, name: FileRecord(len(data), sha256(data).hexdigest())}
    (copy / "graph.json").write_text(Manifest(**{**vars(manifest), "files": files}).text())


@pytest.mark.parametrize(
    ("name", "change", "said"),
    [
        ("part-00000/user~follows~user.src.npy", lambda x: x + 100, r"it names ids outside 0 to 8"),
        ("part-00000/user~follows~user.src.npy", lambda x: x.double(), r"the manifest names"),
        ("part-00000/user~follows~user.src.npy", lambda x: x.roll(1) * 0, r"other rows than it says|halo"),
        ("part-00000/user~follows~user.ptr.npy", lambda x: x.flip(0), r"pointers do not rise"),
        ("part-00000/user~follows~user.eid.npy", lambda x: x * 0, r"an edge that is there already"),
        ("part-00000/user.orig.npy", lambda x: x * 0, r"does not turn back new_ids/user.npy"),
        ("new_ids/item.npy", lambda x: x.flip(0) * 0, r"does not turn back new_ids/item.npy"),
        ("halo/user.npy", lambda x: x + 1, r"part 0 reads other rows than it says"),
    ],
)
def test_content_that_does_not_fit(copy: Path, name: str, change: object, said: str) -> None:
    assert callable(change)
    sealed(copy, name, change(torch.from_numpy(np.load(copy / name))))
    with pytest.raises(DataError, match=said):
        vd.check_graph(copy)


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("format", "else", r"it is of another kind"),
        ("version", 2, r"version 2 of the format"),
        ("num_parts", 0, r"describes no partitioned graph"),
        ("num_parts", 2**70, r"num_parts is"),
        ("nodes", {"user": {"bounds": [0, 5, 3], "features": {}}}, r"bounds of 2 parts"),
        ("nodes", {"user": {"bounds": [0, 5], "features": {}}}, r"bounds of 2 parts"),
        ("nodes", {"user": {"bounds": [0, 4, 9], "features": {"x": ["object"]}}}, r"of dtype 'object'"),
        ("nodes", {"\ud800": {"bounds": [0, 4, 9], "features": {}}}, r"describes no partitioned graph"),
        ("edges", [], r"no parts, no nodes or no edge types"),
        ("loads", {"nodes": [1]}, r"1 of 2 parts have loads"),
        ("halo_rows", -1, r"halo_rows is '-1'"),
        ("seed", 1, r"the checksum differs"),
    ],
)
def test_damaged_manifest(copy: Path, key: str, value: object, said: str) -> None:
    content = json.loads((copy / "graph.json").read_text())
    (copy / "graph.json").write_text(json.dumps({**content, key: value}, separators=(",", ":")) + "\n")
    with pytest.raises(DataError, match=said):
        vd.PartitionedGraph.open(copy)


def test_folder_that_is_no_graph(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"(?s)cannot read the data file.*graph.json"):
        vd.PartitionedGraph.open(tmp_path)


def test_file_outside_the_folder(copy: Path) -> None:
    manifest, _ = read_manifest(copy)
    files = {**manifest.files, "../graph.json": FileRecord(1, "")}
    (copy / "graph.json").write_text(Manifest(**{**vars(manifest), "files": files}).text())
    with pytest.raises(DataError, match=r"a file outside the folder"):
        vd.check_graph(copy)
