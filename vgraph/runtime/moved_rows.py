"""Moved rows: rows of vertices and edges in the order in which loops read them.

Takes: tensors, ids of their rows. Gives: the rows with these ids. Runs at every step.
Weights and features of edges mostly are what they were a step before, and rows of a few numbers cost as much time to
move as to be read from anywhere. Those of the calls before are therefore kept with the order of the rows, and used
where a checksum of all numbers says that they are the same: nobody has to tell that they changed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef

from vgraph.ir.schedule import RowOrder
from vgraph.runtime.cpu.kernels import Empty
from vgraph.runtime.cpu.native import Native

_MANY_ROWS = 1 << 15  # from which on asking for rows ahead pays for the call
_LEAST = 1 << 20  # bytes of what is kept: caches hold less
_MOST_ROW = 64  # bytes of a row of it, a cache line: longer rows take little more time where they lie
_MOST = 4  # tensors of which an order keeps rows


@dataclass(eq=False)
class _Kept:
    """Rows of one tensor that a caller gave, with the numbers it had then: other numbers are another ``_Kept``.

    ``checksum``: of the tensor; None: nothing is kept of it. ``is_used``: it was given again with the same numbers;
    ``changes``: it had others before that ever happened, so that it is not asked again.
    """

    source: StorageWeakRef
    checksum: int | None = None
    changes: bool = False
    is_used: bool = False
    rows: Tensor | None = None  # in order; None: they were not moved, or lie in order
    version: int = 0  # of the rows: whoever has a result that views them may have written to it
    by_source: Tensor | None = None

    def holds(self, checksum: int) -> bool:
        """Whether rows are those of a tensor with this checksum, or may be made of it."""
        return self.checksum == checksum and (self.rows is None or self.rows._version == self.version)


@dataclass(eq=False)
class MovedRows:
    """How rows are moved: ``empty`` gives room, ``find_native`` the compiled part that all functions share, or None."""

    empty: Empty
    find_native: Callable[[], Native | None]

    def taken(self, tensor: Tensor, ids: Tensor) -> Tensor:
        """Rows ``ids``."""
        if tensor.device.type != "cpu" or tensor.requires_grad:
            return tensor.index_select(0, ids)
        native = self.find_native() if ids.shape[0] >= _MANY_ROWS else None
        out = self.empty((ids.shape[0], *tensor.shape[1:]), tensor.dtype)
        return torch.index_select(tensor, 0, ids, out=out) if native is None else native.take_rows(tensor, ids, out)

    def in_order(self, edges: Tensor, order: RowOrder) -> Tensor:
        """Rows of edges that a caller gave, as those of ``order`` lie. Nobody writes to them."""
        ids = order.edge_ids
        is_worth_it = are_many(edges.shape[0]) and _is_worth_it(edges)
        if ids is None:
            if is_worth_it and (key := _key_of(edges)) not in order.moved:  # a loop over sources may ask for it
                _put(order.moved, key, _Kept(StorageWeakRef(edges.untyped_storage())))
            return edges
        kept = self._current(edges, order) if is_worth_it else None
        if kept is None:
            return self.taken(edges, ids)
        rows = kept.rows
        if rows is None:
            rows = self._made(edges, ids)
            kept.version, kept.rows = rows._version, rows
        return rows

    def by_source(self, edges: Tensor, order: RowOrder) -> Tensor | None:
        """Rows of edges as they lie, sorted by the edges' sources; None where they are not what a caller gave."""
        if not are_many(edges.shape[0]):
            return None
        kept = next((kept for kept in list(order.moved.values()) if _is_same(kept.rows, edges)), None)
        if kept is None and order.edge_ids is None and _key_of(edges) in order.moved:
            kept = self._current(edges, order)
        if kept is None:
            return None
        rows = kept.by_source
        if rows is None:
            rows = kept.by_source = self._made(edges, order.out_edges)
        return rows

    def _made(self, edges: Tensor, ids: Tensor) -> Tensor:
        with torch.inference_mode(False):  # it outlives the mode of this call
            return self.taken(edges.detach(), ids)

    def _current(self, edges: Tensor, order: RowOrder) -> _Kept | None:
        """What is kept of a tensor as it is now, or will be; None: nothing is."""
        key = _key_of(edges)
        kept = order.moved.get(key)
        native = None if kept is not None and kept.changes else self.find_native()
        if native is None:
            return None
        checksum = native.checksum(edges)
        if kept is not None and kept.holds(checksum):
            kept.is_used = True
            return kept
        changes = kept is not None and kept.checksum is not None and not kept.is_used
        made = _Kept(StorageWeakRef(edges.untyped_storage()), None if changes else checksum, changes)
        _put(order.moved, key, made)
        return None if changes else made


def are_many(num_edges: int) -> bool:
    """Whether rows of so many edges may be worth keeping."""
    return num_edges * _MOST_ROW >= _LEAST


def _is_worth_it(edges: Tensor) -> bool:
    if edges.device.type != "cpu" or edges.requires_grad or not edges.is_contiguous():
        return False
    return _LEAST <= edges.numel() * edges.element_size() <= _MOST_ROW * edges.shape[0]


def _key_of(edges: Tensor) -> tuple[object, ...]:
    return StorageWeakRef(edges.untyped_storage()).cdata, edges.storage_offset(), edges.shape, edges.dtype


def _is_same(kept: Tensor | None, given: Tensor) -> bool:
    return kept is not None and (kept is given or (kept.data_ptr(), kept.shape) == (given.data_ptr(), given.shape))


def _put(moved: dict[tuple[object, ...], _Kept], key: tuple[object, ...], kept: _Kept) -> None:
    """Lets go of what was kept of tensors that are gone, and of the tensor that has been known longest."""
    if key not in moved:
        for gone in [other for other, one in list(moved.items()) if one.source.expired()]:
            moved.pop(gone, None)
        for other in list(moved)[: max(0, len(moved) - _MOST + 1)]:
            moved.pop(other, None)
    moved[key] = kept
