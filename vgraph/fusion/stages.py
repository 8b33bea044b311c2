"""Stages: the order of the loops inside a kernel.

Takes: a KernelSpec. Gives: its loops over edges and features; tempo: once a function.
A kernel visits each row once. Even stages compute on the row itself, odd ones run over its edges; a stage
is a sequence of loops over features, one for each shape, cut where a loop needs all that another makes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

from vgraph.fusion.expressions import is_costly
from vgraph.fusion.grouping import is_elsewhere
from vgraph.fusion.views import whole
from vgraph.ir.kernel import KernelSpec, Place
from vgraph.ir.moves import SegmentReduce
from vgraph.ir.program import EDGE, SHARED, Op, Value
from vgraph.ir.row_ops import feature_sum, outer_sum, row_product

_MOST_KEPT = 16  # numbers an edge that are kept from one loop over edges for the next

Shape = tuple[int, ...]


@dataclass(eq=False)
class Sink:
    """Where a value goes.

    ``kind``: "store" (memory), "array" (scratch of this row or edge), "keep" (scratch for each edge of
    this row), "reduce" (over edges), "feature" (a sum over features), "product" (of a row and a matrix),
    "left" and "right" (rows whose outer products are summed).
    """

    kind: str
    op: Op
    value: Value


@dataclass(eq=False)
class Loop:
    """One pass over ``shape`` features."""

    shape: Shape
    sinks: list[Sink] = field(default_factory=list[Sink])


@dataclass(eq=False)
class Stage:
    """Loops on the row (``over`` "") or on each of its edges ("in" or "out")."""

    number: int
    over: str
    loops: list[Loop]
    arrays: frozenset[int]  # ids of values that later loops of this stage read from scratch
    kept: frozenset[int]  # ids of values of edges that earlier stages kept


@dataclass(eq=False)
class Layout:
    """All stages of a kernel; ``row_arrays``: values of a row that later stages read from scratch."""

    spec: KernelSpec
    stages: list[Stage]
    row_arrays: frozenset[int]
    stage_of: dict[int, int]
    makers: dict[int, Op]

    def place(self, value: Value) -> Place:
        return place_of(self.spec, value)


def place_of(spec: KernelSpec, value: Value) -> Place:
    return spec.places.get(value.id) or whole(value)


def lay_out(spec: KernelSpec, *, by_lanes: bool = False) -> Layout:
    """The kernel's loops in order.

    ``by_lanes``: many lanes share a row, so that computing a number again costs less than handing it over.
    """
    return _Planner(spec, by_lanes).layout()


def needs_whole_row(op: Op) -> bool:
    """Whether one number of the result needs many of the operand's row."""
    return feature_sum(op) is not None or row_product(op) is not None


def is_reduction(op: Op) -> bool:
    """Whether the op takes edges away."""
    return isinstance(op.target, SegmentReduce) or op.target is outer_sum


def plain_shape(shape: Shape) -> Shape:
    """Without dims of size one."""
    return tuple(n for n in shape if n != 1)


@dataclass(eq=False)
class _Planner:
    spec: KernelSpec
    by_lanes: bool
    makers: dict[int, Op] = field(default_factory=dict[int, Op])
    stage_of: dict[int, int] = field(default_factory=dict[int, int])
    costly: set[int] = field(default_factory=set[int])

    def __post_init__(self) -> None:
        for op in self.spec.ops:
            stage = self._stage(op)
            for value in op.results:
                self.makers[value.id] = op
                self.stage_of[value.id] = stage
                if is_costly(op) or needs_whole_row(op) or any(b.id in self.costly for b in self._edge_bases(op)):
                    self.costly.add(value.id)

    # ------------------------------------------------------------ which stage makes a value
    def _stage(self, op: Op) -> int:
        is_edge = op.results[0].space == EDGE or is_reduction(op)
        if self.spec.in_loop and op.target == SegmentReduce("src", "sum"):
            return -1
        stage = max((self._ready(place) for place in self.made_places(op)), default=0)
        return stage if (stage % 2 == 1) == is_edge else stage + 1

    def _ready(self, place: Place) -> int:
        """The first stage that can read a value made here."""
        stage = self.stage_of[place.base.id]
        return stage + isinstance(self.makers[place.base.id].target, SegmentReduce)

    def made_places(self, op: Op) -> list[Place]:
        """The operands that this kernel makes."""
        places = [place_of(self.spec, v) for v in op.operands()]
        mine = [p for p in places if p.base.id in self.makers]
        return [p for p in mine if not is_elsewhere(op, p, self.spec.own, self.spec.in_loop)]

    def _edge_bases(self, op: Op) -> list[Value]:
        return [p.base for p in self.made_places(op) if p.base.space == EDGE]

    # ------------------------------------------------------------ stages
    def layout(self) -> Layout:
        last = max(self.stage_of.values(), default=0)
        last += any(
            isinstance(op.target, SegmentReduce) and self.stage_of[op.results[0].id] == last for op in self.spec.ops
        )
        members: dict[int, tuple[list[Op], set[int]]] = {}
        kept: set[int] = set()  # by the stages up to now, from the last one back
        for stage in (s for s in range(last, -2, -1) if s % 2):
            members[stage] = self._edge_members(stage, kept)
            kept |= members[stage][1]
        row_arrays = self._row_arrays(members)
        stages = [self._stage_of_loops(s, members, kept, row_arrays) for s in range(-1, last + 1)]
        return Layout(self.spec, [s for s in stages if s.loops], frozenset(row_arrays), self.stage_of, self.makers)

    def _edge_members(self, stage: int, later: set[int]) -> tuple[list[Op], set[int]]:
        """The ops of a stage over edges, and which of their operands earlier stages keep for them."""
        wanted = later.union(v.id for v in self.spec.stores)
        roots = [
            op for op in self.spec.ops
            if self.stage_of[op.results[0].id] == stage
            and (is_reduction(op) or (op.results[0].space == EDGE and op.results[0].id in wanted))
        ]  # fmt: skip
        needed, kept, stack = {id(op) for op in roots}, set[int](), list(roots)
        while stack:
            for base in self._edge_bases(stack.pop()):
                if self.stage_of[base.id] < stage and self._is_worth_keeping(base):
                    kept.add(base.id)
                elif id(self.makers[base.id]) not in needed:
                    needed.add(id(self.makers[base.id]))
                    stack.append(self.makers[base.id])
        return [op for op in self.spec.ops if id(op) in needed], kept

    def _is_worth_keeping(self, value: Value) -> bool:
        if self.by_lanes:
            return False  # there is no memory near by that holds a long row
        return math.prod(value.row_shape) <= _MOST_KEPT and value.id in self.costly

    def _row_arrays(self, members: dict[int, tuple[list[Op], set[int]]]) -> set[int]:
        """Values of the row that are reduced over edges, or read by a later stage."""
        found = {v.id for op in self.spec.ops if isinstance(op.target, SegmentReduce) for v in op.results}
        for stage, (ops, _) in members.items():
            found |= {p.base.id for op in ops for p in self.made_places(op) if p.base.space != EDGE and stage >= 0}
        for op in self.spec.ops:
            if op.results[0].space != EDGE and not is_reduction(op):
                stage = self.stage_of[op.results[0].id]
                found |= {p.base.id for p in self.made_places(op) if self.stage_of[p.base.id] < stage}
        return found

    def _stage_of_loops(
        self, stage: int, members: dict[int, tuple[list[Op], set[int]]], kept: set[int], row_arrays: set[int]
    ) -> Stage:
        stores = {v.id for v in self.spec.stores}
        if stage % 2:
            ops, given = members[stage]
            sinks = [sink for op in ops for sink in self._edge_sinks(op, stage, stores, kept)]
        else:
            ops = [op for op in self.spec.ops if self._is_on_row(op, stage)]
            given = set[int]()
            sinks = [sink for op in self.spec.ops for sink in self._row_sinks(op, stage, stores, row_arrays)]
        loops, arrays = _Loops(self, ops, given).build(sinks)
        over = "" if stage % 2 == 0 else "out" if stage < 0 or self.spec.is_source else "in"
        return Stage(stage, over, loops, frozenset(arrays), frozenset(given))

    def _is_on_row(self, op: Op, stage: int) -> bool:
        on_row = op.results[0].space != EDGE and not is_reduction(op)
        return on_row and self.stage_of[op.results[0].id] == stage

    def _edge_sinks(self, op: Op, stage: int, stores: set[int], kept: set[int]) -> Iterable[Sink]:
        value = op.results[0]
        if op.target is outer_sum:
            yield Sink("left", op, op.args[0])
            yield Sink("right", op, op.args[1])
        elif isinstance(op.target, SegmentReduce):
            yield Sink("reduce", op, value)
        elif self.stage_of[value.id] == stage:
            if value.id in stores:
                yield Sink("store", op, value)
            if value.id in kept:
                yield Sink("keep", op, value)

    def _row_sinks(self, op: Op, stage: int, stores: set[int], row_arrays: set[int]) -> Iterable[Sink]:
        for value in op.results:
            if value.space in (EDGE, SHARED):
                continue
            reduced = isinstance(op.target, SegmentReduce)
            if self.stage_of[value.id] + reduced != stage:
                continue
            if value.id in stores:
                yield Sink("store", op, value)
            if value.id in row_arrays and not reduced and not needs_whole_row(op):
                yield Sink("array", op, value)


@dataclass(eq=False)
class _Loops:
    """The loops of one stage: what can be computed where it is read, and what needs a loop of its own."""

    planner: _Planner
    ops: list[Op]
    kept: set[int]
    arrays: set[int] = field(default_factory=set[int])
    micro: dict[int, int] = field(default_factory=dict[int, int])

    def build(self, sinks: list[Sink]) -> tuple[list[Loop], set[int]]:
        here = {v.id: op for op in self.ops for v in op.results if not isinstance(op.target, SegmentReduce)}
        self.here = {key: op for key, op in here.items() if key not in self.kept}
        self.arrays |= {key for key, op in self.here.items() if needs_whole_row(op)}
        while True:
            known = len(self.arrays)
            self._count()
            if len(self.arrays) == known:  # else what reads a new array must come later than it was counted
                self.arrays |= set() if self.planner.by_lanes else self._computed_twice(sinks)
            if len(self.arrays) == known:
                break
        every = [*sinks, *(self._own_sink(i) for i in sorted(self.arrays) if not _has_array(sinks, i))]
        loops: dict[tuple[int, Shape, int], Loop] = {}
        for sink in every:
            micro, shape = self._loop_key(sink)
            alone = sink.value.id if sink.kind in self._alone else 0
            loops.setdefault((micro, shape, alone), Loop(shape)).sinks.append(sink)
        return [loops[key] for key in sorted(loops)], self.arrays

    @property
    def _alone(self) -> tuple[str, ...]:
        return ("product", "feature") if self.planner.by_lanes else ("product",)

    def _own_sink(self, value_id: int) -> Sink:
        op = self.here[value_id]
        kind = "feature" if feature_sum(op) else "product" if row_product(op) else "array"
        return Sink(kind, op, op.results[0])

    def _loop_key(self, sink: Sink) -> tuple[int, Shape]:
        op = sink.op
        if sink.kind in ("feature", "reduce"):
            (operand,) = op.operands()
            return self.micro[id(op)], plain_shape(operand.row_shape)
        late = needs_whole_row(op) and sink.kind != "product"
        return self.micro.get(id(op), 0) + late, plain_shape(sink.value.row_shape)

    def _inputs(self, op: Op) -> list[Place]:
        return [p for p in self.planner.made_places(op) if p.base.id in self.here]

    def _count(self) -> None:
        """The number of loops that must come before each op's; what needs an array on the way."""
        self.micro.clear()
        for op in self.ops:
            for place in self._inputs(op):
                if row_product(op) or not self._can_inline(op, place):
                    self.arrays.add(place.base.id)
            before = [self.micro[id(self.here[p.base.id])] + (p.base.id in self.arrays) for p in self._inputs(op)]
            self.micro[id(op)] = max(before, default=0)

    def _can_inline(self, op: Op, place: Place) -> bool:
        """Whether the reader's loop can compute the value at the very features that it reads."""
        base = place.base
        if self.planner.by_lanes and self._is_flat(self.here[base.id]):
            return True
        size = math.prod(base.row_shape)
        shape = self._reading_shape(op, place)
        if place.size != math.prod(shape) or not place.is_plain:
            return False
        if place.size == size:
            return plain_shape(base.row_shape) == plain_shape(shape) or self._is_flat(self.here[base.id])
        return self._is_flat(self.here[base.id])

    @staticmethod
    def _reading_shape(op: Op, place: Place) -> Shape:
        if isinstance(op.target, SegmentReduce) or feature_sum(op):
            (operand,) = op.operands()
            return operand.row_shape
        if op.target is outer_sum:
            return place.shape
        return op.results[0].row_shape

    def _is_flat(self, op: Op) -> bool:
        """Whether every operand is as long as the result, or one number."""
        size = math.prod(op.results[0].row_shape)
        for value in op.operands():
            place = place_of(self.planner.spec, value)
            if place.size == 1:
                continue
            if place.size != size or not place.is_plain:
                return False
            inline = place.base.id in self.here and place.base.id not in self.arrays
            if inline and not self._is_flat(self.here[place.base.id]):
                return False
        return True

    def _computed_twice(self, sinks: list[Sink]) -> set[int]:
        """Costly values that more than one loop would compute."""
        loops: dict[int, set[tuple[int, Shape]]] = {}
        for sink in (*sinks, *(self._own_sink(i) for i in self.arrays)):
            loops.setdefault(id(sink.op), set()).add(self._loop_key(sink))
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


def _has_array(sinks: list[Sink], value_id: int) -> bool:
    return any(s.kind == "array" and s.value.id == value_id for s in sinks)
