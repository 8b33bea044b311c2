"""Lists: adjacency lists of consecutive ranges of vertices, each range (a part) in arrays of its own.

Takes: arrays in CSC or CSR form, a part after the other. Gives: where lists lie, what stands in them. A part is made
once, read at every step. A graph in memory is one part (``grouped.py`` makes it); one on disk has as many as it was
cut into, mapped. Places count the entries of all lists, part after part. Compiled where there is a compiler, else in
NumPy.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from vgraph.graphs.draw.kernels import address, pool, run
from vgraph.graphs.draw.random_numbers import Array
from vgraph.ir.topology import Compressed


@dataclass(frozen=True, eq=False)
class ListPart:
    """The lists of some consecutive vertices.

    ``ptr`` (vertices + 1) int64, from 0; ``other`` and ``edge_ids`` (entries), the latter None where places are the
    ids; ``names`` (vertices): what draws from a list follow from, None where that is the vertex's own number.
    """

    ptr: Array
    other: Array
    edge_ids: Array | None = None
    names: Array | None = None


@dataclass(frozen=True, eq=False)
class Spans:
    """For some vertices: the place where each one's list begins, its length, and what draws from it follow from."""

    begins: Array
    lengths: Array
    names: Array

    @property
    def entries(self) -> tuple[Array, Array]:
        """(owners, slots) of all entries of the lists, one list after the other."""
        owners = np.repeat(np.arange(len(self.lengths)), self.lengths)
        return owners, np.arange(len(owners)) - (np.cumsum(self.lengths) - self.lengths)[owners]


class Lists:
    """Adjacency lists in parts, and what is read of them.

    ``late_ids``: gives the edge ids of the only part, which are made when they are first asked for.
    """

    def __init__(
        self,
        parts: Sequence[ListPart],
        first_vertex: int = 0,
        first_place: int = 0,
        late_ids: Callable[[], Array] | None = None,
    ) -> None:
        self.parts, self._late_ids, self._lock = list(parts), late_ids, threading.Lock()
        self.vertices = _bounds(first_vertex, [len(part.ptr) - 1 for part in self.parts])
        self.places = _bounds(first_place, [len(part.other) for part in self.parts])
        self._table = self._addresses()

    def __reduce__(self) -> tuple[object, ...]:
        """Elsewhere the arrays have other addresses."""
        return Lists, (self._with_ids().parts, int(self.vertices[0]), int(self.places[0]))

    def _addresses(self) -> Array:
        rows = [
            [address(part.ptr), *_typed(part.other), *_typed(part.edge_ids), *_typed(part.names)] for part in self.parts
        ]
        return np.column_stack([self.vertices, self.places, np.array([*rows, [0] * 7], np.int64)])

    def _with_ids(self) -> Lists:
        """The same, when edge ids are there."""
        with self._lock:
            if self._late_ids is not None:
                self.parts = [replace(self.parts[0], edge_ids=self._late_ids())]
                self._table, self._late_ids = self._addresses(), None
        return self

    @classmethod
    def of(cls, lists: Compressed) -> Lists:
        """Those of a graph in memory."""
        edge_ids = None if lists.edge_ids is None else lists.edge_ids.numpy()
        return cls([ListPart(lists.ptr.numpy(), lists.other.numpy(), edge_ids)])

    def spans(self, vertices: Array) -> Spans:
        """Where the lists of some vertices lie."""
        begins, lengths, names = (np.empty(len(vertices), np.int64) for _ in range(3))
        vertices, table = np.ascontiguousarray(vertices), self._table
        words = [address(vertices), len(vertices), address(table), len(self.parts)]
        if run("vg_spans", [*words, address(begins), address(lengths), address(names), pool()]) is None:
            for part, chosen in by_part(self.vertices, vertices):
                own, local = self.parts[part], vertices[chosen] - self.vertices[part]
                begins[chosen] = self.places[part] + own.ptr[local]
                lengths[chosen] = own.ptr[local + 1] - own.ptr[local]
                names[chosen] = vertices[chosen] if own.names is None else own.names[local]
        return Spans(begins, lengths, names)

    def fetch(self, places: Array) -> tuple[Array, Array]:
        """The other ends and the edge ids at some places."""
        other, edge_ids = np.empty(len(places), np.int64), np.empty(len(places), np.int64)
        table = self._with_ids()._table
        words = [address(places), len(places), address(table), len(self.parts)]
        if run("vg_fetch", [*words, address(other), address(edge_ids), pool()]) is None:
            for part, chosen in by_part(self.places, places):
                own, local = self.parts[part], places[chosen] - self.places[part]
                other[chosen] = own.other[local]
                edge_ids[chosen] = places[chosen] if own.edge_ids is None else own.edge_ids[local]
        return other, edge_ids

    def edge_ids(self, places: Array) -> Array:
        """The edge ids at some places."""
        parts = self._with_ids().parts
        if len(parts) == 1 and parts[0].edge_ids is not None:
            return parts[0].edge_ids[places - self.places[0]].astype(np.int64, copy=False)
        return places if all(part.edge_ids is None for part in parts) else self.fetch(places)[1]

    def table(self) -> tuple[Array, int]:
        """A row a part and one more, as kernels read them, for as long as that array is there; the number of parts."""
        return self._table, len(self.parts)

    def others(self, places: Array) -> Array:
        """The other ends at some places."""
        found = np.empty(len(places), np.int64)
        for part, chosen in by_part(self.places, places):
            found[chosen] = self.parts[part].other[places[chosen] - self.places[part]]
        return found


class Rows:
    """Rows of consecutive numbers, each range of them in a tensor of its own: features of parts, on the CPU."""

    def __init__(self, parts: Sequence[Tensor], first_row: int = 0) -> None:
        self.parts = [part.detach().contiguous() for part in parts]
        self.bounds = _bounds(first_row, [len(part) for part in self.parts])
        addresses = np.array([*(part.data_ptr() for part in self.parts), 0], np.int64)
        self._table = np.column_stack([self.bounds, addresses])
        self.shape, self.dtype = self.parts[0].shape[1:], self.parts[0].dtype
        self.row_bytes = self.shape.numel() * self.dtype.itemsize

    def followed_by(self, parts: Sequence[Tensor]) -> Rows:
        """These, and then others, of which the first row has the number after the last of these."""
        return Rows([*self.parts, *(part.reshape(len(part), *self.shape) for part in parts)], int(self.bounds[0]))

    def take(self, ids: Array) -> Tensor:
        """The rows of these numbers, which lie within the bounds."""
        found = torch.empty((len(ids), *self.shape), dtype=self.dtype, device="cpu")
        if not self._put(ids, found):
            for part, chosen in by_part(self.bounds, ids):
                found[torch.from_numpy(chosen)] = self.parts[part][torch.from_numpy(ids[chosen] - self.bounds[part])]
        return found

    def pack(self, ids: Array, out: Tensor) -> None:
        """The same as bytes, one behind the other, in ``out`` (uint8)."""
        assert len(out) == len(ids) * self.row_bytes, (len(out), len(ids), self.row_bytes)
        if not self._put(ids, out):
            out.copy_(self.take(ids).reshape(-1).view(torch.uint8))

    def _put(self, ids: Array, out: Tensor) -> bool:
        """Whether a kernel has put the rows there."""
        words = [address(ids), len(ids), address(self._table), len(self.parts), self.row_bytes]
        return run("vg_rows", [*words, out.data_ptr(), pool()]) is not None


def by_part(bounds: Array, numbers: Array) -> list[tuple[int, Array]]:
    """Every part that has some of the numbers, and which of them."""
    part = np.searchsorted(bounds, numbers, side="right") - 1
    return [(int(one), (part == one).nonzero()[0]) for one in np.unique(part)]


def _bounds(first: int, sizes: Sequence[int]) -> Array:
    return first + np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)]).astype(np.int64)


def _typed(numbers: Array | None) -> list[int]:
    return [address(numbers), 8 if numbers is None else numbers.itemsize]
