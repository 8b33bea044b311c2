"""Linear sums: what a sum over edges multiplies with the row at its own end is multiplied once, after the sum.

Takes: ops in order. Gives: ops in order that compute the same values. Runs once per function. Source: the backward of
FlashAttention (Dao et al. 2022), whose mean of weights' gradients is <dOut, Out>, on segments.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import torch

from vgraph.ir.moves import Gather, SegmentReduce
from vgraph.ir.program import Op, Rows, Target, Value
from vgraph.ir.row_ops import feature_sum
from vgraph.ir.space import EDGE
from vgraph.ir.tdl.table import is_pointwise
from vgraph.ir.trampoline import Steps, run_deep
from vgraph.passes.factors import (
    MOST_FACTORS,
    Axes,
    Factor,
    axes_of,
    factors_of,
    has_edge_rows,
    key_of,
    operand_axes,
    renamed_axes,
    renames,
)

_aten = torch.ops.aten
_MOST_TERMS = 4
_MOST_NUMBERS = 256  # of a sum that is made for this, beside what a loop over edges sums anyway


class NewValue(Protocol):
    """A value like another one, but for ``changes``."""

    def __call__(self, like: Value, **changes: Any) -> Value: ...


@dataclass(frozen=True)
class Foresight:
    """What a law may use of the function whose derivative is taken.

    ``given``: ids of what it reads and computes. ``in_degree``: one number a vertex.
    ``keeps``: whether sums over in-edges of such values may be made and kept for the derivative.
    """

    given: frozenset[int]
    in_degree: Callable[[], Value]
    keeps: bool


@dataclass(frozen=True)
class Linear:
    """``ops``; ``kept``: ids of sums that the function itself has to make, as its derivative reads them."""

    ops: list[Op]
    kept: frozenset[int]


def sum_once(ops: Sequence[Op], new_value: NewValue, foresight: Foresight | None) -> Linear:
    """The ops with this law applied; the values that it replaces keep their names.

    The sum over edges of (y[end] m), or of what features of it add up to, is y times the sum of m. Without
    ``foresight`` only where that sum exists; with it, sums of what the function itself knows are made and kept,
    so that its derivative need not visit in-edges again.
    """
    pass_ = _Law(new_value, foresight, {v.id: op for op in ops for v in op.results})
    pass_.given |= set() if foresight is None else foresight.given
    for op in ops:
        pass_.add(op)
    return Linear(pass_.ops, frozenset(pass_.kept))


@dataclass(frozen=True)
class _Term:
    """``scale`` times a product."""

    scale: float
    factors: tuple[Factor, ...]


_Known = dict[tuple[int, Axes], list[_Term]]  # by id of a value and its axes


@dataclass(frozen=True)
class _Plan:
    """A term as ``own``, a row at the end of the sum, times the sum of ``others``; without ``own`` as that sum alone.

    ``shape``: of the sum's row. ``taken``: the sum over features that follows, if one does.
    """

    scale: float
    own: Value | None
    others: tuple[Factor, ...]
    shape: tuple[int, ...]
    taken: Op | None = None


@dataclass(eq=False)
class _Law:
    new_value: NewValue
    foresight: Foresight | None
    makers: dict[int, Op]
    ops: list[Op] = field(default_factory=list[Op])
    sums: dict[object, Value] = field(default_factory=dict[object, Value])
    given: set[int] = field(default_factory=set[int])  # what does not depend on cotangents
    kept: set[int] = field(default_factory=set[int])
    slopes: dict[int, Value] = field(default_factory=dict[int, Value])

    def add(self, op: Op) -> None:
        if isinstance(op.target, SegmentReduce) and str(op.target) in _SUMS and len(op.results) == 1:
            if not op.target.part and has_edge_rows(op.args[0]) and self._replaced(op, op.target.end):
                return
        self._note(op)

    def _note(self, op: Op) -> None:
        self.ops.append(op)
        if all(v.id in self.given for v in op.operands()):
            self.given |= {v.id for v in op.results}

    def _put(self, target: Target, args: tuple[object, ...], result: Value, line: str) -> Value:
        made = Op(target, args, {}, (result,), line)
        self.makers[result.id] = made
        self._note(made)
        return result

    # ------------------------------------------------------------ one sum
    def _replaced(self, op: Op, end: str) -> bool:
        rows, result = op.args[0], op.results[0]
        axes = axes_of(rows.row_shape)
        product = factors_of(rows, axes, self.makers)
        far = self.foresight is not None and rows.id not in self.given
        terms = run_deep(self._terms(rows, axes, {})) if far else [_Term(1.0, product)]
        plans = [self._plan(term, rows, end) for term in terms] if len(terms) <= _MOST_TERMS else [None]
        found = [plan for plan in plans if plan is not None]
        same = all(v.dtype == result.dtype for plan in found for v in self._read(plan, end))
        if len(found) < len(plans) or all(plan.own is None for plan in found) or not same:
            self.sums.setdefault((end, key_of(rows.row_shape, product)), result)
            return False
        if len(found) > 1 and self._known(end, _plain(rows), product) is not None:
            return False
        self._put_total(op, end, found)
        return True

    def _read(self, plan: _Plan, end: str) -> Iterator[Value]:
        known = self._known(end, plan.shape, plan.others)
        yield from [f.value for f in plan.others] if known is None else [known]
        yield from [] if plan.own is None else [plan.own]

    def _put_total(self, op: Op, end: str, plans: list[_Plan]) -> None:
        (rows,), result = op.args, op.results[0]
        total: Value | None = None
        masked = False
        for plan in plans:
            is_new = self._known(end, plan.shape, plan.others) is None
            part = self._part(plan, rows, end, op.line)
            masked |= is_new
            if abs(plan.scale) != 1.0:
                part = self._put(_aten.mul.Tensor, (part, abs(plan.scale)), self.new_value(part), op.line)
            if total is None:
                total = part if plan.scale > 0 else self._put(_aten.neg.default, (part,), self.new_value(part), op.line)
            else:
                target = _aten.add.Tensor if plan.scale > 0 else _aten.sub.Tensor
                total = self._put(target, (total, part), self.new_value(part), op.line)
        assert total is not None
        if masked and end == "dst":
            total = self._without_edges_zero(total, op.line)
        self._put(_aten.view.default, (total, [result.shape[0], *result.row_shape]), result, op.line)

    def _part(self, plan: _Plan, rows: Value, end: str, line: str) -> Value:
        """A term's sum, in the shape of a row of ``rows``."""
        is_new = self._known(end, plan.shape, plan.others) is None
        known = self._sum_of(end, plan.shape, plan.others, line)
        if plan.own is None:
            return self._viewed(known, rows.row_shape, line)
        inner = rows if plan.taken is None else plan.taken.args[0]
        known = self._viewed(known, inner.row_shape, line)
        own = self._viewed(plan.own, inner.row_shape, line)
        found = self._put(_aten.mul.Tensor, (own, known), self.new_value(known), line)
        if is_new and end == "src":  # a row without out-edges has no part in anything, whatever it holds
            zero = self._put(_aten.eq.Scalar, (known, 0), self.new_value(known, dtype=torch.bool), line)
            found = self._put(_aten.masked_fill.Scalar, (found, zero, 0.0), self.new_value(found), line)
        if plan.taken is not None:
            shape = (found.shape[0], *plan.taken.results[0].row_shape)
            found = self._put(
                plan.taken.target, (found, *plan.taken.args[1:]), self.new_value(found, shape=shape), line
            )
        return self._viewed(found, rows.row_shape, line)

    def _without_edges_zero(self, total: Value, line: str) -> Value:
        """Whatever the gradient of a vertex that nothing reaches is."""
        assert self.foresight is not None
        degree = self.foresight.in_degree()
        self.given.add(degree.id)
        none = self._put(_aten.eq.Scalar, (degree, 0), self.new_value(degree, dtype=torch.bool), line)
        none = self._viewed(none, (1,) * len(total.row_shape), line)
        return self._put(_aten.masked_fill.Scalar, (total, none, 0.0), self.new_value(total), line)

    def _viewed(self, value: Value, row_shape: tuple[int, ...], line: str) -> Value:
        if value.row_shape == row_shape:
            return value
        shape = (value.shape[0], *row_shape)
        return self._put(_aten.view.default, (value, list(shape)), self.new_value(value, shape=shape), line)

    # ------------------------------------------------------------ terms of what is summed
    def _terms(self, value: Value, axes: Axes, known: _Known) -> Steps[list[_Term]]:
        """What a value adds up to, as far as it depends on cotangents; very many terms are one.

        ``known``: what was found already of this sum.
        """
        if (value.id, axes) not in known:
            terms = yield self._terms_of_op(value, axes, known)
            few = len(terms) <= _MOST_TERMS and all(len(t.factors) <= MOST_FACTORS for t in terms)
            known[value.id, axes] = terms if few else self._one_term(value, axes)
        return known[value.id, axes]

    def _one_term(self, value: Value, axes: Axes) -> list[_Term]:
        return [_Term(1.0, factors_of(value, axes, self.makers))]

    def _terms_of_op(self, value: Value, axes: Axes, known: _Known) -> Steps[list[_Term]]:
        maker = self.makers.get(value.id)
        if maker is None or value.id in self.given or maker.kwargs or value.space != EDGE:
            return self._one_term(value, axes)
        values = [a for a in maker.args if isinstance(a, Value)]
        parts, terms = _parts(maker, values), list[_Term]()
        if parts is not None:
            for scale, operand in parts:
                own = renamed_axes(operand, axes) if renames(maker) else axes
                found = yield self._terms(operand, own, known)
                terms += [replace(t, scale=scale * t.scale) for t in found]
            return terms
        if maker.name == "mul" and len(values) == 2:
            ones = yield self._terms(values[0], operand_axes(values[0], axes), known)
            twos = yield self._terms(values[1], operand_axes(values[1], axes), known)
            return [_Term(a.scale * b.scale, (*a.factors, *b.factors)) for a in ones for b in twos]
        if (slope := self._slope(maker)) is not None:
            mine = Factor(("", slope.id), tuple(a for a in axes if a is not None), slope)
            found = yield self._terms(values[0], operand_axes(values[0], axes), known)
            return [_Term(term.scale, (*term.factors, mine)) for term in found]
        return self._one_term(value, axes)

    def _slope(self, op: Op) -> Value | None:
        """The factor by which an operator multiplies its first operand, a gradient: what it makes of ones."""
        name = op.name
        linear = name.endswith("_backward") and is_pointwise(op.target)
        grad, *rest = op.args
        given = [a for a in rest if isinstance(a, Value)]
        result = op.results[0]
        if not linear or len(op.results) != 1 or not given or not isinstance(grad, Value):
            return None
        alike = all(v.row_shape == result.row_shape and v.dtype == result.dtype for v in given)
        if not alike or any(v.id not in self.given for v in given):
            return None
        if result.id not in self.slopes:
            line = self._line(given[0])  # of the function, not of its derivative
            ones = self._put(_aten.ones_like.default, (given[0],), self.new_value(given[0]), line)
            self.slopes[result.id] = self._put(op.target, (ones, *rest), self.new_value(result), line)
        return self.slopes[result.id]

    def _line(self, value: Value) -> str:
        maker = self.makers.get(value.id)
        return value.line if maker is None else maker.line

    # ------------------------------------------------------------ how a term is summed
    def _plan(self, term: _Term, rows: Value, end: str) -> _Plan | None:
        if not math.isfinite(term.scale) or term.scale == 0:
            return None
        shape = _plain(rows)
        for number, factor in enumerate(term.factors):
            others = (*term.factors[:number], *term.factors[number + 1 :])
            found = self._times_row(term, factor, others, shape, end) or self._times_features(term, factor, others, end)
            if found is not None:
                return found
        alone = _Plan(term.scale, None, term.factors, shape)
        far = self.foresight is not None and end == "src"
        return alone if far and _covers(shape, term.factors) else None

    def _times_row(
        self, term: _Term, factor: Factor, others: tuple[Factor, ...], shape: tuple[int, ...], end: str
    ) -> _Plan | None:
        given = self._row_at(factor.value, end)
        if given is None or factor.axes != tuple(range(len(shape))):
            return None
        if self._known(end, shape, others) is None and (end == "src" or not self._can_make(end, shape, others)):
            return None
        return _Plan(term.scale, given, others, shape)

    def _times_features(self, term: _Term, factor: Factor, others: tuple[Factor, ...], end: str) -> _Plan | None:
        """Of a factor that is itself a sum over features of a product with the end's own row."""
        maker = self.makers.get(factor.value.id)
        taken = None if maker is None else feature_sum(maker)
        if maker is None or taken is None or maker.name != "sum" or not has_edge_rows(maker.args[0]):
            return None
        rows = maker.args[0]
        inner_axes = axes_of(rows.row_shape)
        kept = [axis for d, axis in enumerate(inner_axes) if axis is not None and d not in taken]
        if factor.axes != tuple(range(len(kept))) or any(a >= len(kept) for f in others for a in f.axes):
            return None
        outer = [replace(f, axes=tuple(kept[a] for a in f.axes)) for f in others]
        inner, shape = factors_of(rows, inner_axes, self.makers), _plain(rows)
        for number, one in enumerate(inner):
            given = self._row_at(one.value, end)
            if given is None or one.axes != tuple(range(len(shape))):
                continue
            rest = (*inner[:number], *inner[number + 1 :], *outer)
            if self._known(end, shape, rest) is not None or self._can_make(end, shape, rest):
                return _Plan(term.scale, given, rest, shape, maker)
        return None

    def _row_at(self, value: Value, end: str) -> Value | None:
        """What a value of edges is the row of, at this end."""
        maker = self.makers.get(value.id)
        return maker.args[0] if maker is not None and maker.target == Gather(end) else None

    # ------------------------------------------------------------ sums
    def _known(self, end: str, shape: tuple[int, ...], factors: Sequence[Factor]) -> Value | None:
        return self.sums.get((end, key_of(shape, factors)))

    def _can_make(self, end: str, shape: tuple[int, ...], factors: Sequence[Factor]) -> bool:
        """Whether a sum may be made anew: over in-edges the function itself makes it, while it is there."""
        if self.foresight is None or not _covers(shape, factors) or math.prod(shape) > _MOST_NUMBERS:
            return False
        return end == "src" or (self.foresight.keeps and all(f.value.id in self.given for f in factors))

    def _sum_of(self, end: str, shape: tuple[int, ...], factors: Sequence[Factor], line: str) -> Value:
        known = self._known(end, shape, factors)
        if known is not None:
            return known
        line = self._line(factors[0].value) if end == "dst" else line
        product: Value | None = None
        for factor in sorted(factors, key=lambda f: len(f.axes)):
            sizes = tuple(n if axis in factor.axes else 1 for axis, n in enumerate(shape)) or (1,)
            one = self._viewed(factor.value, sizes, line)
            if product is None:
                product = one
                continue
            wide = tuple(max(m, n) for m, n in zip(product.row_shape, sizes, strict=True))
            result = self.new_value(one, shape=(one.shape[0], *wide))
            product = self._put(_aten.mul.Tensor, (product, one), result, line)
        assert product is not None
        move = SegmentReduce(end, "sum")
        total = self.new_value(product, space=move.result, shape=(Rows(move.result), *product.row_shape))
        self._put(move, (product,), total, line)
        self.sums[(end, key_of(shape, factors))] = total
        if end == "dst":
            self.kept.add(total.id)
        return total


_SUMS = ("segment_sum[dst]", "segment_sum[src]")


def _parts(op: Op, values: Sequence[Value]) -> list[tuple[float, Value]] | None:
    """A sum of operands times numbers, each as large as the result; None if the op is something else."""
    name, args = op.name, op.args
    if renames(op):
        return [(1.0, values[0])]
    if not values or not _are_alike(op.results[0], *values):
        return None
    if name in ("add", "sub") and len(args) == len(values) == 2:
        return [(1.0, values[0]), (1.0 if name == "add" else -1.0, values[1])]
    if name == "neg":
        return [(-1.0, values[0])]
    if name in ("mul", "div") and len(values) == 1 and len(args) == 2 and isinstance(args[1], (int, float)):
        return [((args[1] if name == "mul" else 1 / args[1] if args[1] else math.nan), values[0])]
    return None


def _plain(rows: Value) -> tuple[int, ...]:
    return tuple(n for n in rows.row_shape if n != 1)


def _are_alike(value: Value, *operands: Value) -> bool:
    return all(v.row_shape == value.row_shape and v.space == EDGE and v.dtype == value.dtype for v in operands)


def _covers(shape: tuple[int, ...], factors: Sequence[Factor]) -> bool:
    """Whether the product is as large as its sum, each factor a row of edges with dims in order."""
    ordered = all(list(f.axes) == sorted(f.axes) and f.value.space == EDGE for f in factors)
    return bool(factors) and ordered and {a for f in factors for a in f.axes} == set(range(len(shape)))


def visits_in_edges(ops: Sequence[Op], outputs: Iterable[Value | None]) -> bool:
    """Whether ops, or outputs with rows of edges, still ask for a loop over in-edges."""
    reduces = any(isinstance(op.target, SegmentReduce) and op.target.end == "dst" for op in ops)
    return reduces or any(v is not None and v.space == EDGE for v in outputs)
