"""Attention: weighted sums over in-edges by weights that do not yet add up to one, so that one pass makes such a sum.

Takes: ops in order. Gives: ops in order that compute the same values. Runs once per function.
Source: online softmax (Milakov and Gimelshein 2018), on segments.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field

import torch

from vgraph.ir.moves import Gather, SegmentReduce
from vgraph.ir.program import Op, Target, Value
from vgraph.ir.space import EDGE
from vgraph.ir.trampoline import Steps, run_deep
from vgraph.passes.factors import keeps_factors, renames

NewValue = Callable[..., Value]
_RECEIVER, _SUM = Gather("dst"), SegmentReduce("dst", "sum")
_div, _cast = torch.ops.aten.div.Tensor, torch.ops.aten._to_copy.default


def weigh_once(ops: Sequence[Op], new_value: NewValue, own: Collection[int]) -> list[Op]:
    """The ops with this law applied; the values that it replaces keep their names.

    A softmax's weights are exp(x - best - log(total)). The sum of (weight m) = the sum of (exp(x - best) m) / total,
    so that it needs no total before; of ``own`` values alone, as a derivative knows the total.
    The sum over edges of (y[dst] m), or of what features of it add up to, is y times a sum that exists.
    """
    pass_ = _Laws(new_value, own, {v.id: op for op in ops for v in op.results})
    for op in ops:
        pass_.add(op)
    return pass_.ops


@dataclass(eq=False)
class _Laws:
    new_value: NewValue
    own: Collection[int]
    makers: dict[int, Op]
    ops: list[Op] = field(default_factory=list[Op])
    relatives: dict[int, tuple[Value, Value]] = field(default_factory=dict[int, "tuple[Value, Value]"])

    def add(self, op: Op) -> None:
        if op.name == "exp":
            self._note_softmax(op)
        elif op.target == _SUM and len(op.results) == 1:
            if op.results[0].id in self.own and self._weighted_sum(op):
                return
        self.ops.append(op)

    def _put(self, target: Target, args: tuple[object, ...], result: Value, line: str, **kwargs: object) -> Value:
        made = Op(target, args, kwargs, (result,), line)
        self.makers[result.id] = made
        self.ops.append(made)
        return result

    # ------------------------------------------------------------ the sum of (weight m)
    def _made(self, value: object, name: str) -> Op | None:
        maker = self.makers.get(value.id) if isinstance(value, Value) else None
        return maker if maker is not None and maker.name == name and not maker.kwargs else None

    def _spread(self, value: object) -> Value | None:
        """What a value of edges is the receiver's row of."""
        maker = self.makers.get(value.id) if isinstance(value, Value) else None
        return maker.args[0] if maker is not None and maker.target == _RECEIVER else None

    def _above(self, weights: Op) -> tuple[Value, Value] | None:
        """X and y of exp(x - y[dst])."""
        below = self._made(weights.args[0], "sub")
        base = None if below is None or len(below.args) != 2 else self._spread(below.args[1])
        return None if below is None or base is None else (below.args[0], base)

    def _note_softmax(self, op: Op) -> None:
        """Recognises the weights that a softmax over in-edges gives: exp(x - peak[dst] - log(total)[dst])."""
        found = self._above(op)
        below = found and self._made(found[0], "sub")
        base = below and len(below.args) == 2 and self._spread(below.args[1])
        logarithm = found and self._made(found[1], "log")
        clamped = logarithm and self._made(logarithm.args[0], "clamp")
        if not below or not base or not clamped:
            return
        peak, total = self.makers.get(base.id), self.makers.get(clamped.args[0].id)
        if peak is None or peak.target != SegmentReduce("dst", "max") or total is None or total.target != _SUM:
            return
        x, scaled = below.args[0], self._made(total.args[0], "exp")
        if scaled is not None and self._above(scaled) == (x, peak.results[0]) and peak.args[0] is x:
            self.relatives[op.results[0].id] = (scaled.results[0], clamped.results[0])

    def _weighted_sum(self, op: Op) -> bool:
        found = run_deep(self._relative(op.args[0], set()))
        if found is None:
            return False
        rows, total = found
        result, wide = op.results[0], torch.promote_types(rows.dtype, total.dtype)
        raw = self.new_value(result, dtype=wide)
        self._put(_SUM, (self._as(rows, wide, op.line),), raw, op.line)
        total = self._as(total, wide, op.line)
        if wide == result.dtype:
            self._put(_div, (raw, total), result, op.line)
        else:
            quotient = self._put(_div, (raw, total), self.new_value(result, dtype=wide), op.line)
            self._put(_cast, (quotient,), result, op.line, dtype=result.dtype)
        return True

    def _as(self, value: Value, dtype: torch.dtype, line: str) -> Value:
        if value.dtype == dtype:
            return value
        return self._put(_cast, (value,), self.new_value(value, dtype=dtype), line, dtype=dtype)

    def _relative(self, value: Value, tried: set[int]) -> Steps[tuple[Value, Value] | None]:
        """The value with weights that do not add up to one, and what they add up to; ``tried``: ids of values."""
        known = self.relatives.get(value.id)
        maker = self.makers.get(value.id)
        is_new = known is None and value.id not in tried
        tried.add(value.id)
        if not is_new or maker is None or len(maker.results) != 1 or value.space != EDGE:
            return known
        name = maker.name
        is_linear = keeps_factors(maker) or renames(maker)
        places = range(len(maker.args)) if name == "mul" else range(1) if is_linear else ()
        for place in places:
            operand = maker.args[place]
            found = (yield self._relative(operand, tried)) if isinstance(operand, Value) else None
            if found is not None:
                rows, total = found
                args = (*maker.args[:place], rows, *maker.args[place + 1 :])
                made = self._put(maker.target, args, self.new_value(value), maker.line, **maker.kwargs)
                total = self._like_view(total, operand, value, maker.line) if name == "view" else total
                self.relatives[value.id] = (made, total)
                break
        return self.relatives.get(value.id)

    def _like_view(self, total: Value, before: Value, after: Value, line: str) -> Value:
        """A receiver's row with dims of size one where a view of an edge's row has them."""
        left = iter(n for n, m in zip(total.row_shape, before.row_shape, strict=True) if m != 1)
        return self._viewed(total, tuple(1 if n == 1 else next(left) for n in after.row_shape), line)

    def _viewed(self, value: Value, row_shape: tuple[int, ...], line: str) -> Value:
        if value.row_shape == row_shape:
            return value
        shape = (value.shape[0], *row_shape)
        return self._put(torch.ops.aten.view.default, (value, list(shape)), self.new_value(value, shape=shape), line)
