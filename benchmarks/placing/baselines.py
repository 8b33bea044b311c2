"""Baselines: every plan that placement is compared with, by name, and why some cannot be had here.

Takes: OpGraph, Cluster. Gives: a Timeline a baseline, all judged alike; tempo: once a benchmark.
Source: depth-first placement, its comparison; Baechi (Jeon et al. 2020).
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from vgraph.errors import PlacementError
from vgraph.partition.placement.devices import Cluster
from vgraph.partition.placement.list_schedule import Timeline, list_schedule
from vgraph.partition.placement.memory_weights import memory_weights
from vgraph.partition.placement.op_graph import Ints, OpGraph
from vgraph.partition.placement.placement import STARTS, Start
from vgraph.partition.placement.simple_plans import follow_readers, unify_groups

from .metis import missing_metis, place_metis
from .zoltan import missing_zoltan, place_zoltan


def place_randomly(graph: OpGraph, cluster: Cluster, seed: int = 0) -> Ints:
    """Every op anywhere."""
    return np.random.default_rng(seed).integers(0, cluster.num_devices, graph.num_ops)


def place_round_robin(graph: OpGraph, cluster: Cluster) -> Ints:
    """Ops that take time go round the devices in order; what takes none goes with its first reader."""
    device_of = np.zeros(graph.num_ops, dtype=np.int64)
    works = graph.mean_costs > 0
    device_of[works] = np.arange(int(works.sum())) % cluster.num_devices
    return follow_readers(graph, device_of, works.tolist())


METIS: Mapping[str, Start] = {
    "METIS k-way": lambda g, c, w: place_metis(g, c),
    "METIS k-way, memory": lambda g, c, w: place_metis(g, c, with_memory=True),
    "METIS bisection": lambda g, c, w: place_metis(g, c, recursive=True),
    "METIS bisection, memory": lambda g, c, w: place_metis(g, c, recursive=True, with_memory=True),
}
ZOLTAN: Mapping[str, Start] = {
    "Zoltan multilevel": lambda g, c, w: place_zoltan(g, c),
    "Zoltan hypergraph": lambda g, c, w: place_zoltan(g, c, hypergraph=True),
}
SIMPLE: Mapping[str, Start] = {
    "random": lambda g, c, w: place_randomly(g, c),
    "round robin": lambda g, c, w: place_round_robin(g, c),
}


def baselines() -> tuple[dict[str, Start], dict[str, str]]:
    """The baselines that can be had here, and for the others the reason.

    >>> found, missing = baselines()
    >>> "HEFT" in found
    True
    """
    found, missing = {**STARTS, **SIMPLE}, dict[str, str]()
    for group, reason in ((METIS, missing_metis()), (ZOLTAN, missing_zoltan())):
        if reason:
            missing.update(dict.fromkeys(group, reason))
        else:
            found.update(group)
    return found, missing


def judge_baselines(graph: OpGraph, cluster: Cluster) -> tuple[dict[str, Timeline], dict[str, str]]:
    """A Timeline for every baseline, by the list schedule that judges all; and those that could not be had."""
    found, missing = baselines()
    weights, plans = memory_weights(graph, cluster), dict[str, Timeline]()
    for name, start in found.items():
        try:
            device_of = start(graph, cluster, weights)
        except PlacementError as error:
            missing[name] = str(error)
            continue
        plans[name] = list_schedule(graph, cluster, unify_groups(graph, cluster, device_of))
    return plans, missing
