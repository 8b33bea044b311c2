"""Simple plans: one device, topological split, m-TOPO.

Takes: OpGraph, Cluster. Gives: a device an op. Runs once per placement.
Source: the baselines of depth-first placement; m-TOPO of Baechi (Jeon et al. 2020).
"""

from __future__ import annotations

import numpy as np

from vgraph.partition.placement.devices import Cluster
from vgraph.partition.placement.memory_weights import Ledger, fastest_device, memory_weights
from vgraph.partition.placement.op_graph import Floats, Ints, OpGraph


def place_on_one(graph: OpGraph, cluster: Cluster) -> Ints:
    """Everything on the fastest device."""
    return np.full(graph.num_ops, fastest_device(graph, cluster), dtype=np.int64)


def place_topological(graph: OpGraph, cluster: Cluster) -> Ints:
    """The order cut into pieces of as much time as each device's share of the speed of all."""
    per_device = np.array([graph.mean_costs.sum() / max(_seconds_on(graph, d.kind), 1e-30) for d in cluster.devices])
    ends = np.cumsum(per_device) / per_device.sum()
    done = np.cumsum(graph.mean_costs) - 0.5 * graph.mean_costs
    share = done / max(float(graph.mean_costs.sum()), 1e-30)
    device_of = np.minimum(np.searchsorted(ends, share), cluster.num_devices - 1).astype(np.int64)
    return follow_readers(graph, device_of, (graph.mean_costs > 0).tolist())


def _seconds_on(graph: OpGraph, kind: str) -> float:
    row = graph.costs[graph.kinds.index(kind)]
    return float(np.where(np.isfinite(row), row, 1e6).sum())


def follow_readers(graph: OpGraph, device_of: Ints, works: list[bool]) -> Ints:
    """Inputs lie where they are first read, so that no plan pays for where they happen to stand."""
    chosen: list[int] = device_of.tolist()
    for op in range(graph.num_ops - 1, -1, -1):
        if not works[op] and graph.successors[op]:
            chosen[op] = chosen[min(other for other, _ in graph.successors[op])]
    return np.array(chosen, dtype=np.int64)


def place_m_topo(graph: OpGraph, cluster: Cluster, weights: Floats | None = None) -> Ints:
    """Baechi's m-TOPO: in topological order, each device filled to an equal share of memory plus the largest op."""
    weights = memory_weights(graph, cluster) if weights is None else weights
    ledger = Ledger(graph, cluster, weights)
    cap = float(weights.sum()) / cluster.num_devices + float(np.max(ledger.weight, initial=0.0))
    device_of, current, filled = np.zeros(graph.num_ops, dtype=np.int64), 0, 0.0
    for op in range(graph.num_ops):
        if filled + ledger.weight[op] > min(cap, cluster.devices[current].memory) and current + 1 < cluster.num_devices:
            current, filled = current + 1, 0.0
        choices = ledger.choices(op)
        device = current if current in choices else choices[0]
        filled += ledger.weight[op] if device == current else 0.0
        device_of[op] = device
        ledger.take(op, device)
    return device_of


def unify_groups(graph: OpGraph, cluster: Cluster, device_of: Ints) -> Ints:
    """Every group on the device that holds most of its seconds; ops off devices that cannot run them."""
    device_of = device_of.copy()
    for members in graph.members.values():
        weight = np.bincount(device_of[members], graph.mean_costs[members] + 1e-12, cluster.num_devices)
        device_of[members] = int(weight.argmax())
    costs = graph.costs[[graph.kinds.index(d.kind) for d in cluster.devices]]
    wrong = np.flatnonzero(~np.isfinite(costs[device_of, np.arange(graph.num_ops)]))
    device_of[wrong] = costs[:, wrong].argmin(0)
    return device_of
