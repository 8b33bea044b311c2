"""Siblings: products within a loop that one product with larger matrices can make.

Takes: Phases. Gives: the same with fewer products a frontier. Runs once per function.
Source: Cavs section 3.5 (fewer kernels a batch); matrices are put side by side once a call, before the loop.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import count

import torch

from vgraph.ir.moves import Gather, SegmentReduce
from vgraph.ir.program import Dim, Op, Rows, Value
from vgraph.ir.schedule import Phase
from vgraph.ir.space import EDGE, SHARED

aten = torch.ops.aten


def join_products(phases: Sequence[Phase], outside: Iterable[int], *, more_work: bool = True) -> tuple[Phase, ...]:
    """Products of the same rows, and sums of products; ``outside``: ids others read.

    If there may be ``more_work``, also products of sums over slots, and sums of products whose rows lie elsewhere.
    """
    values = (v for phase in phases for op in phase.ops for v in (*op.operands(), *op.results))
    numbers = count(1 + max((v.id for v in values), default=0))
    reads = [{v.id for op in phase.ops for v in op.operands()} for phase in phases]
    found: list[Phase] = []
    for index, phase in enumerate(phases):
        if not phase.is_loop or phase.is_serial:
            found.append(phase)
            continue
        others = set(outside).union(*reads[:index], *reads[index + 1 :])
        joined = _Join(phase, others, numbers, more_work)
        ops = joined.run()
        if joined.before:
            found.append(Phase(tuple(joined.before), is_loop=False))
        found.append(replace(phase, ops=tuple(ops)))
    return tuple(found)


@dataclass(eq=False)
class _Join:
    phase: Phase
    outside: set[int]
    numbers: Iterator[int]
    more_work: bool
    before: list[Op] = field(default_factory=list[Op])

    def run(self) -> list[Op]:
        self.ops = _read_once(self.phase.ops)
        self._look()
        if self.more_work:
            self._sums_of_slots()
        self._sums_of_products()
        self._same_rows()
        read = self.outside.union(v.id for op in self.ops for v in op.operands())
        return [op for op in self.ops if any(v.id in read for v in op.results)]

    def _look(self) -> None:
        self.makers = {v.id: op for op in self.ops for v in op.results}
        self.uses: dict[int, int] = {}
        for op in self.ops:
            for value in op.operands():
                self.uses[value.id] = self.uses.get(value.id, 0) + 1

    def _product(self, op: Op | None) -> bool:
        """Rows of one space times a matrix from outside of the loop."""
        if op is None or op.name not in ("mm", "addmm") or op.kwargs:
            return False
        *bias, left, right = op.args
        plain = left.row_dim == 0 and left.shape[0] == Rows(left.space) and len(left.shape) == 2 == len(right.shape)
        fixed = all(v.space == SHARED and v.id not in self.makers for v in (*bias, right))
        return plain and fixed and all(b.shape == right.shape[1:] for b in bias) and left.dtype == right.dtype

    def _is_own(self, value: Value, readers: int = 1) -> bool:
        """Whether no one else reads it."""
        return value.id not in self.outside and self.uses.get(value.id, 0) == readers

    def _value(self, like: Value, shape: tuple[Dim, ...]) -> Value:
        return replace(like, id=next(self.numbers), shape=shape)

    def _replace(self, old: Op, *new: Op) -> None:
        at = self.ops.index(old)
        self.ops[at : at + 1] = new
        self._look()

    # ------------------------------------------------------------ sum over slots, then a product
    def _sums_of_slots(self) -> None:
        """Where the slots themselves are multiplied, too: the product first, then the sum."""
        for op in list(self.ops):
            if not self._product(op):
                continue
            summed = self.makers.get(op.args[-2].id)
            if summed is None or summed.target != SegmentReduce("dst", "sum") or summed.args[0].space != EDGE:
                continue
            slots = summed.args[0]
            if any(self._product(other) and other.args[-2] is slots for other in self.ops):
                if op.name == "addmm":
                    op = self._without_bias(op)
                result = op.results[0]
                made = replace(result, id=next(self.numbers), space=EDGE, shape=(Rows(EDGE), result.shape[1]))
                first = replace(op, args=(slots, op.args[1]), results=(made,))
                self._replace(op, first, Op(summed.target, (made,), {}, (result,), op.line))

    def _without_bias(self, op: Op) -> Op:
        """The product alone, what is added behind it."""
        bias, left, right = op.args
        (result,) = op.results
        product = Op(aten.mm.default, (left, right), {}, (self._value(result, result.shape),), op.line)
        self._replace(op, product, Op(aten.add.Tensor, (product.results[0], bias), {}, (result,), op.line))
        return product

    # ------------------------------------------------------------ a sum of products
    def _sums_of_products(self) -> None:
        for op in list(self.ops):
            if op.name != "add" or op.kwargs or len(op.args) != 2:
                continue
            if not all(isinstance(arg, Value) and self._is_own(arg) for arg in op.args):
                continue
            parts = [self._factors(arg) for arg in op.args]
            if all(parts) and all(arg.shape == op.results[0].shape for arg in op.args):
                self._replace(op, *self._sum(op, [part for part in parts if part is not None]))

    def _factors(self, value: Value) -> tuple[Value, Value, bool] | None:
        """Rows and matrix whose product it is, and whether the rows have to be brought to edges first."""
        maker = self.makers.get(value.id)
        if maker is not None and self.more_work and maker.target == Gather("dst"):
            inner = self.makers.get(maker.args[0].id)
            if inner is not None and self._is_plain(inner) and self._is_own(maker.args[0]):
                return inner.args[0], inner.args[1], True
        if maker is not None and self._is_plain(maker):
            return maker.args[0], maker.args[1], False
        return None

    def _is_plain(self, op: Op) -> bool:
        return self._product(op) and op.name == "mm"

    def _sum(self, op: Op, parts: list[tuple[Value, Value, bool]]) -> list[Op]:
        result, made, rows = op.results[0], list[Op](), list[Value]()
        for left, _, moves in parts:
            if moves:
                there = replace(left, id=next(self.numbers), space=EDGE, shape=(Rows(EDGE), left.shape[1]))
                made.append(Op(Gather("dst"), (left,), {}, (there,), op.line))
                left = there
            rows.append(left)
        width = _total(rows, 1)
        both = self._value(rows[0], (rows[0].shape[0], width))
        matrix = self._side_by_side([right for _, right, _ in parts], 0)
        made.append(Op(aten.cat.default, (rows, 1), {}, (both,), op.line))
        made.append(Op(aten.mm.default, (both, matrix), {}, (result,), op.line))
        return made

    def _side_by_side(self, values: list[Value], dim: int) -> Value:
        sizes = list(values[0].shape)
        sizes[dim] = _total(values, dim)
        whole = self._value(values[0], tuple(sizes))
        self.before.append(Op(aten.cat.default, (list(values), dim), {}, (whole,), values[0].line))
        return whole

    # ------------------------------------------------------------ products of the same rows
    def _same_rows(self) -> None:
        if self.more_work:
            self._agree_on_biases()
        groups: dict[tuple[int, str], list[Op]] = {}
        for op in self.ops:
            if self._product(op) and op.results[0].id not in self.outside:
                groups.setdefault((op.args[-2].id, op.name), []).append(op)
        for group in groups.values():
            if len(group) > 1:
                self._join_group(group)

    def _agree_on_biases(self) -> None:
        """Where some products of the same rows add a bias and others do not, none does."""
        plain = {op.args[-2].id for op in self.ops if self._is_plain(op)}
        for op in list(self.ops):
            if self._product(op) and not self._is_plain(op) and op.args[-2].id in plain:
                self._without_bias(op)

    def _join_group(self, group: list[Op]) -> None:
        first, start = group[0], 0
        left = first.args[-2]
        matrix = self._side_by_side([op.args[-1] for op in group], 1)
        bias = [self._side_by_side([op.args[0] for op in group], 0)] if len(first.args) == 3 else []
        whole = self._value(first.results[0], (left.shape[0], matrix.shape[1]))
        made = [Op(first.target, (*bias, left, matrix), {}, (whole,), first.line)]
        for op in group:
            width = op.results[0].shape[1]
            assert isinstance(width, int)
            made.append(Op(aten.slice.Tensor, (whole, 1, start, start + width), {}, op.results, op.line))
            start += width
        self._replace(first, *made)
        self.ops = [op for op in self.ops if op not in group]
        self._look()


def _read_once(ops: Sequence[Op]) -> list[Op]:
    """Readers of equal sums over the same slots read the first of them; what nobody reads then is left out later."""
    first, known, found = dict[tuple[int, str], Value](), dict[int, Value](), list[Op]()

    def now(leaf: object) -> object:
        return known.get(leaf.id, leaf) if isinstance(leaf, Value) else leaf

    for op in ops:
        if any(v.id in known for v in op.operands()):
            op = op.mapped(now)
        if op.target == SegmentReduce("dst", "sum"):
            made = first.setdefault((op.args[0].id, str(op.results[0].dtype)), op.results[0])
            if made is not op.results[0]:
                known[op.results[0].id] = made
        found.append(op)
    return found


def _total(values: Sequence[Value], dim: int) -> int:
    """How long they are side by side."""
    sizes = [v.shape[dim] for v in values]
    return sum(size for size in sizes if isinstance(size, int))
