"""Greedy plans: HEFT and m-ETF, which place op by op on the device where it ends or begins first.

Takes: OpGraph, Cluster. Gives: a device an op. Runs once per placement.
Source: HEFT (Topcuoglu et al. 2002); m-ETF of Baechi (Jeon et al. 2020).
"""

from __future__ import annotations

from bisect import bisect_left
from heapq import heappop, heappush

import numpy as np

from vgraph.partition.placement.devices import Cluster
from vgraph.partition.placement.memory_weights import Ledger, memory_weights
from vgraph.partition.placement.op_graph import Floats, Ints, OpGraph


def upward_ranks(graph: OpGraph, cluster: Cluster) -> list[float]:
    """Mean seconds from the start of each op to the end of the longest chain, transfers at the mean bandwidth."""
    latency, per_byte = cluster.mean_link()
    apart = 1.0 - 1.0 / cluster.num_devices  # the chance that two ops are on different devices
    ranks: list[float] = graph.mean_costs.tolist()
    for op in range(graph.num_ops - 1, -1, -1):
        after = graph.successors[op]
        if after:
            ranks[op] += max([ranks[o] + apart * (latency + size * per_byte) for o, size in after])
    return ranks


class _Reach:
    """When what an op reads could be on each device."""

    def __init__(self, graph: OpGraph, cluster: Cluster) -> None:
        self.before = graph.predecessors
        self.finish = [0.0] * graph.num_ops
        self.device = [0] * graph.num_ops
        self.latency: list[list[float]] = cluster.latency.tolist()
        safe = np.where(cluster.bandwidth > 0, cluster.bandwidth, 1.0)
        self.per_byte: list[list[float]] = (1.0 / safe).tolist()

    def ready(self, op: int, device: int) -> float:
        latest = 0.0
        for other, size in self.before[op]:
            source, time = self.device[other], self.finish[other]
            if source != device:
                time += self.latency[source][device] + size * self.per_byte[source][device]
            latest = max(latest, time)
        return latest


class _Calendar:
    """The gaps between what one device is booked for, and when it is free for good."""

    MOST_GAPS = 256  # those before are forgotten: looking at thousands for each op would be quadratic

    def __init__(self, shortest: float) -> None:
        self.shortest = shortest  # no op fits into less
        self.starts: list[float] = []
        self.ends: list[float] = []
        self.free = 0.0

    def earliest(self, ready: float, seconds: float) -> float:
        for i in range(bisect_left(self.ends, ready + seconds), len(self.starts)):
            start = max(ready, self.starts[i])
            if start + seconds <= self.ends[i]:
                return start
        return max(ready, self.free)

    def book(self, start: float, end: float) -> None:
        if end <= start:
            return
        if start >= self.free:
            self._open(len(self.starts), self.free, start)
            self.free = end
            return
        i = bisect_left(self.ends, end)
        first, last = self.starts.pop(i), self.ends.pop(i)
        self._open(i, end, last)
        self._open(i, first, start)

    def _open(self, place: int, start: float, end: float) -> None:
        if end - start >= self.shortest:
            self.starts.insert(place, start)
            self.ends.insert(place, end)
            del self.starts[: -self.MOST_GAPS], self.ends[: -self.MOST_GAPS]


def place_heft(graph: OpGraph, cluster: Cluster, weights: Floats | None = None) -> Ints:
    """HEFT: in order of upward rank, each op where it ends first, gaps included, within memory."""
    ranks = upward_ranks(graph, cluster)
    ledger = Ledger(graph, cluster, memory_weights(graph, cluster) if weights is None else weights)
    shortest = float(np.min(graph.costs[graph.costs > 0], initial=np.inf))
    reach, calendars = _Reach(graph, cluster), [_Calendar(shortest) for _ in cluster.devices]
    for op in np.lexsort((np.arange(graph.num_ops), -np.array(ranks))).tolist():
        best = (float("inf"), 0.0, 0)
        for device in ledger.choices(op):
            seconds = ledger.costs[device][op]
            start = calendars[device].earliest(reach.ready(op, device), seconds)
            best = min(best, (start + seconds, start, device))
        end, start, device = best
        calendars[device].book(start, end)
        reach.finish[op], reach.device[op] = end, device
        ledger.take(op, device)
    return np.array(reach.device, dtype=np.int64)


def place_m_etf(graph: OpGraph, cluster: Cluster, weights: Floats | None = None) -> Ints:
    """Baechi's m-ETF: of all ready ops and devices with memory, the pair that can begin first."""
    ledger = Ledger(graph, cluster, memory_weights(graph, cluster) if weights is None else weights)
    queue = _EarliestFirst(upward_ranks(graph, cluster), ledger, _Reach(graph, cluster), cluster.num_devices)
    missing = [len(before) for before in graph.predecessors]
    for op in range(graph.num_ops):
        if not missing[op]:
            queue.offer(op)
    while (op := queue.place_next()) is not None:
        for other, _ in graph.successors[op]:
            missing[other] -= 1
            if not missing[other]:
                queue.offer(other)
    return np.array(queue.reach.device, dtype=np.int64)


class _EarliestFirst:
    """Ready ops by device: those whose inputs are there, by rank, and those whose inputs come later, by time."""

    def __init__(self, ranks: list[float], ledger: Ledger, reach: _Reach, num_devices: int) -> None:
        self.ranks, self.ledger, self.reach = ranks, ledger, reach
        self.free = [0.0] * num_devices
        self.now: list[list[tuple[float, int]]] = [[] for _ in self.free]
        self.later: list[list[tuple[float, float, int]]] = [[] for _ in self.free]
        self.is_placed = [False] * len(ranks)

    def offer(self, op: int) -> None:
        for device in self.ledger.choices(op):
            heappush(self.later[device], (self.reach.ready(op, device), -self.ranks[op], op))

    def place_next(self) -> int | None:
        """Places the pair of op and device that begins first; None: no op is ready."""
        while True:
            offers = [offer for device in range(len(self.free)) if (offer := self._first(device)) is not None]
            if not offers:
                return None
            start, _, op, device = min(offers)
            if device in self.ledger.choices(op):
                break
            self.is_placed[op] = True  # memory ran out, or its group went elsewhere: these offers are void
            for d in range(len(self.free)):
                self._first(d)
            self.is_placed[op] = False
            self.offer(op)
        self.is_placed[op] = True
        self.ledger.take(op, device)
        self.reach.device[op] = device
        self.free[device] = self.reach.finish[op] = start + self.ledger.costs[device][op]
        return op

    def _first(self, device: int) -> tuple[float, float, int, int] | None:
        now, later, free = self.now[device], self.later[device], self.free[device]
        while later and later[0][0] <= free:
            _, rank, op = heappop(later)
            heappush(now, (rank, op))
        while now and self.is_placed[now[0][1]]:
            heappop(now)
        if now:
            return free, *now[0], device
        while later and self.is_placed[later[0][2]]:
            heappop(later)
        return (*later[0], device) if later else None
