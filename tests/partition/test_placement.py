"""Placements: limits and groups are kept, nothing is worse than the plans it starts from, refusals say why."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings

from benchmarks.placing.baselines import place_randomly, place_round_robin
from benchmarks.placing.random_graphs import chain_with_skips, fork_join, training, tree, unrolled
from tests.partition.placing import clusters, op_graphs, unequal_cluster
from vgraph.errors import CycleError, DeviceMemoryError, GraphError
from vgraph.partition.placement.depth_first import place_depth_first, walk_depth_first
from vgraph.partition.placement.devices import Cluster, Device, connect, uniform_cluster
from vgraph.partition.placement.greedy_plans import place_heft, place_m_etf
from vgraph.partition.placement.list_schedule import list_schedule
from vgraph.partition.placement.op_graph import OpGraph, OpGraphBuilder
from vgraph.partition.placement.placement import STARTS, lower_bound, place_graph
from vgraph.partition.placement.simple_plans import place_m_topo, place_on_one


@given(op_graphs(num_kinds=2))
@settings(max_examples=60)
def test_never_worse_than_a_start(graph: OpGraph) -> None:
    placed = place_graph(graph, unequal_cluster(), trials=30)
    again = list_schedule(graph, unequal_cluster(), placed.device_of)
    assert again.makespan == placed.makespan
    assert all((0.0, placed.makespan) <= score for score in placed.starts.values())
    assert placed.makespan >= lower_bound(graph, unequal_cluster()) - 1e-9
    for members in graph.members.values():
        assert len(set(placed.device_of[members].tolist())) == 1


@given(op_graphs())
def test_walk_takes_every_op_once(graph: OpGraph) -> None:
    paths = walk_depth_first(graph)
    assert sorted(op for path in paths for op in path.ops) == list(range(graph.num_ops))
    after = [{o for o, _ in row} for row in graph.successors]
    placed: set[int] = set()
    for path in paths:
        assert all(b in after[a] for a, b in zip(path.ops, path.ops[1:], strict=False))
        assert path.turn < 0 or (path.turn in placed and path.ops[0] in after[path.turn])
        assert path.meets < 0 or path.meets in after[path.ops[-1]]
        placed |= set(path.ops)


def test_walk_of_two_branches() -> None:
    graph = fork_join(1, width=2, length=2)  # 0 -> 1 2 | 3 4 -> 5
    first, second = walk_depth_first(graph)
    assert (first.turn, first.ops, first.meets) == (-1, [0, 1, 2, 5], -1)
    assert (second.turn, second.ops, second.meets) == (0, [3, 4], 5)


def test_depth_first_separates_branches() -> None:
    graph = fork_join(3, width=2, length=5)
    device_of = place_depth_first(graph, uniform_cluster(2))
    assert len(set(device_of[1:6].tolist())) == len(set(device_of[6:11].tolist())) == 1
    assert device_of[1] != device_of[6]


def test_depth_first_stays_where_moving_costs_more() -> None:
    graph = fork_join(3, width=2, length=5)
    slow = uniform_cluster(2, bandwidth=1e5)
    assert len(set(place_depth_first(graph, slow).tolist())) == 1


def test_two_branches_take_half_the_time() -> None:
    graph = fork_join(4, width=2, length=8, num_bytes=1e3)
    cluster = uniform_cluster(2)
    one = list_schedule(graph, cluster, place_on_one(graph, cluster)).makespan
    assert place_graph(graph, cluster).makespan < 0.65 * one


def test_a_chain_stays_on_one_device() -> None:
    graph = chain_with_skips(50, skip=0.0)
    placed = place_graph(graph, uniform_cluster(4))
    assert len(set(placed.device_of.tolist())) == 1


@pytest.mark.parametrize("graph", [unrolled(4, 6), tree(4), fork_join(3, 3, 3)], ids=["unrolled", "tree", "fork-join"])
def test_small_optimum_is_not_missed_by_much(graph: OpGraph) -> None:
    placed = place_graph(graph, uniform_cluster(2))
    assert placed.makespan <= 1.25 * lower_bound(graph, uniform_cluster(2))


def test_groups_stay_together() -> None:
    draft = OpGraphBuilder(("device",))
    ops = [draft.add_op(f"op{i}", [1.0]) for i in range(6)]
    draft.keep_together(ops[0], ops[3])
    draft.keep_together(ops[3], ops[5])
    graph = draft.build()
    placed = place_graph(graph, clusters(2))
    assert len({int(placed.device_of[i]) for i in (0, 3, 5)}) == 1
    assert placed.makespan == 3.0
    assert place_heft(graph, clusters(2))[0] == place_heft(graph, clusters(2))[5]
    assert place_m_etf(graph, clusters(2))[0] == place_m_etf(graph, clusters(2))[5]


def test_faster_devices_get_more() -> None:
    draft = OpGraphBuilder(("fast", "slow"))
    for i in range(9):
        draft.add_op(f"op{i}", [1.0, 2.0])
    cluster = connect([Device("f", "fast"), Device("s", "slow")], np.zeros((2, 2)), np.full((2, 2), 1e9))
    assert place_graph(draft.build(), cluster).makespan == 6.0


def test_operators_go_where_they_can_run() -> None:
    draft = OpGraphBuilder(("cpu", "gpu"))
    draft.add_op("anywhere", [1.0, 0.1])
    draft.add_op("only there", [1.0, float("inf")])
    cluster = connect([Device("cpu", "cpu"), Device("gpu", "gpu")], np.zeros((2, 2)), np.full((2, 2), 1e9))
    placed = place_graph(draft.build(), cluster)
    assert placed.device_of.tolist() == [1, 0]


# ------------------------------------------------------------------ memory
def heavy(num_ops: int = 8, resident: float = 10.0) -> OpGraph:
    draft = OpGraphBuilder(("device",))
    last: list[int] = []
    for i in range(num_ops):
        op = draft.add_op(f"layer{i}", [1.0], last, resident=resident)
        last = [draft.add_tensor(op, 2.0)]
    return draft.build()


def test_memory_limits_spread_a_chain() -> None:
    cluster = clusters(4, memory=26.0)
    placed = place_graph(heavy(), cluster)
    assert (placed.timeline.peak_memory <= 26.0).all()
    assert placed.makespan > 8.0
    assert place_graph(heavy(), clusters(4, memory=100.0)).makespan == 8.0


def test_memory_limits_hold_on_training_graphs() -> None:
    def forward(op):
        x = op([])
        for _ in range(6):
            x = op([op([op([x])]) for _ in range(3)])
        return x

    graph = training(forward, seconds=1e-2)
    free = place_graph(graph, uniform_cluster(4), trials=100)
    limit = float(free.timeline.peak_memory.max()) * 0.8
    placed = place_graph(graph, uniform_cluster(4, memory=limit), trials=400)
    assert (placed.timeline.peak_memory <= limit).all()


def test_refusal_says_how_much_is_missing() -> None:
    with pytest.raises(DeviceMemoryError, match="the parameters alone need 80 bytes and the devices hold 60 bytes"):
        place_graph(heavy(), clusters(4, memory=15.0))
    with pytest.raises(DeviceMemoryError, match=r"needs \d+ bytes and holds 21 bytes: \d+ bytes are missing"):
        place_graph(heavy(), clusters(4, memory=21.0))
    with pytest.raises(MemoryError, match="cure: use more devices"):
        place_graph(heavy(1, resident=10.0), clusters(2, memory=9.0))


# ------------------------------------------------------------------ bad input
def test_cycle_is_named() -> None:
    draft = OpGraphBuilder(("device",))
    a, b, c = (draft.add_op(name, [1.0]) for name in "abc")
    for source, target in ((a, b), (b, c), (c, b)):
        draft.add_read(target, draft.add_tensor(source, 1.0))
    with pytest.raises(CycleError, match=r"operators wait for one another: (b -> c -> b|c -> b -> c)"):
        draft.build()


def test_names_are_not_repeated() -> None:
    draft = OpGraphBuilder(("device",))
    draft.add_op("a", [1.0])
    draft.add_op("a", [1.0])
    with pytest.raises(GraphError, match="two operators are called 'a'"):
        draft.build()


@pytest.mark.parametrize("seconds", [[-1.0], [float("nan")], [float("inf")], [1.0, 2.0]])
def test_seconds_are_checked(seconds: list[float]) -> None:
    draft = OpGraphBuilder(("device",))
    draft.add_op("a", seconds)
    with pytest.raises(GraphError, match="operator 'a' takes"):
        draft.build()


def test_devices_are_checked() -> None:
    with pytest.raises(GraphError, match="there is no device"):
        connect([], np.zeros((0, 0)), np.zeros((0, 0)))
    two = [Device("a", "device"), Device("b", "device")]
    with pytest.raises(GraphError, match="b cannot be reached from a"):
        connect(two, np.zeros((2, 2)), np.array([[1.0, 0.0], [1.0, 1.0]]))
    with pytest.raises(GraphError, match="no seconds for gpu: it was profiled on device"):
        place_graph(heavy(), uniform_cluster(2, kind="gpu"))


def test_an_operator_that_no_device_can_run() -> None:
    draft = OpGraphBuilder(("cpu", "gpu"))
    draft.add_op("only there", [1.0, float("inf")])
    with pytest.raises(GraphError, match="operator 'only there' can run on none of gpu:0, gpu:1"):
        place_graph(draft.build(), uniform_cluster(2, kind="gpu"))


# ------------------------------------------------------------------ all plans
PLANS = {
    **STARTS,
    "random": lambda g, c, w: place_randomly(g, c),
    "round robin": lambda g, c, w: place_round_robin(g, c),
}


@pytest.mark.parametrize("name", PLANS)
@pytest.mark.parametrize("cluster", [uniform_cluster(1), uniform_cluster(3), uniform_cluster(4, memory=6e7)])
def test_plans_name_devices(name: str, cluster: Cluster) -> None:
    graph = fork_join(4, 3, 4)
    device_of = PLANS[name](graph, cluster, np.ones(graph.num_ops))
    assert device_of.shape == (graph.num_ops,)
    assert device_of.min() >= 0 and device_of.max() < cluster.num_devices


def test_m_topo_fills_one_device_after_the_other() -> None:
    device_of = place_m_topo(heavy(), clusters(4, memory=40.0))
    assert (np.diff(device_of) >= 0).all() and len(set(device_of.tolist())) > 1


def test_needless_transfers_are_taken_back() -> None:
    from vgraph.partition.placement.refine import Budget, consolidate

    graph = fork_join(4, width=2, length=6)
    cluster = uniform_cluster(2)
    scattered = list_schedule(graph, cluster, np.arange(graph.num_ops) % 2)
    joined = consolidate(graph, cluster, scattered, Budget(300))
    assert joined.makespan <= scattered.makespan
    assert len(joined.tensor) < len(scattered.tensor)
