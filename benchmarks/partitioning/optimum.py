"""Exact optima to compare with: brute force, and an integer program.

Takes: a CostGraph. Gives: a state a vertex; tempo: in tests and benchmarks.
Source: scipy.optimize.milp (HiGHS); the pairwise form is the one of AutoParallel's and Alpa's programs.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import coo_array

from vgraph.errors import ModelError
from vgraph.partition.search.cost_graph import CostGraph

MAX_TRIES = 1 << 22


def brute_force(graph: CostGraph) -> list[int]:
    """Every choice in turn.

    Raises:
        ModelError: there are more than four million.
    """
    sizes = [len(costs) for costs in graph.alone]
    if np.prod([float(s) for s in sizes]) > MAX_TRIES:
        raise ModelError(f"{len(sizes)} vertices have too many choices to try all", cure="use milp")
    tries = itertools.product(*(range(s) for s in sizes))
    return list(min(tries, key=graph.cost))


def optimum(graph: CostGraph, seconds: float = 60.0) -> list[int]:
    """The integer program: one variable a state, one a pair of states that is not free.

    Raises:
        ModelError: no choice is possible, or the time did not suffice.
    """
    count, graph = graph.num_vertices, graph.in_pairs()
    first = [0, *itertools.accumulate(len(costs) for costs in graph.alone)]
    costs = [float(c) for vector in graph.alone for c in vector]
    rows: list[tuple[int, int, float]] = []
    sums: list[float] = []
    for v, vector in enumerate(graph.alone):
        rows += [(len(sums), first[v] + s, 1.0) for s in range(len(vector))]
        sums.append(1.0)
    for (u, v), matrix in graph.pairs.items():
        start = len(costs)
        costs += [float(c) for c in matrix.reshape(-1)]
        for end, axis in ((u, 0), (v, 1)):
            for s in range(matrix.shape[axis]):
                members = np.take(np.arange(matrix.size).reshape(matrix.shape), s, axis=axis)
                rows += [(len(sums), start + int(m), 1.0) for m in members]
                rows.append((len(sums), first[end] + s, -1.0))
                sums.append(0.0)
    return _solved(graph, costs, rows, sums, first, seconds)[:count]


def _solved(
    graph: CostGraph, costs: Sequence[float], rows: Sequence[tuple[int, int, float]], sums: Sequence[float],
    first: Sequence[int], seconds: float,
) -> list[int]:  # fmt: skip
    i, j, value = zip(*rows, strict=True)
    matrix = coo_array((value, (i, j)), shape=(len(sums), len(costs))).tocsr()
    weights = np.array(costs)
    possible = np.isfinite(weights)
    scale = max(float(np.max(weights[possible], initial=0.0)), 1.0)
    limits: Any = (np.array(sums), np.zeros(len(costs)), possible.astype(float))
    found = milp(
        np.where(possible, weights / scale, 0.0), constraints=LinearConstraint(matrix, limits[0], limits[0]),
        integrality=np.ones(len(costs)), bounds=Bounds(limits[1], limits[2]),
        options={"time_limit": seconds, "mip_rel_gap": 1e-9},
    )  # fmt: skip
    if found.x is None:
        raise ModelError("the integer program has no answer", cure="give it more seconds, or a smaller graph")
    return [int(np.argmax(found.x[first[v] : first[v + 1]])) for v in range(graph.num_vertices)]
