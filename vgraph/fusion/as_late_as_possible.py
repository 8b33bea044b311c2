"""Later: ops wait for the last kernel that can make them.

Takes: a grouping with the first level of every op. Gives: levels with fewer kernels. Runs once per function.
What fewer kernels visit is read, gathered and computed again fewer times.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from vgraph.ir.kernel import Place
from vgraph.ir.moves import OuterSum, SegmentReduce
from vgraph.ir.program import Op, Value
from vgraph.ir.schedule import Phase
from vgraph.ir.space import EDGE


class Grouping(Protocol):
    """What is known of a phase's ops: who makes what, and from which level on."""

    phase: Phase
    wanted: set[int]
    makers: dict[int, Op]
    fused: set[int]
    read_by_library: set[int]
    level_of: dict[int, int]

    def place(self, value: Value) -> Place: ...
    def own_end(self, op: Op) -> str: ...
    def runs_in_library(self, op: Op) -> bool: ...


@dataclass(eq=False)
class Later:
    """Ops wait for the last kernel that can make them: what fewer kernels visit is read fewer times."""

    grouping: Grouping
    ends: dict[int, set[tuple[str, int]]] = field(default_factory=dict[int, "set[tuple[str, int]]"])
    bounds: dict[int, int] = field(default_factory=dict[int, int])  # id(op) to its last level

    def move(self) -> None:
        """Gives every op that a kernel makes the last level at which there is a kernel of its kind."""
        whole = self.grouping
        fused = [op for op in whole.phase.ops if id(op) in whole.fused]
        makes = [op for op in fused if op.results[0].space != EDGE]
        levels = {own: {whole.level_of[id(op)] for op in makes if whole.own_end(op) == own} for own in ("src", "dst")}
        over_edges = {
            own: {whole.level_of[id(op)] for op in makes if whole.own_end(op) == own and _is_over_edges(op)}
            for own in ("src", "dst")
        }
        for op in reversed(whole.phase.ops):
            if id(op) not in whole.fused:
                if whole.runs_in_library(op):
                    self._bound_operands(op, None, whole.level_of[id(op)] - 1)
            elif op.results[0].space == EDGE:
                self._pass_on(op)
            else:
                own, first = whole.own_end(op), whole.level_of[id(op)]
                allowed = (over_edges if _is_over_edges(op) else levels)[own]
                last = self.bounds.get(id(op), max(allowed))
                whole.level_of[id(op)] = max(level for level in allowed if first <= level <= max(last, first))
                self._bound_operands(op, own, whole.level_of[id(op)])

    def _pass_on(self, op: Op) -> None:
        """What is computed on edges bounds its operands by every kernel that computes it."""
        whole = self.grouping
        kernels = self.ends.get(id(op), set())
        if op.results[0].id in whole.wanted or op.results[0].id in whole.read_by_library:
            kernels = {*kernels, ("dst", whole.level_of[id(op)])}
        for own, level in kernels:
            self._bound_operands(op, own, level)

    def _bound_operands(self, op: Op, own: str | None, level: int) -> None:
        whole = self.grouping
        for value in op.operands():
            place = whole.place(value)
            maker = whole.makers.get(place.base.id)
            if maker is None or id(maker) not in whole.fused:
                continue
            if place.base.space == EDGE and own is not None:
                self.ends.setdefault(id(maker), set()).add((own, level))
                continue
            same = own is None or (place.end in ("", own) and whole.own_end(maker) == own)
            bound = level if same else level - 1
            self.bounds[id(maker)] = min(bound, self.bounds.get(id(maker), bound))


def _is_over_edges(op: Op) -> bool:
    """Whether a kernel must visit edges for the op's sake."""
    return isinstance(op.target, (SegmentReduce, OuterSum))
