"""CriticalDP: the longest path first, its states then fixed, then the next; for graphs that are too wide.

Takes: a CostGraph. Gives: a state a vertex. Runs once per step of the recursion.
Source: Tofu's first version, section 5 (CriticalDP: the longest path by tensor size).
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

import numpy as np

from vgraph.partition.search.cost_graph import CostGraph, Costs
from vgraph.partition.search.dominance import Met, prune
from vgraph.partition.search.eliminate import MAX_ENTRIES, Tables, eliminate

_MORE = 4  # times as large a table is worth its time where a path would be all that is left


class Solved:
    """What was found of graphs that were solved before; those of one search have much in common.

    ``was_wide``: one of them was too wide while it had all states that its first round had left.
    """

    def __init__(self) -> None:
        self.met = Met()
        self.tables = Tables(self.met)
        self.was_wide = False


def solve(graph: CostGraph, max_entries: int = MAX_ENTRIES, before: Solved | None = None) -> list[int]:
    """The states of least cost, exactly where the graph is narrow, else by paths until the rest is."""
    return solve_known(graph, max_entries, before)[0]


def solve_known(
    graph: CostGraph, max_entries: int = MAX_ENTRIES, before: Solved | None = None
) -> tuple[list[int], bool]:
    """The same, and whether no states cost less for certain."""
    before = before or Solved()
    if not before.was_wide:
        pruned = prune(graph, 1, before.met)
        states = eliminate(pruned.graph, max_entries, before.tables)
        if states is not None:
            return pruned.restore(states), True
        before.was_wide = True
    pruned = prune(graph, met=before.met)  # fewer states may make it narrow enough
    states = eliminate(pruned.graph, _MORE * max_entries, before.tables)
    found = states if states is not None else solve_by_paths(pruned.graph, max_entries)
    return pruned.restore(found), states is not None


def solve_by_paths(graph: CostGraph, max_entries: int) -> list[int]:
    """States path by path until elimination needs no larger table; with ``max_entries`` 0 the paper's first version."""
    count, graph = graph.num_vertices, graph.in_pairs()
    fixed: dict[int, int] = {}
    alone = [costs.copy() for costs in graph.alone]
    around = graph.neighbours()
    while len(fixed) < graph.num_vertices:
        path = longest_path(graph, fixed)
        for v, state in zip(path, best_on_path(graph, alone, path), strict=True):
            fixed[v] = state
            for u in around[v] - fixed.keys():
                alone[u] = alone[u] + _seen_from(graph, u, v)[:, state]
        if max_entries and len(fixed) < graph.num_vertices:
            rest = [v for v in range(graph.num_vertices) if v not in fixed]
            found = eliminate(_among(graph, alone, rest), max_entries)
            if found is not None:
                fixed.update(zip(rest, found, strict=True))
    return [fixed[v] for v in range(count)]


def longest_path(graph: CostGraph, without: Mapping[int, int]) -> list[int]:
    """The path, in the order of the vertices, over which most bytes could move."""
    length: dict[int, float] = {v: 0.0 for v in range(graph.num_vertices) if v not in without}
    before: dict[int, int] = {}
    for u, v in sorted(graph.pairs):
        if u in length and v in length:
            costs = graph.pairs[u, v]
            reach = length[u] + float(np.max(costs[np.isfinite(costs)], initial=0.0))
            if v not in before or reach > length[v]:
                length[v], before[v] = reach, u
    at = max(length, key=lambda v: length[v])
    path = [at]
    while at in before:
        at = before[at]
        path.append(at)
    return path[::-1]


def best_on_path(graph: CostGraph, alone: Sequence[Costs], path: Sequence[int]) -> list[int]:
    """Dynamic programming along a path."""
    total, choices = alone[path[0]], list[Costs]()
    for u, v in itertools.pairwise(path):
        table = total[:, None] + _seen_from(graph, u, v)
        choices.append(np.argmin(table, axis=0))
        total = np.min(table, axis=0) + alone[v]
    states = [int(np.argmin(total))]
    for best in reversed(choices):
        states.append(int(best[states[-1]]))
    return states[::-1]


def _seen_from(graph: CostGraph, u: int, v: int) -> Costs:
    return graph.pairs[u, v] if u < v else graph.pairs[v, u].T


def _among(graph: CostGraph, alone: Sequence[Costs], rest: Sequence[int]) -> CostGraph:
    number = {v: i for i, v in enumerate(rest)}
    pairs = {(number[u], number[v]): c for (u, v), c in graph.pairs.items() if u in number and v in number}
    return CostGraph([alone[v] for v in rest], pairs)
