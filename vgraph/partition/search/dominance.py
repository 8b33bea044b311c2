"""Dominance: states that another one always beats, taken out before the search.

Takes: a CostGraph. Gives: a smaller one with the same least cost. Runs once per step of the recursion.
Source: dead-end elimination (Goldstein 1994); exact, unlike the pruning of Tofu's first version.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from vgraph.partition.search.cost_graph import CostGraph, Costs, Kept, Triple

_Array = TypeVar("_Array", Costs, Kept)
MAX_ROUNDS = 6  # what is left after the first is seldom worth the time of more


@dataclass(frozen=True, eq=False)
class Pruned:
    """``kept[v]``: the states of vertex v that are left, by their old numbers."""

    graph: CostGraph
    kept: Sequence[Kept]

    def restore(self, states: Sequence[int]) -> list[int]:
        """A choice among what is left, in the numbers of the whole graph."""
        return [int(kept[s]) for kept, s in zip(self.kept, states, strict=True)]


def prune(graph: CostGraph, rounds: int = MAX_ROUNDS) -> Pruned:
    """Takes out every state for which another costs no more whatever the neighbours choose."""
    pass_ = _Pruning(graph)
    for _ in range(rounds):
        if not pass_.round():
            break
    return Pruned(CostGraph(pass_.alone, pass_.pairs, pass_.triples), pass_.kept)


class _Pruning:
    """Arrays are known by their ids, so all that were met are held; those of equal content are one."""

    def __init__(self, graph: CostGraph) -> None:
        self.alone, self.pairs = list(graph.alone), dict(graph.pairs)
        self.kept: list[Kept] = [np.arange(len(costs)) for costs in graph.alone]
        self.around: list[list[tuple[int, int]]] = [[] for _ in graph.alone]
        for u, v in graph.pairs:
            self.around[u].append((u, v))
            self.around[v].append((u, v))
        self.triples = list(graph.triples)
        self.beside: list[list[tuple[int, int]]] = [[] for _ in graph.alone]  # by vertex, triples and its place there
        for number, triple in enumerate(graph.triples):
            for place, v in enumerate(triple.scope):
                self.beside[v].append((number, place))
        self.held: list[object] = []
        self.equal: dict[tuple[object, ...], Costs | Kept] = {}
        self.gains: dict[tuple[int, bool], Costs] = {}
        self.gains_among: dict[tuple[int, int, int], Costs] = {}
        self.small: dict[int, tuple[Costs, list[int], list[int]]] = {}
        self.survivors: dict[object, Kept | None] = {}
        self.cut: dict[object, Costs | Kept] = {}
        self.dirty = set(range(len(self.alone)))

    def round(self) -> bool:
        """Looks again at every vertex near which something was taken out; False: nothing more was."""
        found = {v: rows for v in sorted(self.dirty) if (rows := self._look(v)) is not None}
        self.dirty = set(found)
        for v, rows in found.items():
            self.kept[v] = self.kept[v][rows]
            self.alone[v] = self._take(self.alone[v], rows, 0)
            for pair in self.around[v]:
                self.pairs[pair] = self._take(self.pairs[pair], rows, pair.index(v))
                self.dirty.add(pair[0] + pair[1] - v)
            for number, place in self.beside[v]:
                scope, table, maps = self.triples[number]
                first, second, third = [self._take(of, rows, 0) if at == place else of for at, of in enumerate(maps)]
                self.triples[number] = Triple(scope, table, (first, second, third))
                self.dirty.update(u for u in scope if u != v)
        return bool(found)

    def _look(self, v: int) -> Kept | None:
        """The states that are left, or None if all are."""
        alone = self.alone[v]
        if len(alone) == 1:
            return None
        edges = sorted([(id(self.pairs[pair]), pair[1] == v, pair) for pair in self.around[v]])
        among = [(self.triples[number], place) for number, place in self.beside[v]]
        seen = sorted([(id(triple.table), place, id(triple.maps[place])) for triple, place in among])
        key = (id(alone), tuple([edge[:2] for edge in edges]), tuple(seen))
        if key not in self.survivors:
            self.held.append(alone)
            with np.errstate(invalid="ignore"):
                excess = alone[:, None] - alone[None, :]
                excess[np.isnan(excess)] = 0.0
                for number, turned, pair in edges:
                    excess = excess + self._gain(number, turned, self.pairs[pair])
                for triple, place in among:
                    excess = excess + self._gain_among(triple, place)
            excess[np.isnan(excess)] = -np.inf  # possible with no state of some neighbour
            rows = _undominated(excess)
            self.survivors[key] = self._only(rows) if len(rows) < len(alone) else None
        return self.survivors[key]

    def _gain(self, number: int, turned: bool, costs: Costs) -> Costs:
        """Entry (b, a): by how much row b can be dearer than row a, where row a is possible at all."""
        if (number, turned) not in self.gains:
            seen, row_of, column_of = self._small(number, costs)
            seen, places = (seen.T, column_of) if turned else (seen, row_of)
            gap = seen[:, None, :] - seen[None, :, :]
            gap[np.broadcast_to(np.isinf(seen)[None, :, :], gap.shape)] = -np.inf
            self.gains[number, turned] = self._only(np.max(gap, axis=2)[np.ix_(places, places)])
        return self.gains[number, turned]

    def _gain_among(self, triple: Triple, place: int) -> Costs:
        """The same of a triple, whatever the other two choose."""
        classes = triple.maps[place]
        key = (id(triple.table), place, id(classes))
        if key not in self.gains_among:
            self.held += [triple.table, classes]
            rows = np.moveaxis(triple.table, place, 0).reshape(triple.table.shape[place], -1)
            gap = np.max(rows[:, None, :] - rows[None, :, :], axis=2)
            self.gains_among[key] = self._only(gap[np.ix_(classes, classes)])
        return self.gains_among[key]

    def _small(self, number: int, costs: Costs) -> tuple[Costs, list[int], list[int]]:
        """The rows and columns that differ, and for each row and column which of them it is."""
        found = self.small.get(number)
        if found is None:
            self.held.append(costs)
            rows, row_of = distinct_rows(costs)
            columns, column_of = distinct_rows(rows.T)
            found = self.small[number] = (columns.T, row_of, column_of)
        return found

    def _take(self, costs: _Array, rows: Kept, axis: int) -> _Array:
        """Equal arrays stay one array."""
        key = (id(costs), id(rows), axis)
        if key not in self.cut:
            self.held += [costs, rows]
            self.cut[key] = self._only(np.take(costs, rows, axis=axis))  # pyright: ignore[reportArgumentType]
        return self.cut[key]  # pyright: ignore[reportReturnType]

    def _only(self, found: _Array) -> _Array:
        """The array of the same content that was met first."""
        known = self.equal.setdefault((found.shape, found.dtype.char, found.tobytes()), found)
        return known  # pyright: ignore[reportReturnType]


def distinct_rows(costs: Costs) -> tuple[Costs, list[int]]:
    """Rows that differ, and for each row which of them it is: states often look alike to one neighbour."""
    content, width = costs.tobytes(), costs.shape[1] * costs.itemsize
    if not width:
        return costs[:1], [0] * len(costs)
    rows = [content[at : at + width] for at in range(0, len(content), width)]
    first = dict(zip(reversed(rows), range(len(rows) - 1, -1, -1), strict=True))
    number = {row: place for place, row in enumerate(dict.fromkeys(rows))}
    return costs[[first[row] for row in number]], [number[row] for row in rows]


def _undominated(excess: Costs) -> Kept:
    """Columns a for which no row b has b - a <= 0 whatever the neighbours choose; of two equal ones the first."""
    beaten = excess <= 1e-9
    order = np.arange(len(excess))
    beaten &= ~(beaten.T & (order[:, None] > order[None, :]))
    np.fill_diagonal(beaten, False)
    rows = np.flatnonzero(~beaten.any(axis=0))
    return rows if len(rows) else np.arange(1)
