"""Schedules: nothing overlaps on a device or a link, nothing starts before its inputs, memory is as held."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.partition.placing import clusters, held_bytes, op_graphs
from vgraph.partition.placement.devices import uniform_cluster, v100_pcie
from vgraph.partition.placement.list_schedule import Timeline, list_schedule
from vgraph.partition.placement.op_graph import OpGraph, OpGraphBuilder


def diamond(num_bytes: float = 4.0) -> OpGraph:
    """a -> b, c -> d, each one second."""
    draft = OpGraphBuilder(("device",))
    a = draft.add_tensor(draft.add_op("a", [1.0]), num_bytes)
    b = draft.add_tensor(draft.add_op("b", [1.0], [a]), num_bytes)
    c = draft.add_tensor(draft.add_op("c", [1.0], [a]), num_bytes)
    draft.add_tensor(draft.add_op("d", [1.0], [b, c]), num_bytes, kept=True)
    return draft.build()


def place(graph: OpGraph, devices: list[int], count: int = 2) -> Timeline:
    return list_schedule(graph, clusters(count), np.array(devices, dtype=np.int64))


def test_one_device_adds_up() -> None:
    timeline = place(diamond(), [0, 0, 0, 0])
    assert timeline.makespan == 4.0
    assert timeline.start.tolist() == [0.0, 1.0, 2.0, 3.0]
    assert timeline.peak_memory.tolist() == [12.0, 0.0]


def test_transfers_cost_latency_and_bytes() -> None:
    timeline = place(diamond(), [0, 0, 1, 0])  # a 0-1, copy 1-3.5, c 3.5-4.5, copy back 4.5-7, d 7-8
    assert timeline.makespan == 8.0
    assert timeline.peak_memory.tolist() == [12.0, 8.0]


def test_a_tensor_goes_to_a_device_once() -> None:
    assert len(place(diamond(), [0, 1, 1, 1]).tensor) == 1


def test_transfers_of_one_link_wait_for_one_another() -> None:
    draft = OpGraphBuilder(("device",))
    for name in "ab":
        draft.add_op(f"{name}1", [1.0], [draft.add_tensor(draft.add_op(name, [0.0]), 4.0)])
    timeline = list_schedule(draft.build(), clusters(2), np.array([0, 1, 0, 1]))
    assert sorted(timeline.finish[4:].tolist()) == [2.5, 5.0]
    assert timeline.makespan == 6.0


def test_links_of_pcie_are_shared_through_the_host() -> None:
    link = v100_pcie().link
    assert link[0, 2] == link[1, 3] == link[0, 3]
    assert len({int(link[0, 1]), int(link[0, 2]), int(link[2, 0]), int(link[1, 0])}) == 4


def test_the_longest_way_to_the_end_goes_first() -> None:
    draft = OpGraphBuilder(("device",))
    draft.add_op("short", [1.0])
    draft.add_op("end", [5.0], [draft.add_tensor(draft.add_op("long", [1.0]), 0.0)])
    timeline = list_schedule(draft.build(), clusters(2), np.array([0, 0, 1]))
    assert timeline.start[1] < timeline.start[0]


def test_a_view_keeps_what_it_looks_at() -> None:
    draft = OpGraphBuilder(("device",))
    a = draft.add_tensor(draft.add_op("a", [1.0]), 8.0)
    view = draft.add_tensor(draft.add_op("view", [0.0], [a]), 8.0, root=a)
    b = draft.add_tensor(draft.add_op("b", [1.0], [view]), 1.0)
    draft.add_op("c", [1.0], [b])
    timeline = list_schedule(draft.build(), clusters(1), np.zeros(4, dtype=np.int64))
    assert timeline.peak_memory.tolist() == [9.0]


def test_a_graph_without_operators() -> None:
    assert place(OpGraphBuilder(("device",)).build(), []).makespan == 0.0


@given(op_graphs(), st.data())
def test_schedules_are_possible(graph: OpGraph, data: st.DataObject) -> None:
    cluster = clusters(3)
    devices = data.draw(st.lists(st.integers(0, 2), min_size=graph.num_ops, max_size=graph.num_ops))
    timeline = list_schedule(graph, cluster, np.array(devices, dtype=np.int64))
    arrival = {
        (int(t), int(d)): timeline.finish[graph.num_ops + i]
        for i, (t, d) in enumerate(zip(timeline.tensor, timeline.target, strict=True))
    }
    for tensor, op in zip(graph.edge_tensor, graph.edge_op, strict=True):
        maker = graph.tensor_op[tensor]
        local = timeline.finish[maker]
        there = local if devices[maker] == devices[op] else arrival[int(tensor), devices[op]]
        assert timeline.start[op] >= there >= local
    for device in range(3):
        on = np.flatnonzero(timeline.device_of == device)
        assert_apart(timeline.start[on], timeline.finish[on])
    links = cluster.link[timeline.source, timeline.target]
    for link in set(links.tolist()):
        on = graph.num_ops + np.flatnonzero(links == link)
        assert_apart(timeline.start[on], timeline.finish[on])
    assert timeline.makespan == timeline.finish.max()
    position = {op: i for i, op in enumerate(timeline.order())}
    makers = graph.tensor_op[graph.edge_tensor].tolist()
    assert all(position[a] < position[b] for a, b in zip(makers, graph.edge_op.tolist(), strict=True))


def assert_apart(start: np.ndarray, finish: np.ndarray) -> None:
    order = np.lexsort((finish, start))
    assert (start[order][1:] >= finish[order][:-1]).all()


@given(op_graphs(), st.data())
def test_peak_memory_is_what_is_held(graph: OpGraph, data: st.DataObject) -> None:
    devices = data.draw(st.lists(st.integers(0, 1), min_size=graph.num_ops, max_size=graph.num_ops))
    timeline = list_schedule(graph, clusters(2), np.array(devices, dtype=np.int64))
    moments = np.unique(np.concatenate([[0.0], timeline.start, timeline.finish]))
    between = [*((moments[1:] + moments[:-1]) / 2), moments[-1] + 1.0]
    for device in range(2):
        held = max(held_bytes(graph, timeline, device, time) for time in between)
        assert timeline.peak_memory[device] == pytest.approx(held, abs=1e-9) or timeline.peak_memory[device] >= held
        lengths = timeline.finish - timeline.start
        if (lengths > 0).all():
            assert timeline.peak_memory[device] == pytest.approx(held)


def test_blockers_lead_back_to_the_beginning() -> None:
    from benchmarks.placing.random_graphs import fork_join
    from vgraph.partition.placement.refine import critical_chain

    graph = fork_join(5, 3, 4)
    timeline = list_schedule(graph, uniform_cluster(3, latency=1e-4), np.arange(graph.num_ops) % 3)
    chain = critical_chain(timeline)
    assert sum(seconds for _, seconds in chain) == pytest.approx(timeline.makespan)
