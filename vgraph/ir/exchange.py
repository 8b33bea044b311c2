"""Exchange: one step of communication, in which every worker assembles a region of one value.

Takes: nothing (plain values). Gives: Piece, Exchange and Fetch. Runs once per function.
Source: Tofu section 6 (MultiFetch: all remote pieces of an input in one fused step).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from vgraph.ir.sharding import Region


@dataclass(frozen=True)
class Piece:
    """A part of a region and the worker that sends it; pieces of different terms are reduced."""

    source: int
    region: Region
    term: int = 0

    @property
    def num_entries(self) -> int:
        return math.prod(len(entries) for entries in self.region)


@dataclass(frozen=True, eq=False)
class Exchange:
    """All pieces that all workers receive, their own included; compared by identity.

    ``have`` and ``need``: the regions before and after, one a worker. ``reducer``: how terms are joined.
    ``fill``: whether what no piece covers is zero (a Partial made of a value that is not one).
    """

    number: int
    dtype: torch.dtype
    have: tuple[Region | None, ...]
    need: tuple[Region | None, ...]
    pieces: tuple[tuple[Piece, ...], ...]
    reducer: str | None = None
    fill: bool = False
    reason: str = ""

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
