"""Rows of a table by ids: what their gradient adds up to, as a sum over rows.

Takes: a Tape. Gives: the same tape, where ``table[ids]`` differentiates as an embedding does. Runs once per function.
"""

from __future__ import annotations

import math

import torch

from vgraph.capture.record.tape_ir import Tape
from vgraph.ir.program import Op, Value
from vgraph.ir.space import SHARED

_ZEROS = frozenset({"zeros", "new_zeros", "zeros_like"})
_aten = torch.ops.aten


def sum_at_ids(tape: Tape) -> None:
    """Rewrites additions of rows to zeros of a shared shape, so that parts of all rows may be added apart."""
    zeros = {op.results[0].id for op in tape.ops if op.name in _ZEROS}
    tape.ops = [part for op in tape.ops for part in (_as_sum(tape, op) if _adds_to(zeros, op) else [op])]


def _adds_to(zeros: set[int], op: Op) -> bool:
    if op.name != "index_put" or len(op.args) < 4 or op.args[3] is not True:
        return False
    base, ids, rows = op.args[:3]
    if base.id not in zeros or base.space != SHARED or len(ids) != 1 or ids[0] is None or rows.row_dim is None:
        return False
    is_integral = ids[0].dtype in (torch.int64, torch.int32)
    return is_integral and rows.shape == (*ids[0].shape, *base.shape[1:])


def _as_sum(tape: Tape, op: Op) -> list[Op]:
    base, (ids,), rows = op.args[:3]
    (result,) = op.results
    count, width = base.shape[0], math.prod(base.shape[1:])
    inside: Value = tape.new_value(ids)  # ids count from the end, too
    flat = tape.new_value(rows, shape=(*ids.shape, width))
    sums = tape.new_value(result, shape=(count, width))
    return [
        Op(_aten.remainder.Scalar, (ids, count), {}, (inside,), op.line),
        Op(_aten.reshape.default, (rows, list(flat.shape)), {}, (flat,), op.line),
        Op(_aten.embedding_dense_backward.default, (flat, inside, count, -1, False), {}, (sums,), op.line),
        Op(_aten.reshape.default, (sums, list(result.shape)), {}, (result,), op.line),
    ]
