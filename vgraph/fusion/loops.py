"""Loops: the loops over features of one stage.

Takes: the ops of a stage and where their values go. Gives: its Loops. Runs once per function.
What can be computed where it is read is; what needs all of a row first gets a loop of its own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from vgraph.fusion.expressions import is_costly
from vgraph.fusion.layout import Loop, LoopStore, Shape, needs_whole_row, plain_shape
from vgraph.fusion.online_softmax import Riders
from vgraph.fusion.views import place_of
from vgraph.ir.kernel import KernelSpec, Place
from vgraph.ir.moves import OuterSum, SegmentReduce
from vgraph.ir.program import Op
from vgraph.ir.row_ops import feature_sum, joined_rows, row_product
from vgraph.ir.trampoline import Steps, run_deep


class Planner(Protocol):
    """What is known of the whole kernel."""

    spec: KernelSpec
    by_lanes: bool
    online_sums: Riders

    def made_places(self, op: Op) -> list[Place]: ...


@dataclass(eq=False)
class StageLoops:
    """The loops of one stage: what can be computed where it is read, and what needs a loop of its own."""

    planner: Planner
    ops: Sequence[Op]
    kept: set[int]
    arrays: set[int] = field(default_factory=set[int])
    micro: dict[int, int] = field(default_factory=dict[int, int])
    _flat: dict[int, bool] = field(default_factory=dict[int, bool])  # by id(op)
    _flat_with: int = 0  # so many arrays

    def build(self, loop_stores: list[LoopStore]) -> tuple[list[Loop], set[int]]:
        here = {v.id: op for op in self.ops for v in op.results if not isinstance(op.target, SegmentReduce)}
        self.here = {key: op for key, op in here.items() if key not in self.kept}
        self.arrays |= {key for key, op in self.here.items() if needs_whole_row(op)}
        while True:
            known = len(self.arrays)
            self._count()
            if len(self.arrays) == known:  # else what reads a new array must come later than it was counted
                self.arrays |= set() if self.planner.by_lanes else self._computed_twice(loop_stores)
            if len(self.arrays) == known:
                break
        stored = {store.value.id for store in loop_stores if store.kind == "array"}
        kinds_alone = ("product", "feature") if self.planner.by_lanes else ("product",)
        loops: dict[tuple[int, Shape, int], Loop] = {}
        for store in (*loop_stores, *(self._own_store(i) for i in sorted(self.arrays - stored))):
            micro, shape = self._loop_key(store)
            alone = store.value.id if store.kind in kinds_alone else 0
            loops.setdefault((micro, shape, alone), Loop(shape)).loop_stores.append(store)
        ordered = sorted(loops, key=lambda key: (key[0], "product" not in loops[key].kinds, key))
        return [loops[key] for key in ordered], self.arrays  # products that wait for nothing more stand together

    def _own_store(self, value_id: int) -> LoopStore:
        op = self.here[value_id]
        kind = "feature" if feature_sum(op) else "product" if row_product(op) else "array"
        return LoopStore(kind, op, op.results[0])

    def _loop_key(self, store: LoopStore) -> tuple[int, Shape]:
        op = store.op
        if store.kind in ("feature", "reduce"):
            (operand,) = op.operands()
            return self.micro[id(op)], plain_shape(operand.row_shape)
        late = needs_whole_row(op) and store.kind != "product"
        return self.micro.get(id(op), 0) + late, plain_shape(store.value.row_shape)

    def _inputs(self, op: Op) -> list[Place]:
        return [p for p in self.planner.made_places(op) if p.base.id in self.here]

    def _count(self) -> None:
        """The number of loops that must come before each op's; what needs an array on the way."""
        self.micro.clear()
        for op in self.ops:
            for place in self._inputs(op):
                if op.results[0].id in self.planner.online_sums.above and not self._is_flat(self.here[place.base.id]):
                    self.arrays.add(place.base.id)  # sums that ride on its peak read it, too
                if row_product(op) or not self._can_inline(op, place):
                    self.arrays.add(place.base.id)
            before = [self.micro[id(self.here[p.base.id])] + (p.base.id in self.arrays) for p in self._inputs(op)]
            self.micro[id(op)] = max(before, default=0)

    def _can_inline(self, op: Op, place: Place) -> bool:
        """Whether the reader's loop can compute the value at the very features that it reads."""
        maker = self.here[place.base.id]
        if self.planner.by_lanes and self._is_flat(maker):
            return True
        shape = self._reading_shape(op, place)
        if place.size != math.prod(shape) or not place.is_plain:
            return False
        return plain_shape(place.base.row_shape) == plain_shape(shape) or self._is_flat(maker)

    @staticmethod
    def _reading_shape(op: Op, place: Place) -> Shape:
        if isinstance(op.target, SegmentReduce) or feature_sum(op):
            (operand,) = op.operands()
            return operand.row_shape
        if isinstance(op.target, OuterSum) or joined_rows(op) is not None:
            return place.shape
        return op.results[0].row_shape

    def _is_flat(self, op: Op) -> bool:
        """Whether every operand is as long as the result, or one number, and so is all that is computed with it."""
        if len(self.arrays) != self._flat_with:  # an array is read, and not computed with what reads it
            self._flat.clear()
            self._flat_with = len(self.arrays)
        return run_deep(self._flatness(op))

    def _flatness(self, op: Op) -> Steps[bool]:
        if id(op) not in self._flat:
            self._flat[id(op)] = yield self._find_flatness(op)
        return self._flat[id(op)]

    def _find_flatness(self, op: Op) -> Steps[bool]:
        size = math.prod(op.results[0].row_shape)
        for value in op.operands():
            place = place_of(self.planner.spec, value)
            if place.size == 1:
                continue
            if place.size != size or not place.is_plain:
                return False
            inline = place.base.id in self.here and place.base.id not in self.arrays
            if inline and not (yield self._flatness(self.here[place.base.id])):
                return False
        return True

    def _computed_twice(self, loop_stores: list[LoopStore]) -> set[int]:
        """Costly values that more than one loop would compute."""
        loops: dict[int, set[tuple[int, Shape]]] = {}
        for store in (*loop_stores, *(self._own_store(i) for i in self.arrays)):
            loops.setdefault(id(store.op), set()).add(self._loop_key(store))
        found: set[int] = set()
        for op in reversed(self.ops):
            for place in self._inputs(op):
                base = place.base.id
                if base not in self.arrays:
                    loops.setdefault(id(self.here[base]), set()).update(loops.get(id(op), set()))
            mine = [v.id for v in op.results if v.id in self.here and v.id not in self.arrays]
            if mine and is_costly(op) and len(loops.get(id(op), ())) > 1:
                found.update(mine)
        return found
