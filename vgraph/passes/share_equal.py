"""Equal ops: what several ops of a Program compute of the same operands, made once.

Takes: a Program. Gives: the same with fewer ops. Runs once per function.
Each derivative is recorded behind those before it, and writes down anew what it needs of them: the cosine of a
derivative's sine, a root that divides once more, the transpose of a matrix.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, replace
from typing import cast

from torch import Tensor

from vgraph.ir.moves import Gather, SegmentReduce
from vgraph.ir.program import Op, Program, Value
from vgraph.ir.row_ops import feature_sum, row_product
from vgraph.ir.tdl.table import is_pointwise, is_view
from vgraph.ir.verify import verify


def share_equal(program: Program) -> Program:
    """A Program that loops stays as it is.

    What a loop makes and what is made behind it may be equal: one of them would keep the rows of all frontiers.
    """
    if program.carries:
        return program
    sharing = _Sharing(frozenset(value.id for value in program.outputs if value is not None))
    ops = tuple(op for op in map(sharing.on_first, program.ops) if not sharing.drops(op))
    if len(ops) == len(program.ops):
        return program
    shared = replace(program, ops=ops)
    verify(shared)
    return shared


@dataclass(eq=False)
class _Sharing:
    """``outputs``: ids of values that the caller gets, each in memory of its own."""

    outputs: frozenset[int]
    first: dict[Hashable, Value] = field(default_factory=dict["Hashable", Value])  # by what is computed
    stands_for: dict[int, Value] = field(default_factory=dict[int, Value])

    def on_first(self, op: Op) -> Op:
        """The op on the first of equal operands."""
        if not any(value.id in self.stands_for for value in op.operands()):
            return op
        return op.mapped(lambda leaf: self.stands_for.get(leaf.id, leaf) if isinstance(leaf, Value) else leaf)

    def drops(self, op: Op) -> bool:
        """Whether an op before gives the same."""
        if not _is_told_by_operands(op):
            return False
        result, key = op.results[0], _key(op)
        known = self.first.setdefault(key, result)
        if known is result or result.id in self.outputs or known.dtype != result.dtype or known.shape != result.shape:
            return False
        self.stands_for[result.id] = known
        return True


def _is_told_by_operands(op: Op) -> bool:
    """Whether the result is the same whenever the operands are."""
    if len(op.results) != 1:
        return False
    by_row = is_pointwise(op.target) or is_view(op.target) or isinstance(op.target, (Gather, SegmentReduce))
    return by_row or feature_sum(op) is not None or row_product(op) is not None


def _key(op: Op) -> Hashable:
    """The operator, and its arguments with numbers as text: those that compare equal may be of two types."""
    return op.target, _told(op.args), tuple((name, _told(arg)) for name, arg in sorted(op.kwargs.items()))


def _told(leaf: object) -> Hashable:
    if isinstance(leaf, (list, tuple)):
        return tuple(map(_told, cast("Sequence[object]", leaf)))
    if isinstance(leaf, Value):
        return leaf.id
    return ("tensor", id(leaf)) if isinstance(leaf, Tensor) else repr(leaf)
