"""Joined rows: what is joined of rows that were joined before is joined once, of all their pieces.

Takes: a Program. Gives: the same with the rows of vertices that are only joined again never stored whole. Runs once per
function. ``cat(cat(a, b), cat(a, b) * s)`` with one number a vertex in ``s`` is ``cat(a, b, a * s, b * s)``: several
aggregations scaled by several degrees (Corso et al. 2020, section 3) are put in their place by the kernel that makes
them. The numbers are those that the operators give.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import count

from vgraph.ir.program import Op, Program, Value, map_leaves, needed_ops
from vgraph.ir.row_ops import joined_dim
from vgraph.ir.space import SOURCE, VERTEX
from vgraph.ir.tdl.table import is_pointwise
from vgraph.ir.trampoline import Steps, run_deep
from vgraph.ir.verify import verify

_MOST_PIECES = 64  # of one row: each is an op of its own


def join_once(program: Program) -> Program:
    """A Program that loops stays as it is: library calls join the rows of a frontier there."""
    if program.carries or not any(map(_is_joined_again, program.ops)):
        return program
    known = [item.value for item in program.inputs] + [v for op in program.ops for v in (*op.operands(), *op.results)]
    joining = _Joining(
        count(1 + max(value.id for value in known)), {v.id: op for op in program.ops for v in op.results}
    )
    made = [new for op in program.ops for new in joining.joined(op)]
    ops = needed_ops(made, {value.id for value in program.outputs if value is not None})
    joined = replace(program, ops=ops)
    verify(joined)
    return joined


def _is_joined_again(op: Op) -> bool:
    return joined_dim(op) is not None and op.results[0].space in (VERTEX, SOURCE)


@dataclass(eq=False)
class _Joining:
    numbers: count[int]
    makers: dict[int, Op]
    ops: list[Op] = field(default_factory=list[Op])  # on pieces, ahead of what joins them
    pieces: dict[tuple[int, int], list[Value] | None] = field(
        default_factory=dict["tuple[int, int]", "list[Value] | None"]
    )

    def joined(self, op: Op) -> Iterator[Op]:
        """The op, on the pieces of what was joined before; ahead of it what computes these."""
        dim = joined_dim(op) if op.results[0].space in (VERTEX, SOURCE) else None
        if dim is not None:
            taken = [run_deep(self._pieces(value, dim)) or [value] for value in op.operands()]
            yield from self.ops  # also of pieces that are not taken here: another row may be joined of them
            self.ops.clear()
            if len(taken) < sum(map(len, taken)) <= _MOST_PIECES:
                op = replace(op, args=([piece for pieces in taken for piece in pieces], dim), kwargs={})
        yield op

    def _pieces(self, value: Value, dim: int) -> Steps[list[Value] | None]:
        """What a row is joined of along a dim; None: it is not, or of too many."""
        if (value.id, dim) not in self.pieces:
            self.pieces[value.id, dim] = yield self._find_pieces(value, dim)
        return self.pieces[value.id, dim]

    def _find_pieces(self, value: Value, dim: int) -> Steps[list[Value] | None]:
        maker = self.makers.get(value.id)
        if maker is None or len(maker.results) != 1:
            return None
        if joined_dim(maker) == dim:
            found: list[Value] = []
            for operand in maker.operands():
                found += (yield self._pieces(operand, dim)) or [operand]
            return found if len(found) <= _MOST_PIECES else None
        return (yield self._computed(maker, value, dim)) if is_pointwise(maker.target) else None

    def _computed(self, op: Op, value: Value, dim: int) -> Steps[list[Value] | None]:
        """The pieces of what is computed of one joined row, and of numbers that do not change along the dim."""
        whole = [v for v in op.operands() if _size_along(v, dim, value) != 1]
        if len({v.id for v in whole}) != 1 or whole[0].shape != value.shape:
            return None
        pieces = yield self._pieces(whole[0], dim)
        if pieces is None:
            return None
        made: list[Value] = []
        for piece in pieces:
            mapping = {whole[0].id: piece}
            result = replace(value, id=next(self.numbers), shape=piece.shape)
            self.ops.append(replace(_on(op, mapping), results=(result,)))
            made.append(result)
        return made


def _on(op: Op, mapping: dict[int, Value]) -> Op:
    return replace(op, args=map_leaves(op.args, lambda x: mapping.get(x.id, x) if isinstance(x, Value) else x))


def _size_along(value: Value, dim: int, result: Value) -> object:
    """How many numbers an operand has along a dim of the result; 1: one for all."""
    place = dim - (len(result.shape) - len(value.shape))
    return value.shape[place] if place >= 0 else 1
