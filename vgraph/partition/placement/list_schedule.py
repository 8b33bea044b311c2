"""List schedule: when every op and every transfer runs, given a device for every op.

Takes: OpGraph, Cluster, a device an op. Gives: a Timeline: starts, transfers, makespan, peak memory. Runs once per
candidate placement. Each device runs one op at a time, each link one transfer; both may overlap. The one with the
longest way to the end goes first. Source: list scheduling (Graham 1969) with HEFT's upward rank.
"""

from __future__ import annotations

from dataclasses import dataclass
from heapq import heappop, heappush

import numpy as np

from vgraph.partition.placement.devices import Cluster
from vgraph.partition.placement.op_graph import Floats, Ints, OpGraph


@dataclass(frozen=True, eq=False)
class Timeline:
    """A schedule. Tasks are the ops (in the graph's order), then the transfers: ``tensor`` to device ``target``."""

    device_of: Ints
    start: Floats
    finish: Floats
    tensor: Ints
    source: Ints
    target: Ints
    makespan: float
    peak_memory: Floats
    blocker: Ints  # the task whose end was the start of this one: its input, or what held its device; -1: none

    @property
    def num_ops(self) -> int:
        return len(self.device_of)

    def order(self) -> list[int]:
        """All ops by their start; ops of no length stay after what they read."""
        return np.lexsort((np.arange(self.num_ops), self.finish[: self.num_ops], self.start[: self.num_ops])).tolist()


@dataclass(frozen=True, eq=False)
class _Tasks:
    """Ops and transfers alike: seconds, the device or link they hold, and what waits for what."""

    seconds: Floats
    resource: Ints
    before: Ints
    after: Ints
    tensor: Ints
    source: Ints
    target: Ints
    key: Ints  # a number that respects dataflow


def build_tasks(graph: OpGraph, cluster: Cluster, device_of: Ints) -> _Tasks:
    """A tensor goes to a device once, whoever reads it there."""
    kind_of = np.array([graph.kinds.index(device.kind) for device in cluster.devices])
    seconds = graph.costs[kind_of[device_of], np.arange(graph.num_ops)]
    maker = graph.tensor_op[graph.edge_tensor]
    crossing = device_of[maker] != device_of[graph.edge_op]
    pair = graph.edge_tensor[crossing] * cluster.num_devices + device_of[graph.edge_op[crossing]]
    sent, which = np.unique(pair, return_inverse=True)
    tensor, target = np.divmod(sent, cluster.num_devices)
    source = device_of[graph.tensor_op[tensor]]
    moving = cluster.latency[source, target] + graph.tensor_bytes[tensor] / cluster.bandwidth[source, target]
    transfer = graph.num_ops + np.arange(len(sent))
    return _Tasks(
        seconds=np.concatenate([seconds, moving]),
        resource=np.concatenate([device_of, cluster.num_devices + cluster.link[source, target]]),
        before=np.concatenate([maker[~crossing], graph.tensor_op[tensor], graph.num_ops + which]),
        after=np.concatenate([graph.edge_op[~crossing], transfer, graph.edge_op[crossing]]),
        tensor=tensor,
        source=source,
        target=target,
        key=np.concatenate([2 * np.arange(graph.num_ops), 2 * graph.tensor_op[tensor] + 1]),
    )


def list_schedule(graph: OpGraph, cluster: Cluster, device_of: Ints) -> Timeline:
    """The Timeline of a placement; memory limits are not enforced here but read from ``peak_memory``."""
    tasks = build_tasks(graph, cluster, device_of)
    if not graph.num_ops:
        none, nothing = np.zeros(0), np.zeros(0, dtype=np.int64)
        return Timeline(
            device_of=device_of,
            start=none,
            finish=none,
            tensor=nothing,
            source=nothing,
            target=nothing,
            makespan=0.0,
            peak_memory=np.zeros(cluster.num_devices),
            blocker=nothing,
        )
    tasks_in_order = np.argsort(tasks.key, kind="stable")
    place = np.empty_like(tasks_in_order)
    place[tasks_in_order] = np.arange(len(place))
    waiting = _Waiting(len(place), place[tasks.before], place[tasks.after])
    seconds: list[float] = tasks.seconds[tasks_in_order].tolist()
    starts, blockers = waiting.run(seconds, tasks.resource[tasks_in_order].tolist())
    start = np.array(starts)[place]
    finish = start + tasks.seconds
    blocker = np.array(blockers)[place]
    blocker = np.where(blocker >= 0, tasks_in_order[blocker], -1)
    memory = peak_memory(graph, cluster, device_of, tasks, start, finish)
    return Timeline(
        device_of=device_of,
        start=start,
        finish=finish,
        tensor=tasks.tensor,
        source=tasks.source,
        target=tasks.target,
        makespan=float(finish.max()),
        peak_memory=memory,
        blocker=blocker,
    )


class _Waiting:
    """Tasks numbered in an order that respects dataflow, and what waits for each (compressed rows)."""

    def __init__(self, count: int, before: Ints, after: Ints) -> None:
        order = np.argsort(before, kind="stable")
        self.count = count
        self.ends: list[int] = np.searchsorted(before[order], np.arange(count + 1)).tolist()
        self.flat: list[int] = after[order].tolist()
        self.missing: list[int] = np.bincount(after, minlength=count).tolist()

    def upward_ranks(self, seconds: list[float]) -> list[float]:
        """Seconds from the start of each task to the end of the longest chain that follows."""
        ranks, ends, flat = seconds.copy(), self.ends, self.flat
        for i in range(self.count - 1, -1, -1):
            first, last = ends[i], ends[i + 1]
            if last - first == 1:
                ranks[i] += ranks[flat[first]]
            elif last > first:
                ranks[i] += max([ranks[j] for j in flat[first:last]])
        return ranks

    def run(self, seconds: list[float], resource: list[int]) -> tuple[list[float], list[int]]:
        """Start of every task, and what each had waited for: events in order of time, the highest rank first."""
        urgent: list[int] = np.argsort(-np.array(self.upward_ranks(seconds)), kind="stable").tolist()
        urgency = [0] * self.count
        for number, task in enumerate(urgent):
            urgency[task] = number
        ready: list[list[int]] = [[] for _ in range(max(resource) + 1)]
        busy = [False] * len(ready)
        starts, blockers, events = [0.0] * self.count, [-1] * self.count, list[tuple[float, int]]()
        missing, flat, ends = self.missing.copy(), self.flat, self.ends
        for number, task in enumerate(urgent):
            if not missing[task]:
                ready[resource[task]].append(number)  # ascending: a heap already
        for holder, waiting in enumerate(ready):
            if waiting:
                task = urgent[heappop(waiting)]
                busy[holder] = True
                heappush(events, (seconds[task], task))
        while events:
            now, task = heappop(events)
            woken = [resource[task]]
            for other in flat[ends[task] : ends[task + 1]]:
                missing[other] -= 1
                if not missing[other]:
                    wanted = resource[other]
                    heappush(ready[wanted], urgency[other])
                    if not busy[wanted]:
                        woken.append(wanted)
            busy[woken[0]] = False
            for wanted in woken:
                if ready[wanted] and not busy[wanted]:
                    chosen = urgent[heappop(ready[wanted])]
                    busy[wanted] = True
                    starts[chosen], blockers[chosen] = now, task
                    heappush(events, (now + seconds[chosen], chosen))
        return starts, blockers


def peak_memory(
    graph: OpGraph, cluster: Cluster, device_of: Ints, tasks: _Tasks, start: Floats, finish: Floats
) -> Floats:
    """Most bytes that each device holds at once: what is resident, results until last read, copies likewise."""
    num, count = graph.num_ops, len(graph.tensor_op)
    root_of_edge = graph.tensor_root[graph.edge_tensor]
    local = device_of[graph.tensor_op[graph.edge_tensor]] == device_of[graph.edge_op]
    born, dead = start[graph.tensor_op], finish[graph.tensor_op].copy()
    # A view of a tensor that lies elsewhere stands for the copy that it was made from.
    same = device_of[graph.tensor_op[graph.tensor_root]] == device_of[graph.tensor_op]
    root = np.where(same, graph.tensor_root, np.arange(count))
    local_root = np.where(same[graph.edge_tensor], root_of_edge, graph.edge_tensor)
    np.maximum.at(dead, local_root[local], finish[graph.edge_op[local]])
    np.maximum.at(dead, root[tasks.tensor], finish[num:])
    np.maximum.at(dead, root, dead)
    dead[graph.tensor_kept] = np.inf
    np.maximum.at(dead, root, dead)
    own = (root == np.arange(count)) & ~graph.tensor_held
    # Copies: from the start of the transfer to the last reader on that device.
    reader = device_of[graph.edge_op[~local]]
    sent = tasks.tensor * cluster.num_devices + tasks.target
    which = np.searchsorted(sent, graph.edge_tensor[~local] * cluster.num_devices + reader)
    gone = finish[num:].copy()
    np.maximum.at(gone, which, finish[graph.edge_op[~local]])
    size = np.concatenate([graph.tensor_bytes[own], graph.tensor_bytes[tasks.tensor]])
    where = np.concatenate([device_of[graph.tensor_op[own]], tasks.target])
    births, deaths = np.concatenate([born[own], start[num:]]), np.concatenate([dead[own], gone])
    resident = np.bincount(device_of, graph.resident, cluster.num_devices).astype(np.float64)
    return resident + np.array(
        [_peak(births[on], deaths[on], size[on]) for on in (where == d for d in range(cluster.num_devices))]
    )


def _peak(born: Floats, dead: Floats, size: Floats) -> float:
    """The highest sum of sizes; at one instant what ends goes before what begins."""
    times = np.concatenate([dead, born])
    change = np.concatenate([-size, size])
    order = np.lexsort((change > 0, times))
    return float(np.cumsum(change[order]).max(initial=0.0))


def excess_bytes(timeline: Timeline, cluster: Cluster) -> float:
    """Bytes by which the placement is over the devices' memory, in all."""
    return float(np.maximum(timeline.peak_memory - cluster.memory, 0.0).sum())
