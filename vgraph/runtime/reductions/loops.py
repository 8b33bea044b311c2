"""How a reduction's modes become loops on a CPU: a run that fits the nearest cache, steps, slices, chunks.

Takes: Modes, the bytes of a sum. Gives: Loops, the numbers that kernels/vgraph_kernels/reduction.h reads. Runs once
per layout. Where the cuts lie depends on the layout alone, so that two runs give the same bits.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from vgraph.ir.modes import Mode, follows

_RUN_BYTES = 8192  # of the sums of a run, as in reduction.h
MOST_MODES = 16  # of each kind, as in reduction.h
_STEPS = 8  # the fewest that a chunk is made of, where each adds a run to sums
_LANES = 16
_LONGEST_RUN = 2048  # positions of rows that share a task
_TASKS, _CHUNK_ELEMENTS = 64, 16384  # tasks that keep all threads busy; the least work of one


@dataclass(frozen=True)
class Loops:
    """``run``: the innermost modes; ``block`` of the ``whole`` entries of its outermost one are in a step."""

    kept: tuple[Mode, ...]
    reduced: tuple[Mode, ...]
    run: tuple[Mode, ...]
    whole: int
    split: int  # 0: not cut; 1: a kept mode is; 2: a reduced one
    chunks: int  # into which the steps of a slice are cut; their sums are combined afterwards
    paces: tuple[int, ...]  # of each operand: bytes between positions of the run

    @property
    def length(self) -> int:
        """Positions of a run."""
        return math.prod(m.size for m in self.run)

    @property
    def width(self) -> int:
        """Kept positions of a run."""
        return math.prod(m.size for m in self.run if not m.is_reduced)

    @property
    def num_slices(self) -> int:
        return math.prod(m.size for m in self.kept)

    @property
    def num_partial(self) -> int:
        """Numbers that chunks leave behind."""
        return self.num_slices * self.chunks * self.width if self.chunks > 1 else 0

    def numbers(self) -> tuple[list[int], list[int]]:
        """What stands before the operands' addresses (from ``chunks`` on), and what stands behind them."""
        block = self.run[0].size if self.run else 1
        steps = math.prod(m.size for m in self.reduced)
        counts = [self.chunks, len(self.kept), len(self.reduced), len(self.run), block, self.whole or block]
        rows = [number for mode in (*self.kept, *self.reduced) for number in mode.row]
        rows += [number for mode in self.run for number in (mode.size, int(mode.is_reduced), mode.out)]
        return [*counts, self.split, self.num_slices, steps, self.length, self.width], [*self.paces, *rows]


def plan_loops(modes: Sequence[Mode], num_operands: int, sum_bytes: int, *, in_order: bool) -> Loops:
    """The loops over these modes; every thread count gets the same ones."""
    if not in_order and modes and modes[-1].is_reduced and not any(m.is_reduced for m in modes[:-1]):
        return _plan_rows(modes, _RUN_BYTES // sum_bytes)
    outer, run, cut = list(modes), list[Mode](), None
    length, most = 1, _RUN_BYTES // sum_bytes
    while outer and cut is None and (not run or follows(outer[-1], run[-1], length)):
        if length * outer[-1].size > most:
            if most // length < 2:
                break
            cut = outer[-1]
            whole, part = _cut(outer.pop(), most // length, length)
            outer.append(whole)
            run.insert(0, part)
        else:
            run.insert(0, outer.pop())
            length *= run[0].size
    made = _loops(outer, run, cut, run[-1].strides if run else (0,) * num_operands)
    steps, tasks = math.prod(m.size for m in made.reduced), -(-_TASKS // made.num_slices)
    return replace(made, chunks=max(1, min(tasks, steps // _STEPS, steps * made.length // _CHUNK_ELEMENTS)))


def _plan_rows(modes: Sequence[Mode], most_sums: int) -> Loops:
    """One reduced mode, the innermost: rows of any length, each cut into chunks where there are too few.

    Rows that share a task have at most ``most_sums`` positions: the kernel may keep a sum for each.
    """
    *outer, row = modes
    num_rows = math.prod(m.size for m in outer)
    chunks = min(-(-_TASKS // num_rows), row.size // _CHUNK_ELEMENTS)
    if chunks > 1:
        whole, part = _cut(row, -(-row.size // chunks), 1)
        return replace(_loops([*outer, whole], [part], row, row.strides), chunks=whole.size)
    most = max(1, min(_LONGEST_RUN, most_sums) // row.size)
    if not outer or most == 1 or not follows(outer[-1], row, row.size):
        return _loops(outer, [row], None, row.strides)
    if outer[-1].size <= most:
        return _loops(outer[:-1], [outer[-1], row], None, row.strides)
    whole, part = _cut(outer[-1], most, _LANES)
    return _loops([*outer[:-1], whole], [part, row], outer[-1], row.strides)


def _loops(outer: Sequence[Mode], run: Sequence[Mode], cut: Mode | None, paces: tuple[int, ...]) -> Loops:
    kept = tuple(m for m in outer if not m.is_reduced)
    reduced = tuple(m for m in outer if m.is_reduced)
    split = 0 if cut is None else 1 + cut.is_reduced
    return Loops(kept, reduced, tuple(run), 0 if cut is None else cut.size, split, 1, paces)


def _cut(mode: Mode, most: int, length: int) -> tuple[Mode, Mode]:
    """The mode as blocks of at most ``most`` entries, of about the same size, in whole vectors."""
    block = -(-mode.size // -(-mode.size // most))
    lanes = -(-_LANES // length)
    block = min(-(-block // lanes) * lanes, max(most, lanes))
    count = -(-mode.size // block)
    outer = replace(mode, size=count, strides=tuple(s * block for s in mode.strides), out=mode.out * block)
    return outer, replace(mode, size=block)
