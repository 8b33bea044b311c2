"""Random op graphs and clusters for tests, and a slow reading of a Timeline."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from vgraph.partition.placement.devices import Cluster, Device, connect, uniform_cluster
from vgraph.partition.placement.list_schedule import Timeline
from vgraph.partition.placement.op_graph import OpGraph, OpGraphBuilder


@st.composite
def op_graphs(draw: st.DrawFn, most: int = 14, num_kinds: int = 1) -> OpGraph:
    """Small DAGs: some ops read several results, some results are views, some ops hold memory, some stay together."""
    count = draw(st.integers(1, most))
    kinds = tuple("device" if i == 0 else f"device{i}" for i in range(num_kinds))
    draft, made = OpGraphBuilder(kinds), list[int]()
    small = st.integers(0, 6)
    for op in range(count):
        reads = draw(st.lists(st.sampled_from(made), max_size=3)) if made else []
        seconds = [draw(small) * 1.0 for _ in kinds]
        draft.add_op(f"op{op}", seconds, reads, resident=float(draw(st.integers(0, 3))))
        root = draw(st.sampled_from(reads)) if reads and draw(st.booleans()) and draw(st.booleans()) else None
        made.append(draft.add_tensor(op, draw(small), root, kept=draw(st.integers(0, 9)) == 0))
    if count > 3 and draw(st.booleans()):
        draft.keep_together(0, count - 1)
    return draft.build()


def clusters(count: int = 3, memory: float = float("inf")) -> Cluster:
    return uniform_cluster(count, memory=memory, latency=0.5, bandwidth=2.0)


def unequal_cluster() -> Cluster:
    devices = [Device("fast", "device"), Device("slow", "device1")]
    return connect(devices, np.full((2, 2), 0.25), np.array([[1.0, 4.0], [2.0, 1.0]]))


def held_bytes(graph: OpGraph, timeline: Timeline, device: int, time: float) -> float:
    """Bytes on a device at a time between two events, by asking every tensor who still needs it."""
    total = sum(graph.resident[op] for op in range(graph.num_ops) if timeline.device_of[op] == device)
    local: dict[int, list[float]] = {}
    for t in range(len(graph.tensor_op)):
        maker = graph.tensor_op[t]
        if timeline.device_of[maker] != device:
            continue
        root = int(graph.tensor_root[t])
        if timeline.device_of[graph.tensor_op[root]] != device:
            root = t
        ends = [timeline.finish[maker], *_reads(graph, timeline, t, device), *_sends(timeline, t)]
        ends += [np.inf] if graph.tensor_kept[t] else []
        local.setdefault(root, []).extend(ends)
    for root, ends in local.items():
        if timeline.start[graph.tensor_op[root]] < time < max(ends):
            total += graph.tensor_bytes[root]
    for i, (t, target) in enumerate(zip(timeline.tensor, timeline.target, strict=True)):
        if target == device:
            ends = [timeline.finish[graph.num_ops + i], *_reads(graph, timeline, t, device)]
            if timeline.start[graph.num_ops + i] < time < max(ends):
                total += graph.tensor_bytes[t]
    return float(total)


def _reads(graph: OpGraph, timeline: Timeline, tensor: int, device: int) -> list[float]:
    readers = graph.edge_op[graph.edge_tensor == tensor]
    return [timeline.finish[op] for op in readers if timeline.device_of[op] == device]


def _sends(timeline: Timeline, tensor: int) -> list[float]:
    return [timeline.finish[timeline.num_ops + i] for i in np.flatnonzero(timeline.tensor == tensor)]
