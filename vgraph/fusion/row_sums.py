"""Sums over rows: what is pointwise before them is computed inside, where it would be stored for them alone.

Takes: the ops of a phase. Gives: the ops with such sums as one op each. Runs once per function.
Source: Koç, multi-mode tensor reduction on GPUs; with pointwise producers computed inside the loop.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from vgraph.fusion.expressions import has_expression, is_costly
from vgraph.fusion.views import view_places, whole
from vgraph.ir.moves import AnyMove, Random
from vgraph.ir.program import Op, Pointwise, Reduction, Rows, RowSum, Value, needed_ops
from vgraph.ir.reduction import ACCUMULATED
from vgraph.ir.space import EDGE, SHARED, SOURCE, VERTEX
from vgraph.ir.trampoline import Steps, run_deep

_MOST_OPERANDS, _MOST_OPS = 6, 16  # of one loop


def with_row_sums(ops: tuple[Op, ...], wanted: set[int], is_fusible: Callable[[Op], bool]) -> tuple[Op, ...]:
    """Nothing is read that does not lie in memory anyway; what nobody needs any more is left out."""
    search = _Search({v.id: op for op in ops for v in op.results}, wanted, is_fusible)
    search.readers.update(v.id for op in ops for v in {v.id: v for v in op.operands()}.values())
    made = [search.row_sum(op) or op for op in ops]
    if all(a is b for a, b in zip(ops, made, strict=True)):
        return ops
    left = {id(op) for op in needed_ops(made, {v.id for op in made for v in op.results if not search.readers[v.id]})}
    return tuple(op for op in made if id(op) in left)


@dataclass(eq=False)
class _Search:
    makers: dict[int, Op]
    wanted: set[int]
    is_fusible: Callable[[Op], bool]
    readers: Counter[int] = field(default_factory=Counter[int])  # ops that read a value, by its id

    def row_sum(self, op: Op) -> Op | None:
        """The sum with its producers; None where it reads something that lies in memory, or needs what does not."""
        dims = _summed_dims(op)
        value = op.args[0] if op.args else None
        if dims is None or not isinstance(value, Value):
            return None
        operands, inside = self._producers(value)
        if not inside:
            if len(dims) < len(value.shape) or value.dtype not in ACCUMULATED:
                return None
            operands = {value.id: value}  # to one number: torch's own depends on how many threads add
        given, steps = tuple(operands.values()), tuple(inside.values())
        keepdim = len(op.results[0].shape) == len(value.shape)
        target = RowSum(Reduction(_of_scalars(given, steps, value), "sum"), dims, keepdim, given, steps)
        return Op(target, given, {}, op.results, op.line)

    def _producers(self, value: Value) -> tuple[dict[int, Value], dict[int, Op]]:
        """What is read and what is done with it instead of storing the value; nothing where it is stored."""
        operands: dict[int, Value] = {}
        inside: dict[int, Op] = {}
        if value.id in self.wanted or self.readers[value.id] > 1:
            return {}, {}
        is_whole = run_deep(self._follow(value, operands, inside, set()))
        is_small = 0 < len(operands) <= _MOST_OPERANDS and len(inside) <= _MOST_OPS
        return (operands, inside) if is_whole and is_small else ({}, {})

    def _follow(
        self, value: Value, operands: dict[int, Value], inside: dict[int, Op], entered: set[int]
    ) -> Steps[bool]:
        """Collects what the value is computed from, in dataflow order; not more than one loop takes."""
        maker = self.makers.get(value.id)
        if maker is None or value.id in self.wanted or self._is_stored(maker):
            operands[value.id] = value
            return value.dtype in ACCUMULATED
        if id(maker) in inside:
            return True
        entered.add(id(maker))
        if len(entered) > _MOST_OPS or not _is_pointwise(maker) or (is_costly(maker) and self.readers[value.id] > 1):
            return False
        for operand in maker.operands():
            if not (yield self._follow(operand, operands, inside, entered)):
                return False
        inside[id(maker)] = maker
        return True

    def _is_stored(self, maker: Op) -> bool:
        """Whether the library makes it, or it is a view of what lies in memory."""
        above: Op | None = maker
        while above is not None:
            if isinstance(above.target, AnyMove) or self.is_fusible(above):
                return False
            operands = list(above.operands())
            if len(operands) != 1 or view_places(above, whole(operands[0])) is None or operands[0].id in self.wanted:
                return True
            above = self.makers.get(operands[0].id)
        return True


def _summed_dims(op: Op) -> tuple[int, ...] | None:
    """The dims, rows among them, that a sum takes; None for anything else."""
    if op.name != "sum" or op.kwargs or not op.args or not isinstance(op.args[0], Value):
        return None
    value: Value = op.args[0]
    if value.dtype not in ACCUMULATED or value.dtype != op.results[0].dtype:
        return None
    if value.space not in (VERTEX, EDGE, SOURCE) or not value.shape or value.shape[0] != Rows(value.space):
        return None
    rank = len(value.shape)
    given = op.args[1] if len(op.args) > 1 else None
    dims = tuple(sorted(d % rank for d in given)) if given else tuple(range(rank))
    return dims if dims[0] == 0 else None


def _is_pointwise(op: Op) -> bool:
    alone = len(op.results) == 1 and not isinstance(op.target, Random)
    return alone and has_expression(op) and any(True for _ in op.operands())


def _of_scalars(operands: Sequence[Value], ops: Sequence[Op], result: Value) -> Pointwise:
    """The same for one number of each."""
    known: dict[int, Value] = {}

    def number(value: Value) -> Value:
        return known.setdefault(value.id, Value(value.id, SHARED, value.dtype, ()))

    def scalar(leaf: object) -> object:
        return number(leaf) if isinstance(leaf, Value) else leaf

    made = tuple(replace(op.mapped(scalar), results=tuple(number(v) for v in op.results)) for op in ops)
    return Pointwise(tuple(number(v) for v in operands), made, number(result))
