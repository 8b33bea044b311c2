"""LoopBody: what one pass of a loop over frontiers does, and how a GPU runs it.

Takes: nothing (plain values). Gives: units in order, where their values lie. Runs once per function.
Source: Cavs section 3.3 (dynamic tensors); a value that one frontier alone needs is no dynamic tensor.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from vgraph.ir.kernel import Entry, HubLoop, HubStep, KernelSpec, Unit
from vgraph.ir.program import Op, Value
from vgraph.ir.schedule import Phase
from vgraph.ir.space import EDGE


@dataclass(frozen=True, eq=False)
class Spot:
    """Where a value lies: some bytes into the rows of another one."""

    root: Value
    offset: int = 0


def in_user_order(value_id: int) -> int:
    """The id under which a value's rows in the user's order are found."""
    return -1 - value_id


@dataclass(frozen=True, eq=False)
class LoopBody:
    """``units`` of a phase, each of them a kernel, a product of rows and a matrix, or a copy of rows.

    ``kept``: what others need, in the arena; ``temporary``: what one frontier alone needs. ``outside``: ids of what
    it reads and does not make. ``flops``: of a vertex, of an edge. ``ins`` come, and ``outs`` go as well, in the
    user's order of vertices, under ``in_user_order`` of their ids.
    """

    phase: Phase
    units: tuple[Unit, ...]
    kept: frozenset[int]
    places: Mapping[int, Spot]
    temporary: tuple[Value, ...]
    outside: tuple[int, ...]
    flops: tuple[int, int] = (0, 0)
    row_bytes: int = 0  # what one vertex and two edges of it touch
    whole: frozenset[int] = frozenset()  # ids of what it reads at rows of other vertices
    ins: tuple[Value, ...] = ()
    outs: tuple[Value, ...] = ()

    def place(self, value: Value) -> Spot:
        return self.places.get(value.id) or Spot(value)


@dataclass(frozen=True, eq=False)
class Product:
    """Rows times a matrix that all share: ``bias`` + ``left`` @ ``right``."""

    op: Op

    @property
    def left(self) -> Value:
        return self.op.args[-2]

    @property
    def right(self) -> Value:
        return self.op.args[-1]

    @property
    def bias(self) -> Value | None:
        return self.op.args[0] if len(self.op.args) == 3 else None

    @property
    def result(self) -> Value:
        return self.op.results[0]

    @property
    def is_on_edges(self) -> bool:
        return self.result.space == EDGE


@dataclass(frozen=True, eq=False)
class HubKernel:
    """A kernel of a section on rows of very many edges, by functions that take the addresses of rows as they are."""

    loop: HubLoop
    spec: KernelSpec


@dataclass(frozen=True, eq=False)
class HubCopy:
    """Copies of rows on such rows: one function, that takes the section's roots."""

    step: HubStep


@dataclass(frozen=True, eq=False)
class Section:
    """All that a frontier's rows need between two products, as one function; ``wide``: for rows of many edges.

    ``roots``: whose addresses it takes, behind those of the index tensors. ``hubs``: the same for rows of very many
    edges by one of ``pointers``, piece by piece; empty: nothing in it goes over edges.
    """

    narrow: Entry
    wide: Entry | None
    most_narrow: int
    roots: tuple[Value, ...]
    hubs: tuple[HubKernel | HubCopy, ...] = ()
    pointers: tuple[str, ...] = ()

    @property
    def entries(self) -> tuple[Entry, ...]:
        """Of all its functions."""
        steps = [s for hub in self.hubs for s in (hub.loop.steps if isinstance(hub, HubKernel) else (hub.step,))]
        return (self.narrow, *((self.wide,) if self.wide else ()), *(step.entry for step in steps))


@dataclass(frozen=True, eq=False)
class Walk:
    """One function that walks all frontiers, every block with its part of the matrices in its own memory.

    ``products``: in order; ``team_bytes``: of a block beside the matrices; ``roots``: whose addresses it takes.
    """

    entry: Entry
    products: tuple[Product, ...]
    room_bytes: int
    roots: tuple[Value, ...]


@dataclass(frozen=True, eq=False)
class LoopOnDevice:
    """A LoopBody on a GPU: ``steps`` of a frontier, or all frontiers in one ``walk`` (None: not possible)."""

    body: LoopBody
    steps: tuple[Section | Product, ...]
    walk: Walk | None

    @property
    def names(self) -> list[str]:
        """Of all functions."""
        entries = [entry for step in self.steps if isinstance(step, Section) for entry in step.entries]
        return [entry.name for entry in (*entries, *((self.walk.entry,) if self.walk else ()))]
