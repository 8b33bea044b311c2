"""Memory weights: what an op adds to its device, for algorithms that place before there is a schedule.

Takes: OpGraph, Cluster. Gives: bytes an op and a ledger of what each device still holds. Runs once per placement.
"""

from __future__ import annotations

import numpy as np

from vgraph.partition.placement.devices import Cluster
from vgraph.partition.placement.list_schedule import Timeline, list_schedule
from vgraph.partition.placement.op_graph import Floats, OpGraph


def memory_weights(graph: OpGraph, cluster: Cluster, on_one: Timeline | None = None) -> Floats:
    """Resident bytes, and results scaled so that all ops together weigh what one device would hold at its peak.

    ``on_one``: the schedule on one device, if it is at hand.
    """
    if on_one is None:
        everything = np.full(graph.num_ops, fastest_device(graph, cluster), dtype=np.int64)
        on_one = list_schedule(graph, cluster, everything)
    peak = max(float(on_one.peak_memory.max(initial=0.0) - graph.resident.sum()), 0.0)
    allocated = graph.op_bytes.sum()
    return graph.resident + graph.op_bytes * (peak / allocated if allocated else 0.0)


def fastest_device(graph: OpGraph, cluster: Cluster) -> int:
    """Where the whole graph takes least time; ops that cannot run there count for much."""
    total = dict(zip(graph.kinds, np.where(np.isfinite(graph.costs), graph.costs, 1e6).sum(1).tolist(), strict=True))
    return min(range(cluster.num_devices), key=lambda d: total[cluster.devices[d].kind])


class Ledger:
    """Where ops may still go: memory left, members of a group on one device, kinds that can run the op."""

    def __init__(self, graph: OpGraph, cluster: Cluster, weights: Floats) -> None:
        self.costs: list[list[float]] = [graph.costs[graph.kinds.index(d.kind)].tolist() for d in cluster.devices]
        self.left: list[float] = cluster.memory.tolist()
        self.group: list[int] = graph.group.tolist()
        self.of_group: dict[int, int] = {}
        self.weight: list[float] = weights.tolist()
        for members in graph.members.values():  # a group needs its place when its first op comes
            total = float(weights[members].sum())
            for op in members:
                self.weight[op] = 0.0
            self.weight[members[0]] = total
        self.is_bounded = bool(np.isfinite(cluster.memory).any())
        self.everywhere = list(range(cluster.num_devices))
        self.is_plain = bool(np.isfinite(graph.costs).all())

    def choices(self, op: int) -> list[int]:
        """Devices that can take the op; if memory has run out, the one with most left of those that can run it."""
        fixed = self.of_group.get(self.group[op])
        if fixed is not None:
            return [fixed]
        able = self.everywhere if self.is_plain else [d for d in self.everywhere if self.costs[d][op] < float("inf")]
        if not self.is_bounded:
            return able
        roomy = [d for d in able if self.left[d] >= self.weight[op]]
        return roomy or [max(able, key=lambda d: self.left[d])]

    def take(self, op: int, device: int) -> None:
        self.left[device] -= self.weight[op]
        if self.group[op] >= 0 and self.group[op] not in self.of_group:
            self.of_group[self.group[op]] = device
