"""Moves: the ops that carry rows between spaces, and random numbers keyed by rows.

Takes: rows of one space. Gives: rows of another; every Move's transpose is made of Moves.
Source: Cavs section 3.1 (gather, scatter), DGL section 3 (SpMM and SDDMM as duals).
"""

from __future__ import annotations

from dataclasses import dataclass

from vgraph.ir.reductions import ReduceInfo, reduce_info
from vgraph.ir.sharding import Region
from vgraph.ir.space import EDGE, GRAPH, INNER, SOURCE, VERTEX, Space, part_of


@dataclass(frozen=True)
class Gather:
    """Copies a row to everything that hangs on it: ``end`` is src, dst, graph or a subset's name.

    ``part``: of dst, slots and Select alone: only vertices of one type and their in-edges.
    """

    end: str
    part: str = ""

    @property
    def source(self) -> Space:
        space = _ENDS.get(self.end) or Space("subset", self.end)
        return part_of(space, self.part) if self.part else space

    @property
    def result(self) -> Space:
        return part_of(EDGE if self.end in ("src", "dst") else VERTEX, self.part)

    def transpose(self) -> SegmentReduce:
        return SegmentReduce(self.end, "sum", self.part)

    def __str__(self) -> str:
        return f"gather[{self.end}]"


@dataclass(frozen=True)
class SegmentReduce:
    """Reduces all that hangs on a row, as its row of ``ir/reductions.py`` says; what is not linear, over in-edges.

    What picks an element (``max``, ``min``) also gives the slot that it came from (first in edge order).
    """

    end: str
    reduction: str
    part: str = ""

    @property
    def info(self) -> ReduceInfo:
        """Its row of the table."""
        return reduce_info(self.reduction)

    @property
    def source(self) -> Space:
        return Gather(self.end, self.part).result

    @property
    def result(self) -> Space:
        return Gather(self.end, self.part).source

    def transpose(self) -> Gather:
        assert self.info.is_linear, f"{self} is not linear"
        return Gather(self.end, self.part)

    def __str__(self) -> str:
        return f"segment_{self.reduction}[{self.end}]"


@dataclass(frozen=True)
class TakeSlot:
    """The row of every vertex's k-th in-edge; zeros where there is none."""

    k: int
    part: str = ""

    @property
    def source(self) -> Space:
        return part_of(EDGE, self.part)

    @property
    def result(self) -> Space:
        return part_of(VERTEX, self.part)

    def transpose(self) -> PutSlot:
        return PutSlot(self.k, self.part)

    def __str__(self) -> str:
        return f"take_slot[{self.k}]"


@dataclass(frozen=True)
class PutSlot:
    """A vertex's row at its k-th in-edge, zeros at its other in-edges."""

    k: int
    part: str = ""

    @property
    def source(self) -> Space:
        return part_of(VERTEX, self.part)

    @property
    def result(self) -> Space:
        return part_of(EDGE, self.part)

    def transpose(self) -> TakeSlot:
        return TakeSlot(self.k, self.part)

    def __str__(self) -> str:
        return f"put_slot[{self.k}]"


@dataclass(frozen=True)
class Select:
    """The rows of one type of vertices (``kind`` vertex) or of their in-edges (``kind`` edge)."""

    kind: str
    part: str

    @property
    def source(self) -> Space:
        return Space(self.kind)

    @property
    def result(self) -> Space:
        return Space(self.kind, self.part)

    def transpose(self) -> Spread:
        return Spread(self.kind, self.part)

    def __str__(self) -> str:
        return f"select_{self.kind}[{self.part}]"


@dataclass(frozen=True)
class Spread:
    """Rows of one type at their place among all, zeros at the others."""

    kind: str
    part: str

    @property
    def source(self) -> Space:
        return Space(self.kind, self.part)

    @property
    def result(self) -> Space:
        return Space(self.kind)

    def transpose(self) -> Select:
        return Select(self.kind, self.part)

    def __str__(self) -> str:
        return f"spread_{self.kind}[{self.part}]"


@dataclass(frozen=True)
class InnerRows:
    """The rows of vertices that have in-edges; made by the scheduler alone, never recorded."""

    part: str = ""

    @property
    def source(self) -> Space:
        return VERTEX

    @property
    def result(self) -> Space:
        return INNER

    def __str__(self) -> str:
        return "inner_rows"


@dataclass(frozen=True)
class LeafRows:
    """The rows of leaves as a subset's, and zeros for all others; made by the scheduler alone.

    ``is_loose``: nobody looks at the row for all others, which may be any.
    """

    end: str
    part: str = ""
    is_loose: bool = False

    @property
    def source(self) -> Space:
        return VERTEX

    @property
    def result(self) -> Space:
        return Space("subset", self.end)

    def __str__(self) -> str:
        return f"leaf_rows[{self.end}]"


Move = Gather | SegmentReduce | TakeSlot | PutSlot | Select | Spread  # recorded; its transpose is one, too
AnyMove = Move | InnerRows | LeafRows
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


@dataclass(frozen=True)
class RandomPart:
    """The numbers that a ``Random`` of a dense Program draws for one region of its result."""

    whole: Random
    shape: tuple[int, ...]
    region: Region

    def __str__(self) -> str:
        return f"{self.whole}{self.region}"


@dataclass(frozen=True)
class OuterSum:
    """The sum over edges of the outer products of two values' rows, ``t(x) g``; made by the stage of kernels alone."""

    def __str__(self) -> str:
        return "outer_sum"
