"""Frontiers: the level of every vertex, which is when it can be evaluated.

Takes: a Topology without cycles. Gives: levels, one number a vertex. Runs once per topology.
Source: Cavs section 3.2 (a frontier holds all vertices whose predecessors were evaluated).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from vgraph.errors import CycleError
from vgraph.ir.schedule import MOST_SHORT, Leveled
from vgraph.ir.topology import Topology

Levels: TypeAlias = NDArray[np.int32]
Walk: TypeAlias = Callable[[Tensor, Tensor, int], Leveled | None]

# A round over arrays costs about what Python needs for this many vertices and edges.
ROUND_COST = 128
SMALL = 16 * ROUND_COST
MOST_ROUNDS = 256  # over the graphs of a batch at once; deeper ones are looked at one by one
MOST_SHOWN = 8


def levels(topology: Topology, walk: Walk | None = None) -> Levels:
    """The longest path to every vertex from one without in-edges, (vertices,) on the CPU; kept."""
    return leveled(topology, walk).levels


def leveled(topology: Topology, walk: Walk | None) -> Leveled:
    """The levels, and what was found with them; ``walk`` gives the same in native code, None where there is a cycle."""
    host = topology.on_host
    return host.keep("levels", lambda: _make_levels(host, walk))


def _make_levels(topology: Topology, walk: Walk | None) -> Leveled:
    assert topology.num_src == topology.num_dst, "levels need edges within one set of vertices"
    if walk is not None and max(topology.num_edges, topology.num_dst) < MOST_SHORT:
        known = walk(topology.src, topology.dst, topology.num_dst)
        if known is not None:
            return known
    if topology.parts is not None:
        found = _batched_levels(topology, topology.parts)
    else:
        found = _single_levels(topology)
    if found.min(initial=0) < 0:
        cycle = _find_cycle(topology, found < 0)
        raise _cycle_error(cycle, _graph_of(topology, cycle[0]))
    return Leveled(found)


def _graph_of(topology: Topology, vertex: int) -> str:
    if topology.graph_sizes is None:
        return ""
    return f" in graph {np.searchsorted(np.cumsum(topology.graph_sizes), vertex, side='right')} of the batch"


def _batched_levels(topology: Topology, parts: tuple[Topology, ...]) -> Levels:
    """What is known of the graphs of a batch is not computed again; many new ones are computed together."""
    known: list[Leveled | None] = [part.kept.get("levels") for part in parts]
    if sum(one is None for one in known) * 2 > len(parts) > 1:
        whole = _peel(topology, MOST_ROUNDS)
        if whole is not None:
            return whole
    found = [np.empty(0, np.int32)]
    for part, one in zip(parts, known, strict=True):
        found.append(_single_levels(part) if one is None else one.levels)
        if found[-1].min(initial=0) >= 0:
            part.kept.setdefault("levels", Leveled(found[-1]))
    return np.concatenate(found)


def _single_levels(topology: Topology) -> Levels:
    """Levels by whichever way is cheap here; -1 for vertices on a cycle or behind one."""
    size = topology.num_dst + topology.num_edges
    if size > SMALL:
        found = _peel(topology, size // ROUND_COST)
        if found is not None:
            return found
    return _walk(topology.src.tolist(), topology.dst.tolist(), topology.num_dst)


def _walk(src: list[int], dst: list[int], num_vertices: int) -> Levels:
    """Vertex by vertex: cheapest where graphs are small or frontiers are narrow (a chain)."""
    level, waiting = [-1] * num_vertices, [0] * num_vertices
    parents: list[list[int]] = [[] for _ in waiting]
    for tail, head in zip(src, dst, strict=True):
        parents[tail].append(head)
        waiting[head] += 1
    ready = [vertex for vertex, count in enumerate(waiting) if not count]
    for vertex in ready:
        level[vertex] = 0
    for vertex in ready:  # grows as it is walked, in order of levels
        above = level[vertex] + 1
        for head in parents[vertex]:
            waiting[head] -= 1
            if not waiting[head]:  # the last child to come is the deepest
                level[head] = above
                ready.append(head)
    return np.array(level, np.int32)


def _peel(topology: Topology, max_rounds: int) -> Levels | None:
    """Frontier by frontier over arrays: cheapest where they are wide; None after max_rounds."""
    ptr, heads = _on_cpu(topology.csr.ptr), _on_cpu(topology.csr.other)
    waiting = _on_cpu(topology.in_degrees).copy()
    level, scratch = np.full(len(waiting), -1, np.int32), np.empty_like(waiting)
    ready = np.flatnonzero(waiting == 0)
    for number in range(max_rounds):
        if not len(ready):
            return level
        level[ready] = number
        reached = heads_of(ptr, heads, ready)
        ready = released(waiting, reached, scratch)
    return None


def _on_cpu(tensor: Tensor) -> NDArray[np.int64]:
    return tensor.cpu().numpy()


def heads_of(ptr: NDArray[np.int64], heads: NDArray[np.int64], vertices: NDArray[np.int64]) -> NDArray[np.int64]:
    """The other ends of all out-edges of some vertices, repeats included."""
    starts = ptr[vertices]
    counts = ptr[vertices + 1] - starts
    ends = np.cumsum(counts)
    return heads[np.repeat(starts - ends + counts, counts) + np.arange(ends[-1])]


def released(waiting: NDArray[np.int64], reached: NDArray[np.int64], scratch: NDArray[np.int64]) -> NDArray[np.int64]:
    """Counts down what vertices wait for; gives those that wait for nothing more, each once."""
    if len(reached) * 8 > len(waiting):
        waiting -= np.bincount(reached, minlength=len(waiting))
    else:
        np.subtract.at(waiting, reached, 1)
    done = reached[waiting[reached] == 0]
    places = np.arange(len(done))
    scratch[done] = places
    return done[scratch[done] == places]


def _find_cycle(topology: Topology, is_stuck: NDArray[np.bool_]) -> list[int]:
    """One cycle in the order of its edges, from its smallest vertex.

    A vertex that never became ready waits for one that did not either: going back must come round.
    """
    src, dst = _on_cpu(topology.src), _on_cpu(topology.dst)
    inside = is_stuck[src] & is_stuck[dst]
    before = np.full(topology.num_dst, -1)
    before[dst[inside]] = src[inside]
    vertex, place = int(is_stuck.argmax()), dict[int, int]()
    while vertex not in place:
        place[vertex] = len(place)
        vertex = int(before[vertex])
    cycle = list(place)[place[vertex] :][::-1]
    first = cycle.index(min(cycle))
    return cycle[first:] + cycle[:first]


def _cycle_error(cycle: list[int], where: str) -> CycleError:
    if len(cycle) == 1:
        fact = f"vertex {cycle[0]}{where} has an edge to itself"
    else:
        shown = ", ".join(map(str, cycle[:MOST_SHOWN]))
        more = f" ... ({len(cycle)} in all)" if len(cycle) > MOST_SHOWN else ""
        fact = f"vertices {shown}{more}{where} form a cycle"
    cure = "a vertex function needs a DAG; remove one of these edges, or use update_all"
    return CycleError(fact, cycle=cycle, cure=cure)
