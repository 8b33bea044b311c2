"""Depth-first placement: paths of a depth-first walk, each on the device that costs least.

Takes: OpGraph, Cluster. Gives: a device an op. Runs once per placement.
Source: depth-first placement: turn points, retraction stack, intersection vertex, three candidate devices.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from vgraph.partition.placement.devices import Cluster
from vgraph.partition.placement.memory_weights import Ledger, fastest_device
from vgraph.partition.placement.op_graph import Floats, Ints, OpGraph


@dataclass(frozen=True, eq=False)
class Path:
    """Ops walked without turning back. It left ``turn`` (the turn point) and ran into ``meets``; -1: none."""

    turn: int
    ops: list[int]
    meets: int


def walk_depth_first(graph: OpGraph) -> list[Path]:
    """Every op in one path: first children first; back to the last op that has a child not yet walked."""
    children: list[list[int]] = [sorted({o for o, _ in after}) for after in graph.successors]
    seen, paths, has_parent = [False] * graph.num_ops, list[Path](), [bool(b) for b in graph.predecessors]
    for root in range(graph.num_ops):
        if has_parent[root]:
            continue
        retraction: list[tuple[int, int]] = [(-1, root)]
        while retraction:
            turn, op = retraction.pop()
            if turn >= 0:
                further = next((c for c in children[turn] if not seen[c]), -1)
                if further < 0:
                    continue
                retraction.append((turn, further))  # others may be left when this one is done
                op = further
            ops, meets = _follow(op, children, seen, retraction)
            paths.append(Path(turn, ops, meets))
    return paths


def _follow(
    op: int, children: Sequence[Sequence[int]], seen: list[bool], retraction: list[tuple[int, int]]
) -> tuple[list[int], int]:
    """Down the first children until all are walked; ops with more than one go on the retraction stack."""
    ops: list[int] = []
    while True:
        seen[op] = True
        ops.append(op)
        fresh = next((c for c in children[op] if not seen[c]), -1)
        if fresh < 0:
            return ops, children[op][0] if children[op] else -1
        if len(children[op]) > 1:
            retraction.append((op, fresh))
        op = fresh


class _Window:
    """Seconds placed on one device, by where they stand in the order of earliest starts (a Fenwick tree)."""

    def __init__(self, size: int) -> None:
        self.sums = [0.0] * (size + 1)

    def add(self, position: int, seconds: float) -> None:
        position += 1
        while position < len(self.sums):
            self.sums[position] += seconds
            position += position & -position

    def before(self, position: int) -> float:
        total = 0.0
        while position > 0:
            total += self.sums[position]
            position &= position - 1
        return total


class Walker:
    """The state of the walk: what is placed where, and what a path would cost on a device."""

    def __init__(self, graph: OpGraph, cluster: Cluster, weights: Floats | None = None) -> None:
        self.graph, self.cluster = graph, cluster
        self.device = [-1] * graph.num_ops
        self.ledger = Ledger(graph, cluster, np.zeros(graph.num_ops) if weights is None else weights)
        self.asap = _earliest_starts(graph)
        by_start = np.lexsort((np.arange(graph.num_ops), self.asap))
        self.position: list[int] = np.argsort(by_start).tolist()
        self.ends = np.searchsorted(self.asap[by_start], self.asap + graph.mean_costs).tolist()
        self.windows = [_Window(graph.num_ops) for _ in cluster.devices]
        self.load = [0.0] * cluster.num_devices
        self.last_path = [-1] * cluster.num_devices
        self.num_paths = 0
        self.latency: list[list[float]] = cluster.latency.tolist()
        self.bandwidth: list[list[float]] = cluster.bandwidth.tolist()

    def serial(self, path: Path, device: int) -> float:
        """Seconds of the path and of the ops on the device that could else run beside it."""
        first, last = self.window(path)
        window = self.windows[device]
        return max(0.0, window.before(last) - window.before(first)) + self.seconds(path, device)

    def window(self, path: Path) -> tuple[int, int]:
        """From the end of its turn point to the start of the op that it meets, as positions."""
        first = self.ends[path.turn] if path.turn >= 0 else 0
        return first, self.position[path.meets] if path.meets >= 0 else self.graph.num_ops

    def seconds(self, path: Path, device: int) -> float:
        costs = self.ledger.costs[device]
        return sum([costs[op] for op in path.ops])

    def boundary(self, path: Path, device: int) -> float:
        """Seconds of all transfers between the path and what is placed on other devices."""
        total, placed = 0.0, self.device
        for op in path.ops:
            for other, size in self.graph.predecessors[op]:
                source = placed[other]
                if source >= 0 and source != device:
                    total += self.latency[source][device] + size / self.bandwidth[source][device]
            for other, size in self.graph.successors[op]:
                target = placed[other]
                if target >= 0 and target != device:
                    total += self.latency[device][target] + size / self.bandwidth[device][target]
        return total

    def cost(self, path: Path, device: int) -> float:
        return self.boundary(path, device) + self.serial(path, device)

    def can_take(self, path: Path, device: int) -> bool:
        """Whether the path can run there and its memory, all ops together, is left."""
        costs, need = self.ledger.costs[device], sum([self.ledger.weight[op] for op in path.ops])
        return self.ledger.left[device] >= need and (
            self.ledger.is_plain or all(costs[op] < float("inf") for op in path.ops)
        )

    def assign(self, path: Path, device: int) -> None:
        """Ops whose group lies elsewhere go there."""
        for op in path.ops:
            where = self.ledger.of_group.get(self.ledger.group[op], device)
            if not self.ledger.costs[where][op] < float("inf"):
                where = min(self.ledger.everywhere, key=lambda d: self.ledger.costs[d][op])
            seconds = self.ledger.costs[where][op]
            self.device[op] = where
            self.ledger.take(op, where)
            self.windows[where].add(self.position[op], seconds)
            self.load[where] += seconds
        self.last_path[device] = self.num_paths
        self.num_paths += 1

    def overlap(self, path: Path, other: Path) -> bool:
        """Whether two paths could run beside each other: neither must end before the other begins."""
        first, last = self.window(path)
        begin, end = self.window(other)
        return first < end and begin < last


def _earliest_starts(graph: OpGraph) -> Floats:
    """When each op could begin if every op had a device of its own and transfers took no time."""
    start, costs = [0.0] * graph.num_ops, graph.mean_costs.tolist()
    for op, before in enumerate(graph.predecessors):
        if before:
            start[op] = max([start[o] + costs[o] for o, _ in before])
    return np.array(start)


def place_depth_first(graph: OpGraph, cluster: Cluster) -> Ints:
    """The thesis' placement: three candidates a path, no memory limits, no second look.

    A turn point's path goes to the device of the turn point, of the op it meets, or the one that had no path
    for longest (of several the least used), whichever has the least transfers plus work in series.
    """
    walker = Walker(graph, cluster)
    first = fastest_device(graph, cluster)
    for path in walk_depth_first(graph):
        idle = min(range(cluster.num_devices), key=lambda d: (walker.last_path[d], walker.load[d]))
        near = [walker.device[op] for op in (path.turn, path.meets) if op >= 0 and walker.device[op] >= 0]
        candidates = [*near, idle] if walker.num_paths else [first]
        walker.assign(path, min(candidates, key=lambda d: walker.cost(path, d)))
    return np.array(walker.device, dtype=np.int64)


def place_depth_first_ahead(graph: OpGraph, cluster: Cluster, weights: Floats) -> Ints:
    """The walk with every device as a candidate, within memory, and with a look at the path that comes next."""
    walker, paths = Walker(graph, cluster, weights), walk_depth_first(graph)
    for number, path in enumerate(paths):
        able = [d for d in range(cluster.num_devices) if walker.can_take(path, d)]
        if not able:
            able = [max(range(cluster.num_devices), key=lambda d: walker.ledger.left[d])]
        upcoming = paths[number + 1] if number + 1 < len(paths) else None
        walker.assign(path, min(able, key=_price(walker, path, upcoming)) if len(able) > 1 else able[0])
    return np.array(walker.device, dtype=np.int64)


def _price(walker: Walker, path: Path, upcoming: Path | None) -> Callable[[int], float]:
    """The cost of a path on a device, and the least that the next path then costs."""
    devices = range(walker.cluster.num_devices)
    if upcoming is None or len(path.ops) + len(upcoming.ops) > 200:  # long paths decide for themselves
        return lambda device: walker.cost(path, device)
    serial = [walker.serial(upcoming, d) for d in devices]
    beside = [walker.seconds(path, d) if walker.overlap(path, upcoming) else 0.0 for d in devices]

    def price(device: int) -> float:
        own = walker.cost(path, device)
        for op in path.ops:
            walker.device[op] = device
        after = [walker.boundary(upcoming, d) + serial[d] + (beside[d] if d == device else 0.0) for d in devices]
        for op in path.ops:
            walker.device[op] = -1
        return own + min(after)

    return price
