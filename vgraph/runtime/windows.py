"""Windows: what runs ahead of a loop, for some of its rows at a time, in memory that the next ones use again.

Takes: phases and their code, values of all rows. Gives: values of the rows of a window. Runs at every step.
Source: Cavs sections 3.3 and 3.5 (eager operators; memory of frontiers); what the loop reads is still in the cache.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from vgraph.ir.moves import AnyMove, Random
from vgraph.ir.program import Op, Rows, Value, op_name
from vgraph.ir.schedule import INNER_PART, LEAVES_PART, Phase, Schedule
from vgraph.ir.space import OF_LEAVES, SHARED, VERTEX, Space
from vgraph.ir.tdl.table import is_view
from vgraph.runtime.cpu.frontier_loop import FrontierLoop, Window, bounds_of, range_of
from vgraph.runtime.python_codegen import PhaseCode

WINDOW_BYTES = 1 << 21  # of what a window makes: the loop finds it in the cache
LEAST_ROWS = 256  # for which a product is as fast as for many
LEAST_BYTES = 2 * WINDOW_BYTES  # less than that is made at once


@dataclass(frozen=True, eq=False)
class Ahead:
    """Phase ``index``, whose ``made`` rows nothing reads but loops, each its own; ``reads``: ids of rows."""

    index: int
    code: PhaseCode
    reads: tuple[int, ...]
    made: tuple[Value, ...]
    loops: frozenset[int]  # numbers of phases
    is_of_leaves: bool  # one row a leaf, and one behind them

    @property
    def row_bytes(self) -> int:
        return sum(value.row_bytes for value in self.made)


def find_ahead(phases: Sequence[Phase], codes: Sequence[PhaseCode], given: Collection[int]) -> dict[int, Ahead]:
    """Phases that can run window by window, by number; ``given``: ids of what the caller gets or a Carry takes."""
    found: dict[int, Ahead] = {}
    for index, (phase, code) in enumerate(zip(phases, codes, strict=True)):
        values = {v.id: v for op in phase.ops for v in (*op.operands(), *op.results) if v.row_dim is not None}
        made = tuple(values[i] for i in code.stores if i in values)
        space = _space_of(phase, code, values.values())
        if space is None or not made or any(value.id in given for value in made):
            continue
        loops = _readers(phases, codes, index, made, space)
        if loops is not None and _are_apart([phases[i] for i in loops], space):
            reads = tuple(i for i in code.reads if i in values)
            found[index] = Ahead(index, code, reads, made, frozenset(loops), space != VERTEX)
    return found


def _space_of(phase: Phase, code: PhaseCode, values: Collection[Value]) -> Space | None:
    """The only one of a phase's rows, if all its ops see one row at a time and nothing else costs anything."""
    spaces = {value.space for value in values}
    space = spaces.pop() if len(spaces) == 1 else None
    if phase.is_loop or phase.kind or phase.is_chunked or any(unit.kernel is not None for unit in code.units):
        return None
    if space is None or not (space == VERTEX or space.key.endswith(OF_LEAVES)):
        return None
    plain = all(value.row_dim == 0 and value.shape[0] == Rows(space) for value in values)
    return space if plain and all(_is_of_one_row(op) for op in phase.ops) else None


def _is_of_one_row(op: Op) -> bool:
    if isinstance(op.target, AnyMove | Random):
        return False
    if all(value.space == SHARED for value in op.results):
        return is_view(op.target) and all(value.space == SHARED for value in op.operands())
    return op.is_rowwise and any(value.row_dim is not None for value in op.operands())


def _readers(
    phases: Sequence[Phase], codes: Sequence[PhaseCode], index: int, made: Sequence[Value], space: Space
) -> list[int] | None:
    """The loops that read some of it, if nothing else does; of leaves others may read the row behind them."""
    ids, loops = {value.id for value in made}, list[int]()
    for number, (phase, code) in enumerate(zip(phases, codes, strict=True)):
        if number == index or ids.isdisjoint(code.reads):
            continue
        if isinstance(code.loop, FrontierLoop):
            if phase.kind or phase.is_reverse or not ids.isdisjoint(code.loop.body.whole):
                return None
            loops.append(number)
        elif space == VERTEX or not all(_takes_last(op) for op in phase.ops if ids & {v.id for v in op.operands()}):
            return None
    return loops if loops and loops[0] > index else None


def _takes_last(op: Op) -> bool:
    return op_name(op.target) == "slice" and op.args[1:] == (0, -1) and not op.kwargs


def _are_apart(loops: Sequence[Phase], space: Space) -> bool:
    """Whether no two loops read the same rows, and leaves' rows are read at leaves."""
    parts = [phase.part for phase in loops]
    if space != VERTEX:
        return parts == [LEAVES_PART]
    return len(parts) == 1 or sorted(parts) == sorted((LEAVES_PART, INNER_PART))


@dataclass(eq=False)
class Windows:
    """One call's phases that run window by window, and what they read."""

    ahead: Mapping[int, Ahead]
    schedule: Schedule
    held: dict[int, dict[int, Tensor]] = field(default_factory=dict[int, dict[int, Tensor]])

    def begin(self, index: int, env: dict[int, Tensor], extents: Sequence[object]) -> None:
        """What of a phase is no rows, and the row behind those of leaves; the others are put off."""
        one = self.ahead[index]
        self.held[index] = {i: env[i] for i in one.code.reads}
        env.update(self._run(one, self.schedule.num_leaves if one.is_of_leaves else 0, int(one.is_of_leaves), extents))

    def of_loop(self, number: int, phase: Phase, extents: Sequence[object]) -> Iterator[Window] | None:
        """The windows of a loop, if it reads what was put off."""
        mine = [one for one in self.ahead.values() if number in one.loops]
        return self._made(mine, range_of(phase, self.schedule), extents) if mine else None

    def _made(self, mine: Sequence[Ahead], frontiers: tuple[int, int], extents: Sequence[object]) -> Iterator[Window]:
        first, stop = frontiers
        most = max(LEAST_ROWS, WINDOW_BYTES // sum(one.row_bytes for one in mine))
        for bounds in cut_frontiers(bounds_of(self.schedule)[first : stop + 1], most):
            yield self._window(mine, bounds, extents)  # kept nowhere: the next one takes its memory

    def _window(self, mine: Sequence[Ahead], bounds: NDArray[np.int64], extents: Sequence[object]) -> Window:
        start, given = int(bounds[0]), dict[int, Tensor]()
        for one in mine:
            found = self._run(one, start, int(bounds[-1]) - start, extents)
            given.update((value.id, found[value.id].contiguous()) for value in one.made)
        return Window(bounds, given)

    def _run(self, one: Ahead, start: int, count: int, extents: Sequence[object]) -> dict[int, Tensor]:
        held = self.held[one.index]
        part = {**held, **{i: held[i].narrow(0, start, count) for i in one.reads}}
        one.code.run(part, {}, extents)
        return {i: part[i] for i in one.code.stores}


def choose_windows(ahead: Mapping[int, Ahead], schedule: Schedule) -> Windows | None:
    """Those of a call, where rows follow frontiers and take so many bytes that it is worth while."""
    if not ahead or schedule.policy == "once" or schedule.parts:
        return None
    counts = {True: schedule.num_leaves, False: schedule.topology.num_dst}
    chosen = {i: one for i, one in ahead.items() if counts[one.is_of_leaves] * one.row_bytes >= LEAST_BYTES}
    return Windows(chosen, schedule) if chosen else None


def cut_frontiers(bounds: NDArray[np.int64], most: int) -> Iterator[NDArray[np.int64]]:
    """Bounds of frontiers, some at a time, of at most so many rows together; a wider one comes in pieces."""
    at, end = int(bounds[0]), int(bounds[-1])
    while at < end:
        first = int(np.searchsorted(bounds, at, side="right"))  # where the first frontier of the window ends
        last = int(np.searchsorted(bounds, at + most, side="right"))
        inside = bounds[first:last]
        if not len(inside):
            inside = np.array([min(at + most, int(bounds[first]))])
        yield np.concatenate([np.array([at]), inside]).astype(np.int64, copy=False)
        at = int(inside[-1])
