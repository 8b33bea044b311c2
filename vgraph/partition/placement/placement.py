"""Placement: the improved depth-first placement: several starts, the best ones refined, memory limits kept.

Takes: OpGraph, Cluster. Gives: a device for every op and its Timeline. Runs once per model.
Source: depth-first placement, improved by memory limits, lookahead, colocation and local search. Plans that are
cheap to make (one device, HEFT, m-ETF ...) are starts as well: the result is never worse than any of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from vgraph.errors import DeviceMemoryError, GraphError
from vgraph.partition.placement.depth_first import place_depth_first, place_depth_first_ahead
from vgraph.partition.placement.devices import Cluster
from vgraph.partition.placement.greedy_plans import place_heft, place_m_etf
from vgraph.partition.placement.list_schedule import Timeline, excess_bytes, list_schedule
from vgraph.partition.placement.memory_weights import memory_weights
from vgraph.partition.placement.op_graph import Floats, Ints, OpGraph
from vgraph.partition.placement.refine import Budget, Score, consolidate, refine, score, usual_budget
from vgraph.partition.placement.simple_plans import place_m_topo, place_on_one, place_topological, unify_groups

Start = Callable[[OpGraph, Cluster, Floats], Ints]
STARTS: Mapping[str, Start] = {
    "one device": lambda graph, cluster, weights: place_on_one(graph, cluster),
    "depth first": lambda graph, cluster, weights: place_depth_first(graph, cluster),
    "m-ETF": place_m_etf,
    "HEFT": place_heft,
    "depth first, ahead": place_depth_first_ahead,
    "topological": lambda graph, cluster, weights: place_topological(graph, cluster),
    "m-TOPO": place_m_topo,
}
NEAR = 1.001  # of the lower bound: further search is not worth its time


@dataclass(frozen=True, eq=False)
class PlacedGraph:
    """The Timeline that was chosen, and the score (bytes over the limits, seconds) of every start."""

    graph: OpGraph
    cluster: Cluster
    timeline: Timeline
    starts: Mapping[str, Score]

    @property
    def makespan(self) -> float:
        return self.timeline.makespan

    @property
    def device_of(self) -> Ints:
        return self.timeline.device_of


def place_graph(
    graph: OpGraph, cluster: Cluster, *, trials: int | None = None, tick: Callable[[], object] = lambda: None
) -> PlacedGraph:
    """Places every op so that the makespan is small and no device holds more than its memory.

    ``trials`` is how many schedules the local search may try (by default what takes a few seconds); ``tick`` is
    called after every schedule.

    Raises:
        DeviceMemoryError: no plan that was found fits; says how many bytes are missing.
        GraphError: an op that none of the devices can run.

    >>> from vgraph.partition.placement.devices import uniform_cluster
    >>> from vgraph.partition.placement.op_graph import OpGraphBuilder
    >>> draft = OpGraphBuilder(("device",))
    >>> ops = [draft.add_op(name, [1e-3], []) for name in ("left", "right")]
    >>> graph = draft.build()
    >>> place_graph(graph, uniform_cluster(2)).makespan < place_graph(graph, uniform_cluster(1)).makespan
    True
    """
    _check_kinds(graph, cluster)
    _check_residents(graph, cluster)
    plans = _plan_starts(graph, cluster, tick)
    scores = {name: score(plan, cluster) for name, plan in plans.items()}
    best = _refine_best(graph, cluster, plans, usual_budget(graph.num_ops) if trials is None else trials, tick)
    if excess_bytes(best, cluster) > 0:
        raise _too_large(graph, cluster, best)
    return PlacedGraph(graph, cluster, best, scores)


def _plan_starts(graph: OpGraph, cluster: Cluster, tick: Callable[[], object]) -> dict[str, Timeline]:
    """Every start's Timeline, one device first; up to one that nothing can be better than."""
    bound, weights = lower_bound(graph, cluster), np.zeros(graph.num_ops)
    plans: dict[str, Timeline] = {}
    for name, start in STARTS.items():
        plans[name] = list_schedule(graph, cluster, unify_groups(graph, cluster, start(graph, cluster, weights)))
        tick()
        if score(plans[name], cluster) <= (0.0, bound * (1 + 1e-12)):
            break
        if len(plans) == 1:
            weights = memory_weights(graph, cluster, plans[name])
    return plans


def _refine_best(
    graph: OpGraph, cluster: Cluster, plans: Mapping[str, Timeline], trials: int, tick: Callable[[], object]
) -> Timeline:
    """Refines the two best starts that differ, the second one with what the first leaves, at least a third."""
    ranked = sorted(plans.values(), key=lambda plan: score(plan, cluster))
    best, bound = ranked[0], lower_bound(graph, cluster)
    different = [plan for plan in ranked[1:] if not np.array_equal(plan.device_of, best.device_of)]
    reserve = trials // 3 if different else 0
    for start, share in zip([best, *different[:1]], [trials - reserve, reserve], strict=False):
        if excess_bytes(best, cluster) == 0 and best.makespan <= bound * NEAR:
            break
        best = min(best, refine(graph, cluster, start, Budget(share, tick)), key=lambda plan: score(plan, cluster))
    return consolidate(graph, cluster, best, Budget(trials // 3, tick))


def lower_bound(graph: OpGraph, cluster: Cluster) -> float:
    """Seconds that no placement can be below: the longest chain, and all work shared without a pause."""
    kinds = [graph.kinds.index(device.kind) for device in cluster.devices]
    fastest = graph.costs[kinds].min(0)
    end: list[float] = fastest.tolist()
    for op, before in enumerate(graph.predecessors):
        if before:
            end[op] += max([end[o] for o, _ in before])
    return max(max(end, default=0.0), float(fastest.sum()) / cluster.num_devices)


def _check_kinds(graph: OpGraph, cluster: Cluster) -> None:
    unknown = [device.kind for device in cluster.devices if device.kind not in graph.kinds]
    if unknown:
        raise GraphError(
            f"the graph has no seconds for {unknown[0]}: it was profiled on {', '.join(graph.kinds)}",
            cure="profile it on that kind of device, or place it on those",
        )
    costs = graph.costs[[graph.kinds.index(device.kind) for device in cluster.devices]]
    stuck = np.flatnonzero(~np.isfinite(costs).any(0))
    if len(stuck):
        raise GraphError(
            f"operator {graph.names[stuck[0]]!r} can run on none of {', '.join(d.name for d in cluster.devices)}",
            cure="add a device that can run it",
        )


def _check_residents(graph: OpGraph, cluster: Cluster) -> None:
    """What no search can help: parameters that exceed all memory."""
    missing = float(graph.resident.sum() - cluster.memory.sum())
    if missing > 0:
        raise DeviceMemoryError(
            f"the parameters alone need {_gib(graph.resident.sum())} and the devices hold "
            f"{_gib(cluster.memory.sum())}: {_gib(missing)} are missing",
            cure="add devices, or split tensors with vgraph.parallelize",
        )


def _too_large(graph: OpGraph, cluster: Cluster, best: Timeline) -> DeviceMemoryError:
    over = [
        f"{device.name} needs {_gib(peak)} and holds {_gib(device.memory)}: {_gib(peak - device.memory)} are missing"
        for device, peak in zip(cluster.devices, best.peak_memory.tolist(), strict=True)
        if peak > device.memory
    ]
    return DeviceMemoryError(
        f"no placement of {graph.num_ops} operators was found that fits; in the closest one {'; '.join(over)}",
        cure="use more devices or a smaller batch, or split tensors with vgraph.parallelize",
    )


def _gib(num_bytes: float) -> str:
    """Bytes as a person reads them.

    >>> _gib(1536), _gib(3 * 2**30)
    ('1536 bytes', '3.00 GiB')
    """
    for unit, size in (("GiB", 2**30), ("MiB", 2**20)):
        if num_bytes >= size:
            return f"{num_bytes / size:.2f} {unit}"
    return f"{num_bytes:.0f} bytes"
