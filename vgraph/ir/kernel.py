"""KernelSpec: one fused loop over vertices and their edges.

Takes: nothing (a plain value). Gives: what to load, compute, reduce and store. Runs once per function.
Source: Cavs section 3.5 (kernel fusion), extended across gathers and reductions.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import torch

from vgraph.ir.moves import Random
from vgraph.ir.program import Op, Value, contiguous
from vgraph.ir.space import EDGE, SHARED

_ROWS_OF_A_SUM = 256  # rows and edges: fewer are no work for a thread
_MOST_BY_SOURCE = 32  # loads of which a call says by a bit each how they are sorted
_NARROW = 32  # bytes of a row, half of a cache line
_NUMBERS_OF_A_ROW = 16  # that are cleared and added once more in the time of a row's part in wide sums


@dataclass(frozen=True, eq=False)
class Place:
    """Element (i, j, ...) of a row lies at ``offset + i * strides[0] + ...`` of ``base``'s row at ``end``.

    ``end``: "" for the row itself, src or dst for the row at that end of the edge.
    """

    base: Value
    end: str
    offset: int
    strides: tuple[int, ...]
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def is_plain(self) -> bool:
        """Whether the elements lie one after the other."""
        return all(s == c for s, c, n in zip(self.strides, contiguous(self.shape), self.shape, strict=True) if n != 1)


@dataclass(frozen=True, eq=False)
class KernelSpec:
    """Ops that run in one pass: for every row at the ``own`` end of edges, loops over its edges and features.

    ``loads`` come from outside, ``stores`` are kept, all else lives in registers or in one row of
    scratch. ``places``: views and Gathers by id of their result. ``given``: what the topology tells,
    by id: $slot, $in_degree. ``in_loop``: sums over out-edges read what other frontiers stored. ``parts``: of two
    kernels in one, the first, which makes rows, and the second, whose edges alone read them (``fusion/rows_ahead.py``).
    """

    ops: tuple[Op, ...]
    loads: tuple[Value, ...]
    stores: tuple[Value, ...]
    own: str
    places: Mapping[int, Place]
    given: Mapping[int, str]
    in_loop: bool = False
    parts: tuple[KernelSpec, ...] = ()

    @property
    def over_edges(self) -> KernelSpec:
        """The part that is a loop over rows and their edges."""
        return self.parts[-1] if self.parts else self

    @property
    def made_ahead(self) -> tuple[Value, ...]:
        """The rows that the first of two parts makes, in memory of the kernel's own."""
        return self.parts[0].stores if self.parts else ()

    @cached_property
    def wholes(self) -> dict[int, Place]:
        """Where values lie that view nothing, by id, as far as somebody has asked."""
        return {}

    @property
    def is_source(self) -> bool:
        """Whether the loop is over the sources of edges."""
        return self.own == "src"

    @cached_property
    def gathered(self) -> frozenset[int]:
        """Ids of the loads whose rows it reads at the other end of edges."""
        other = "dst" if self.is_source else "src"
        return frozenset(place.base.id for place in self.places.values() if place.end == other)

    @cached_property
    def side_by_side(self) -> tuple[Value, ...]:
        """Loads with narrow rows, all as long, that edges read at their other end: two or more, else none.

        Each is a cache line an edge of its own; side by side in one tensor they are as many as their bytes fill.
        """
        if self.in_loop:
            return ()
        alike: dict[tuple[torch.dtype, int], list[Value]] = {}
        for value in self.loads:
            if value.id in self.gathered and 0 < value.row_bytes <= _NARROW:
                alike.setdefault((value.dtype, math.prod(value.row_shape)), []).append(value)
        most = max(alike.values(), key=len, default=[])
        return tuple(most) if len(most) > 1 else ()

    @property
    def side_step(self) -> int:
        """Numbers from one row to the next of what lies side by side: a power of two; few rows straddle lines."""
        first = self.side_by_side[0]
        return 1 << (len(self.side_by_side) * math.prod(first.row_shape) - 1).bit_length()

    @cached_property
    def by_source(self) -> tuple[Value, ...]:
        """Loads with rows of edges that a loop over sources reads: as edges lie, or sorted by their sources."""
        if not self.is_source or self.in_loop:
            return ()
        return tuple([value for value in self.loads if value.space == EDGE][:_MOST_BY_SOURCE])

    @property
    def rows_of_a_sum(self) -> int:
        """Rows and edges that are worth sums over all rows of their own: the wider these are, the more."""
        numbers = sum(math.prod(value.row_shape) for value in self.stores if value.space == SHARED)
        return max(_ROWS_OF_A_SUM, numbers // _NUMBERS_OF_A_ROW)

    @property
    def names_edges(self) -> bool:
        """Whether it asks which edge it visits, and not only what lies at the edge's ends."""
        rows = (*self.loads, *self.stores, *(op.results[0] for op in self.ops if isinstance(op.target, Random)))
        return "$slot" in self.given.values() or any(value.space == EDGE for value in rows)


@dataclass(frozen=True, eq=False)
class Unit:
    """A step of a phase: one operator of the library, or one kernel."""

    op: Op | None = None
    kernel: KernelSpec | None = None


@dataclass(frozen=True)
class Entry:
    """One function of a kernel's source for a GPU: ``team`` threads a row, ``threads`` a block."""

    name: str
    team: int
    threads: int


@dataclass(frozen=True)
class HubStep:
    """One function for rows of very many edges: a team has a chunk of edges (``takes_chunks``) or a row.

    ``pointer``: the index tensor that tells the edges.
    """

    entry: Entry
    takes_chunks: bool
    pointer: str


@dataclass(frozen=True)
class HubLoop:
    """How rows of very many edges are run: functions in order.

    ``row_bytes``, ``chunk_bytes``: what they leave for one another in the GPU's memory.
    """

    steps: tuple[HubStep, ...]
    row_bytes: int
    chunk_bytes: int

    @property
    def pointers(self) -> tuple[str, ...]:
        """Those of all edges that are taken in chunks."""
        return tuple({step.pointer: None for step in self.steps if step.takes_chunks})


@dataclass(frozen=True)
class DeviceLoop:
    """How a KernelSpec is launched on a GPU.

    ``narrow``: rows of few edges, or loops without edges; ``wide``: rows of more than ``most_narrow``; ``hubs``:
    rows of so many that several teams share them. ``pointer``: which index tensor tells a row's edges ("" none).
    ``team_bytes``: scratch in global memory a team, 0 where it fits a block's own. ``pieces``: teams that each store
    a sum of their own; 0: no such sum. ``tiles``: narrow and wide, for ``num_tiles`` tiles of a row's features one
    after the other, so that what they gather stays in the GPU's cache; empty: features cannot be cut.
    """

    narrow: Entry
    wide: Entry | None
    most_narrow: int
    pointer: str
    team_bytes: int
    pieces: int
    hubs: HubLoop | None
    tiles: tuple[Entry, ...] = ()
    num_tiles: int = 1

    @property
    def entries(self) -> tuple[Entry, ...]:
        both = ((self.narrow,) if self.wide is None else (self.narrow, self.wide)) + self.tiles
        return both + tuple(step.entry for step in self.hubs.steps) if self.hubs else both
