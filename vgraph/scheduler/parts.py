"""Parts: the vertices of each type within a schedule, so that every type has batches of its own.

Takes: a Schedule and the type of every vertex. Gives: a Part a type. Runs once per topology.
Source: Cavs section 3.2 (one batch holds vertices of one function).
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vgraph.ir.schedule import Frontier, Part, RowOrder, Schedule


def build_parts(schedule: Schedule, types: Tensor, wanted: tuple[int, ...]) -> dict[str, Part]:
    """A Part for each of ``wanted``; ``types``: (vertices,) in the user's order."""
    order = schedule.order
    by_row = types if order.vertex_ids is None else types.index_select(0, order.vertex_ids)
    by_edge = by_row.index_select(0, order.dst_rows)
    return {str(kind): _part(schedule, by_row == kind, by_edge == kind) for kind in wanted}


def kinds_of_frontiers(schedule: Schedule, types: Tensor) -> tuple[str, ...]:
    """The type of every frontier's vertices, of which none has two."""
    order = schedule.order
    by_row = types if order.vertex_ids is None else types.index_select(0, order.vertex_ids)
    firsts = torch.tensor([f.v0 for f in schedule.frontiers], dtype=torch.int64, device=by_row.device)
    return tuple(map(str, by_row.index_select(0, firsts).tolist()))


def _part(schedule: Schedule, is_mine: Tensor, is_my_edge: Tensor) -> Part:
    order = schedule.order
    rows, edges = is_mine.nonzero().squeeze(1), is_my_edge.nonzero().squeeze(1)
    degrees = (order.in_ptr[1:] - order.in_ptr[:-1]).index_select(0, rows)
    in_ptr = torch.cat([degrees.new_zeros(1), torch.cumsum(degrees, 0)])
    empty = rows.new_zeros(0)
    edge_ids = _picked(order.edge_ids, edges)
    src_rows = order.src_rows.index_select(0, edges)
    tensors = {"vertex_ids": _picked(order.vertex_ids, rows), "edge_ids": edge_ids}
    part = RowOrder((tensors | {"src_rows": src_rows, "in_ptr": in_ptr, "out_ptr": empty}).get)
    return Part(part, _frontiers(schedule, rows, in_ptr, degrees), rows, edges)


def _picked(ids: Tensor | None, rows: Tensor) -> Tensor:
    return rows if ids is None else ids.index_select(0, rows)


def _frontiers(schedule: Schedule, rows: Tensor, in_ptr: Tensor, degrees: Tensor) -> tuple[Frontier, ...]:
    bounds = torch.tensor([0, *(f.v1 for f in schedule.frontiers)], device=rows.device)
    v_ptr = torch.searchsorted(rows, bounds)
    v, e = v_ptr.tolist(), in_ptr.index_select(0, v_ptr).tolist()
    by_row = degrees.tolist()
    return tuple(
        Frontier(v0, v1, e0, e1, _common(by_row[v0:v1]))
        for v0, v1, e0, e1 in zip(v[:-1], v[1:], e[:-1], e[1:], strict=True)
    )


def _common(degrees: list[int]) -> int | None:
    return degrees[0] if degrees and all(d == degrees[0] for d in degrees) else None


def type_numbers(types: tuple[Tensor, tuple[int, ...]]) -> NDArray[np.int64]:
    """The type of every vertex, counted from 0."""
    known = torch.tensor(sorted(types[1]), device="cpu")
    return torch.searchsorted(known, types[0].cpu().long()).numpy()
