"""Sharding: where the parts of every tensor lie, and which index every op is split along.

Takes: nothing (plain values). Gives: Placement, Strategy, ShardingPlan. Runs once per function.
Source: Tofu sections 4.2 (strategies) and 5.2 (recursion: each step splits what the steps before left).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache

from vgraph.ir.index_set import IndexSet

Region = tuple[IndexSet, ...]  # the entries of each dim; a tensor without dims has the region ()


@dataclass(frozen=True)
class Split:
    """A dim seen as (outer, inner) and cut along inner: ``outer`` = 1 cuts it into contiguous blocks.

    ``outer`` > 1 is the cut of an inner factor: [4, H] of LSTM gates is Split(dim, 4). It counts
    blocks of what the steps before have left of the dim, as everything in a step does.
    """

    dim: int
    outer: int = 1

    def __str__(self) -> str:
        return f"S{self.dim}" if self.outer == 1 else f"S{self.dim}/{self.outer}"


@dataclass(frozen=True)
class Replicate:
    """Every worker of the step has all of it."""

    def __str__(self) -> str:
        return "R"


@dataclass(frozen=True)
class Partial:
    """Every worker has a term of all elements; the ``reducer``, a row of ``reductions.py``, of them is the value."""

    reducer: str = "sum"

    def __str__(self) -> str:
        return f"P{self.reducer}"


@dataclass(frozen=True)
class At:
    """One worker of the step has it, the others have nothing (operator placement)."""

    worker: int

    def __str__(self) -> str:
        return f"@{self.worker}"


Placement = Split | Replicate | Partial | At
REPLICATED = Replicate()  # one object, as ``split_at`` gives one a cut: to compare those is quick


@cache
def split_at(dim: int, outer: int = 1) -> Split:
    """``Split(dim, outer)``, the same object at every call."""
    return Split(dim, outer)


@dataclass(frozen=True)
class Strategy:
    """How one step divides one op: the index that is split, what is read and what is made.

    ``index``: "" where every worker computes everything; "+" where a linear op works on each term of
    a Partial. ``inputs``: one placement an operand, in the order of ``Op.operands()``: what a worker
    reads lies within that shard, widened by ``halo`` = entries (before, after) along the split dim.
    ``outputs``: one a result.
    """

    index: str
    outer: int = 1
    inputs: tuple[Placement, ...] = ()
    outputs: tuple[Placement, ...] = ()
    halo: Mapping[int, tuple[int, int]] = field(default_factory=dict[int, tuple[int, int]])

    def __str__(self) -> str:
        name = self.index or "all"
        cut = f"{name}/{self.outer}" if self.outer > 1 else name
        return f"{cut}: {' '.join(map(str, self.inputs))} -> {' '.join(map(str, self.outputs))}"


@dataclass(frozen=True)
class ShardingPlan:
    """A strategy a step for every op, a placement a step for inputs, outputs and chosen values.

    ``axes``: workers of each step, the first step first; a worker's number has one digit a step, the
    first the most significant. ``strategies[i][s]``: op i of the Program in step s. ``placements``:
    value id to its placement a step, for every input of the Program and for each output or other
    value that is to be brought to a placement as soon as it is made; a value that is not named stays
    as its op made it, Partial included, and every reader fetches what it reads. A copy that was fetched
    is kept for later readers, but for those in ``fetched_again``: (op, value id), where memory is short.
    ``room``: bytes that a worker may hold at once; fetches for which it would hold more travel in slices.
    """

    axes: tuple[int, ...]
    strategies: tuple[tuple[Strategy, ...], ...]
    placements: Mapping[int, tuple[Placement, ...]]
    fetched_again: frozenset[tuple[int, int]] = frozenset()
    room: float | None = None

    @property
    def num_workers(self) -> int:
        return math.prod(self.axes)

    def digits(self, worker: int) -> tuple[int, ...]:
        """A worker's number within each step.

        >>> ShardingPlan((2, 3), (), {}).digits(5)
        (1, 2)
        """
        found: list[int] = []
        for ways in reversed(self.axes):
            worker, digit = divmod(worker, ways)
            found.append(digit)
        return tuple(reversed(found))


def shard_region(
    shape: tuple[int, ...], placements: tuple[Placement, ...], axes: tuple[int, ...], digits: tuple[int, ...]
) -> Region | None:
    """The region of a tensor that a worker has; None where it has nothing.

    >>> shard_region((4, 6), (Split(0), Split(1, outer=3)), (2, 2), (1, 0))
    (2:4, 0:1+2:3+4:5)
    """
    region = [IndexSet.whole(size) for size in shape]
    for placement, ways, digit in zip(placements, axes, digits, strict=True):
        if isinstance(placement, Split):
            region[placement.dim] = region[placement.dim].cut(placement.outer, ways, digit)
        elif isinstance(placement, At) and placement.worker != digit:
            return None
    return tuple(region)
