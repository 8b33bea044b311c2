"""Attention: laws of weighted sums over in-edges, so that one pass makes such a sum, and one its derivative.

Takes: ops in order. Gives: ops in order that compute the same values; tempo: once a function.
Source: online softmax (Milakov and Gimelshein 2018), the backward of FlashAttention (Dao et al. 2022), on segments.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace

import torch

from vgraph.ir.moves import Gather, SegmentReduce
from vgraph.ir.program import EDGE, SHARED, VERTEX, Op, Rows, Value
from vgraph.ir.row_ops import feature_sum
from vgraph.ir.tdl import op_name

NewValue = Callable[..., Value]
_RECEIVER, _SUM = Gather("dst"), SegmentReduce("dst", "sum")
_div, _mul, _cast = torch.ops.aten.div.Tensor, torch.ops.aten.mul.Tensor, torch.ops.aten._to_copy.default


def weigh_once(ops: Sequence[Op], new_value: NewValue, own: Collection[int]) -> list[Op]:
    """The ops with these laws applied; the values that they replace keep their names.

    A softmax's weights are exp(x - log(total) - best). The sum of (weight m) = the sum of (exp(x - best) m) / total,
    so that it needs no total before; of ``own`` values alone, as a derivative knows the logarithm and not ``best``.
    The sum over edges of (y[dst] m), or of what features of it add up to, is y times a sum that exists.
    """
    pass_ = _Laws(new_value, own, {v.id: op for op in ops for v in op.results})
    for op in ops:
        pass_.add(op)
    return pass_.ops


Axes = tuple[int | None, ...]  # of every dim of a row: which of a product's dims it is; None: of size one
Key = tuple[str, int]


@dataclass(frozen=True)
class _Factor:
    """A value that a product is made of; ``key``: what it is without views, and the end that it was taken from."""

    key: Key
    axes: tuple[int, ...]
    value: Value


@dataclass(eq=False)
class _Laws:
    new_value: NewValue
    own: Collection[int]
    makers: dict[int, Op]
    ops: list[Op] = field(default_factory=list[Op])
    relatives: dict[int, tuple[Value, Value]] = field(default_factory=dict[int, "tuple[Value, Value]"])
    sums: dict[object, Value] = field(default_factory=dict[object, Value])

    def add(self, op: Op) -> None:
        if op_name(op.target) == "exp":
            self._note_softmax(op)
        elif op.target == _SUM and len(op.results) == 1:
            if self._known_sum(op) or (op.results[0].id in self.own and self._weighted_sum(op)):
                return
        self.ops.append(op)

    def _put(self, target: object, args: tuple[object, ...], result: Value, line: str, **kwargs: object) -> Value:
        made = Op(target, args, kwargs, (result,), line)
        self.makers[result.id] = made
        self.ops.append(made)
        return result

    # ------------------------------------------------------------ the sum of (weight m)
    def _made(self, value: object, name: str) -> Op | None:
        maker = self.makers.get(value.id) if isinstance(value, Value) else None
        return maker if maker is not None and op_name(maker.target) == name and not maker.kwargs else None

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
        """Recognises the weights that a softmax over in-edges gives."""
        found = self._above(op)
        added = found and self._made(found[1], "add")
        logarithm = added and len(added.args) == 2 and self._made(added.args[1], "log")
        clamped = logarithm and self._made(logarithm.args[0], "clamp")
        if not found or not added or not logarithm or not clamped:
            return
        peak, total = self.makers.get(added.args[0].id), self.makers.get(clamped.args[0].id)
        if peak is None or peak.target != SegmentReduce("dst", "max") or total is None or total.target != _SUM:
            return
        scaled = self._made(total.args[0], "exp")
        if scaled is not None and self._above(scaled) == (found[0], peak.results[0]) and peak.args[0] is found[0]:
            self.relatives[op.results[0].id] = (scaled.results[0], clamped.results[0])

    def _weighted_sum(self, op: Op) -> bool:
        found = self._relative(op.args[0])
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

    def _relative(self, value: Value) -> tuple[Value, Value] | None:
        """The value with weights that do not add up to one, and what they add up to."""
        known = self.relatives.get(value.id)
        maker = self.makers.get(value.id)
        if known is not None or maker is None or len(maker.results) != 1 or value.space != EDGE:
            return known
        name = op_name(maker.target)
        places = range(len(maker.args)) if name == "mul" else range(1) if _is_linear(maker) else ()
        for place in places:
            operand = maker.args[place]
            found = self._relative(operand) if isinstance(operand, Value) else None
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
        return self._put(
            torch.ops.aten.view.default, (value, list(shape)), self.new_value(value, shape=shape), line
        )  # fmt: skip

    # ------------------------------------------------------------ the sum of (y[dst] m)
    def _known_sum(self, op: Op) -> bool:
        """Notes what is summed, or makes it of the sum that is known of the other factors."""
        rows, result = op.args[0], op.results[0]
        if not _has_rows(rows):
            return False
        factors = list(self._factors(rows, _axes(rows.row_shape)))
        for number, factor in enumerate(factors):
            others = factors[:number] + factors[number + 1 :]
            found = self._times_receiver(factor, others, rows) or self._times_features(factor, others)
            if found is not None and found.dtype == result.dtype:
                shape = (result.shape[0], *result.row_shape)
                self._put(torch.ops.aten.view.default, (found, list(shape)), result, op.line)
                return True
        self.sums.setdefault(_key(rows.row_shape, factors), result)
        return False

    def _times_receiver(self, factor: _Factor, others: list[_Factor], rows: Value) -> Value | None:
        given = self._spread(factor.value)
        plain = [n for n in rows.row_shape if n != 1]
        if given is None or factor.axes != tuple(range(len(plain))):
            return None
        known = self.sums.get(_key(rows.row_shape, others))
        if known is None or known.dtype != given.dtype:
            return None
        known = self._viewed(known, rows.row_shape, rows.line)
        own = self._viewed(given, rows.row_shape, rows.line)
        return self._put(_mul, (own, known), self.new_value(known), rows.line)

    def _times_features(self, factor: _Factor, others: list[_Factor]) -> Value | None:
        """Of a factor that is itself a sum over features of a product with the receiver's row."""
        maker = self.makers.get(factor.value.id)
        taken = None if maker is None else feature_sum(maker)
        if maker is None or taken is None or op_name(maker.target) != "sum" or not _has_rows(maker.args[0]):
            return None
        rows = maker.args[0]
        kept = [axis for d, axis in enumerate(_axes(rows.row_shape)) if axis is not None and d not in taken]
        if factor.axes != tuple(range(len(kept))) or any(a >= len(kept) for f in others for a in f.axes):
            return None
        outer = [replace(f, axes=tuple(kept[a] for a in f.axes)) for f in others]
        inner = list(self._factors(rows, _axes(rows.row_shape)))
        for number, one in enumerate(inner):
            found = self._times_receiver(one, [*inner[:number], *inner[number + 1 :], *outer], rows)
            if found is not None:
                result = self.new_value(
                    maker.results[0], space=VERTEX, shape=(found.shape[0], *maker.results[0].row_shape)
                )
                return self._put(maker.target, (found, *maker.args[1:]), result, maker.line)
        return None

    def _factors(self, value: Value, axes: Axes) -> Iterator[_Factor]:
        """What a product of edges is made of; ``axes``: of the dims of a row."""
        maker = self.makers.get(value.id)
        if maker is not None and op_name(maker.target) == "mul" and all(isinstance(a, Value) for a in maker.args):
            for operand in maker.args:
                sizes = (1,) * (len(axes) - len(operand.row_shape)) + operand.row_shape
                own = tuple(None if n == 1 else axis for n, axis in zip(sizes, axes, strict=True))
                yield from self._factors(operand, own[len(axes) - len(operand.row_shape) :])
            return
        if maker is not None and _renames(maker):
            given = iter(axis for axis in axes if axis is not None)
            operand = maker.args[0]
            yield from self._factors(operand, tuple(None if n == 1 else next(given) for n in operand.row_shape))
            return
        yield _Factor(self._identity(value), tuple(a for a in axes if a is not None), value)

    def _identity(self, value: Value) -> Key:
        maker = self.makers.get(value.id)
        if maker is not None and isinstance(maker.target, Gather):
            inner = self._unviewed(maker.args[0])
            return f"{maker.target.end}|{maker.target.part}", inner.id
        return "", value.id

    def _unviewed(self, value: Value) -> Value:
        while (maker := self.makers.get(value.id)) is not None and _renames(maker):
            value = maker.args[0]
        return value


def _key(row_shape: tuple[int, ...], factors: Sequence[_Factor]) -> object:
    return tuple(n for n in row_shape if n != 1), tuple(sorted((f.key, f.axes) for f in factors))


def _axes(row_shape: tuple[int, ...]) -> Axes:
    numbers = iter(range(len(row_shape)))
    return tuple(None if n == 1 else next(numbers) for n in row_shape)


def _has_rows(value: Value) -> bool:
    """Rows of edges along the first dim, of floating-point numbers."""
    return value.space == EDGE and value.shape[0] == Rows(EDGE) and value.dtype.is_floating_point


def _renames(op: Op) -> bool:
    """A view that adds or takes away dims of size one."""
    if op_name(op.target) != "view" or op.args[0].space == SHARED:
        return False
    before, after = op.args[0], op.results[0]
    same = [n for n in before.row_shape if n != 1] == [n for n in after.row_shape if n != 1]
    return same and all(v.shape[0] == Rows(v.space) for v in (before, after))


def _is_linear(op: Op) -> bool:
    """Ops through which a factor of the first operand can be taken."""
    return op_name(op.target) in ("div", "neg", "_to_copy") or _renames(op)
