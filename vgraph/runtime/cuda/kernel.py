"""DeviceKernel: a compiled loop on a GPU: its grid, its degree buckets, its arguments.

Takes: tensors of all rows, of one device. Gives: rows written in place. Runs at every step.
It launches through a function that it is given, so that the same code runs where a test stands in for the GPU.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from vgraph.ir import hubs as hub_rows
from vgraph.ir.hubs import Hubs, cut_hubs
from vgraph.ir.kernel import DeviceLoop, Entry, HubLoop, HubStep, KernelSpec
from vgraph.ir.moves import Random
from vgraph.ir.program import Value
from vgraph.ir.reduction import ACCUMULATED
from vgraph.ir.schedule import RowOrder
from vgraph.ir.space import SHARED
from vgraph.ir.upload import send, upload
from vgraph.runtime.cpu.kernels import Covered, index_tensors
from vgraph.runtime.cuda.driver import Launch

_ALIGNMENT = 16  # bytes of the widest access
_MOST_BLOCKS = 1 << 30
_NARROW_TILES = 16  # edges up to which a row gets a narrow team, where features are cut into tiles
_CACHE_SHARE = 0.75  # of the last cache, for what is gathered
_SCRATCH_BLOCKS = 1024  # where teams need memory of their own


@dataclass(frozen=True, eq=False)
class Buckets:
    """Rows by degree, int32 (None: all, as they lie), and their number; ``hubs`` None: no row has so many edges."""

    narrow: tuple[Tensor | None, int]
    wide: tuple[Tensor | None, int]
    hubs: Hubs | None


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
    hubs = cut_hubs(rows[: int(num_hubs)], {pointer: ptr}) if num_hubs else None
    found = (rows[int(num_longer) :], rows[int(num_hubs) : int(num_longer)].sort().values)
    found = [*(t.to(torch.int32) for t in found), *(hubs.tensors if hubs else ())]
    narrow, wide, *cut = found if device.type == "cpu" else upload(found, device)
    both = (narrow, narrow.shape[0]), (wide, wide.shape[0])
    return Buckets(*both, hubs and hubs.at(cut))


@cache
def cache_bytes(device: torch.device) -> float:
    """Bytes of gathered rows that the GPU's last cache holds."""
    if device.type != "cuda":
        return math.inf
    return _CACHE_SHARE * torch.cuda.get_device_properties(device).L2_cache_size


class DeviceKernel:
    """A loop over rows [v0, v1) on a GPU: see ``fusion/cuda/emit.py`` for its arguments."""

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
        entry, device = self.loop.narrow, order.src_rows.device
        hubs = None if self.loop.hubs is None else order.read_hubs()
        if self.loop.wide is not None and self._mean_degree(order) > self.loop.most_narrow:
            entry = self.loop.wide

        def call(v0: int, v1: int, keep: object = keep) -> None:
            found = range(0) if hubs is None else self._hubs_between(hubs, v0, v1)
            if hubs is not None and found:
                self._run_hubs(hubs, found, words)
            if v1 - v0 > len(found):
                self._launch(entry, None, v0, v1 - v0, words, device, most=hub_rows.MOST_EDGES if found else 0)

        return call

    def _hubs_between(self, hubs: Hubs, v0: int, v1: int) -> range:
        assert self.loop.hubs is not None
        return hubs.between(v0, v1, self.loop.hubs.pointers)

    def _mean_degree(self, order: RowOrder) -> float:
        return order.src_rows.shape[0] / max(order.in_ptr.shape[0] - 1, 1)

    # ------------------------------------------------------------ once
    def run(self, extent: Covered, *loads: Tensor) -> tuple[Tensor, ...]:
        """Once over all rows; allocates what it stores."""
        order = extent.order
        count = extent.count("source") if self.is_source else extent.v1 - extent.v0
        work, chunks = self._work(order, count, tiled=self._is_tiled(loads))
        num_teams = max((self._grid(entry, n) * _teams(entry) for entry, _, n in work), default=0)
        made = tuple(self._empty(extent, value, num_teams) for value in self.stores)
        ids = tuple(
            extent.user_ids(kind) if drawn else None for kind, drawn in zip(("vertex", "edge"), self.draws, strict=True)
        )
        keep, words = self._words(order, loads, made, ids)
        if chunks is not None:
            self._run_hubs(chunks, range(chunks.rows.shape[0]), words)
        for entry, rows, number in work:
            self._launch(entry, rows, 0, number, words, order.src_rows.device)
        del keep
        return tuple(t.sum(0).to(v.dtype) if v.space == SHARED else t for t, v in zip(made, self.stores, strict=True))

    def _is_tiled(self, loads: Sequence[Tensor]) -> bool:
        """Whether rows are longer than the cache can hold of all that is gathered, and can be cut."""
        if not self.loop.tiles:
            return False
        most = max((t.nbytes for t in loads), default=0)
        return most > cache_bytes(loads[0].device)

    def _work(
        self, order: RowOrder, count: int, *, tiled: bool
    ) -> tuple[list[tuple[Entry, Tensor | None, int]], Hubs | None]:
        """What is launched: functions, their rows (None: all) and how many; and the rows in chunks."""
        loop = self.loop
        if tiled:
            loop = replace(loop, narrow=loop.tiles[0], wide=loop.tiles[1], most_narrow=_NARROW_TILES)
        if not loop.pointer or not count or (loop.wide is None and loop.hubs is None):
            return [(loop.narrow, None, count)] if count else [], None
        most_wide = hub_rows.MOST_EDGES if loop.hubs else order.src_rows.shape[0]
        found = buckets_of(order, loop.pointer, loop.most_narrow if loop.wide else most_wide, most_wide)
        if loop.wide is None and found.hubs is None:
            return [(loop.narrow, None, count)], None  # in order, as they lie
        both = [(loop.wide or loop.narrow, *found.wide), (loop.narrow, *found.narrow)]
        return [(entry, rows, number) for entry, rows, number in both if number], found.hubs

    def _run_hubs(self, hubs: Hubs, found: range, words: list[int]) -> None:
        assert self.loop.hubs is not None
        run_hubs(self.loop.hubs, self.functions, hubs, found, words)

    def _empty(self, extent: Covered, value: Value, num_teams: int) -> Tensor:
        device = extent.order.src_rows.device
        if value.space == SHARED:  # one sum for each team
            dtype = ACCUMULATED.get(value.dtype, value.dtype)
            return torch.zeros((num_teams, *value.row_shape), dtype=dtype, device=device)
        return torch.empty((extent.count(value.space.kind), *value.row_shape), dtype=value.dtype, device=device)

    # ------------------------------------------------------------ launching
    def _words(
        self, order: RowOrder, loads: Sequence[Tensor], stores: Sequence[Tensor], ids: Sequence[Tensor | None]
    ) -> tuple[list[object], list[int]]:
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
        self,
        entry: Entry,
        rows: Tensor | None,
        first: int,
        count: int,
        words: list[int],
        device: torch.device,
        most: int = 0,
    ) -> None:
        if not count:
            return
        blocks = self._grid(entry, count)
        scratch = None
        if self.loop.team_bytes:
            size = blocks * _teams(entry) * self.loop.team_bytes
            scratch = torch.empty(size, dtype=torch.uint8, device=device)
        head = [0 if rows is None else rows.data_ptr(), first, count, 0 if scratch is None else scratch.data_ptr()]
        head += [0, 0, 0, most]
        tiles = self.loop.num_tiles if entry in self.loop.tiles else 1
        self.functions[entry.name]((blocks, tiles, 1), (entry.threads, 1, 1), [*head, *words])


def run_hubs(loop: HubLoop, functions: Mapping[str, Launch], hubs: Hubs, found: range, words: Sequence[int]) -> None:
    """Stage by stage, all chunks of these hubs at once; ``words``: arguments behind the first ones."""
    device, first = hubs.rows.device, found.start
    spans = {name: range(c.ends[first], c.ends[found.stop]) for name, c in hubs.chunks.items()}
    most = max(map(len, spans.values()))
    scratch = torch.empty(max(len(found) * loop.row_bytes, 1), dtype=torch.uint8, device=device)
    partials = torch.empty(max(most * loop.chunk_bytes, 1), dtype=torch.uint8, device=device)
    for step in loop.steps:
        chunks, span = hubs.chunks.get(step.pointer), spans.get(step.pointer, range(0))
        if step.takes_chunks:  # they know their hubs by number among all
            assert chunks is not None
            head = [hubs.rows.data_ptr(), hub_rows.CHUNK, len(span), scratch.data_ptr() - first * loop.row_bytes]
            head += [place_of(chunks.hubs, span.start), place_of(chunks.starts, span.start), partials.data_ptr()]
        else:  # and hubs their chunks
            head = [place_of(hubs.rows, first), 0, len(found), scratch.data_ptr()]
            head += [0 if chunks is None else place_of(chunks.first, first), 0]
            head.append(partials.data_ptr() - span.start * loop.chunk_bytes)
        launch_hubs(step, functions, len(span) if step.takes_chunks else len(found), [*head, 0, *words])


def launch_hubs(step: HubStep, functions: Mapping[str, Launch], count: int, words: Sequence[int]) -> None:
    blocks = min(-(-count // _teams(step.entry)), _MOST_BLOCKS)
    functions[step.entry.name]((blocks, 1, 1), (step.entry.threads, 1, 1), words)


def place_of(tensor: Tensor, number: int) -> int:
    """Where an element of an index tensor lies."""
    return tensor.data_ptr() + number * tensor.element_size()


def _teams(entry: Entry) -> int:
    """Rows that a block has in hand at once."""
    return entry.threads // entry.team


def aligned(tensor: Tensor) -> Tensor:
    """Without gaps, and where wide loads may begin."""
    tensor = tensor.contiguous()
    return tensor if tensor.data_ptr() % _ALIGNMENT == 0 else tensor.clone()
