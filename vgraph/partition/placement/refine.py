"""Refine: local search on the makespan: what holds it up is moved, in large pieces first.

Takes: a placement. Gives: one that is not worse. Runs once per placement. Pieces of several sizes are grown along
the largest tensors; those on the critical chain are tried on every other device and judged by a whole schedule.
Source: depth-first placement, the weak points its author names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np

from vgraph.partition.placement.devices import Cluster
from vgraph.partition.placement.list_schedule import Timeline, excess_bytes, list_schedule
from vgraph.partition.placement.op_graph import Ints, OpGraph, root_of

Score = tuple[float, float]  # bytes over the limits, seconds
SHARES = (1 / 4, 1 / 16, 1 / 64, 0.0)  # how much of a device's even share of the seconds a piece may hold


def score(timeline: Timeline, cluster: Cluster) -> Score:
    """Less is better: memory first."""
    return excess_bytes(timeline, cluster), timeline.makespan


@dataclass
class Budget:
    """How many schedules may still be tried; ``tick`` is told of every one."""

    left: int
    tick: Callable[[], object] = lambda: None

    def spend(self) -> None:
        self.left -= 1
        self.tick()


def usual_budget(num_ops: int) -> int:
    """Trials that take a few seconds: a schedule's time grows with the ops; fewer than ten would find nothing."""
    trials = int(min(600 * (2500 / max(num_ops, 1)) ** 1.5, 1500))
    return trials if trials >= 10 else 0


def refine(graph: OpGraph, cluster: Cluster, best: Timeline, budget: Budget) -> Timeline:
    """The best Timeline found; round after round over pieces of all sizes until a round changes nothing."""
    if cluster.num_devices == 1 or not graph.num_ops:
        return best
    levels: list[Ints] = []
    sizes = build_units(graph, cluster)  # made when first needed: on large graphs the trials end before
    while budget.left > 0:
        before = score(best, cluster)
        for number in range(len(SHARES)):
            if number == len(levels):
                levels.append(next(sizes))
            best = _sweep(graph, cluster, best, levels[number], budget)
            if budget.left <= 0:
                break
        if score(best, cluster) >= before:
            break
    return best


def _sweep(graph: OpGraph, cluster: Cluster, best: Timeline, units: Ints, budget: Budget) -> Timeline:
    """Moves pieces of one size until none of those on the critical chain helps."""
    members = np.split(np.argsort(units, kind="stable"), np.cumsum(np.bincount(units))[:-1])
    able = np.isfinite(graph.costs[[graph.kinds.index(d.kind) for d in cluster.devices]])
    failed: set[tuple[int, int]] = set()
    improved = True
    while improved and budget.left > 0:
        improved = False
        for unit, device in _candidates(graph, cluster, best, units):
            ops = members[unit]
            if (unit, device) in failed or not able[device, ops].all() or (best.device_of[ops] == device).all():
                continue
            if budget.left <= 0:
                break
            failed.add((unit, device))
            trial = _moved(graph, cluster, best, ops, device, budget)
            if score(trial, cluster) < score(best, cluster):
                best, improved = trial, True
                break
    return best


def consolidate(graph: OpGraph, cluster: Cluster, best: Timeline, budget: Budget) -> Timeline:
    """Fewer transfers at no later end: pieces on a boundary join the device that they exchange most with.

    Where devices share cores or a bus, every transfer that is not needed costs what the judge does not see.
    """
    if cluster.num_devices == 1 or not graph.num_ops:
        return best
    levels = list(build_units(graph, cluster)) if budget.left else []
    before = float("inf")
    while budget.left > 0 and _transfers(best) < before:
        before = _transfers(best)
        for units in levels:
            best = _join_neighbours(graph, cluster, best, units, budget)
    return best


def _join_neighbours(graph: OpGraph, cluster: Cluster, best: Timeline, units: Ints, budget: Budget) -> Timeline:
    members = np.split(np.argsort(units, kind="stable"), np.cumsum(np.bincount(units))[:-1])
    for unit, device in _boundary(graph, cluster, best, units):
        if budget.left <= 0:
            break
        trial = _moved(graph, cluster, best, members[unit], device, budget)
        if score(trial, cluster) <= score(best, cluster) and _transfers(trial) < _transfers(best):
            best = trial
    return best


def _transfers(timeline: Timeline) -> float:
    """Seconds of all transfers."""
    return float((timeline.finish - timeline.start)[timeline.num_ops :].sum())


def _boundary(graph: OpGraph, cluster: Cluster, best: Timeline, units: Ints) -> list[tuple[int, int]]:
    """Pieces that exchange more with another device than with their own, and that device; the most first."""
    latency, per_byte = cluster.mean_link()
    source, target, size = graph.op_edges
    away = units[source] != units[target]
    seconds = np.zeros((int(units.max()) + 1, cluster.num_devices))
    for one, other in ((source, target), (target, source)):
        np.add.at(seconds, (units[one[away]], best.device_of[other[away]]), latency + size[away] * per_byte)
    own = np.zeros(len(seconds), dtype=np.int64)
    own[units] = best.device_of
    gain = seconds.max(1) - seconds[np.arange(len(seconds)), own]
    able = np.isfinite(graph.costs[[graph.kinds.index(d.kind) for d in cluster.devices]])
    wanted = seconds.argmax(1)
    fits = np.ones(len(seconds), dtype=np.bool_)
    np.logical_and.at(fits, units, able[wanted[units], np.arange(graph.num_ops)])
    order = np.argsort(-gain, kind="stable")
    return [(int(unit), int(wanted[unit])) for unit in order[(gain[order] > 0) & fits[order]]]


def _moved(graph: OpGraph, cluster: Cluster, best: Timeline, ops: Ints, device: int, budget: Budget) -> Timeline:
    budget.spend()
    device_of = best.device_of.copy()
    device_of[ops] = device
    return list_schedule(graph, cluster, device_of)


def _candidates(graph: OpGraph, cluster: Cluster, best: Timeline, units: Ints) -> Iterator[tuple[int, int]]:
    """Pieces by the seconds that they and their transfers hold of the critical chain; idle devices first."""
    weight = np.zeros(int(units.max()) + 1)
    for task, seconds in critical_chain(best):
        if task < graph.num_ops:
            weight[units[task]] += seconds
            continue
        tensor, target = best.tensor[task - graph.num_ops], best.target[task - graph.num_ops]
        weight[units[graph.tensor_op[tensor]]] += seconds
        readers = graph.edge_op[graph.edge_tensor == tensor]
        np.add.at(weight, units[readers[best.device_of[readers] == target]], seconds)
    if excess_bytes(best, cluster) > 0:  # what lies on a full device must move, critical or not
        full = best.peak_memory > cluster.memory
        held = np.bincount(units, weights=(graph.op_bytes + graph.resident) * full[best.device_of])
        weight += held / max(float(held.max()), 1.0) * max(float(weight.max()), 1e-9)
    length = (best.finish - best.start)[: graph.num_ops]
    load = np.bincount(best.device_of, weights=length, minlength=cluster.num_devices)
    spare = cluster.memory - best.peak_memory
    devices = np.lexsort((load, spare < 0)).tolist()
    for unit in np.argsort(-weight, kind="stable").tolist():
        if weight[unit] <= 0:
            return
        for device in devices:
            yield unit, device


def critical_chain(timeline: Timeline) -> list[tuple[int, float]]:
    """Tasks that follow one another without a pause up to the end, and how long each took."""
    task, chain = int(timeline.finish.argmax()), list[tuple[int, float]]()
    while task >= 0:
        chain.append((task, float(timeline.finish[task] - timeline.start[task])))
        task = int(timeline.blocker[task])
    return chain[::-1]


def build_units(graph: OpGraph, cluster: Cluster) -> Iterator[Ints]:
    """Pieces of four sizes: ops joined along the tensors that take longest to move, up to a share of all seconds."""
    latency, per_byte = cluster.mean_link()
    source, target, size = graph.op_edges
    heaviest = np.argsort(-(latency + size * per_byte), kind="stable")
    pairs = list(zip(source[heaviest].tolist(), target[heaviest].tolist(), strict=True))
    total = float(graph.mean_costs.sum())
    for share in SHARES:
        units = _grow(graph, pairs, total * share / cluster.num_devices)
        yield np.unique(units, return_inverse=True)[1]


def _grow(graph: OpGraph, pairs: list[tuple[int, int]], cap: float) -> Ints:
    parent, seconds = list(range(graph.num_ops)), graph.mean_costs.tolist()
    find = partial(root_of, parent)

    def join(a: int, b: int) -> None:
        parent[b] = a
        seconds[a] += seconds[b]

    for members in graph.members.values():
        for op in members[1:]:
            if (a := find(members[0])) != (b := find(op)):
                join(a, b)
    has_inputs = [bool(before) for before in graph.predecessors]
    for a, b in pairs:
        a, b = find(a), find(b)
        # What takes no time (an input) goes with the first that reads it, at every size.
        if a != b and (seconds[a] + seconds[b] <= cap or (seconds[a] == 0.0 and not has_inputs[a])):
            join(b, a) if not has_inputs[a] else join(a, b)
    return np.array([find(op) for op in range(graph.num_ops)], dtype=np.int64)
