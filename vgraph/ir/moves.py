"""Moves: the ops that carry rows between spaces, and random numbers keyed by rows.

Takes: rows of one space. Gives: rows of another; every Move's transpose is made of Moves.
Source: Cavs section 3.1 (gather, scatter), DGL section 3 (SpMM and SDDMM as duals).
"""

from __future__ import annotations

from dataclasses import dataclass

from vgraph.ir.program import EDGE, GRAPH, SOURCE, VERTEX, Space

REDUCTIONS = ("sum", "max", "min", "prod")


@dataclass(frozen=True)
class Gather:
    """Copies a row to everything that hangs on it: ``end`` is src, dst, graph or a subset's name."""

    end: str

    @property
    def source(self) -> Space:
        return _ENDS.get(self.end) or Space("subset", self.end)

    @property
    def result(self) -> Space:
        return EDGE if self.end in ("src", "dst") else VERTEX

    def transpose(self) -> SegmentReduce:
        return SegmentReduce(self.end, "sum")

    def __str__(self) -> str:
        return f"gather[{self.end}]"


@dataclass(frozen=True)
class SegmentReduce:
    """Reduces all that hangs on a row; empty segments give 0 (1 for prod).

    ``max`` and ``min`` also give, for every element, the slot it came from (first in edge order).
    """

    end: str
    reduction: str

    @property
    def source(self) -> Space:
        return Gather(self.end).result

    @property
    def result(self) -> Space:
        return Gather(self.end).source

    def transpose(self) -> Gather:
        assert self.reduction == "sum", "only a sum is linear"
        return Gather(self.end)

    def __str__(self) -> str:
        return f"segment_{self.reduction}[{self.end}]"


@dataclass(frozen=True)
class TakeSlot:
    """The row of every vertex's k-th in-edge; zeros where there is none."""

    k: int
    source = EDGE
    result = VERTEX

    def transpose(self) -> PutSlot:
        return PutSlot(self.k)

    def __str__(self) -> str:
        return f"take_slot[{self.k}]"


@dataclass(frozen=True)
class PutSlot:
    """A vertex's row at its k-th in-edge, zeros at its other in-edges."""

    k: int
    source = VERTEX
    result = EDGE

    def transpose(self) -> TakeSlot:
        return TakeSlot(self.k)

    def __str__(self) -> str:
        return f"put_slot[{self.k}]"


Move = Gather | SegmentReduce | TakeSlot | PutSlot
_ENDS = {"src": SOURCE, "dst": VERTEX, "graph": GRAPH}


@dataclass(frozen=True)
class Random:
    """Random numbers that depend on (seed, number of the op, id of the row, column) alone.

    ``distribution`` is uniform, normal, exponential or bernoulli; args: seed, row ids, shape, dtype
    and the distribution's parameters.
    """

    distribution: str
    number: int

    def __str__(self) -> str:
        return f"random_{self.distribution}[{self.number}]"
