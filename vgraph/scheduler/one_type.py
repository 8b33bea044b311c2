"""One type: a loop over vertices of several types as one loop for each, in which types are no more.

Takes: Phases. Gives: the same, loops divided by type. Runs once per function.
Source: Cavs section 3.2 (a batch holds vertices of one function): no frontier holds two types, so within one
the rows of its type are the rows of the frontier, and those of other types are none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import count

import torch

from vgraph.ir.moves import AnyMove, Random, Select, Spread
from vgraph.ir.operators import zero_by
from vgraph.ir.program import Op, Program, Rows, Value, needed_ops, op_name
from vgraph.ir.schedule import Phase
from vgraph.ir.space import SHARED, Space
from vgraph.ir.tdl.table import is_view
from vgraph.scheduler.degrees import adds_number

aten = torch.ops.aten
TYPED = ("vertex", "edge")
_MOVES_ZEROS = frozenset("view _unsafe_view reshape unsqueeze squeeze cat split slice select".split())


class _CannotDivide(Exception):
    """An op of the loop that speaks of types in a way that is not understood."""


def divide_by_type(program: Program, phases: Sequence[Phase]) -> tuple[Phase, ...]:
    """Loops that speak of types as a loop a type, moves of their rows before and after.

    All of them or none: loops over leaves and over inner vertices make rows of the same values.
    """
    values = [v for phase in phases for op in phase.ops for v in (*op.operands(), *op.results)]
    kinds = sorted({v.space.key for v in values if v.space.kind in TYPED and v.space.key})
    if not kinds:
        return tuple(phases)
    numbers = count(1 + max((v.id for v in (*values, *(item.value for item in program.inputs))), default=0))
    outside = {v.id for v in program.outputs if v is not None} | {c.source.id for c in program.carries}
    read = [{v.id for op in phase.ops for v in op.operands()} for phase in phases]
    found, names = list[Phase](), _Names(numbers)
    try:
        for index, phase in enumerate(phases):
            wanted = outside.union(*read[:index], *read[index + 1 :])
            found += _divided(phase, kinds, wanted, names) if _is_typed_loop(phase) else [phase]
    except _CannotDivide:
        return tuple(phases)
    return _picked_once(found)


def _picked_once(phases: Sequence[Phase]) -> tuple[Phase, ...]:
    """What loops over leaves and over inner vertices both make is picked out after the last of them."""
    last = {op.results[0].id: op for phase in phases for op in phase.ops if isinstance(op.target, Select)}
    kept = (
        replace(phase, ops=tuple(op for op in phase.ops if last.get(op.results[0].id, op) is op)) for phase in phases
    )
    return tuple(phase for phase in kept if phase.ops)


def interleaved_loops(phases: Sequence[Phase]) -> list[range]:
    """Neighbouring loops of different types take turns; every other phase stands alone."""
    found = list[range]()
    for index, phase in enumerate(phases):
        before = phases[found[-1][0]] if found else phase
        alike = (before.part, before.is_reverse) == (phase.part, phase.is_reverse)
        if phase.kind and before.kind and alike and found and phase.kind not in {phases[i].kind for i in found[-1]}:
            found[-1] = range(found[-1].start, index + 1)
        else:
            found.append(range(index, index + 1))
    return found


def _is_typed_loop(phase: Phase) -> bool:
    spaces = {v.space for op in phase.ops for v in (*op.operands(), *op.results)}
    typed = any(space.kind in TYPED and space.key for space in spaces)
    return phase.is_loop and not phase.is_serial and typed


@dataclass(eq=False)
class _Names:
    """For every value of one type: the rows of vertices or edges that stand for it; ``made``: by loops so far."""

    numbers: count[int]
    all_rows: dict[int, Value] = field(default_factory=dict[int, Value])
    made: set[int] = field(default_factory=set[int])

    def of_all_rows(self, value: Value) -> Value:
        if value.space.kind not in TYPED or not value.space.key:
            return value
        if value.id not in self.all_rows:
            self.all_rows[value.id] = self.new(value)
        return self.all_rows[value.id]

    def new(self, value: Value) -> Value:
        shape = tuple(_untyped(d) if isinstance(d, Rows) else d for d in value.shape)
        space = Space(value.space.kind) if value.space.kind in TYPED else value.space
        return Value(next(self.numbers), space, value.dtype, shape, value.line)


def _untyped(dim: Rows) -> Rows:
    return Rows(Space(dim.space.kind), dim.times) if dim.space.kind in TYPED else dim


def _divided(phase: Phase, kinds: Sequence[str], wanted: set[int], names: _Names) -> list[Phase]:
    made = [_OfOneType(phase, kind, wanted, names) for kind in kinds]
    for one in made:
        one.run()
    names.made |= {next(op.operands()).id for one in made for op in one.after}
    before = tuple(op for one in made for op in one.before)
    after = tuple(op for one in made for op in one.after)
    loops = [replace(phase, ops=tuple(one.ops), kind=one.kind) for one in made if one.ops]
    once = [Phase(ops, is_loop=False) if ops else None for ops in (before, after)]
    return [p for p in (once[0], *loops, once[1]) if p is not None]


@dataclass(eq=False)
class _OfOneType:
    """``now``: what a value is called within the loop of one type; None: all zeros."""

    phase: Phase
    kind: str
    wanted: set[int]  # read by others
    names: _Names
    now: dict[int, Value | None] = field(default_factory=dict[int, Value | None])
    before: list[Op] = field(default_factory=list[Op])
    ops: list[Op] = field(default_factory=list[Op])
    after: list[Op] = field(default_factory=list[Op])

    def run(self) -> None:
        for op in self.phase.ops:
            self.add(op)
        for value in [v for op in self.phase.ops for v in op.results]:
            if value.id in self.wanted or value.id in self.read_whole:
                self.give(value)
        wanted = self.wanted | self.read_whole | {v.id for op in self.after for v in op.operands()}
        self.ops = list(needed_ops(self.ops, wanted))
        read = {v.id for op in self.ops for v in op.operands()}
        self.before = [op for op in self.before if any(v.id in read for v in op.results)]

    @cached_property
    def read_whole(self) -> set[int]:
        """Rows of other frontiers, of whatever type."""
        return {v.id for op in self.phase.ops if getattr(op.target, "end", "dst") == "src" for v in op.operands()}

    # ------------------------------------------------------------ ops
    def add(self, op: Op) -> None:
        operands = list(op.operands())
        if any(self.is_of_another(v.space) for v in (*operands, *op.results)) and not isinstance(op.target, Spread):
            return
        if isinstance(op.target, (Select, Spread)):
            other = op.target.part != self.kind
            self.now[op.results[0].id] = None if other else self.current(operands[0])
        elif self.is_zero(op):
            self.now.update((v.id, None) for v in op.results)
        elif len(kept := self.summands(op)) == 1:
            self.now[op.results[0].id] = self.current(kept[0])
        else:
            self.copy(op)

    def is_of_another(self, space: Space) -> bool:
        return space.kind in TYPED and space.key not in ("", self.kind)

    def is_zero(self, op: Op) -> bool:
        if isinstance(op.target, AnyMove | Random):
            return False
        rows = [v for v in op.operands() if v.row_dim is not None]
        zeros = [v.id in self.now and self.now[v.id] is None for v in rows]
        name = op_name(op.target)
        by = "all" if name in _MOVES_ZEROS else zero_by(name)
        keeps = any(zeros) if by == "any" else by == "all" and all(zeros) and _all_rows(op) and not adds_number(op)
        return bool(zeros) and keeps

    def summands(self, op: Op) -> list[Value]:
        """Of a plain sum of two, those that are not zero; of anything else, nothing to choose from."""
        if op_name(op.target) != "add" or op.kwargs or len(op.args) != 2:
            return []
        both = [v for v in op.args if isinstance(v, Value)]
        alike = len(both) == 2 and both[0].shape == both[1].shape == op.results[0].shape
        return [v for v in both if self.now.get(v.id, v) is not None] if alike else []

    def copy(self, op: Op) -> None:
        """The op on the rows of the frontier."""

        def here(leaf: object) -> object:
            if isinstance(leaf, Value):
                return self.current(leaf) or self.zeros(leaf)
            return _untyped(leaf) if isinstance(leaf, Rows) else leaf

        is_seen = is_view(op.target)  # what others read of a view is copied: native code stores no views
        results = tuple(self.renamed(v, anew=is_seen and v.id in self.wanted) for v in op.results)
        target = replace(op.target, part="") if isinstance(op.target, AnyMove) else op.target
        self.ops.append(replace(op.mapped(here), target=target, results=results))

    # ------------------------------------------------------------ values
    def renamed(self, value: Value, *, anew: bool) -> Value:
        """A result; rows of one type become rows of vertices or edges."""
        found = self.now[value.id] = self.names.new(value) if anew else self.names.of_all_rows(value)
        return found

    def current(self, value: Value) -> Value | None:
        """None: zeros. What others made of one type is spread over all rows before the loop."""
        if value.id not in self.now:
            found = self.now[value.id] = self.names.of_all_rows(value)
            if found is not value and found.id not in self.names.made:
                if not _has_one_row_each(value):
                    raise _CannotDivide
                self.before.append(Op(Spread(value.space.kind, self.kind), (value,), {}, (found,), value.line))
        return self.now[value.id]

    def zeros(self, value: Value) -> Value:
        if not _has_one_row_each(value):
            raise _CannotDivide
        row = Value(next(self.names.numbers), SHARED, value.dtype, (1, *value.row_shape), value.line)
        self.before.append(Op(aten.full.default, (list(row.shape), 0), {"dtype": value.dtype}, (row,), value.line))
        made = self.now[value.id] = self.names.of_all_rows(value)
        self.ops.append(Op(aten.expand.default, (row, list(made.shape)), {}, (made,), value.line))
        return made

    def give(self, value: Value) -> None:
        """What others read: under its own name, or (of one type) picked out after the loop."""
        if self.is_of_another(value.space):
            return
        whole = self.names.of_all_rows(value)
        found = self.now[value.id] or self.zeros(value)
        if found is not whole:
            self.ops.append(Op(aten.clone.default, (found,), {}, (whole,), value.line))
            self.now[value.id] = whole
        if whole is not value:
            if not _has_one_row_each(value):
                raise _CannotDivide
            self.after.append(Op(Select(value.space.kind, self.kind), (whole,), {}, (value,), value.line))


def _has_one_row_each(value: Value) -> bool:
    """Not several, as where features have become rows."""
    first = value.shape[0] if value.row_dim == 0 else None
    return isinstance(first, Rows) and first.times == 1


def _all_rows(op: Op) -> bool:
    return all(v.row_dim is not None for v in op.operands())
