"""Elimination finds the exact optimum; dominance never loses it; CriticalDP is no better."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.partitioning.optimum import brute_force, optimum
from vgraph.errors import ModelError
from vgraph.partition.search import critical
from vgraph.partition.search.cost_graph import CostGraph, Triple
from vgraph.partition.search.critical import Solved, solve, solve_by_paths, solve_known
from vgraph.partition.search.dominance import prune
from vgraph.partition.search.eliminate import MAX_ENTRIES, Elimination, Tables, eliminate

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))

from models.cost_graphs import random_graph


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 7))
def test_elimination_is_exact(seed: int, size: int) -> None:
    graph = random_graph(np.random.default_rng(seed), size)
    least = graph.cost(brute_force(graph))
    states = eliminate(graph)
    assert states is not None
    assert graph.cost(states) == pytest.approx(least)
    assert graph.cost(solve(graph)) == pytest.approx(least)
    pruned = prune(graph)
    found = eliminate(pruned.graph)
    assert found is not None
    assert graph.cost(pruned.restore(found)) == pytest.approx(least)
    assert graph.cost(solve_by_paths(graph, 0)) >= least - 1e-9


def _with_triples(graph: CostGraph, rng: np.random.Generator) -> CostGraph:
    """Costs of three vertices, in any order of theirs; equal tables and maps are one array here and there."""
    triples: list[Triple] = []
    for _ in range(int(rng.integers(1, 5))):
        one, two, three = (int(v) for v in rng.permutation(graph.num_vertices)[:3])
        table = rng.integers(0, 9, (3, 2, 3)).astype(float)
        maps = [rng.integers(0, c, len(graph.alone[v])) for v, c in zip((one, two, three), table.shape, strict=True)]
        triples.append(Triple((one, two, three), table, (maps[0], maps[1], maps[2])))
        triples.append(Triple((one, two, three), triples[0].table, (maps[0], maps[1], maps[2])))
    return CostGraph(graph.alone, graph.pairs, triples)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.integers(3, 6))
def test_costs_of_three_are_costs_too(seed: int, size: int) -> None:
    rng = np.random.default_rng(seed)
    graph = _with_triples(random_graph(rng, size), rng)
    least = graph.cost(brute_force(graph))
    states, pruned, in_pairs = eliminate(graph), prune(graph), graph.in_pairs()
    assert states is not None
    assert graph.cost(states) == pytest.approx(least)
    found, also = eliminate(pruned.graph), eliminate(in_pairs)
    assert found is not None
    assert also is not None
    assert graph.cost(pruned.restore(found)) == pytest.approx(least)
    assert in_pairs.cost(also) == pytest.approx(least)
    assert graph.cost(also[:size]) == pytest.approx(least)
    assert graph.cost(optimum(graph)) == pytest.approx(least)
    by_paths = solve_by_paths(graph, 0)
    assert len(by_paths) == size
    assert graph.cost(by_paths) >= least - 1e-9


@pytest.mark.parametrize("seed", range(6))
def test_the_integer_program_agrees(seed: int) -> None:
    graph = random_graph(np.random.default_rng(seed), 20)
    assert graph.cost(optimum(graph)) == pytest.approx(graph.cost(solve(graph)))


def test_a_wide_graph_is_searched_by_paths() -> None:
    rng = np.random.default_rng(0)
    pairs = {(u, v): rng.random((4, 4)) for u in range(16) for v in range(u + 1, 16)}
    graph = CostGraph([rng.random(4) for _ in range(16)], pairs)
    assert eliminate(graph, max_entries=1 << 12) is None
    states = solve(graph, max_entries=1 << 12)
    assert len(states) == 16
    worst = max(graph.cost([int(s) for s in rng.integers(0, 4, 16)]) for _ in range(50))
    assert graph.cost(states) < worst


def test_graphs_of_a_search_are_found_too_wide_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """With what one round leaves: the next graphs of the same search are likely as wide, and go through all rounds."""
    rng = np.random.default_rng(0)
    pairs = {(u, v): rng.random((4, 4)) for u in range(6) for v in range(u + 1, 6)}
    graph = CostGraph([rng.random(4) for _ in range(6)], pairs)
    tried: list[int] = []

    def counted(graph: CostGraph, max_entries: int, tables: Tables) -> list[int] | None:
        tried.append(max_entries)
        return eliminate(graph, max_entries, tables)

    monkeypatch.setattr(critical, "eliminate", counted)
    before, most = Solved(), 4**6 // 2
    found = [solve_known(graph, most, before) for _ in range(2)]
    assert tried == [most, 4 * most, 4 * most]
    assert found == [(brute_force(graph), True)] * 2


def test_impossible_states_are_avoided() -> None:
    costs = np.array([[np.inf, np.inf], [5.0, np.inf]])
    graph = CostGraph([np.zeros(2), np.zeros(2)], {(0, 1): costs})
    assert solve(graph) == [1, 0]
    assert optimum(graph) == [1, 0]


def test_too_many_choices_to_try() -> None:
    with pytest.raises(ModelError, match="too many choices"):
        brute_force(CostGraph([np.zeros(10)] * 20, {}))
    with pytest.raises(ModelError, match="no answer"):
        optimum(CostGraph([np.full(2, np.inf)], {}))


def test_repeated_parts_are_computed_once() -> None:
    rng = np.random.default_rng(0)
    block, link = (rng.integers(0, 100, (5, 5)).astype(float) for _ in range(2))
    alone = np.zeros(5)
    counts: list[int] = []
    for blocks in (20, 200):
        pairs = {(2 * i, 2 * i + 1): block for i in range(blocks)}
        pairs |= {(2 * i + 1, 2 * i + 2): link for i in range(blocks - 1)}
        elimination = Elimination(CostGraph([alone] * (2 * blocks), pairs), MAX_ENTRIES)
        assert elimination.run() is not None
        counts.append(len(elimination.known))
    assert counts[1] < 1.5 * counts[0]
