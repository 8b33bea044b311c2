"""Row order: vertices renumbered so that every frontier is one contiguous slice.

Takes: a Topology and keys to sort by. Gives: a RowOrder; tempo: once a topology.
Source: Cavs section 3.3 (what is evaluated together lies together).
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vgraph.ir.schedule import RowOrder
from vgraph.ir.topology import Compressed, Topology, compress, stable_argsort

Keys: TypeAlias = NDArray[np.integer[Any]]


def build_row_order(topology: Topology, vertex_keys: Keys | None, second_keys: Keys | None = None) -> RowOrder:
    """Vertices by key, then by id; edges by destination row, then by id.

    Keys are not negative, (vertices,); ``second_keys`` order vertices of equal first key. Without
    keys vertices keep the user's order, and sources may be other vertices than destinations.
    """
    vertex_ids = _sorted_vertices(topology, vertex_keys, second_keys)
    if vertex_ids is None:
        return _order(topology, None, None, topology.dst, topology.csc)
    rows = _inverse(vertex_ids)
    src, dst = rows.index_select(0, topology.src), rows.index_select(0, topology.dst)
    return _order(topology, vertex_ids, rows, dst, compress(dst, src, topology.num_dst))


def _sorted_vertices(topology: Topology, first: Keys | None, second: Keys | None) -> Tensor | None:
    """The vertex of every row, or None if they are in order already."""
    if first is None:
        return None
    assert topology.num_src == topology.num_dst, "rows of sources and destinations are the same"
    keys = first if second is None else first * (second.max(initial=0).astype(np.int64) + 1) + second
    if (keys[1:] >= keys[:-1]).all():
        return None
    return stable_argsort(torch.from_numpy(keys), int(keys.max()) + 1).to(topology.src.device)


def _order(
    topology: Topology,
    vertex_ids: Tensor | None,
    vertex_rows: Tensor | None,
    dst: Tensor,
    in_edges: Compressed,
) -> RowOrder:
    """``dst``: the destination row of every edge by id; ``in_edges``: edges grouped by it."""
    edge_ids, src_rows = in_edges.edge_ids, in_edges.other
    dst_rows = dst if edge_ids is None else dst.index_select(0, edge_ids)
    edge_rows = None if edge_ids is None else _inverse(edge_ids)
    out = compress(src_rows, dst_rows, topology.num_src)
    out_edges = _arange(topology.num_edges, dst) if out.edge_ids is None else out.edge_ids
    return RowOrder(
        vertex_ids, vertex_rows, edge_ids, edge_rows,
        src_rows.long(), dst_rows.long(), in_edges.ptr, out.ptr, out_edges,
    )  # fmt: skip


def _arange(count: int, like: Tensor) -> Tensor:
    return torch.arange(count, device=like.device)


def _inverse(permutation: Tensor) -> Tensor:
    places = _arange(permutation.shape[0], permutation)
    return torch.empty_like(permutation).scatter_(0, permutation, places)
