"""Plan: a place in the arena for every stored value.

Takes: values, their lifetimes, a Schedule. Gives: a MemoryPlan; tempo: once a topology.
Source: Cavs section 3.3 (dynamic tensors: shape, batch size, offset).
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from vgraph.ir.memory import DynamicTensor, Lifetime, MemoryPlan
from vgraph.ir.program import EDGE, GRAPH, SOURCE, VERTEX, Space, Value, part_of
from vgraph.ir.schedule import Schedule

ALIGNMENT = 64  # bytes of a cache line, and of the widest vector register


class _Place(NamedTuple):
    start: int
    stop: int
    first: int
    last: int


def plan_memory(values: Sequence[Value], lifetimes: Mapping[int, Lifetime], schedule: Schedule) -> MemoryPlan:
    """Largest first, each into the smallest gap that fits among what lives at the same time.

    A value has one row for each row of its space, over the whole batch of graphs.
    """
    counts = _row_counts(schedule)
    sizes = {v.id: _aligned(counts[v.space] * v.row_bytes) for v in values}
    offsets = _offsets(sizes, lifetimes)
    tensors = {v.id: DynamicTensor(offsets[v.id], counts[v.space], v.row_shape, v.dtype) for v in values}
    num_bytes = max((offsets[i] + size for i, size in sizes.items()), default=0)
    return MemoryPlan(tensors, {v.id: lifetimes[v.id] for v in values}, num_bytes)


def _row_counts(schedule: Schedule) -> dict[Space, int]:
    topology, counts = schedule.topology, dict[Space, int]()
    for key, part in schedule.parts.items():
        counts[part_of(VERTEX, key)] = part.vertex_rows.shape[0]
        counts[part_of(EDGE, key)] = part.edge_rows.shape[0]
    return counts | {
        VERTEX: topology.num_dst,
        EDGE: topology.num_edges,
        SOURCE: topology.num_src,
        GRAPH: len(topology.graph_sizes or (1,)),
    }


def _aligned(num_bytes: int) -> int:
    return -(-num_bytes // ALIGNMENT) * ALIGNMENT


def _offsets(sizes: Mapping[int, int], lifetimes: Mapping[int, Lifetime]) -> dict[int, int]:
    placed: list[_Place] = []  # by start
    offsets: dict[int, int] = {}
    for value_id in sorted(sizes, key=lambda i: (-sizes[i], i)):
        life, size = lifetimes[value_id], sizes[value_id]
        start = _best_gap(placed, life, size)
        offsets[value_id] = start
        insort(placed, _Place(start, start + size, life.first, life.last))
    return offsets


def _best_gap(placed: Sequence[_Place], life: Lifetime, size: int) -> int:
    """The start of the smallest gap that holds ``size`` bytes, else the end of all that lives."""
    best, least_room, end = -1, 0, 0
    for start, stop, first, last in placed:
        if first > life.last or last < life.first:
            continue
        room = start - end
        if room >= size and (best < 0 or room < least_room):
            best, least_room = end, room
        end = max(end, stop)
    return end if best < 0 else best
