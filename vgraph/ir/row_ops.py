"""Row ops: what is not pointwise, yet needs no more than one row at a time.

Takes: an Op. Gives: what it does to a row, or None. Runs once per function.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from vgraph.ir.program import Op, Rows, Value, contiguous
from vgraph.ir.space import EDGE, SHARED

_MOST_WEIGHTS = 16384  # numbers of a matrix that stay in the nearest cache while rows pass by
_MOST_COLUMNS = 256  # sums that fit the registers of one row
_MOST_ROWS = 1024  # numbers of which a block of rows fits a thread's stack


def feature_sum(op: Op) -> tuple[int, ...] | None:
    """The dims of a row (from 0) that a sum or mean over features takes; None if it is not one."""
    if op.name not in ("sum", "mean") or op.kwargs or len(op.results) != 1 or len(op.args) < 2:
        return None
    source, dims = op.args[0], op.args[1]
    if not isinstance(source, Value) or not isinstance(dims, (list, tuple)) or not dims:
        return None
    if source.dtype != op.results[0].dtype or not source.dtype.is_floating_point:
        return None
    rank = len(source.shape)
    taken = tuple(sorted(d % rank - 1 for d in dims))
    return taken if taken[0] >= 0 else None


def row_product(op: Op) -> tuple[Value, Value, Value | None] | None:
    """Rows on edges, a small shared matrix, and what is added: ``x W`` or ``b + x W``; None if it is not one."""
    if op.name not in ("mm", "addmm") or op.kwargs:
        return None
    *addend, rows, weight = op.args
    if rows.space != EDGE or weight.space != SHARED or not has_edge_rows(rows) or not _is_small(weight):
        return None
    if any(v.space != SHARED or v.dtype != rows.dtype or math.prod(v.row_shape) != weight.shape[1] for v in addend):
        return None
    same = rows.dtype == weight.dtype == op.results[0].dtype
    return (rows, weight, addend[0] if addend else None) if same else None


def outer_sum(op: Op, makers: Mapping[int, Op]) -> tuple[Value, Value] | None:
    """Two values with rows on edges whose outer products are summed: ``t(x) g``; None if it is not one."""
    if op.name != "mm" or op.kwargs:
        return None
    turned, right = op.args
    maker = makers.get(turned.id)
    if maker is None or maker.name != "t" or not _is_small(op.results[0]):
        return None
    left = maker.args[0]
    return (left, right) if has_edge_rows(left) and has_edge_rows(right) and left.dtype == right.dtype else None


@dataclass(frozen=True, eq=False)
class Piece:
    """A row that is joined with others: its element (i, ...) lies at ``offset + i * strides[0] ...`` of the whole."""

    value: Value
    offset: int
    strides: tuple[int, ...]


def joined_dim(op: Op, names: Sequence[str] = ("cat",)) -> int | None:
    """The dim of features along which the op joins rows of one dtype; None: it is none of these operators."""
    name = op.name
    if name not in names or len(op.args) + len(op.kwargs) != 2:
        return None
    whole, rank = op.results[0], len(op.results[0].shape)
    given = (*op.args, *op.kwargs.values())[1] % rank
    alike = all(len(v.shape) == rank - (name == "stack") and v.dtype == whole.dtype for v in op.operands())
    return given if given > 0 and whole.row_dim == 0 and alike else None


def joined_rows(op: Op) -> list[Piece] | None:
    """What a ``cat`` or ``stack`` along features puts side by side, row by row; None if it is neither."""
    name, dim = op.name, joined_dim(op, ("cat", "stack"))
    if dim is None:
        return None
    (whole,), pieces = op.results, list(op.operands())
    strides, place, found = contiguous(whole.row_shape), 0, list[Piece]()
    for value in pieces:
        along = strides if name == "cat" else (*strides[: dim - 1], *strides[dim:])
        found.append(Piece(value, place, along))
        place += strides[dim - 1] * (value.row_shape[dim - 1] if name == "cat" else 1)
    return found


def has_edge_rows(value: Value) -> bool:
    """A matrix with a row for each edge."""
    return value.space == EDGE and len(value.shape) == 2 and value.shape[0] == Rows(EDGE)


def _is_small(value: Value) -> bool:
    if len(value.shape) != 2 or not all(isinstance(d, int) for d in value.shape):
        return False
    rows, columns = value.row_shape
    small = 0 < rows * columns <= _MOST_WEIGHTS and rows <= _MOST_ROWS and columns <= _MOST_COLUMNS
    return small and value.dtype.is_floating_point
