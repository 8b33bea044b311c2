"""Sparse matrices: what ``scipy.sparse.save_npz`` wrote, and the arrays of one under other names.

Takes: paths, arrays. Gives: SciPy's matrices, of which every index is in range. Runs once per file.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from vgraph.errors import DataError
from vgraph.files.arrays import read_arrays
from vgraph.files.content import check_vertices, damage_told, most_dense
from vgraph.late import late

if TYPE_CHECKING:
    from scipy import sparse
else:
    sparse = late("scipy.sparse")

CURE = "write it with scipy.sparse.save_npz"


class SparseMatrix(Protocol):
    """One of SciPy's sparse matrices; ``row`` and ``col`` stand in those of kind coo."""

    shape: tuple[int, int]
    row: NDArray[np.int64]
    col: NDArray[np.int64]
    data: NDArray[np.generic]

    def __getitem__(self, rows: NDArray[np.int64]) -> SparseMatrix: ...
    def tocoo(self) -> SparseMatrix: ...
    def astype(self, dtype: type[np.float32]) -> SparseMatrix: ...
    def toarray(self) -> NDArray[np.float32]: ...


def read_sparse(path: str | Path) -> SparseMatrix:
    """The matrix in an .npz of ``scipy.sparse.save_npz``: csr, csc or coo.

    Raises:
        DataError: the file is missing, damaged, or names indices or sizes that it does not hold.
    """
    members = read_arrays(path)
    kind = members["format"].item() if "format" in members and members["format"].size == 1 else b""
    kind = kind.decode("latin1") if isinstance(kind, bytes) else str(kind)
    if kind not in ("csr", "csc", "coo"):
        raise DataError(f"it holds a sparse matrix of kind {kind!r}", line=str(path), cure=CURE)
    return sparse_of(members, path, kind)


def sparse_of(
    members: Mapping[str, NDArray[np.generic]], path: str | Path, kind: str = "csr", prefix: str = ""
) -> SparseMatrix:
    """The matrix whose arrays are ``prefix`` + data, indices, indptr (or row, col) and shape.

    Raises:
        DataError: an array is missing or does not fit the others.
    """
    names = ("row", "col") if kind == "coo" else ("indices", "indptr")
    with damage_told(path, CURE, fact="it holds no sparse matrix"):
        data, *places, shape = (_member(members, prefix + name) for name in ("data", *names, "shape"))
        rows, columns = (int(n) for n in shape)
        for count in (rows, columns):
            check_vertices(count, Path(path).stat().st_size, str(path), CURE)
        if any(place.dtype.kind not in "iu" for place in places):
            raise ValueError("its indices are no whole numbers")
        build = getattr(sparse, f"{kind}_matrix")
        made = build((data, tuple(places)) if kind == "coo" else (data, *places), shape=(rows, columns))
        if kind != "coo":  # coo compares its indices with the shape by itself
            made.check_format(full_check=True)
        return made


def _member(members: Mapping[str, NDArray[np.generic]], name: str) -> NDArray[np.generic]:
    if name not in members:
        raise ValueError(f"member {name!r} is missing; the file has {', '.join(sorted(members))}")
    return members[name]


def dense_rows(matrix: SparseMatrix, path: str | Path) -> NDArray[np.float32]:
    """A sparse matrix of features in full, float32; DataError: far larger than the file makes likely."""
    rows, columns = matrix.shape
    needed, length = 4 * rows * columns, Path(path).stat().st_size
    if needed > most_dense(length):
        raise DataError(f"features of {length} bytes make {needed}", line=str(path), cure=CURE)
    return matrix.astype(np.float32).toarray()
