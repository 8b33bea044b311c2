"""DeviceKernel: a compiled loop on a GPU: its grid, its degree buckets, its arguments.

Takes: tensors of all rows, of one device. Gives: rows written in place; tempo: every step.
It launches through a function that it is given, so that the same code runs where a test stands in for the GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from vgraph.ir.kernel import DeviceLoop, Entry, KernelSpec
from vgraph.ir.moves import Random
from vgraph.ir.program import SHARED, Value
from vgraph.ir.schedule import RowOrder
from vgraph.runtime.cpu import index_tensors

Launch = Callable[[tuple[int, int, int], tuple[int, int, int], Sequence[int]], None]  # grid, block, arguments
_ALIGNMENT = 16  # bytes of the widest access
_MOST_BLOCKS = 1 << 30
_SCRATCH_BLOCKS = 1024  # where teams need memory of their own


@dataclass(frozen=True, eq=False)
class Buckets:
    """Rows by degree, int32: (rows, their number); None: all rows, in order."""

    narrow: tuple[Tensor | None, int]
    wide: tuple[Tensor | None, int]


_buckets: WeakKeyDictionary[RowOrder, dict[tuple[str, int], Buckets]] = WeakKeyDictionary()


def buckets_of(order: RowOrder, pointer: str, most_narrow: int) -> Buckets:
    """Rows of few edges, the longest first, and those of many; kept with the order."""
    known = _buckets.setdefault(order, {})
    key = (pointer, most_narrow)
    if key not in known:
        ptr = order.out_ptr if pointer == "out_ptr" else order.in_ptr
        degrees = ptr[1:] - ptr[:-1]
        sorted_degrees, rows = torch.sort(degrees, descending=True, stable=True)
        num_wide = int((sorted_degrees > most_narrow).sum())
        rows = rows.to(torch.int32)
        wide, narrow = rows[:num_wide].sort().values, rows[num_wide:]
        known[key] = Buckets((narrow, narrow.shape[0]), (wide, num_wide))
    return known[key]


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
        work = self._work(order, extent.v0 if not self.is_source else 0, count)
        num_teams = max((self._grid(entry, n) * _teams(entry) for entry, _, _, n in work), default=0)
        made = tuple(self._empty(extent, value, num_teams) for value in self.stores)
        ids = tuple(
            extent.user_ids(kind) if drawn else None for kind, drawn in zip(("vertex", "edge"), self.draws, strict=True)
        )
        keep, words = self._words(order, loads, made, ids)
        for entry, rows, first, number in work:
            self._launch(entry, rows, first, number, words, order.src_rows.device)
        del keep
        return tuple(t.sum(0) if v.space == SHARED else t for t, v in zip(made, self.stores, strict=True))

    def _work(self, order: RowOrder, first: int, count: int) -> list[tuple[Entry, Tensor | None, int, int]]:
        """What is launched: a function, its rows, or the first of them, and how many."""
        loop = self.loop
        if loop.wide is None or not loop.pointer:
            return [(loop.narrow, None, first, count)] if count else []
        found = buckets_of(order, loop.pointer, loop.most_narrow)
        both = [(loop.wide, *found.wide), (loop.narrow, *found.narrow)]
        return [(entry, rows, 0, number) for entry, rows, number in both if number]

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
        assert all(t.device == device for t in (*loads, *stores)), "a kernel reads the memory of its own device"
        given = [_aligned(t) for t in loads]
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
        self.functions[entry.name]((blocks, 1, 1), (entry.threads, 1, 1), [*head, *words])


def _teams(entry: Entry) -> int:
    """Rows that a block has in hand at once."""
    return entry.threads // entry.team


def _aligned(tensor: Tensor) -> Tensor:
    """Without gaps, and where wide loads may begin."""
    tensor = tensor.contiguous()
    return tensor if tensor.data_ptr() % _ALIGNMENT == 0 else tensor.clone()
