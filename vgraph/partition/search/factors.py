"""Factors: dims that views take apart, and all tensors in which the same dim is worth a cut of its inner factor.

Takes: Classes. Gives: outer factors by value and dim. Runs once per model.
Source: [4, H] of LSTM gates, [3, heads, d] of fused attention: a contiguous cut would cross gates and heads.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import replace

from vgraph.ir.program import Op, Value, op_name
from vgraph.ir.sharding import Split
from vgraph.ir.tdl.notation import Notation
from vgraph.partition.rewrite.regions import notation_of
from vgraph.partition.search.classes import Classes, OpClass
from vgraph.partition.search.strategies import strategies

_APART = frozenset("view reshape flatten split split_with_sizes cat stack slice repeat unbind".split())
Hints = dict[int, list[set[int]]]  # value id -> outer factors of each dim


def find_factors(classes: Classes) -> Hints:
    """Seeds where a view's cut is that of an inner factor; then everything that has the same index."""
    return _Spreading(classes).run()


def with_hints(classes: Classes, hints: Hints) -> Classes:
    """The same classes, whose kinds tell ops with different hints apart."""
    if not hints:
        return classes
    kinds: dict[Hashable, int] = {}
    shown = {value: tuple([tuple(sorted(s)) for s in dims]) for value, dims in hints.items()}

    def kind(one: OpClass) -> int:
        found = tuple([shown.get(value.id) for value in (*one.operands, *one.op.results)])
        return kinds.setdefault((one.kind, found), len(kinds))

    return replace(classes, classes=tuple([one.of_kind(kind(one)) for one in classes.classes]), hints=shown)


class _Spreading:
    def __init__(self, classes: Classes) -> None:
        self.classes = classes
        self.hints: Hints = {}
        self.queue: list[tuple[Value, int, int]] = []
        self.notations: dict[int, Notation | None] = {}
        self.same: dict[tuple[int, tuple[int, ...], int], list[tuple[int, int]]] = {}
        self.touching: dict[int, list[tuple[OpClass, list[Value]]]] = {}

    def run(self) -> Hints:
        known: dict[int, list[tuple[int, int, int]]] = {}
        for one in self.classes.classes:
            if op_name(one.op.target) in _APART:
                if one.kind not in known:
                    known[one.kind] = list(_seeds(one.op))
                values = (*one.operands, *one.op.results)
                for place, dim, outer in known[one.kind]:
                    self._note(values[place], dim, outer)
        if self.queue:
            self._index()
        while self.queue:
            value, dim, outer = self.queue.pop()
            for one, values in self.touching.get(value.id, ()):
                places = tuple([place for place, other in enumerate(values) if other is value])
                key = (one.kind, places, dim)
                same = self.same.get(key)
                if same is None:
                    same = self.same[key] = list(self._same_index(one, places, dim))
                for place, at in same:
                    self._note(values[place], at, outer)
        return self.hints

    def _index(self) -> None:
        """Every member's values, for those of one class are many."""
        step, classes = self.classes.step, self.classes
        for op, number in zip(step.ops, classes.class_of, strict=True):
            one = classes.classes[number]
            values = [*op.operands(), *op.results]
            for value in {v.id for v in values}:
                self.touching.setdefault(value, []).append((one, values))

    def _note(self, value: Value, dim: int, outer: int) -> None:
        extent = value.shape[dim]
        if not isinstance(extent, int) or extent % outer or extent == outer:
            return
        found = self.hints.setdefault(value.id, [set() for _ in value.shape])
        if outer not in found[dim]:
            found[dim].add(outer)
            self.queue.append((value, dim, outer))

    def _same_index(self, one: OpClass, places: Sequence[int], dim: int) -> Iterator[tuple[int, int]]:
        """Of the operands and results of such an op, those and their dims that have the index of a dim of one value.

        ``places``: where that value is among them.
        """
        if one.kind not in self.notations:
            self.notations[one.kind] = notation_of(one.op)
        notation = self.notations[one.kind]
        if notation is None:
            return
        sides = [*zip(one.operands, notation.inputs, strict=True), *zip(one.op.results, notation.outputs, strict=True)]
        named = [dims if len(dims) == len(value.shape) else () for value, dims in sides]
        names = {named[place][dim] for place in places if named[place]}
        for place, dims in enumerate(named):
            for at, name in enumerate(dims):
                if name in names and name.isidentifier():
                    yield place, at


def _seeds(op: Op) -> Iterator[tuple[int, int, int]]:
    """(operand or result, dim, outer) of every cut of an inner factor that the op itself asks for."""
    for strategy in strategies(op, 2):
        placed: Sequence[object] = (*strategy.inputs, *strategy.outputs)
        for place, placement in enumerate(placed):
            if isinstance(placement, Split) and placement.outer > 1:
                yield place, placement.dim, placement.outer
