"""Graphs from sparse matrices: Matrix Market's text and MATLAB's files.

Takes: a path. Gives: a graph with an edge for every entry. Runs once per file.
Source: Boisvert, Pozo and Remington 1996 (Matrix Market); MATLAB's MAT-file format, level 5.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

import vgraph
from vgraph.arguments import NAME, PATH, checked
from vgraph.data.lines import SHOWN, Line, lines_of
from vgraph.errors import DataError
from vgraph.files import check_vertices, read_matlab_matrices, read_text

BANNER = ["%%matrixmarket", "matrix", "coordinate"]
FIELDS = {"real": 3, "integer": 3, "pattern": 2}  # and how many words an entry has
SYMMETRIES = ("general", "symmetric", "skew-symmetric")
MOST = 2**62
FROM_ONE = "number rows and columns 1, 2, 3, ..."
CURE = "write '%%MatrixMarket matrix coordinate real general', 'rows columns entries', and each entry on a line"


@checked(path=PATH, name=NAME.or_none())
def load_matrix(path: str | Path, name: str | None = None) -> vgraph.Graph:
    """The graph whose adjacency matrix a file holds: an edge row -> column for every stored entry.

    Values are in ``edata["weight"]``, float32. Of a symmetric matrix of Matrix Market, which stores one half, both
    halves are edges. A matrix in a ``.mat`` file is one that MATLAB or ``scipy.io.savemat`` stored as sparse.

    Args:
        path: a ``.mtx`` or ``.mat`` file.
        name: the variable of a ``.mat`` file; None: the only sparse matrix in it.

    Returns:
        A Graph with one type of nodes and edges.

    Raises:
        DataError: the file is missing or malformed, the matrix is not square, there is no such variable, or there are
            several.

    Source: Boisvert, Pozo and Remington 1996; MATLAB's MAT-file format, level 5.

    Example:
        >>> import tempfile
        >>> text = "%%MatrixMarket matrix coordinate real general\\n3 3 2\\n1 2 0.5\\n2 3 2\\n"
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder, "path.mtx")
        ...     _ = path.write_text(text)
        ...     g = load_matrix(path)
        >>> g.num_nodes(), g.edges(), g.edata["weight"].tolist()
        (3, (tensor([0, 1]), tensor([1, 2])), [0.5, 2.0])
    """
    is_matlab = Path(path).suffix.lower() == ".mat"
    entries = _of_matlab(path, name) if is_matlab else _parse(read_text(path), path)
    if entries.rows != entries.columns:
        fact = f"a matrix of {entries.rows} rows and {entries.columns} columns is no graph's"
        cure = "pass a square one; vgraph.bipartite_from_scipy makes two types of nodes of others"
        raise DataError(fact, line=str(path), cure=cure)
    graph = vgraph.graph((torch.from_numpy(entries.row), torch.from_numpy(entries.column)), num_nodes=entries.rows)
    graph.edata["weight"] = torch.from_numpy(entries.value)
    return graph


class _Entries(NamedTuple):
    rows: int
    columns: int
    row: NDArray[np.int64]
    column: NDArray[np.int64]
    value: NDArray[np.float32]


def _of_matlab(path: str | Path, name: str | None) -> _Entries:
    found = read_matlab_matrices(path)
    if name is None and len(found) == 1:
        name = next(iter(found))
    if name is None or name not in found:
        missing = "none is named" if name is None else f"there is no {name!r}"
        shown = ", ".join(sorted(found)) or "no sparse matrix"
        raise DataError(f"{missing}; the file has {shown}", line=str(path), cure="pass the name of one")
    matrix = found[name].tocoo()
    row, column = matrix.row.astype(np.int64), matrix.col.astype(np.int64)
    with np.errstate(over="ignore"):
        value = matrix.data.astype(np.float32)
    if not np.isfinite(value).all():
        fact = f"{name!r} has the value {matrix.data[~np.isfinite(value)][0]}"
        raise DataError(fact, line=str(path), cure="give finite numbers that float32 holds")
    return _Entries(*matrix.shape, row, column, value)


# ---------------------------------------------------------------- Matrix Market
def _parse(text: str, path: str | Path) -> _Entries:
    lines = lines_of(text, path)
    field, symmetry = _banner(next(lines))
    content = (line for line in lines if line.text.strip() and not line.text.startswith("%"))
    line = next(content, Line("", path, 1))
    rows, columns, count = _sizes(line, len(text))
    found = list[tuple[int, int, float]]()
    is_skew = symmetry == "skew-symmetric"
    for line in content:
        if len(found) == count:
            raise line.wrong(f"there is more behind the {count} entries that are promised", CURE)
        row, column, value = _entry(line, rows, columns, field)
        if is_skew and row == column and value:
            raise line.wrong(f"{value} on the diagonal of a skew-symmetric matrix", "leave it out, as it is -itself: 0")
        found.append((row, column, value))
    if len(found) < count:
        raise line.wrong(f"{count} entries are promised, and {len(found)} are there", "check that the file is whole")
    if symmetry != "general":
        sign = -1 if is_skew else 1
        found += [(column, row, sign * value) for row, column, value in found if row != column]
    ids = np.asarray([entry[:2] for entry in found], np.int64).reshape(-1, 2)
    value = np.asarray([entry[2] for entry in found], np.float32)
    return _Entries(rows, columns, ids[:, 0].copy(), ids[:, 1].copy(), value)


def _banner(line: Line) -> tuple[str, str]:
    """What entries are, and which of them are stored."""
    words = line.text.lower().split()
    if words[:3] != BANNER or len(words) != 5 or words[3] not in FIELDS or words[4] not in SYMMETRIES:
        raise line.wrong(f"{line.text[:SHOWN]!r} begins no sparse matrix of real numbers", CURE)
    return words[3], words[4]


def _sizes(line: Line, length: int) -> tuple[int, int, int]:
    words = line.text.split()
    if len(words) != 3:
        raise line.wrong(f"{line.text[:SHOWN]!r} is not 'rows columns entries'", CURE)
    rows, columns, count = (line.whole(word, "size", MOST, "use matrices that memory holds") for word in words)
    for vertices in (rows, columns):
        check_vertices(vertices, length, line.at, "number rows and columns without gaps")
    return rows, columns, count


def _entry(line: Line, rows: int, columns: int, field: str) -> tuple[int, int, float]:
    words = line.text.split()
    if len(words) != FIELDS[field]:
        raise line.wrong(f"{line.text[:SHOWN]!r} is no entry of kind {field}", 'write "row column value"')
    numbers: list[int] = []
    for word, size, what in zip(words, (rows, columns), ("row", "column"), strict=False):
        numbers.append(line.whole(word, what, size, "correct the sizes, or the entry", FROM_ONE) - 1)
        if numbers[-1] < 0:
            raise line.wrong(f"{what} 0", FROM_ONE)
    return numbers[0], numbers[1], line.real(words[2], "value") if len(words) > 2 else 1.0
