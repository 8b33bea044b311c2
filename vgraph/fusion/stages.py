"""Stages: the order of the loops inside a kernel.

Takes: a KernelSpec. Gives: its loops over edges and features. Runs once per function.
A kernel visits each row once. Even stages compute on the row itself, odd ones run over its edges; a stage
is a sequence of loops over features, one for each shape, cut where a loop needs all that another makes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from vgraph.fusion.expressions import is_costly
from vgraph.fusion.grouping import is_elsewhere
from vgraph.fusion.layout import Layout, LoopStore, Stage, is_reduction, needs_whole_row
from vgraph.fusion.loops import StageLoops
from vgraph.fusion.online_softmax import Ride, Riders, find_online_sums
from vgraph.fusion.views import place_of
from vgraph.ir.kernel import KernelSpec, Place
from vgraph.ir.moves import OuterSum, SegmentReduce
from vgraph.ir.program import Op, Value, needed_ops
from vgraph.ir.row_ops import joined_rows
from vgraph.ir.space import EDGE, SHARED

_MOST_KEPT = 16  # numbers an edge that are kept from one loop over edges for the next


def lay_out(spec: KernelSpec, *, by_lanes: bool = False) -> Layout:
    """The kernel's loops in order.

    ``by_lanes``: many lanes share a row, so that computing a number again costs less than handing it over.
    """
    return _Planner(spec, by_lanes).layout()


@dataclass(eq=False)
class _Planner:
    spec: KernelSpec
    by_lanes: bool
    makers: dict[int, Op] = field(default_factory=dict[int, Op])
    stage_of: dict[int, int] = field(default_factory=dict[int, int])
    costly: set[int] = field(default_factory=set[int])
    joins: dict[int, int] = field(default_factory=dict[int, int])

    def __post_init__(self) -> None:
        self.online_sums = find_online_sums(self.spec)
        self.stored = {v.id for v in self.spec.stores}
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
        if self.by_lanes and op.results[0].id in self.online_sums.rides:
            return self._stage_of_online_sum(op)
        stage = max((self._ready(place) for place in self.made_places(op)), default=0)
        stage = stage if (stage % 2 == 1) == is_edge else stage + 1
        ride = self.online_sums.rides.get(op.results[0].id)
        return stage + 2 if ride is not None and self._is_narrow(ride, op) else stage

    @staticmethod
    def _is_narrow(ride: Ride, op: Op) -> bool:
        """Whether the weights are so few beside what they weigh that they are made ahead, and kept for a turn."""
        return math.prod(ride.peak.row_shape) <= _MOST_KEPT < math.prod(op.results[0].row_shape)

    def _stage_of_online_sum(self, op: Op) -> int:
        """That of the maximum, if all else is there by then."""
        peak = self.stage_of[self.online_sums.rides[op.results[0].id].peak.id]
        last = max(self._ready(place) for place in self.made_places(op))
        cone = needed_ops(self.spec.ops, {op.results[0].id}, reads=self._edge_bases)
        return peak if self._is_early(cone, peak) else last

    def _is_early(self, ops: Iterable[Op], stage: int) -> bool:
        """Whether edge ops can run in a stage, except that they wait for a maximum that rides along."""
        return all(
            place.base.space == EDGE
            or self._ready(place) <= stage
            or self.online_sums.above.get(op.results[0].id) == place.base.id
            for op in ops
            for place in self.made_places(op)
        )

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
        members: dict[int, tuple[Sequence[Op], set[int]]] = {}
        kept: set[int] = set()  # by the stages up to now, from the last one back
        for stage in (s for s in range(last, -2, -1) if s % 2):
            members[stage] = self._edge_members(stage, kept)
            kept |= members[stage][1]
        row_arrays = self._row_arrays(members)
        self.joins = self._joined_stages(members)
        stages = [self._stage_of_loops(s, members, kept, row_arrays) for s in range(-1, last + 1)]
        return Layout(self.spec, [s for s in stages if s.loops], frozenset(row_arrays), self.stage_of, self.makers)

    def _edge_members(self, stage: int, later: set[int]) -> tuple[Sequence[Op], set[int]]:
        """The ops of a stage over edges, and which of their operands earlier stages keep for them."""
        wanted = later | self.stored
        own = [(op, op.results[0]) for op in self.spec.ops if self.stage_of[op.results[0].id] == stage]
        made = {v.id for op, v in own if is_reduction(op) or (v.space == EDGE and v.id in wanted)}
        kept: set[int] = set()

        def computed(op: Op) -> Iterator[Value]:
            for base in self._edge_bases(op):
                if self.stage_of[base.id] < stage and self._is_worth_keeping(base):
                    kept.add(base.id)
                else:
                    yield base

        return needed_ops(self.spec.ops, made, reads=computed), kept

    def _is_worth_keeping(self, value: Value) -> bool:
        if self.by_lanes:
            return False  # there is no memory near by that holds a long row
        return math.prod(value.row_shape) <= _MOST_KEPT and value.id in self.costly

    def _row_arrays(self, members: dict[int, tuple[Sequence[Op], set[int]]]) -> set[int]:
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
        self, stage: int, members: dict[int, tuple[Sequence[Op], set[int]]], kept: set[int], row_arrays: set[int]
    ) -> Stage:
        if stage % 2:
            ops, given = members[stage]
            loop_stores = [store for op in ops for store in self._edge_stores(op, stage, kept)]
        else:
            on_rows = (op for op in self.spec.ops if op.results[0].space != EDGE and not is_reduction(op))
            ops, given = [op for op in on_rows if self.stage_of[op.results[0].id] == stage], set[int]()
            loop_stores = [store for op in self.spec.ops for store in self._row_stores(op, stage, row_arrays)]
        loops, arrays = StageLoops(self, ops, given).build(loop_stores)
        over = "" if stage % 2 == 0 else "out" if stage < 0 or self.spec.is_source else "in"
        return Stage(
            stage,
            over,
            loops,
            frozenset(arrays),
            frozenset(given),
            self._online_sums_of(ops, stage),
            self.joins.get(stage),
        )

    def _online_sums_of(self, ops: Sequence[Op], stage: int) -> Riders:
        """The sums of a stage that ride on a maximum that is still running."""
        peak = stage if self.by_lanes else self.joins.get(stage)
        rides = {op.results[0].id: self.online_sums.rides.get(op.results[0].id) for op in ops if is_reduction(op)}
        return self.online_sums.of({key for key, ride in rides.items() if ride and self.stage_of[ride.peak.id] == peak})

    def _joined_stages(self, members: dict[int, tuple[Sequence[Op], set[int]]]) -> dict[int, int]:
        """Stages over edges that only ride on maxima of an earlier one, to the number of that one."""
        if self.by_lanes:
            return {}
        peaks = {stage: self._peak_stages(ops) for stage, (ops, _) in members.items()}
        found: dict[int, int] = {}
        for peak in {one for stages in peaks.values() for one in stages if one is not None}:
            later = [stage for stage in members if stage > peak and (peak in peaks[stage] or stage == peak + 2)]
            others = [kept for stage, (_, kept) in members.items() if stage not in later]
            read = self.stored.union(*others)
            only = all(peaks[stage] <= {peak} and self._can_join(members[stage][0], peak, read) for stage in later)
            if only and max(later) - peak == 2 * len(later):
                found.update(dict.fromkeys(later, peak))
        return found

    def _peak_stages(self, ops: Sequence[Op]) -> set[int | None]:
        """The stages of the maxima on which sums ride; None: of those that ride on none."""
        rides = [self.online_sums.rides.get(op.results[0].id) for op in ops if is_reduction(op)]
        return {None if ride is None else self.stage_of[ride.peak.id] for ride in rides}

    def _can_join(self, ops: Sequence[Op], stage: int, read: set[int]) -> bool:
        """Whether the ops wait for nothing but maxima of a stage, and give no rows of edges that others ``read``.

        Such rows would be relative to the maximum as it was when their turn came.
        """
        made = [v.id for op in ops for v in op.results if v.space == EDGE and self.stage_of[v.id] > stage]
        return read.isdisjoint(made) and self._is_early(ops, stage)

    def _edge_stores(self, op: Op, stage: int, kept: set[int]) -> Iterable[LoopStore]:
        value = op.results[0]
        if isinstance(op.target, OuterSum):
            yield LoopStore("left", op, op.args[0])
            yield LoopStore("right", op, op.args[1])
        elif isinstance(op.target, SegmentReduce):
            yield LoopStore("reduce", op, value)
        elif self.stage_of[value.id] == stage:
            if value.id in self.stored:
                yield LoopStore("store", op, value)
            if value.id in kept:
                yield LoopStore("keep", op, value)

    def _row_stores(self, op: Op, stage: int, row_arrays: set[int]) -> Iterable[LoopStore]:
        pieces = joined_rows(op) if op.results[0].id in self.stored else None
        if pieces is not None:
            if self.stage_of[op.results[0].id] == stage:
                yield from (LoopStore("piece", op, piece.value, piece) for piece in pieces)
            return
        for value in op.results:
            if value.space in (EDGE, SHARED):
                continue
            reduced = isinstance(op.target, SegmentReduce)
            if self.stage_of[value.id] + reduced != stage:
                continue
            if value.id in self.stored:
                yield LoopStore("store", op, value)
            if value.id in row_arrays and not reduced and not needs_whole_row(op):
                yield LoopStore("array", op, value)
