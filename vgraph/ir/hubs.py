"""Hubs: rows of very many edges, and the chunks in which several teams of a GPU take their edges.

Takes: pointers of edges by row, on the CPU. Gives: rows, chunks, which of them belong to a frontier. Runs once per
topology. Chunks are cut by a row's own edges alone, so that a sum does not depend on what else a batch holds.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

CHUNK = 512  # edges whose rows are added one after the other, where a row has more than MOST_EDGES
MOST_EDGES = 1024


@dataclass(frozen=True, eq=False)
class Chunks:
    """Each chunk's hub and first edge (chunks,), each hub's first chunk (hubs + 1,), that also as numbers.

    ``long``: numbers of the hubs that have more than MOST_EDGES of these edges.
    """

    hubs: Tensor
    starts: Tensor
    first: Tensor
    ends: Sequence[int]
    long: Sequence[int]


@dataclass(frozen=True, eq=False)
class Hubs:
    """``rows``: (hubs,) int32, and as ``numbers``; ``chunks``: of their edges, by the name of a pointer."""

    rows: Tensor
    numbers: Sequence[int]
    chunks: Mapping[str, Chunks]

    def between(self, v0: int, v1: int, pointers: Sequence[str]) -> range:
        """The hubs among rows [v0, v1); none, where none of them has many edges by one of these pointers."""
        found = range(bisect_left(self.numbers, v0), bisect_left(self.numbers, v1))
        longs = (self.chunks[name].long for name in pointers)
        is_needed = any(bisect_left(long, found.start) < bisect_left(long, found.stop) for long in longs)
        return found if is_needed else range(0)

    @property
    def tensors(self) -> list[Tensor]:
        """All that a GPU reads."""
        return [self.rows, *(t for c in self.chunks.values() for t in (c.hubs, c.starts, c.first))]

    def at(self, tensors: Sequence[Tensor]) -> Hubs:
        """The same with tensors that lie elsewhere."""
        rows, *rest = tensors
        both = zip(self.chunks.items(), zip(*[iter(rest)] * 3, strict=True), strict=True)
        chunks = {name: replace(c, hubs=h, starts=s, first=f) for (name, c), (h, s, f) in both}
        return replace(self, rows=rows, chunks=chunks)


def cut_hubs(rows: Tensor, pointers: Mapping[str, Tensor]) -> Hubs:
    """Rows as hubs, with their edges by each pointer in chunks."""
    return Hubs(rows.to(torch.int32), rows.tolist(), {name: _chunks(ptr, rows) for name, ptr in pointers.items()})


def find_hubs(pointers: Mapping[str, Tensor]) -> Hubs | None:
    """Rows, in order, of more than MOST_EDGES edges by any of the pointers; None: there are none."""
    is_long = [ptr[1:] - ptr[:-1] > MOST_EDGES for ptr in pointers.values()]
    if not any(bool(found.any()) for found in is_long):
        return None
    return cut_hubs(torch.stack(is_long).any(0).nonzero().squeeze(1), pointers)


def _chunks(ptr: Tensor, rows: Tensor) -> Chunks:
    """Chunks of CHUNK edges, in order, at least one a row; the last one of a row is shorter."""
    rows = rows.long()
    counts = ptr[rows + 1] - ptr[rows]
    numbers = ((counts + CHUNK - 1) // CHUNK).clamp(min=1)
    first = torch.zeros(rows.shape[0] + 1, dtype=torch.int64, device="cpu")
    torch.cumsum(numbers, 0, out=first[1:])
    hubs = torch.repeat_interleave(torch.arange(rows.shape[0], device="cpu"), numbers)
    within = torch.arange(hubs.shape[0], device="cpu") - first[hubs]
    long = (counts > MOST_EDGES).nonzero().squeeze(1).tolist()
    return Chunks(hubs.to(torch.int32), ptr[rows[hubs]] + within * CHUNK, first.to(torch.int32), first.tolist(), long)
