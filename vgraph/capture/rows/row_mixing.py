"""Mixing: what a vertex function must not do to the rows of a batch of vertices.

Takes: the recorded ops of a vertex function. Gives: an error, or a word where an op is slow. Runs once per function.
Source: Cavs section 3.2 (vertices of one frontier are independent).
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from vgraph.capture.errors import CaptureError
from vgraph.errors import FeatureError, FunctionError
from vgraph.ir.program import Op, Rows, Value
from vgraph.ir.tdl.rowwise import Effect, row_effects

logger = logging.getLogger("vgraph")

_BATCH_STATISTICS = frozenset({"native_batch_norm", "_native_batch_norm_legit", "batch_norm"})
_TRAINING_ARGUMENT = 5
SLOTS_REDUCE = "slots of gather() reduce without a dim, by sum mean max min prod logsumexp var std"


def refuse_mixing(name: str, ops: Sequence[Op]) -> None:
    """Raises where an op mixes vertices; says which ops run one vertex at a time."""
    for op in ops:
        effects = row_effects(op)
        if Effect.UNKNOWN in effects or _is_masked(op):
            _note_undescribed(name, op)
        elif any(effect is not Effect.ROWWISE for effect in effects):
            raise mixing_error(name, op.name, op.line)


def over_rows(name: str, dim: Any, rank: int, over: str) -> FunctionError | None:
    """Why a reduction over some dims of rows is refused; None: it is about features alone."""
    dims = dim if isinstance(dim, (tuple, list)) else [dim]
    if dims and not any(d is None or d % max(rank, 1) == 0 for d in dims):
        return None
    fact = f"{name} over the dim of rows mixes {over}"
    cure = f"{name}(-1) is about features; slots reduce by {name}() without a dim"
    return FunctionError(fact, cure=cure)


def refuse_sums(ops: Sequence[Op]) -> None:
    """An op of which nothing is known sees one vertex at a time; what it would add up over them is not known either.

    Raises:
        CaptureError: a derivative has such an op, as one that gives gradients of rows and of parameters.
    """
    for op in ops:
        counts = [_num_row_dims(value) for value in op.results]
        if 0 in counts and any(counts) and Effect.UNKNOWN in row_effects(op):
            raise CaptureError(f"what {op.name} adds up over rows is not described", op.line)


def refuse_pairs(ops: Sequence[Op]) -> None:
    """Raises CaptureError where a value has rows in two dims, as products of all rows with all rows have.

    Functions of nodes may mix the vertices of one degree, but no Program has rows in more than one dim.
    """
    for op in ops:
        if any(_num_row_dims(value) > 1 for value in op.results):
            raise CaptureError(f"{op.name} pairs rows with rows", op.line)


def _note_undescribed(name: str, op: Op) -> None:
    """An op of which nothing is known sees one vertex at a time, if it is given any."""
    sees_rows = any(value.row_dim is not None for value in op.operands())
    keeps_rows = all(_num_row_dims(value) == 1 for value in op.results)
    if not sees_rows or not keeps_rows or _uses_statistics(op):
        raise mixing_error(name, op.name, op.line)
    logger.info(
        "%s runs one vertex at a time: what %s does to rows is not described %s",
        name,
        op.name,
        op.line,
    )


def _is_masked(op: Op) -> bool:
    """``h[mask] = value`` with one flag a row: every vertex is written or not."""
    if op.name != "index_put":
        return False
    indices = [index for index in op.args[1] if index is not None]
    return len(indices) == 1 and indices[0].dtype == torch.bool and indices[0].row_dim == 0


def _uses_statistics(op: Op) -> bool:
    is_norm = op.name in _BATCH_STATISTICS
    return is_norm and len(op.args) > _TRAINING_ARGUMENT and op.args[_TRAINING_ARGUMENT] is True


def _num_row_dims(value: Value) -> int:
    return sum(isinstance(size, Rows) for size in value.shape)


def check_rows(rows: Tensor, count: int) -> None:
    """Rows that are to be moved must be as many as there are.

    Raises:
        FeatureError: a TypeError would be taken for an operand that ``@`` does not know.
    """
    if rows.dim() == 0 or rows.shape[0] != count:
        raise FeatureError(
            "rows were joined, cut, turned or made fewer: what is reduced or meets slots is no longer one row a "
            "slot or a vertex",
            cure=f"join and cut features, dim=-1, as in torch.cat([a, b], -1); {SLOTS_REDUCE}",
        )


def mixing_error(name: str, op: str, line: str) -> FunctionError:
    """A vertex function that makes one vertex depend on what others it is evaluated with."""
    cure = f"name feature dims by negative numbers, as in .mean(-1); {SLOTS_REDUCE}; use LayerNorm for BatchNorm"
    if op == "arange":
        cure = "give vertices their numbers as a feature; x[torch.arange(len(x)), ids] may stand, with int64 ids"
    return FunctionError(f"{op} in {name} mixes vertices, or the slots of different vertices", cure=cure, line=line)
