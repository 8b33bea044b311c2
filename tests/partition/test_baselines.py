"""METIS and Zoltan: parts of even weight, memory as a second constraint; and the reason where one is missing."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.placing import baselines, metis, zoltan
from benchmarks.placing.metis import missing_metis, place_metis, symmetric_edges
from benchmarks.placing.random_graphs import fork_join, layered
from benchmarks.placing.zoltan import missing_zoltan, place_zoltan
from vgraph.errors import PlacementError
from vgraph.partition.placement.devices import uniform_cluster
from vgraph.partition.placement.op_graph import OpGraphBuilder

needs_metis = pytest.mark.skipif(bool(missing_metis()), reason=missing_metis() or "-")
needs_zoltan = pytest.mark.skipif(bool(missing_zoltan()), reason=missing_zoltan() or "-")


def imbalance(device_of: np.ndarray, weight: np.ndarray, count: int) -> float:
    return float(np.bincount(device_of, weight, count).max() / (weight.sum() / count))


@needs_metis
@pytest.mark.parametrize("recursive", [False, True])
@pytest.mark.parametrize("with_memory", [False, True])
def test_metis_balances(recursive: bool, with_memory: bool) -> None:
    graph = layered(30, 10)
    device_of = place_metis(graph, uniform_cluster(4), recursive=recursive, with_memory=with_memory)
    assert imbalance(device_of, graph.mean_costs, 4) < 1.1
    if with_memory:
        assert imbalance(device_of, graph.op_bytes, 4) < 1.1


@needs_metis
def test_metis_cuts_where_little_flows() -> None:
    draft = OpGraphBuilder(("device",))
    last = draft.add_tensor(draft.add_op("op0", [1.0]), 1e6)
    for i in range(1, 20):
        last = draft.add_tensor(draft.add_op(f"op{i}", [1.0], [last]), 1.0 if i == 9 else 1e6)
    device_of = place_metis(draft.build(), uniform_cluster(2))
    assert len(set(device_of[:10].tolist())) == len(set(device_of[10:].tolist())) == 1
    assert device_of[0] != device_of[10]


def test_edges_without_direction() -> None:
    pointers, others, weights = symmetric_edges(fork_join(1, 2, 1))
    assert pointers.tolist() == [0, 2, 4, 6, 8]
    assert others.tolist() == [1, 2, 0, 3, 0, 3, 1, 2]
    assert (weights > 0).all() and weights[0] == weights[2]


@needs_zoltan
@pytest.mark.parametrize("hypergraph", [False, True])
def test_zoltan_balances(hypergraph: bool) -> None:
    graph = layered(20, 10)
    device_of = place_zoltan(graph, uniform_cluster(4), hypergraph=hypergraph)
    assert imbalance(device_of, graph.mean_costs, 4) < 1.25


def test_what_is_missing_is_skipped_with_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metis.importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(zoltan, "library_name", lambda: None)
    plans, missing = baselines.judge_baselines(fork_join(2, 2, 2), uniform_cluster(2))
    assert "HEFT" in plans and "METIS k-way" not in plans
    assert "pymetis is not installed" in missing["METIS bisection, memory"]
    assert "Zoltan is not installed" in missing["Zoltan hypergraph"]
    with pytest.raises(PlacementError, match="pymetis is not installed"):
        place_metis(fork_join(2, 2, 2), uniform_cluster(2))
    with pytest.raises(PlacementError, match="Zoltan is not installed"):
        place_zoltan(fork_join(2, 2, 2), uniform_cluster(2))


def test_all_baselines_are_judged() -> None:
    plans, missing = baselines.judge_baselines(fork_join(3, 3, 3), uniform_cluster(3))
    assert len(plans) + len(missing) == 15
    assert all(plan.makespan > 0 for plan in plans.values())
