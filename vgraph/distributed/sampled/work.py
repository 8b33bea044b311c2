"""Work: what a batch of graphs costs a rank, and which graphs go to which rank.

Takes: vertices, edges and heights of graphs. Gives: coefficients, shares. Shares are made at every step.
Source: Graham 1969 (longest first: at most 4/3 of the best). A loop over frontiers has as many as its highest graph.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING

import numpy as np

from vgraph.graphs.draw.random_numbers import Array
from vgraph.late import late

if TYPE_CHECKING:
    from scipy import optimize
else:
    optimize = late("scipy.optimize")

_TRIALS = 16  # batches that are measured, each of them three times


@dataclass(frozen=True)
class Sizes:
    """Of every graph: vertices, edges, and frontiers (0 where there are cycles, or where nobody asks)."""

    vertices: Array
    edges: Array
    heights: Array


@dataclass(frozen=True)
class Work:
    """Seconds, or anything in proportion: ``a`` a vertex, ``b`` an edge, ``c`` a frontier."""

    a: float = 1.0
    b: float = 1.0
    c: float = 0.0

    def shares(self, sizes: Sizes, chosen: Array, num_ranks: int) -> list[Array]:
        """The graphs of every rank: the dearest first, each to the rank that is then done first."""
        rows = self.a * sizes.vertices[chosen] + self.b * sizes.edges[chosen]
        highs = self.c * sizes.heights[chosen]
        order = np.argsort(-(rows + highs), kind="stable")
        waiting = [(0.0, rank, 0.0, 0.0) for rank in range(num_ranks)]
        found: list[list[int]] = [[] for _ in range(num_ranks)]
        for place in order.tolist():
            _, rank, sum_of_rows, highest = heapq.heappop(waiting)
            found[rank].append(place)
            sum_of_rows, highest = sum_of_rows + float(rows[place]), max(highest, float(highs[place]))
            heapq.heappush(waiting, (sum_of_rows + highest, rank, sum_of_rows, highest))
        return [chosen[np.sort(np.array(places, np.int64))] for places in found]


def fit_work(sizes: Sizes, run: Callable[[Sequence[int]], object], share: int) -> Work:
    """Coefficients by least squares, none below 0, from times of ``run`` on batches of up to ``share`` graphs."""
    random, count = np.random.default_rng(0), len(sizes.vertices)
    rows: list[list[float]] = []
    times: list[float] = []
    by_size = np.argsort(sizes.vertices + sizes.edges, kind="stable")
    for trial in range(_TRIALS):
        number = max(1, min(share, count) * (trial % 4 + 1) // 4)
        near = random.integers(0, count) if trial % 2 else None  # some of graphs of one size, some of any
        places = (np.arange(number) + (near or 0)) % count if near is not None else random.integers(0, count, number)
        chosen = by_size[places]
        times.append(_least_time(lambda chosen=chosen: run(chosen.tolist())))
        rows.append(
            [sizes.vertices[chosen].sum(), sizes.edges[chosen].sum(), sizes.heights[chosen].max(), 1.0]  # 1: the call
        )
    table = np.array(rows, np.float64)
    scale = np.maximum(table.max(0), 1.0)
    found = optimize.nnls(table / scale, np.array(times))[0] / scale
    return Work(*found[:3].tolist()) if found[:3].any() else Work()


def _least_time(run: Callable[[], object]) -> float:
    run()
    times: list[float] = []
    for _ in range(3):
        start = perf_counter()
        run()
        times.append(perf_counter() - start)
    return min(times)
