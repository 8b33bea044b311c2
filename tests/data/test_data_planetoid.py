"""Citation graphs: features from CSR, every malformed member, and the public data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from vgraph.data import load_planetoid, parse_planetoid
from vgraph.errors import DataError
from vgraph.files import read_arrays

Members = dict[str, NDArray[Any]]


@pytest.fixture
def members() -> Members:
    """Three vertices and four features; the last vertex has no feature."""
    mask = np.eye(3, dtype=bool)
    return {
        "feat_indptr": np.array([0, 2, 3, 3], np.int32),
        "feat_indices": np.array([0, 3, 1], np.int32),
        "feat_data": np.array([1, 3, 2], np.float32),
        "feat_shape": np.array([3, 4]),
        "label": np.array([1, 0, 1]),
        "train_mask": mask[0],
        "val_mask": mask[1],
        "test_mask": mask[2],
        "src": np.array([0, 1]),
        "dst": np.array([1, 0]),
    }


def test_features(members: Members) -> None:
    raw = parse_planetoid(members, normalize=False)
    assert raw.feat.tolist() == [[1, 0, 0, 3], [0, 2, 0, 0], [0, 0, 0, 0]]
    normalized = parse_planetoid(members)
    assert normalized.feat.tolist() == [[0.25, 0, 0, 0.75], [0, 1, 0, 0], [0, 0, 0, 0]]
    assert normalized.feat.dtype == np.float32
    assert normalized.label.tolist() == [1, 0, 1]
    assert (normalized.src.tolist(), normalized.dst.tolist()) == ([0, 1], [1, 0])


@pytest.mark.parametrize(
    ("name", "value", "fact"),
    [
        ("label", None, "member 'label' is missing; the file has dst, feat_data"),
        ("label", np.array([0, 1]), "member 'label' has shape (2,) where (3,) is needed"),
        ("label", np.array([0, -1, 1]), "member 'label' is -1 at 1, which is not in [0, "),
        ("label", np.zeros(3), "member 'label' has dtype float64"),
        ("src", np.array([0, 3]), "member 'src' is 3 at 1, which is not in [0, 3)"),
        ("dst", np.array([-2, 0]), "member 'dst' is -2 at 0, which is not in [0, 3)"),
        ("dst", np.array([1]), "member 'dst' has 1 edges where src has 2"),
        ("src", np.zeros((2, 2), int), "member 'src' has shape (2, 2)"),
        ("val_mask", np.array([0, 1, 0]), "member 'val_mask' has dtype int64"),
        ("test_mask", np.zeros(2, bool), "member 'test_mask' has shape (2,)"),
        ("feat_indices", np.array([0, 4, 1]), "member 'feat_indices' is 4 at 1"),
        ("feat_data", np.zeros(2, np.float32), "member 'feat_data' has shape (2,)"),
        ("feat_indptr", np.array([0, 2, 1, 3]), "member 'feat_indptr' does not run from 0 up to 3"),
        ("feat_indptr", np.array([0, 1, 2, 2]), "member 'feat_indptr' does not run from 0 up to 3"),
        ("feat_indptr", np.array([0, 3]), "member 'feat_indptr' has shape (2,)"),
        ("feat_shape", np.array([3]), "member 'feat_shape' has shape (1,)"),
    ],
)
def test_malformed_members(members: Members, name: str, value: NDArray[Any] | None, fact: str) -> None:
    if value is None:
        del members[name]
    else:
        members[name] = value
    with pytest.raises(DataError) as caught:
        parse_planetoid(members, path="cora.npz")
    assert fact in str(caught.value)
    assert caught.value.line == f"cora.npz:{name}"
    assert caught.value.cure


def test_files_that_are_no_npz(tmp_path: Path, members: Members) -> None:
    path = tmp_path / "some.npz"
    with pytest.raises(DataError, match="cannot read the data file"):
        read_arrays(path)
    np.savez(path, **members)
    whole = path.read_bytes()
    for damaged in (b"", whole[:200], whole[:-30], b"text", whole.replace(b"NUMPY", b"NUMPI")):
        path.write_bytes(damaged)
        with pytest.raises(DataError, match=r"not a readable \.npz") as caught:
            read_arrays(path)
        assert caught.value.line == str(path)
    with path.open("wb") as file:
        np.save(file, members["src"])
    with pytest.raises(DataError, match=r"one array, not an \.npz of named arrays"):
        read_arrays(path)


def test_nothing_is_unpickled(tmp_path: Path, members: Members) -> None:
    path = tmp_path / "pickled.npz"
    np.savez(path, **members | {"label": np.array([{"a": 1}, None, ()], object)})
    with pytest.raises(DataError, match="holds object, no plain numbers; nothing is unpickled"):
        load_planetoid(path)


def test_graph(tmp_path: Path, members: Members) -> None:
    path = tmp_path / "small.npz"
    np.savez(path, **members)
    cited = load_planetoid(path)
    assert (cited.num_classes, cited.num_features) == (2, 4)
    assert (cited.graph.num_nodes(), cited.graph.num_edges()) == (3, 2)
    assert cited.graph.ndata["feat"].dtype == torch.float32
    assert cited.graph.ndata["label"].tolist() == [1, 0, 1]
    assert cited.graph.ndata["val_mask"].tolist() == [False, True, False]


@pytest.mark.parametrize(
    ("name", "shape", "num_edges", "num_classes"),
    [("cora", (2708, 1433), 10556, 7), ("citeseer", (3327, 3703), 9104, 6)],
)
def test_citation_graphs(data_dir: Path, name: str, shape: tuple[int, int], num_edges: int, num_classes: int) -> None:
    path = data_dir / "planetoid" / f"{name}.npz"
    if not path.exists():
        pytest.skip(f"no citation graph at {path}")
    arrays = parse_planetoid(read_arrays(path), path=path)
    assert arrays.feat.shape == shape
    assert len(arrays.src) == len(arrays.dst) == num_edges
    assert arrays.label.max() + 1 == num_classes
    assert arrays.train_mask.sum() == 20 * num_classes
    assert (arrays.val_mask.sum(), arrays.test_mask.sum()) == (500, 1000)
    total = arrays.feat.sum(1)
    assert np.allclose(total[total > 0], 1)
    pairs = set(zip(arrays.src.tolist(), arrays.dst.tolist(), strict=True))
    assert all((dst, src) in pairs for src, dst in pairs)
