"""Plan: a place in the arena for every stored value.

Takes: values, their lifetimes, a Schedule. Gives: a MemoryPlan. Runs once per topology.
Source: Cavs section 3.3 (dynamic tensors: shape, batch size, offset).
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from vgraph.ir.memory import Lifetime, MemoryPlan, Stack, Stacks
from vgraph.ir.program import Value
from vgraph.ir.schedule import Schedule
from vgraph.ir.space import EDGE, GRAPH, SOURCE, VERTEX, Space, part_of

ALIGNMENT = 64  # bytes of a cache line, and of the widest vector register


class _Place(NamedTuple):
    start: int
    stop: int
    first: int
    last: int
    value_id: int


_MOST_STACKS = 16


def plan_memory(
    values: Sequence[Value],
    lifetimes: Mapping[int, Lifetime],
    schedule: Schedule,
    stacks: Stacks | None = None,
) -> MemoryPlan:
    """Largest first, each into the smallest gap that fits among what lives at the same time.

    A value has one row for each row of its space, over the whole batch of graphs. ``stacks``: what lay on what on
    other topologies, by the order of sizes, which most batches have in common; that is not searched for again.
    """
    counts = _row_counts(schedule)
    rows = {v.id: counts[v.space] for v in values}
    sizes = {v.id: -(-rows[v.id] * v.row_bytes // ALIGNMENT) * ALIGNMENT for v in values}
    order = tuple([i for _, i in sorted([(-size, i) for i, size in sizes.items()])])
    stack = None if stacks is None else stacks.get(order)
    if stack is None:
        stack = _stack(order, sizes, lifetimes)
        if stacks is not None and len(stacks) < _MOST_STACKS:
            stacks[order] = stack
    offsets = _offsets(stack, sizes)
    num_bytes = max((offsets[i] + size for i, size in sizes.items()), default=0)
    return MemoryPlan(values, offsets, rows, lifetimes, num_bytes)


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


def _stack(order: Sequence[int], sizes: Mapping[int, int], lifetimes: Mapping[int, Lifetime]) -> Stack:
    placed: list[_Place] = []  # by start
    for value_id in order:
        life, size = lifetimes[value_id], sizes[value_id]
        start = _best_gap(placed, life, size)
        insort(placed, _Place(start, start + size, life.first, life.last, value_id))
    found: Stack = []
    for number, place in enumerate(placed):
        life = lifetimes[place.value_id]
        found.append((place.value_id, [p.value_id for p in placed[:number] if life.overlaps(lifetimes[p.value_id])]))
    return found


def _offsets(stack: Stack, sizes: Mapping[int, int]) -> dict[int, int]:
    """Every value on top of what it lies on, however large that is now."""
    offsets, stops = dict[int, int](), dict[int, int]()
    for value_id, below in stack:
        offsets[value_id] = start = max([stops[i] for i in below], default=0)
        stops[value_id] = start + sizes[value_id]
    return offsets


def _best_gap(placed: Sequence[_Place], life: Lifetime, size: int) -> int:
    """The start of the smallest gap that holds ``size`` bytes, else the end of all that lives."""
    best, least_room, end = -1, 0, 0
    for start, stop, first, last, _ in placed:
        if first > life.last or last < life.first:
            continue
        room = start - end
        if room >= size and (best < 0 or room < least_room):
            best, least_room = end, room
        end = max(end, stop)
    return end if best < 0 else best
