"""Row order: vertices renumbered so that every frontier is one contiguous slice.

Takes: a Topology and keys to sort by. Gives: a RowOrder. Runs once per topology.
Source: Cavs section 3.3 (what is evaluated together lies together).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Protocol, TypeAlias
from weakref import ref

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vgraph.ir.schedule import MANY, MOST_SHORT, RowOrder, with_room
from vgraph.ir.topology import Topology, short_order, stable_argsort

_MANY = 1 << 14  # edges from which on memory traffic counts more than calls
Keys: TypeAlias = NDArray[np.integer]
Ids: TypeAlias = NDArray[np.integer]
SortRows: TypeAlias = Callable[[NDArray[np.int32], Tensor, Tensor], RowOrder]


class Group(Protocol):
    """Numbers of many elements, int32, by key; see ``Native.group``."""

    def __call__(
        self, keys: Tensor, starts: Tensor, numbers: Tensor | None = None, runs: Tensor | None = None
    ) -> Tensor: ...


def build_row_order(
    topology: Topology, vertex_keys: Keys | None, second_keys: Keys | None = None, sort: SortRows | None = None
) -> RowOrder:
    """Vertices by key, then by id; edges by destination row, then by id.

    Keys are not negative, (vertices,); ``second_keys`` order vertices of equal first key. Without
    keys vertices keep the user's order, and sources may be other vertices than destinations. ``sort``: does
    the same in native code, of one kind of keys. All on the CPU.
    """
    topology = topology.on_host
    keys = _joined(vertex_keys, second_keys)
    if sort is not None and keys is not None and _is_plain(topology, keys):
        return sort(keys.astype(np.int32, copy=False), topology.src.long(), topology.dst.long())
    vertex_ids = _sorted_vertices(topology, keys)
    src, dst = _on_cpu(topology.src), _on_cpu(topology.dst)
    rows = None
    if vertex_ids is not None:
        rows = _inverse(vertex_ids)
        src, dst = _taken(rows, src), _taken(rows, dst)
    in_ptr = _pointer(torch.from_numpy(dst), topology.num_dst)
    edge_ids = _order(dst, topology.num_dst)
    if edge_ids is not None:
        src = _taken(src, edge_ids)
    out_ptr = _pointer(torch.from_numpy(src), topology.num_src)
    tensors = {"src_rows": with_room(src), "in_ptr": in_ptr, "out_ptr": out_ptr}
    if vertex_ids is not None and rows is not None:
        tensors |= {"vertex_ids": torch.from_numpy(vertex_ids), "vertex_rows": torch.from_numpy(rows)}
    if edge_ids is not None and len(src) >= MANY:  # few readers ask for them: they are found once more
        again = partial(_edge_ids, topology.dst, topology.num_dst, rows)
        return _known_order(lambda name: again() if name == "edge_ids" else tensors.get(name), is_grouped=False)
    if edge_ids is not None:
        tensors["edge_ids"] = with_room(edge_ids)
    return RowOrder(tensors.get)


def group_edges(topology: Topology, group: Group) -> RowOrder:
    """The order of many edges, on the CPU, where vertices keep theirs: a tensor is made when it is asked for.

    Beside what is made there is no room of its size, for a large graph has little left. It holds no ids of the
    topology, which holds it and may give them back.
    """
    src, dst = topology.src.int(), topology.dst.int()
    in_ptr, out_ptr = _pointer(dst, topology.num_dst), _pointer(src, topology.num_src)
    is_grouped, of = bool((dst[1:] >= dst[:-1]).all()), ref(topology)
    src_rows = with_room(src.numpy()) if is_grouped else group(dst, in_ptr, src)
    makers: dict[str, Callable[[], Tensor]] = {
        "out_edges": lambda: group(src_rows, out_ptr),
        "out_dst": lambda: group(src_rows, out_ptr, runs=in_ptr),
    }
    if not is_grouped:
        makers["edge_ids"] = lambda: group(_found(of).ends_for_now()[1].int(), in_ptr)
    tensors = {"src_rows": src_rows, "in_ptr": in_ptr, "out_ptr": out_ptr}
    return _known_order(lambda name: makers[name]() if name in makers else tensors.get(name), is_grouped=is_grouped)


def _found(of: ref[Topology]) -> Topology:
    topology = of()
    assert topology is not None, "a topology lives as long as its order is used"
    return topology


def _known_order(find: Callable[[str], Tensor | None], *, is_grouped: bool) -> RowOrder:
    """A row order of which nobody need make the ids of edges to learn whether there are any."""
    order = RowOrder(find)
    order.is_grouped = is_grouped
    return order


def _edge_ids(ends: Tensor, num_dst: int, rows: Ids | None) -> Tensor:
    """The order of edges, found once more."""
    dst = _on_cpu(ends)
    return with_room(short_order(dst if rows is None else _taken(rows, dst), num_dst))


def _is_plain(topology: Topology, keys: Keys) -> bool:
    """Whether keys are of vertices and hardly more than there are of those."""
    is_short = topology.num_edges < MOST_SHORT
    return (
        is_short and topology.num_src == topology.num_dst == len(keys) and keys.max(initial=0) <= 2 * len(keys) + _MANY
    )


def _joined(first: Keys | None, second: Keys | None) -> Keys | None:
    """One key in the place of two."""
    if first is None or second is None:
        return first
    return first * (second.max(initial=0).astype(np.int64) + 1) + second


def _sorted_vertices(topology: Topology, keys: Keys | None) -> Ids | None:
    """The vertex of every row, or None if they are in order already."""
    if keys is None:
        return None
    assert topology.num_src == topology.num_dst, "rows of sources and destinations are the same"
    if (keys[1:] >= keys[:-1]).all():
        return None
    return stable_argsort(torch.from_numpy(keys), int(keys.max()) + 1).numpy()


def _pointer(group: Tensor, num_groups: int) -> Tensor:
    """Where every group begins, (groups + 1,). NumPy would count a copy of 64 bits."""
    ptr = torch.zeros(num_groups + 1, dtype=torch.int64, device="cpu")
    torch.cumsum(torch.bincount(group, minlength=num_groups), 0, out=ptr[1:])
    return ptr


def _order(group: Ids, num_groups: int) -> Ids | None:
    """The elements by group; None: they are in order."""
    return None if (group[1:] >= group[:-1]).all() else short_order(group, num_groups)


def _inverse(permutation: Ids) -> Ids:
    places = np.empty_like(permutation)
    places[permutation] = np.arange(len(permutation), dtype=permutation.dtype)
    return places


def _taken(values: Ids, ids: Ids) -> Ids:
    """``values[ids]``; many of them on all cores."""
    if len(ids) < _MANY:
        return values[ids]
    return torch.from_numpy(values).index_select(0, torch.from_numpy(ids)).numpy()


def _on_cpu(ids: Tensor) -> Ids:
    """The ids in memory, many of them in as few bits as they need."""
    is_short = _MANY <= ids.shape[0] < MOST_SHORT
    return ids.numpy().astype(np.int32 if is_short else np.int64, copy=False)
