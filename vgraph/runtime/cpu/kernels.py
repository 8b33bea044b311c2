"""CPU kernels: pointers in, one call out.

Takes: a compiled function, tensors, the index tensors of a schedule. Gives: rows written in place. Runs at every
step.
"""

from __future__ import annotations

import ctypes
import math
import os
import struct
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from itertools import count
from pathlib import Path
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from vgraph.errors import GraphError, KernelMemoryError
from vgraph.ir.kernel import KernelSpec
from vgraph.ir.moves import Random
from vgraph.ir.program import Op
from vgraph.ir.reduction import ACCUMULATED
from vgraph.ir.row_tiles import TILE_BYTES, tiled_loads
from vgraph.ir.schedule import LOOK_AHEAD, MOST_SHORT, RowOrder
from vgraph.ir.space import SHARED


@cache
def pool_address() -> int:
    """Torch's own ``parallel_for`` (so that ``torch.set_num_threads`` holds), or 0: one thread.

    A forked process has none: the threads of its parent's pool are not there, and OpenMP waits for them for ever.
    """
    if os.getpid() != _FIRST_PROCESS:
        return 0
    for library in sorted((Path(torch.__file__).parent / "lib").glob("*torch_cpu.*")):
        with suppress(OSError):  # what lies beside it for linkers cannot be loaded
            symbol = getattr(ctypes.CDLL(str(library)), "torch_parallel_for", None)
            if symbol is not None:
                return ctypes.cast(symbol, ctypes.c_void_p).value or 0
    return 0


_FIRST_PROCESS = os.getpid()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=pool_address.cache_clear)

BySource = Callable[[Tensor, RowOrder], "Tensor | None"]  # rows of edges as they lie, sorted by source if they are kept
Empty = Callable[[Sequence[int], torch.dtype], Tensor]  # room for a tensor, from wherever the process keeps it


def torch_empty(shape: Sequence[int], dtype: torch.dtype) -> Tensor:
    """Room that torch gives."""
    return torch.empty(shape, dtype=dtype, device="cpu")


def not_kept(_: Tensor, __: RowOrder) -> None:
    """Where no rows of edges are kept."""


def no_memory(what: str, line: str | None = None) -> KernelMemoryError:
    """The error of a compiled loop that says so."""
    fact = f"the system has no memory left for what {what} keeps of a row while it runs"
    return KernelMemoryError(fact, line=line, cure="pass a smaller batch of graphs, or narrower features")


def first_line(ops: Iterable[Op]) -> str | None:
    """The user's line that asked for the first of some ops."""
    return next((op.line for op in ops if op.line), None)


_LINE = 64  # bytes of the cache
_MOST_MOVED = 256  # bytes of a row
_MOST_SUMS = 64  # pieces of rows that have sums of their own, as in threads.h
MOST_OWN = 1 << 16  # bytes of a tensor up to which torch's own memory is taken as it comes
_MOST_PREPARED = 256  # kernels on one graph
_EDGES_A_ROW = 8  # from which on it is worth the time to move narrow rows side by side
_MOST_CACHED = 1 << 19  # bytes of such rows that a thread's own cache holds
_MOST_WHOLE = 1 << 23  # bytes of rows that edges read as fast whole as in tiles
_EDGES_A_COPY = 16  # from which on it is worth the time to copy rows
_numbers = count()
INDICES = ("in_ptr", "src_rows", "out_ptr", "out_edges", "out_dst")


def index_tensors(order: RowOrder, names: Sequence[str] = INDICES) -> tuple[Tensor, ...]:
    """Pointers of 64 bits, rows of 32; kept with the order. What is not among ``names`` need not be made: empty."""
    if max(order.src_rows.shape[0], order.in_ptr.shape[0], order.out_ptr.shape[0]) >= MOST_SHORT:
        fact = f"a compiled kernel counts to 2^31 edges; this graph has {order.src_rows.shape[0]}"
        raise GraphError(fact, cure="set VGRAPH_KERNELS=0 and capture anew: torch's operators count further")
    known = order.indices
    for name in names:
        if name not in known:
            tensor = getattr(order, name)
            known[name] = tensor if name in ("in_ptr", "out_ptr") else _short(tensor)
    return tuple([known[name] if name in names else _NOTHING for name in INDICES])


def _indices_read(spec: KernelSpec) -> tuple[str, ...]:
    """Those that a kernel's loops read."""
    unread = {"out_edges", "out_dst"}
    if spec.is_source or spec.in_loop:
        unread = set() if spec.names_edges else {"out_edges"}
    return tuple(name for name in INDICES if name not in unread)


def _straddles(rows: Tensor, edges: int) -> bool:
    """Whether every row lies on a cache line too many, and that costs more than to move all of them once.

    Torch's own memory begins with a line, but not that of arrays that it was given.
    """
    if rows.data_ptr() % _LINE == 0:
        return False
    count = rows.shape[0] if rows.dim() else 0
    row_bytes = rows.numel() // max(count, 1) * rows.element_size()
    if row_bytes % _LINE or not 0 < row_bytes <= _MOST_MOVED:
        return False
    return edges * _LINE >= 4 * count * row_bytes


def index_addresses(order: RowOrder) -> tuple[int, ...]:
    """Of ``index_tensors``, and of the vertex of every row, 0 if they are in order; kept with them."""
    known = order.addresses
    if known is None:
        ids = 0 if order.vertex_ids is None else order.vertex_ids.data_ptr()
        known = order.addresses = (*[t.data_ptr() for t in index_tensors(order)], ids)
    return known


def _addresses_of(order: RowOrder, names: Sequence[str]) -> tuple[int, ...]:
    """Of the index tensors of these names, none of which is made where their addresses are known; of others any."""
    known = order.addresses
    return tuple([t.data_ptr() for t in index_tensors(order, names)]) if known is None else known[: len(INDICES)]


def _short(rows: Tensor) -> Tensor:
    """Rows of 32 bits with room to look ahead; those of a row order have it."""
    room = rows.untyped_storage().nbytes() // rows.element_size() - rows.storage_offset() - rows.shape[0]
    if rows.dtype == torch.int32 and room >= LOOK_AHEAD:
        return rows
    made = torch.zeros(rows.shape[0] + LOOK_AHEAD, dtype=torch.int32, device=rows.device)
    made[: rows.shape[0]] = rows
    return made[: rows.shape[0]]


def _contiguous(tensor: Tensor, empty: Empty) -> Tensor:
    assert tensor.is_cpu, "a CPU kernel reads CPU memory"
    if tensor.is_contiguous() or tensor.nbytes <= MOST_OWN:
        return tensor.contiguous()
    return empty(tensor.shape, tensor.dtype).copy_(tensor)


_NOTHING = torch.empty(0, dtype=torch.int32, device="cpu")
_NO_IDS = (None, None)
_pack_words = struct.Struct(f"{3 + len(INDICES) + len(_NO_IDS)}q").pack


@dataclass(eq=False, slots=True)
class Room:
    """What a kernel stores. ``like``: of the same shape, with a single element in memory, where it is small."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    is_sum: bool
    is_small: bool
    is_taken: bool = False
    like: Tensor | None = None

    def take(self, empty: Empty) -> Tensor:
        """Memory of its own."""
        if self.like is not None:
            return torch.empty_like(self.like, memory_format=torch.contiguous_format)
        if self.is_sum:
            return empty(self.shape, self.dtype).zero_()
        if not self.is_small:
            return empty(self.shape, self.dtype)
        if self.is_taken:  # a second time: not on a graph that comes once
            with torch.inference_mode(False):  # it outlives the mode of this call
                self.like = torch.empty((), dtype=self.dtype, device="cpu").expand(self.shape)
        self.is_taken = True
        return torch.empty(self.shape, dtype=self.dtype, device="cpu")


class Prepared(NamedTuple):
    """What every call of a kernel on one extent has in common; ``keeps`` is what lies at the places in ``words``."""

    words: bytes  # the first arguments, up to the user's ids
    pool: int
    rooms: tuple[Room, ...]
    num_edges: int
    keeps: tuple[object, ...]


class Covered(Protocol):
    """Rows that one evaluation covers, as a kernel asks for them: an Extent."""

    order: RowOrder
    v0: int
    v1: int
    e0: int
    e1: int
    prepared: dict[int, Prepared]  # by numbers of kernels

    def count(self, kind: str) -> int: ...
    def user_ids(self, kind: str) -> Tensor | None: ...


class CpuKernel:
    """A compiled loop over vertices [v0, v1): see ``fusion/cpu/emit.py`` for its arguments."""

    def __init__(
        self,
        function: Callable[[int | bytes], int],
        spec: KernelSpec,
        empty: Empty = torch_empty,
        by_source: BySource = not_kept,
    ) -> None:
        self.number = next(_numbers)
        self.function, self.stores, self.is_source = function, spec.stores, spec.is_source
        self.empty, self.line = empty, first_line(spec.ops)
        self._indices, self._rows_of_a_sum = _indices_read(spec), spec.rows_of_a_sum
        self._gathered = [i for i, v in enumerate(spec.loads) if v.id in spec.gathered]
        self._side = [i for i, v in enumerate(spec.loads) if v in spec.side_by_side]
        self._side_step = spec.side_step if self._side else 0
        tiled = tiled_loads(spec.over_edges)
        self._tiled = bool(tiled)
        self._tiled_loads = [spec.loads.index(v) for v in tiled if v not in spec.made_ahead]
        self._bytes_of_row, self._num_tiled = sum(v.row_bytes for v in tiled), len(tiled)
        self._ahead = [(v.space.kind, tuple(v.row_shape), v.dtype) for v in spec.made_ahead]
        self._by_source, self._of_edges = by_source, [spec.loads.index(v) for v in spec.by_source]
        # behind loads and stores, as in side_by_side.py, row_tiles.py and by_source.py of fusion/cpu
        self.num_more_words = 2 * bool(self._side) + 3 * self._tiled + len(self._ahead) + bool(self._of_edges)
        num_words = len(spec.loads) + len(spec.stores) + self.num_more_words
        self._words = ctypes.c_int64 * (3 + len(INDICES) + len(_NO_IDS) + num_words)
        self._pack = struct.Struct(f"{num_words}q").pack
        drawn = [op.results[0].space.kind for op in spec.ops if isinstance(op.target, Random)]
        self.draws = tuple(kind in drawn for kind in ("vertex", "edge"))
        self._rooms = [(v.space.kind, v.space == SHARED, tuple(v.row_shape), v.dtype) for v in spec.stores]
        self._sums = any(is_shared for _, is_shared, _, _ in self._rooms)

    def bind(self, order: RowOrder, loads: Sequence[Tensor], stores: Sequence[Tensor]) -> Callable[[int, int], None]:
        """A call ``(v0, v1)`` on tensors of all rows; it keeps them alive."""
        given = [_contiguous(tensor, self.empty) for tensor in loads]
        index = index_tensors(order, self._indices)
        pointers = [t.data_ptr() for t in index]
        pointers += [0 for _ in _NO_IDS]
        pointers += [t.data_ptr() for t in given]
        pointers += [t.data_ptr() for t in stores]
        pointers += [0] * self.num_more_words
        arguments = self._words(0, 0, pool_address(), *pointers)
        function, address, line = self.function, ctypes.addressof(arguments), self.line

        def call(v0: int, v1: int, keep: object = (index, given, stores, arguments)) -> None:
            arguments[0], arguments[1] = v0, v1
            if function(address):
                raise no_memory("a kernel", line)

        return call

    def _on_lines(self, rows: Tensor, edges: int) -> Tensor:
        """Rows that are gathered, in memory that begins with a cache line."""
        return self.empty(rows.shape, rows.dtype).copy_(rows) if _straddles(rows, edges) else rows

    def run(self, extent: Covered, *loads: Tensor) -> tuple[Tensor, ...]:
        """Once over all rows; allocates what it stores."""
        known = extent.prepared.get(self.number)
        if known is None or known.pool != pool_address():
            known = self._prepare(extent)
        made = tuple([room.take(self.empty) for room in known.rooms])
        given = list(loads)
        for i, tensor in enumerate(loads):
            if not (tensor.is_cpu and tensor.is_contiguous()):
                given[i] = _contiguous(tensor, self.empty)
        sorted_by_source = self._sorted(extent.order, given) if self._of_edges else 0
        rows = self._rows_to_tile(extent, given) if self._tiled else 0
        tiles = self._room_for_tiles(rows, known.num_edges) if self._tiled else None
        for i in self._gathered if tiles is None else ():
            if given[i].data_ptr() % _LINE:
                given[i] = self._on_lines(given[i], known.num_edges)
        places = [tensor.data_ptr() for tensor in (*given, *made)]
        if self._side:
            side = self._room_beside(given, known.num_edges)
            places += (0, 0) if side is None else (side.data_ptr(), side.shape[0])
        if self._tiled:
            ahead = self._room_ahead(rows) if tiles is None else ()
            places += (0 if tiles is None else tiles.data_ptr(), rows, 0)
            places += [t.data_ptr() for t in ahead] or [0] * len(self._ahead)
        if self._of_edges:
            places.append(sorted_by_source)
        if self.function(known.words + self._pack(*places)):
            raise no_memory("a kernel", self.line)
        if not self._sums:
            return made
        return tuple(t.sum(0).to(v.dtype) if v.space == SHARED else t for t, v in zip(made, self.stores, strict=True))

    def _sorted(self, order: RowOrder, given: list[Tensor]) -> int:
        """Puts rows of edges that are kept by source in the place of those that are not; a bit for each of them."""
        bits = 0
        for place, i in enumerate(self._of_edges):
            kept = self._by_source(given[i], order)
            if kept is not None:
                given[i], bits = kept, bits | 1 << place
        return bits

    def _room_beside(self, given: Sequence[Tensor], edges: int) -> Tensor | None:
        """Room where narrow rows lie side by side; None where edges are few, or a cache holds the rows as they are."""
        first = given[self._side[0]]
        rows = first.shape[0]
        assert all(given[i].shape[0] == rows for i in self._side), "rows at one end of edges are as many"
        if edges < _EDGES_A_ROW * rows or rows * self._side_step * first.element_size() < _MOST_CACHED:
            return None
        return self.empty((rows, self._side_step), first.dtype)

    def _rows_to_tile(self, extent: Covered, given: Sequence[Tensor]) -> int:
        """How many rows there are at the other ends of edges."""
        counts = {given[i].shape[0] for i in self._tiled_loads} | {extent.count(kind) for kind, _, _ in self._ahead}
        assert len(counts) == 1, "rows at one end of edges are as many"
        return counts.pop()

    def _room_for_tiles(self, rows: int, edges: int) -> Tensor | None:
        """Room for a tile of all rows; None where edges are few, or the caches hold the rows as they are."""
        if edges < _EDGES_A_COPY * rows or rows * self._bytes_of_row < _MOST_WHOLE:
            return None
        return self.empty((rows * self._num_tiled * TILE_BYTES,), torch.uint8)

    def _room_ahead(self, rows: int) -> list[Tensor]:
        """Room for rows that are made ahead, whole."""
        return [self.empty((rows, *shape), dtype) for _, shape, dtype in self._ahead]

    def _prepare(self, extent: Covered) -> Prepared:
        order, ids, pool = extent.order, self._ids(extent), pool_address()
        bounds = (0, extent.count("source")) if self.is_source else (extent.v0, extent.v1)
        places = _addresses_of(order, self._indices)
        words = _pack_words(*bounds, pool, *places, *[0 if t is None else t.data_ptr() for t in ids])
        num_sums = _num_sums(order, *bounds, self._rows_of_a_sum) if self._sums else 0
        rooms = tuple([_room(extent, num_sums, *room) for room in self._rooms])
        if len(extent.prepared) >= _MOST_PREPARED:  # kernels come and go, the graph stays
            extent.prepared.clear()
        made = extent.prepared[self.number] = Prepared(words, pool, rooms, extent.e1 - extent.e0, (order, *ids))
        return made

    def _ids(self, extent: Covered) -> Sequence[Tensor | None]:
        """The user's ids, as kernels that draw random numbers by them read them; None where they are in order."""
        if not any(self.draws):
            return _NO_IDS
        kinds = zip(("vertex", "edge"), self.draws, strict=True)
        ids = [extent.user_ids(kind) if drawn else None for kind, drawn in kinds]
        return [None if t is None else t.long() for t in ids]


def _num_sums(order: RowOrder, first: int, last: int, rows: int) -> int:
    """Pieces of the rows that have sums of their own: as many as ``vg_num_sums`` in threads.h says, or more."""
    ends = [ptr for ptr in (order.in_ptr, order.out_ptr) if ptr.shape[0] > last]
    edges = max((int(ptr[last]) - int(ptr[first]) for ptr in ends), default=0)
    return min(max(1, (last - first + edges) // rows), _MOST_SUMS)


def _room(
    extent: Covered, num_sums: int, kind: str, is_sum: bool, row_shape: tuple[int, ...], dtype: torch.dtype
) -> Room:
    if is_sum:
        return Room((num_sums, *row_shape), ACCUMULATED.get(dtype, dtype), is_sum, is_small=False)
    shape = (extent.count(kind), *row_shape)
    return Room(shape, dtype, is_sum, is_small=math.prod(shape) * dtype.itemsize <= MOST_OWN)
