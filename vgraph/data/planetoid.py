"""Citation graphs (Cora, CiteSeer) from one .npz of plain arrays.

Takes: the members of the .npz. Gives: checked arrays, or a graph. Runs once per file.
Source: Yang et al. 2016 (the split), Kipf and Welling 2017 (row-normalised features).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

import vgraph
from vgraph.arguments import PATH, Bound, checked
from vgraph.errors import DataError
from vgraph.files import most_dense, read_arrays

FEATURES = ("feat_indptr", "feat_indices", "feat_data", "feat_shape")
MASKS = ("train_mask", "val_mask", "test_mask")
# numpy's kinds: signed and unsigned integer, float, bool
KINDS = {"feat_data": "f", **dict.fromkeys(MASKS, "b")}

MOST_CLASSES = 1 << 16  # or as many as there are vertices


@dataclass(frozen=True, eq=False)
class CitationArrays:
    """One citation graph of n vertices, e edges and f features, as arrays.

    Attributes:
        feat: float32 (n, f).
        label: int64 (n,), from 0 up.
        train_mask: bool (n,).
        val_mask: bool (n,).
        test_mask: bool (n,).
        src: int64 (e,); every citation is there in both directions.
        dst: int64 (e,).

    Source: Yang et al. 2016.

    Example:
        >>> csr = {"feat_indptr": [0, 1], "feat_indices": [0], "feat_data": [2.0], "feat_shape": [1, 1]}
        >>> members = {**csr, "label": [0], "src": [0], "dst": [0], **dict.fromkeys(MASKS, [True])}
        >>> arrays = parse_planetoid({name: np.array(rows) for name, rows in members.items()})
        >>> arrays.feat.shape, arrays.label.tolist()
        ((1, 1), [0])
    """

    feat: NDArray[np.float32]
    label: NDArray[np.int64]
    train_mask: NDArray[np.bool_]
    val_mask: NDArray[np.bool_]
    test_mask: NDArray[np.bool_]
    src: NDArray[np.int64]
    dst: NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class CitationGraph:
    """A graph of n vertices and its data.

    Attributes:
        graph: a graph with ``ndata`` feat, float32 (n, num_features), label, int64 (n,), and train_mask, val_mask and
            test_mask, bool (n,).
        num_classes: labels are below it.
        num_features: the width of a row of ``feat``.
        classes: the names of the labels, where the file has them.

    Source: Yang et al. 2016.

    Example:
        >>> import tempfile
        >>> csr = {"feat_indptr": [0, 1], "feat_indices": [0], "feat_data": [2.0], "feat_shape": [1, 1]}
        >>> members = {**csr, "label": [0], "src": [0], "dst": [0], **dict.fromkeys(MASKS, [True])}
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     np.savez(f"{folder}/one.npz", **members)
        ...     sorted(load_planetoid(f"{folder}/one.npz").graph.ndata)
        ['feat', 'label', 'test_mask', 'train_mask', 'val_mask']
    """

    graph: vgraph.Graph
    num_classes: int
    num_features: int
    classes: tuple[str, ...] = ()


_ARRAYS = Bound(
    "a dict of arrays",
    lambda given: isinstance(given, Mapping) and all(isinstance(one, np.ndarray) for one in given.values()),
)


@checked(members=_ARRAYS)
def parse_planetoid(
    members: Mapping[str, NDArray[np.generic]], *, normalize: bool = True, path: str | Path = "<arrays>"
) -> CitationArrays:
    """Checks the arrays of a file and expands the features, which it stores as CSR.

    Args:
        members: arrays by name: feat_indptr, feat_indices, feat_data, feat_shape, label, train_mask, val_mask,
            test_mask, src, dst.
        normalize: divide every row of the features by its sum; rows of zeros stay zeros.
        path: what errors call the file.

    Returns:
        CitationArrays.

    Raises:
        DataError: a member is missing or has the wrong shape or dtype, an id is out of range, or the features are
            far larger than what is stored.

    Source: Yang et al. 2016 (the split); Kipf and Welling 2017, section 5.2 (row-normalised features).

    Example:
        >>> csr = {"feat_indptr": [0, 1, 2], "feat_indices": [0, 1], "feat_data": [2.0, 3.0], "feat_shape": [2, 2]}
        >>> masks = {"train_mask": [True, False], "val_mask": [False, True], "test_mask": [False, False]}
        >>> members = {**csr, **masks, "label": [1, 0], "src": [0, 1], "dst": [1, 0]}
        >>> parse_planetoid({name: np.array(rows) for name, rows in members.items()}).feat.tolist()
        [[1.0, 0.0], [0.0, 1.0]]
    """
    return _parse(_Checker(members, path), sum(array.nbytes for array in members.values()), normalize)


def _parse(check: _Checker, num_bytes: int, normalize: bool) -> CitationArrays:
    feat = _expand_features(check, num_bytes)
    n = len(feat)
    if normalize:
        total = feat.sum(1, keepdims=True)
        feat /= np.where(total == 0, np.float32(1), total)
    train, val, test = (check.member(name, n).astype(np.bool_) for name in MASKS)
    label = check.ids("label", max(MOST_CLASSES, n), n)
    src, dst = check.ids("src", n), check.ids("dst", n)
    if len(src) != len(dst):
        raise check.fail("dst", f"has {len(dst)} edges where src has {len(src)}")
    return CitationArrays(feat, label, train, val, test, src, dst)


@checked(path=PATH)
def load_planetoid(path: str | Path, *, normalize: bool = True) -> CitationGraph:
    """The graph of ``cora.npz`` or ``citeseer.npz``.

    Args:
        path: an .npz with the members that ``parse_planetoid`` takes.
        normalize: divide every row of the features by its sum; rows of zeros stay zeros.

    Returns:
        A CitationGraph.

    Raises:
        DataError: the file is missing or malformed.

    Source: Yang et al. 2016 (the split); Kipf and Welling 2017, section 5.2 (row-normalised features).

    Example:
        >>> import tempfile
        >>> csr = {"feat_indptr": [0, 1], "feat_indices": [0], "feat_data": [2.0], "feat_shape": [1, 1]}
        >>> members = {**csr, "label": [0], "src": [0], "dst": [0], **dict.fromkeys(MASKS, [True])}
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     np.savez(f"{folder}/one.npz", **members)
        ...     data = load_planetoid(f"{folder}/one.npz")
        >>> data.num_classes, data.num_features, data.graph.ndata["feat"].tolist()
        (1, 1, [[1.0]])
    """
    members = read_arrays(path)
    arrays = _parse(_Checker(members, path), Path(path).stat().st_size, normalize)
    n, num_features = arrays.feat.shape
    ends = (torch.from_numpy(arrays.src), torch.from_numpy(arrays.dst))
    graph = vgraph.graph(ends, num_nodes=n)
    for name in ("feat", "label", *MASKS):
        graph.ndata[name] = torch.from_numpy(getattr(arrays, name))
    return CitationGraph(graph, int(arrays.label.max(initial=-1)) + 1, num_features)


def _expand_features(check: _Checker, num_bytes: int) -> NDArray[np.float32]:
    shape = check.ids("feat_shape", 2**31, 2).tolist()
    if 4 * shape[0] * shape[1] > most_dense(num_bytes):
        raise check.fail("feat_shape", f"asks for {4 * shape[0] * shape[1]} bytes, of a file of {num_bytes}")
    indices = check.ids("feat_indices", shape[1])
    data = check.member("feat_data", len(indices))
    ptr = check.ids("feat_indptr", len(indices) + 1, shape[0] + 1)
    degree = np.diff(ptr)
    if ptr[0] != 0 or ptr[-1] != len(indices) or (degree < 0).any():
        raise check.fail("feat_indptr", f"does not run from 0 up to {len(indices)}")
    feat = np.zeros(shape, np.float32)
    # a pair stored twice is summed, as SciPy does
    np.add.at(feat, (np.repeat(np.arange(shape[0]), degree), indices), data.astype(np.float32))
    return feat


@dataclass(frozen=True)
class _Checker:
    members: Mapping[str, NDArray[np.generic]]
    path: str | Path

    def member(self, name: str, size: int | None = None) -> NDArray[Any]:
        if name not in self.members:
            raise self.fail(name, f"is missing; the file has {', '.join(sorted(self.members))}")
        array = self.members[name]
        if array.dtype.kind not in KINDS.get(name, "iu"):
            raise self.fail(name, f"has dtype {array.dtype}")
        if array.ndim != 1 or size not in (None, len(array)):
            raise self.fail(name, f"has shape {array.shape} where ({size or 'any'},) is needed")
        return array

    def ids(self, name: str, limit: int, size: int | None = None) -> NDArray[np.int64]:
        array = self.member(name, size)
        bad = np.flatnonzero((array < 0) | (array >= limit))
        if len(bad):
            at = int(bad[0])
            raise self.fail(name, f"is {array[at]} at {at}, which is not in [0, {limit})")
        return array.astype(np.int64)

    def fail(self, name: str, fact: str) -> DataError:
        cure = f"store {', '.join((*FEATURES, 'label', *MASKS, 'src', 'dst'))}"
        return DataError(f"member {name!r} {fact}", line=f"{self.path}:{name}", cure=cure)
