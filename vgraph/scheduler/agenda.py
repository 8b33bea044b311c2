"""Agenda: batches of vertices of one type each, few of them; and how few there can be at best.

Takes: a Topology, the type of every vertex. Gives: the number of every vertex's batch, a bound. Runs once per
topology. Source: Cavs section 3.2 (batching policy); Neubig et al. 2017 (agendas); the choice of type follows the
bound.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vgraph.ir.topology import Topology
from vgraph.scheduler.frontiers import Levels, heads_of, levels, released

Types = NDArray[np.int64]  # of every vertex, from 0


def split_levels(topology: Topology, types: Types) -> Levels:
    """A batch for each level and each type in it."""
    keys = levels(topology).astype(np.int64) * (int(types.max(initial=0)) + 1) + types
    return np.unique(keys, return_inverse=True)[1].astype(np.int32)


def agenda(topology: Topology, types: Types) -> Levels:
    """Vertices without in-edges first, then the type whose batch brings the end nearer; never more than by levels."""
    topology = topology.on_host
    plain, found = split_levels(topology, types), _Agenda(topology, types).run()
    return found if found.max(initial=-1) < plain.max(initial=-1) else plain


def typed_lower_bound(topology: Topology, types: Types) -> int:
    """No policy takes fewer batches: vertices of one type on one path cannot share one."""
    longest = _own_above(topology.on_host, types)
    return sum(int(longest[types == kind].max(initial=0)) for kind in np.unique(types))


def _own_above(topology: Topology, types: Types) -> NDArray[np.int32]:
    """The most vertices of a vertex's own type on a path that begins there, (vertices,)."""
    kinds = int(types.max(initial=-1)) + 1
    above = np.zeros((topology.num_dst, kinds), np.int32)
    ptr, heads = topology.csr.ptr.cpu().numpy(), topology.csr.other.cpu().numpy()
    level = levels(topology)
    order = np.argsort(level, kind="stable")
    bounds = np.searchsorted(level[order], np.arange(int(level.max(initial=-1)) + 2))
    for number in reversed(range(len(bounds) - 1)):
        here = order[bounds[number] : bounds[number + 1]]
        counts = ptr[here + 1] - ptr[here]
        tails, counts = here[counts > 0], counts[counts > 0]
        if len(tails):
            starts = np.concatenate([[0], np.cumsum(counts)[:-1]])
            above[tails] = np.maximum.reduceat(above[heads_of(ptr, heads, tails)], starts)
        above[here, types[here]] += 1
    return above[np.arange(len(types)), types]


@dataclass(eq=False)
class _Agenda:
    """``missing[t][r]``: vertices of type t, yet to run, with r of their own type on the longest path from there."""

    topology: Topology
    types: Types

    def run(self) -> Levels:
        topology, types = self.topology, self.types
        self.ptr, self.heads = topology.csr.ptr.cpu().numpy(), topology.csr.other.cpu().numpy()
        self.waiting = topology.in_degrees.cpu().numpy().copy()
        self.rank, self.scratch = _own_above(topology, types), np.empty_like(self.waiting)
        kinds = int(types.max(initial=-1)) + 1
        size = int(self.rank.max(initial=0)) + 1
        self.missing = [np.bincount(self.rank[types == t], minlength=size) for t in range(kinds)]
        self.there = [np.zeros(size, np.int64) for _ in range(kinds)]
        self.tops = [int(m.nonzero()[0].max(initial=0)) for m in self.missing]
        self.ready: list[list[Types]] = [[] for _ in range(kinds)]
        self.batch, self.number = np.empty(len(types), np.int32), 0
        leaves = np.flatnonzero(self.waiting == 0)
        self._meet(leaves)
        firsts = [(t, np.concatenate(self.ready[t])) for t in range(kinds) if self.ready[t]]
        self.ready = [[] for _ in range(kinds)]
        for kind, vertices in firsts:
            self._take(kind, vertices)
        while any(self.ready):
            kind = self._choose()
            vertices, self.ready[kind] = np.concatenate(self.ready[kind]), []
            self._take(kind, vertices)
        return self.batch

    def _choose(self) -> int:
        """The type of which the largest part of those with the longest way to go is ready."""

        def merit(kind: int) -> tuple[float, int]:
            top = self.tops[kind]
            return self.there[kind][top] / self.missing[kind][top], sum(map(len, self.ready[kind]))

        return max((kind for kind, some in enumerate(self.ready) if some), key=merit)

    def _take(self, kind: int, vertices: Types) -> None:
        self.batch[vertices], self.number = self.number, self.number + 1
        done = np.bincount(self.rank[vertices], minlength=len(self.there[kind]))
        self.missing[kind] -= done
        self.there[kind] -= done
        while self.tops[kind] and not self.missing[kind][self.tops[kind]]:
            self.tops[kind] -= 1
        reached = heads_of(self.ptr, self.heads, vertices)
        self._meet(released(self.waiting, reached, self.scratch))

    def _meet(self, vertices: Types) -> None:
        """Vertices that wait for nothing any more."""
        kinds = self.types[vertices]
        for kind in np.unique(kinds).tolist():
            mine = vertices[kinds == kind]
            self.ready[kind].append(mine)
            self.there[kind] += np.bincount(self.rank[mine], minlength=len(self.there[kind]))
