"""Exact elimination: the cheapest states of a CostGraph whose width is small.

Takes: a CostGraph. Gives: a state a vertex, or None where the graph is too wide; tempo: once a step of the recursion.
Source: Tofu section 5.2 (dynamic programming), on any graph: bucket elimination (Dechter 1999), repeated parts once.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vgraph.partition.cost_graph import CostGraph, Costs

MAX_ENTRIES = 1 << 22  # of one table: six neighbours of twelve states


@dataclass(frozen=True, eq=False)
class _Factor:
    """A cost of several vertices at once; ``table`` numbers its array among all that differ."""

    scope: tuple[int, ...]
    table: int


@dataclass(frozen=True, eq=False)
class _Made:
    table: int
    best: NDArray[np.int16]


class Elimination:
    def __init__(self, graph: CostGraph, max_entries: int) -> None:
        self.graph, self.max_entries = graph, max_entries
        self.tables: list[Costs] = []
        self.numbers: dict[int, int] = {}
        self.lines: dict[tuple[int, bool], Costs] = {}
        self.equal: dict[tuple[object, ...], Costs] = {}
        self.known: dict[tuple[object, ...], _Made] = {}
        self.sizes = [len(costs) for costs in graph.alone]
        self.touching: list[dict[int, _Factor]] = [{} for _ in graph.alone]
        self.neighbours = graph.neighbours()
        self.count = 0
        self.order: list[tuple[int, tuple[int, ...], _Made]] = []
        self.logs = [math.log(size) for size in self.sizes]
        for v, costs in enumerate(graph.alone):
            if self.sizes[v] > 1:  # one state is no choice
                self._add(_Factor((v,), self._number(costs)))
        for pair, costs in graph.pairs.items():
            self._add_pair(pair, costs)

    def _add_pair(self, pair: tuple[int, int], costs: Costs) -> None:
        """A vertex with one state joins nothing: its neighbours bear what it costs beside them."""
        u, v = pair
        if self.sizes[u] > 1 and self.sizes[v] > 1:
            self._add(_Factor(pair, self._number(costs)))
            return
        self.neighbours[u].discard(v)
        self.neighbours[v].discard(u)
        if self.sizes[u] == self.sizes[v] == 1:
            return
        rest = u if self.sizes[u] > 1 else v
        key = (id(costs), rest == u)
        if key not in self.lines:
            self.lines[key] = costs[:, 0] if rest == u else costs[0]
        self._add(_Factor((rest,), self._number(self.lines[key])))

    def _number(self, costs: Costs) -> int:
        found = self.numbers.setdefault(id(costs), len(self.tables))
        if found == len(self.tables):
            self.tables.append(costs)
        return found

    def _add(self, factor: _Factor) -> None:
        self.count += 1
        for v in factor.scope:
            self.touching[v][self.count] = factor

    def run(self) -> list[int] | None:
        """Vertices of the smallest resulting table first."""
        queue = [(self._width(v), v) for v, size in enumerate(self.sizes) if size > 1]
        heapq.heapify(queue)
        done = [False] * len(self.sizes)
        while queue:
            width, v = heapq.heappop(queue)
            if done[v]:
                continue
            now = self._width(v)
            if now > width + 1e-9:
                heapq.heappush(queue, (now, v))
                continue
            if now > math.log(self.max_entries):
                return None
            done[v] = True
            for u in self._eliminate(v):
                heapq.heappush(queue, (self._width(u), u))
        return self._states()

    def _width(self, v: int) -> float:
        logs = self.logs
        return logs[v] + sum([logs[u] for u in self.neighbours[v]])

    def _eliminate(self, v: int) -> tuple[int, ...]:
        scope = tuple(sorted(self.neighbours[v]))
        factors = list(self.touching[v].items())
        place = {u: i for i, u in enumerate(scope)}
        place[v] = len(scope)
        key = tuple(sorted((f.table, tuple([place[u] for u in f.scope])) for _, f in factors))
        made = self.known.get(key)
        if made is None:
            made = self.known[key] = self._minimise([self.sizes[u] for u in (*scope, v)], key)
        self.order.append((v, scope, made))
        for number, factor in factors:
            for u in factor.scope:
                del self.touching[u][number]
        for u in scope:
            self.neighbours[u] |= self.neighbours[v]
            self.neighbours[u] -= {u, v}
        if scope:
            self._add(_Factor(scope, made.table))
        return scope

    def _minimise(self, shape: Sequence[int], factors: Sequence[tuple[int, tuple[int, ...]]]) -> _Made:
        """The sum of all tables over (scope, v), its least entry over v and where that is."""
        total = np.zeros(shape)
        for table, places in factors:
            wanted = sorted(places)
            costs = self.tables[table].transpose([places.index(p) for p in wanted])
            total += costs.reshape([shape[p] if p in places else 1 for p in range(len(shape))])
        best = np.argmin(total, axis=-1).astype(np.int16)
        least = np.min(total, axis=-1)
        constant = float(np.min(least))
        if np.isfinite(constant):  # taken off, so that repeated parts of a chain have equal tables
            least = least - constant
        return _Made(self._number_of_equal(least), best)

    def _number_of_equal(self, costs: Costs) -> int:
        known = self.equal.setdefault((costs.shape, costs.tobytes()), costs)
        return self._number(known)

    def _states(self) -> list[int]:
        states = [0] * len(self.sizes)
        for v, scope, made in reversed(self.order):
            states[v] = int(made.best[tuple([states[u] for u in scope])])
        return states


def eliminate(graph: CostGraph, max_entries: int = MAX_ENTRIES) -> list[int] | None:
    """The states of least cost; None if a table would need more than ``max_entries`` entries."""
    return Elimination(graph, max_entries).run()
