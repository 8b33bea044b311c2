"""Exchange: one step of communication, in which every worker assembles a region of one value.

Takes: nothing (plain values). Gives: Piece, Exchange and Fetch. Runs once per function.
Source: Tofu section 6 (MultiFetch: all remote pieces of an input in one fused step).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch

from vgraph.ir.index_set import IndexSet
from vgraph.ir.sharding import Region

MOST_SLICES = 8  # each waits for the one before it


@dataclass(frozen=True)
class Piece:
    """A part of a region and the worker that sends it; pieces of different terms are reduced."""

    source: int
    region: Region
    term: int = 0

    @property
    def num_entries(self) -> int:
        return math.prod(len(entries) for entries in self.region)

    def slice(self, which: int, count: int) -> Piece | None:
        """One of ``count`` parts along the longest dim; None: the dim is too short to have it."""
        if not self.region:
            return self if which == 0 else None
        dim = max(range(len(self.region)), key=lambda d: len(self.region[d]))
        size = len(self.region[dim])
        part = self.region[dim].at(IndexSet.one(which * size // count, (which + 1) * size // count))
        return replace(self, region=(*self.region[:dim], part, *self.region[dim + 1 :])) if len(part) else None


@dataclass(frozen=True, eq=False)
class Exchange:
    """All pieces that all workers receive, their own included; compared by identity.

    ``have`` and ``need``: the regions before and after, one a worker. ``reducer``: how terms are joined.
    ``fill``: whether what no piece covers is zero (a Partial made of a value that is not one).
    ``slices``: how many parts travel one after the other, where memory is short for all of it at once.
    """

    number: int
    dtype: torch.dtype
    have: tuple[Region | None, ...]
    need: tuple[Region | None, ...]
    pieces: tuple[tuple[Piece, ...], ...]
    reducer: str | None = None
    fill: bool = False
    reason: str = ""
    slices: int = 1

    @cached_property
    def parts(self) -> tuple[Exchange, ...]:
        """The exchanges of some of each piece that make this one, in the order in which they travel."""
        if self.slices == 1:
            return (self,)
        return tuple(
            replace(self, slices=1, pieces=tuple(_slices(pieces, which, self.slices) for pieces in self.pieces))
            for which in range(self.slices)
        )

    @property
    def is_divisible(self) -> bool:
        """Whether slices join terms in the same order: pieces of two regions have no entry in common."""
        return not self.fill and all(map(_are_apart, self.need, self.pieces))

    def transit_bytes(self, worker: int) -> int:
        """What a worker holds beside its shard and its region: pieces that it sends, packed, and those that come."""
        if self.slices > 1:
            return max(part.sent_bytes(worker) + part.received_bytes(worker) for part in self.parts)
        pieces = self.pieces[worker]
        is_result = len(pieces) == 1 and pieces[0].region == self.need[worker]
        return self.sent_bytes(worker) + (0 if is_result else self.received_bytes(worker))

    @property
    def num_bytes(self) -> int:
        """Bytes that cross workers: every piece once a receiver."""
        return sum(self.received_bytes(worker) for worker in range(len(self.pieces)))

    def received_bytes(self, worker: int) -> int:
        return sum(p.num_entries for p in self.pieces[worker] if p.source != worker) * self.dtype.itemsize

    def sent_bytes(self, worker: int) -> int:
        others = (pieces for receiver, pieces in enumerate(self.pieces) if receiver != worker)
        return sum(p.num_entries for pieces in others for p in pieces if p.source == worker) * self.dtype.itemsize

    def sent(self, worker: int, receiver: int) -> list[Piece]:
        """The pieces of one worker that another one receives, in the order in which they are packed."""
        return [p for p in self.pieces[receiver] if p.source == worker]


def _slices(pieces: Sequence[Piece], which: int, count: int) -> tuple[Piece, ...]:
    return tuple(part for piece in pieces if (part := piece.slice(which, count)) is not None)


def _are_apart(need: Region | None, pieces: Sequence[Piece]) -> bool:
    if need is None:
        return True
    entries = {piece.region: piece.num_entries for piece in pieces}
    return sum(entries.values()) == math.prod(len(held) for held in need)


@dataclass(frozen=True)
class Fetch:
    """One worker's part of an Exchange; its operand is the worker's own shard, if it has one."""

    exchange: Exchange
    worker: int

    def __str__(self) -> str:
        need = self.exchange.need[self.worker]
        received = self.exchange.received_bytes(self.worker)
        return f"fetch#{self.exchange.number}[{need}, {received} bytes]"


@dataclass(frozen=True)
class ReplicaMean:
    """The mean of a value over replicas of the plan, each of which computed it from its own batch."""

    def __str__(self) -> str:
        return "replica_mean"


@dataclass(frozen=True)
class Assemble:
    """Puts pieces that were fetched one by one in their places; its operands are the pieces, in order."""

    need: Region
    pieces: tuple[Piece, ...]
    reducer: str | None

    def __str__(self) -> str:
        return f"assemble[{self.need}]"
