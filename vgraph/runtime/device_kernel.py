"""DeviceKernel: a compiled loop on a GPU: its grid, its degree buckets, its arguments.

Takes: tensors of all rows, of one device. Gives: rows written in place; tempo: every step.
It launches through a function that it is given, so that the same code runs where a test stands in for the GPU.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from vgraph.ir.kernel import DeviceLoop, Entry, KernelSpec
from vgraph.ir.moves import Random
from vgraph.ir.program import SHARED, Value
from vgraph.ir.schedule import RowOrder
from vgraph.ir.upload import send, upload
from vgraph.runtime.cpu import index_tensors
from vgraph.runtime.cuda import Launch

_ALIGNMENT = 16  # bytes of the widest access
_MOST_BLOCKS = 1 << 30
CHUNK = 512  # edges whose rows are added one after the other, where a row has more than MOST_EDGES
MOST_EDGES = 1024
_NARROW_TILES = 16  # edges up to which a row gets a narrow team, where features are cut into tiles
_CACHE_SHARE = 0.75  # of the last cache, for what is gathered
_SCRATCH_BLOCKS = 1024  # where teams need memory of their own


@dataclass(frozen=True, eq=False)
class Chunks:
    """Rows in chunks: ``rows`` (hubs,), each chunk's hub and first edge, each hub's first chunk (hubs + 1,)."""

    rows: Tensor
    hubs: Tensor
    starts: Tensor
    first: Tensor


@dataclass(frozen=True, eq=False)
class Buckets:
    """Rows by degree, int32 (None: all, as they lie), and their number; ``hubs`` None: no row has so many edges."""

    narrow: tuple[Tensor | None, int]
    wide: tuple[Tensor | None, int]
    hubs: Chunks | None


_buckets: WeakKeyDictionary[RowOrder, dict[tuple[str, int, int], Buckets]] = WeakKeyDictionary()


def buckets_of(order: RowOrder, pointer: str, most_narrow: int, most_wide: int) -> Buckets:
    """Rows of few edges, the longest first, those of more, and those of very many; kept with the order."""
    known = _buckets.setdefault(order, {})
    key = (pointer, most_narrow, most_wide)
    if key not in known:
        known[key] = _make_buckets(order, *key)
    return known[key]


def _make_buckets(order: RowOrder, pointer: str, most_narrow: int, most_wide: int) -> Buckets:
    """Made on the CPU; one copy to the device, none where no row has many edges."""
    if order.most(pointer) <= most_narrow:
        return Buckets((None, getattr(order, pointer).shape[0] - 1), (None, 0), None)
    ptr, device = order.pointer_on_host(pointer), order.in_ptr.device
    degrees, rows = torch.sort(ptr[1:] - ptr[:-1], descending=True, stable=True)
    num_hubs, num_longer = ((degrees > bound).sum().item() for bound in (most_wide, most_narrow))
    rows = rows.to(torch.int32)
    hubs = _chunks(ptr, rows[: int(num_hubs)])
    found = (rows[int(num_longer) :], rows[int(num_hubs) : int(num_longer)].sort().values, *hubs)
    narrow, wide, *chunks = found if device.type == "cpu" else upload(found, device)
    assert narrow is not None and wide is not None
    both = (narrow, narrow.shape[0]), (wide, wide.shape[0])
    return Buckets(*both, Chunks(*chunks) if num_hubs else None)  # pyright: ignore[reportArgumentType]


def _chunks(ptr: Tensor, rows: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Chunks of CHUNK edges, in order; the last one of a row is shorter."""
    long = rows.long()
    counts = (ptr[long + 1] - ptr[long] + CHUNK - 1) // CHUNK
    first = torch.zeros(rows.shape[0] + 1, dtype=torch.int64)
    torch.cumsum(counts, 0, out=first[1:])
    hubs = torch.repeat_interleave(torch.arange(rows.shape[0]), counts)
    within = torch.arange(hubs.shape[0]) - first[hubs]
    return rows, hubs.to(torch.int32), ptr[long[hubs]] + within * CHUNK, first.to(torch.int32)


@cache
def cache_bytes(device: torch.device) -> float:
    """Bytes of gathered rows that the GPU's last cache holds."""
    if device.type != "cuda":
        return math.inf
    return _CACHE_SHARE * torch.cuda.get_device_properties(device).L2_cache_size


class DeviceKernel:
    """A loop over rows [v0, v1) on a GPU: see ``fusion/emit_cuda.py`` for its arguments."""

    def __init__(self, spec: KernelSpec, loop: DeviceLoop, functions: Mapping[str, Launch]) -> None:
        self.spec, self.loop, self.functions = spec, loop, functions
        self.stores, self.is_source = spec.stores, spec.is_source
        drawn = [op.results[0].space.kind for op in spec.ops if isinstance(op.target, Random)]
        self.draws = tuple(kind in drawn for kind in ("vertex", "edge"))

    # ------------------------------------------------------------ in a loop over frontiers
    def bind(
        self, order: RowOrder, loads: Sequence[Tensor], stores: Sequence[Tensor], ids: Sequence[Tensor | None] = ()
    ) -> Callable[[int, int], None]:
        """A call ``(v0, v1)`` on tensors of all rows; it keeps them alive."""
        keep, words = self._words(order, loads, stores, ids)
        entry = self.loop.narrow
        if self.loop.wide is not None and self._mean_degree(order) > self.loop.most_narrow:
            entry = self.loop.wide

        def call(v0: int, v1: int, keep: Any = keep) -> None:
            self._launch(entry, None, v0, v1 - v0, words, order.src_rows.device)

        return call

    def _mean_degree(self, order: RowOrder) -> float:
        return order.src_rows.shape[0] / max(order.in_ptr.shape[0] - 1, 1)

    # ------------------------------------------------------------ once
    def run(self, extent: Any, *loads: Tensor) -> tuple[Tensor, ...]:
        """Once over all rows; allocates what it stores."""
        order: RowOrder = extent.order
        count = extent.count("source") if self.is_source else extent.v1 - extent.v0
        work, chunks = self._work(order, count, tiled=self._is_tiled(loads))
        num_teams = max((self._grid(entry, n) * _teams(entry) for entry, _, n in work), default=0)
        made = tuple(self._empty(extent, value, num_teams) for value in self.stores)
        ids = tuple(
            extent.user_ids(kind) if drawn else None for kind, drawn in zip(("vertex", "edge"), self.draws, strict=True)
        )
        keep, words = self._words(order, loads, made, ids)
        if chunks is not None:
            self._run_hubs(chunks, words)
        for entry, rows, number in work:
            self._launch(entry, rows, 0, number, words, order.src_rows.device)
        del keep
        return tuple(t.sum(0) if v.space == SHARED else t for t, v in zip(made, self.stores, strict=True))

    def _is_tiled(self, loads: Sequence[Tensor]) -> bool:
        """Whether rows are longer than the cache can hold of all that is gathered, and can be cut."""
        if not self.loop.tiles:
            return False
        most = max((t.nbytes for t in loads), default=0)
        return most > cache_bytes(loads[0].device)

    def _work(
        self, order: RowOrder, count: int, *, tiled: bool
    ) -> tuple[list[tuple[Entry, Tensor | None, int]], Chunks | None]:
        """What is launched: functions, their rows (None: all) and how many; and the rows in chunks."""
        loop = self.loop
        if tiled:
            loop = replace(loop, narrow=loop.tiles[0], wide=loop.tiles[1], most_narrow=_NARROW_TILES)
        if not loop.pointer or not count or (loop.wide is None and loop.hubs is None):
            return [(loop.narrow, None, count)] if count else [], None
        most_wide = MOST_EDGES if loop.hubs else order.src_rows.shape[0]
        found = buckets_of(order, loop.pointer, loop.most_narrow if loop.wide else most_wide, most_wide)
        if loop.wide is None and found.hubs is None:
            return [(loop.narrow, None, count)], None  # in order, as they lie
        both = [(loop.wide or loop.narrow, *found.wide), (loop.narrow, *found.narrow)]
        return [(entry, rows, number) for entry, rows, number in both if number], found.hubs

    def _run_hubs(self, chunks: Chunks, words: list[int]) -> None:
        """Stage by stage, all chunks of all hubs at once."""
        loop = self.loop.hubs
        assert loop is not None
        num_hubs, num_chunks, device = chunks.rows.shape[0], chunks.hubs.shape[0], chunks.rows.device
        scratch = torch.empty(max(num_hubs * loop.row_bytes, 1), dtype=torch.uint8, device=device)
        partials = torch.empty(max(num_chunks * loop.chunk_bytes, 1), dtype=torch.uint8, device=device)
        for entry, takes_chunks in loop.steps:
            count, hubs = (num_chunks, chunks.hubs) if takes_chunks else (num_hubs, chunks.first)
            head = [chunks.rows.data_ptr(), CHUNK, count, scratch.data_ptr()]
            head += [hubs.data_ptr(), chunks.starts.data_ptr(), partials.data_ptr()]
            blocks = min(-(-count // _teams(entry)), _MOST_BLOCKS)
            self.functions[entry.name]((blocks, 1, 1), (entry.threads, 1, 1), [*head, *words])

    def _empty(self, extent: Any, value: Value, num_teams: int) -> Tensor:
        device = extent.order.src_rows.device
        if value.space == SHARED:  # one sum for each team
            return torch.zeros((num_teams, *value.row_shape), dtype=value.dtype, device=device)
        return torch.empty((extent.count(value.space.kind), *value.row_shape), dtype=value.dtype, device=device)

    # ------------------------------------------------------------ launching
    def _words(
        self, order: RowOrder, loads: Sequence[Tensor], stores: Sequence[Tensor], ids: Sequence[Tensor | None]
    ) -> tuple[list[Any], list[int]]:
        """What must stay alive, and the arguments behind the first ones."""
        index = index_tensors(order)
        device = index[0].device
        loads = [t if t.dim() else send(t, device) for t in loads]  # single numbers may lie on the CPU
        assert all(t.device == device for t in (*loads, *stores)), "a kernel reads the memory of its own device"
        given = [aligned(t) for t in loads]
        assert all(t.data_ptr() % _ALIGNMENT == 0 for t in stores), "rows that kernels write are aligned"
        ids = [None if t is None else t.long() for t in ids or (None, None)]  # as kernels read them
        words = [t.data_ptr() for t in index] + [0 if t is None else t.data_ptr() for t in ids]
        words += [t.data_ptr() for t in (*given, *stores)]
        return [index, given, stores, ids], words

    def _grid(self, entry: Entry, count: int) -> int:
        teams = _teams(entry)
        most = _MOST_BLOCKS
        if self.loop.pieces:
            most = max(1, self.loop.pieces // teams)
        elif self.loop.team_bytes:
            most = _SCRATCH_BLOCKS
        return min(-(-count // teams), most)

    def _launch(
        self, entry: Entry, rows: Tensor | None, first: int, count: int, words: list[int], device: torch.device
    ) -> None:
        if not count:
            return
        blocks = self._grid(entry, count)
        scratch = None
        if self.loop.team_bytes:
            size = blocks * _teams(entry) * self.loop.team_bytes
            scratch = torch.empty(size, dtype=torch.uint8, device=device)
        head = [0 if rows is None else rows.data_ptr(), first, count, 0 if scratch is None else scratch.data_ptr()]
        head += [0, 0, 0]
        tiles = self.loop.num_tiles if entry in self.loop.tiles else 1
        self.functions[entry.name]((blocks, tiles, 1), (entry.threads, 1, 1), [*head, *words])


def _teams(entry: Entry) -> int:
    """Rows that a block has in hand at once."""
    return entry.threads // entry.team


def aligned(tensor: Tensor) -> Tensor:
    """Without gaps, and where wide loads may begin."""
    tensor = tensor.contiguous()
    return tensor if tensor.data_ptr() % _ALIGNMENT == 0 else tensor.clone()
