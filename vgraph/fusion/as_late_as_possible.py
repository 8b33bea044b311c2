"""Later: ops wait for the last kernel that can make them.

Takes: a grouping with the first level of every op. Gives: levels with fewer kernels. Runs once per function.
What fewer kernels visit is read, gathered and computed again fewer times.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from vgraph.fusion.layout import is_reduction
from vgraph.fusion.views import whole
from vgraph.ir.kernel import Place
from vgraph.ir.moves import OuterSum, SegmentReduce
from vgraph.ir.program import Op, Value
from vgraph.ir.schedule import Phase
from vgraph.ir.space import EDGE, SOURCE


@dataclass(eq=False)
class Grouping:
    """What is known of a phase's ops: who makes what, and from which level on."""

    phase: Phase
    wanted: set[int]
    makers: dict[int, Op] = field(init=False, default_factory=dict[int, Op])
    places: dict[int, Place] = field(init=False, default_factory=dict[int, Place])
    wholes: dict[int, Place] = field(init=False, default_factory=dict[int, Place])  # of values that view nothing
    viewing: set[int] = field(init=False, default_factory=set[int])  # id(op) of views that kernels see through
    fused: set[int] = field(init=False, default_factory=set[int])  # id(op)
    joining: set[int] = field(init=False, default_factory=set[int])  # id(op) of fused ops whose result no kernel reads
    read_by_library: set[int] = field(init=False, default_factory=set[int])  # ids of values
    handed_over: set[int] = field(init=False, default_factory=set[int])  # ids of edge rows: see handed_over.py
    level_of: dict[int, int] = field(init=False, default_factory=dict[int, int])  # id(op) to level
    end_of_outer_sums: str = field(init=False, default="dst")  # over whose edges kernels make sums over all edges

    def place(self, value: Value) -> Place:
        found = self.places.get(value.id) or self.wholes.get(value.id)
        if found is None:
            found = self.wholes[value.id] = whole(value)
        return found

    def own_end(self, op: Op) -> str:
        """The end of edges over whose rows a kernel makes the op's result."""
        if isinstance(op.target, SegmentReduce) and not self.phase.is_loop:
            return op.target.end
        if isinstance(op.target, OuterSum):
            return self.end_of_outer_sums
        return "src" if op.results[0].space == SOURCE else "dst"

    def runs_in_library(self, op: Op) -> bool:
        """What no kernel makes, and views that somebody else than kernels reads."""
        if id(op) in self.fused:
            return False
        return id(op) not in self.viewing or any(
            v.id in self.wanted or v.id in self.read_by_library for v in op.results
        )

    def made_by_kernel(self, value: Value) -> Op | None:
        maker = self.makers.get(value.id)
        return maker if maker is not None and id(maker) in self.fused else None


@dataclass(eq=False)
class Later:
    """Ops wait for the last kernel that can make them: what fewer kernels visit is read fewer times."""

    grouping: Grouping
    ends: dict[int, set[tuple[str, int]]] = field(default_factory=dict[int, "set[tuple[str, int]]"])
    bounds: dict[int, int] = field(default_factory=dict[int, int])  # id(op) to its last level

    def move(self) -> None:
        """Gives every op that a kernel makes the last level at which there is a kernel of its kind."""
        known = self.grouping
        fused = [op for op in known.phase.ops if id(op) in known.fused]
        makes = [op for op in fused if op.results[0].space != EDGE]
        levels = self._levels(makes)
        over_edges = self._levels([op for op in makes if is_reduction(op)])
        for op in reversed(known.phase.ops):
            if id(op) not in known.fused:
                if known.runs_in_library(op):
                    self._bound_operands(op, None, known.level_of[id(op)] - 1)
            elif op.results[0].space == EDGE:
                if op.results[0].id in known.handed_over:
                    self._delay(op, over_edges["dst"] | {known.level_of[id(op)]})
                self._pass_on(op)
            else:
                own = known.own_end(op)
                if id(op) not in known.joining:  # what it joins would be stored, and read again
                    self._delay(op, (over_edges if is_reduction(op) else levels)[own])
                self._bound_operands(op, own, known.level_of[id(op)])

    def _delay(self, op: Op, allowed: set[int]) -> None:
        first = self.grouping.level_of[id(op)]
        last = self.bounds.get(id(op), max(allowed))
        self.grouping.level_of[id(op)] = max(level for level in allowed if first <= level <= max(last, first))

    def _levels(self, ops: Sequence[Op]) -> dict[str, set[int]]:
        """By the end whose rows a kernel makes, the levels at which there is a kernel for one of the ops."""
        known = self.grouping
        return {own: {known.level_of[id(op)] for op in ops if known.own_end(op) == own} for own in ("src", "dst")}

    def _pass_on(self, op: Op) -> None:
        """What is computed on edges bounds its operands by every kernel that computes it."""
        known = self.grouping
        kernels = self.ends.get(id(op), set())
        if any(op.results[0].id in ids for ids in (known.wanted, known.read_by_library, known.handed_over)):
            kernels = {*kernels, ("dst", known.level_of[id(op)])}
        for own, level in kernels:
            self._bound_operands(op, own, level)

    def _bound_operands(self, op: Op, own: str | None, level: int) -> None:
        known = self.grouping
        for value in op.operands():
            place = known.place(value)
            maker = known.made_by_kernel(place.base)
            if maker is None:
                continue
            is_handed = own == "src" and place.base.id in known.handed_over
            if place.base.space == EDGE and own is not None and not is_handed:
                self.ends.setdefault(id(maker), set()).add((own, level))
                continue
            here = place.end in ("", own) and known.own_end(maker) == own and id(maker) not in known.joining
            same = own is None or here  # a handed row never is
            bound = level if same else level - 1
            self.bounds[id(maker)] = min(bound, self.bounds.get(id(maker), bound))
