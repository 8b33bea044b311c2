"""Dominance: states that another one always beats, taken out before the search.

Takes: a CostGraph. Gives: a smaller one with the same least cost. Runs once per step of the recursion.
Source: dead-end elimination (Goldstein 1994); exact, unlike the pruning of Tofu's first version.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from vgraph.partition.search.cost_graph import CostGraph, Costs, Kept, Triple

_Array = TypeVar("_Array", Costs, Kept)
_Rows = TypeVar("_Rows", Costs, NDArray[np.bool_])
MAX_ROUNDS = 7  # what is left after the first is seldom worth the time of more


@dataclass(frozen=True, eq=False)
class Pruned:
    """``kept[v]``: the states of vertex v that are left, by their old numbers."""

    graph: CostGraph
    kept: Sequence[Kept]

    def restore(self, states: Sequence[int]) -> list[int]:
        """A choice among what is left, in the numbers of the whole graph."""
        return [int(kept[s]) for kept, s in zip(self.kept, states, strict=True)]


class Met:
    """Arrays that were met, those of equal content as one, and what was found of them.

    The steps of a search have many alike. Arrays are known by their ids, so all of them are held; they are added up in
    the order in which they were met, so that sums round alike in every process and equal costs end in the same plan.
    """

    def __init__(self) -> None:
        self.in_order: list[Costs | Kept] = []
        self.order: dict[int, int] = {}  # by id, how many had been met before
        self.equal: dict[tuple[object, ...], Costs | Kept] = {}
        self.gains: dict[int, tuple[Costs, Kept]] = {}
        self.gains_among: dict[tuple[int, int, int], Costs] = {}
        self.small: dict[int, tuple[Costs, Kept, Kept]] = {}
        self.survivors: dict[object, Kept | None] = {}
        self.cut: dict[tuple[int, int, int], Costs | Kept] = {}
        self._same: dict[int, tuple[Costs | Kept, Costs | Kept]] = {}
        self._held: list[Costs] = []

    def only(self, found: _Array) -> _Array:
        """The array of the same content that was met first."""
        known = self.equal.setdefault((found.shape, found.dtype.char, found.tobytes()), found)
        if id(known) not in self.order:
            self.order[id(known)] = len(self.order)
            self.in_order.append(known)
        return known  # pyright: ignore[reportReturnType]

    def same(self, found: _Array) -> _Array:
        """Likewise, of an array that is asked about often."""
        known = self._same.get(id(found))
        if known is None:
            known = self._same[id(found)] = (self.only(found), found)
        return known[0]  # pyright: ignore[reportReturnType]

    def small_of(self, costs: Costs) -> tuple[Costs, Kept, Kept]:
        """The rows and columns that differ, and for each row and column which of them it is."""
        found = self.small.get(id(costs))
        if found is None:
            self._held.append(costs)
            rows, row_of = distinct_rows(costs)
            columns, column_of = distinct_rows(rows.T)
            found = self.small[id(costs)] = (columns.T, np.array(row_of, np.intp), np.array(column_of, np.intp))
        return found


def prune(graph: CostGraph, rounds: int = MAX_ROUNDS, met: Met | None = None) -> Pruned:
    """Takes out every state for which another costs no more whatever the neighbours choose."""
    pass_ = _Pruning(graph, met or Met())
    for _ in range(rounds):
        if not pass_.round():
            break
    return Pruned(CostGraph(pass_.alone, pass_.pairs, pass_.triples), pass_.kept)


class _Pruning:
    def __init__(self, graph: CostGraph, met: Met) -> None:
        self.met, same = met, met.same
        self.alone = [same(costs) for costs in graph.alone]
        equal = {key: same(costs) for key, costs in {id(costs): costs for costs in graph.pairs.values()}.items()}
        self.pairs = {pair: equal[id(costs)] for pair, costs in graph.pairs.items()}
        self.kept: list[Kept] = [same(_numbered(len(costs))) for costs in graph.alone]
        self.triples: list[Triple] = []
        self.beside: list[list[tuple[int, int]]] = [[] for _ in graph.alone]  # by vertex, triples and its place there
        for number, (scope, table, maps) in enumerate(graph.triples):
            self.triples.append(Triple(scope, same(table), (same(maps[0]), same(maps[1]), same(maps[2]))))
            for place, v in enumerate(scope):
                self.beside[v].append((number, place))
        self.changed: set[int] | None = None  # the vertices of which the last round took states; None: there was none

    def round(self) -> bool:
        """Looks again at every vertex near which something was taken out; False: nothing more was."""
        edges = self._edges()
        found = {v: rows for v in self._dirty() if (rows := self._look(v, edges[v])) is not None}
        self.changed = set(found)
        if not found:
            return False
        for v, rows in found.items():
            self.kept[v] = self._take(self.kept[v], rows)
            self.alone[v] = self._take(self.alone[v], rows)
            for number, place in self.beside[v]:
                scope, table, maps = self.triples[number]
                first, second, third = [self._take(of, rows) if at == place else of for at, of in enumerate(maps)]
                self.triples[number] = Triple(scope, table, (first, second, third))
        for pair, costs in self.pairs.items():
            first, second = found.get(pair[0]), found.get(pair[1])
            if first is not None or second is not None:
                self.pairs[pair] = self._cut(costs, first, second)
        return True

    def _edges(self) -> list[list[int]]:
        """By vertex its costs in pairs: twice the number of the array, and one more where it is turned."""
        found: list[list[int]] = [[] for _ in self.alone]
        order = self.met.order
        for (u, v), costs in self.pairs.items():
            edge = 2 * order[id(costs)]
            found[u].append(edge)
            found[v].append(edge + 1)
        return found

    def _dirty(self) -> Sequence[int]:
        """The vertices to look at: all, then those that lost states, and those that share a cost with them."""
        if self.changed is None:
            return range(len(self.alone))
        changed = self.changed
        near = [pair for pair in self.pairs if not changed.isdisjoint(pair)]
        near_three = [triple.scope for triple in self.triples if not changed.isdisjoint(triple.scope)]
        return sorted(changed.union(*near, *near_three))

    def _look(self, v: int, edges: list[int]) -> Kept | None:
        """The states that are left, or None if all are."""
        alone = self.alone[v]
        if len(alone) == 1:
            return None
        edges.sort()
        among = [(self.triples[number], place) for number, place in self.beside[v]]
        seen = sorted([(id(triple.table), place, id(triple.maps[place])) for triple, place in among])
        key = (id(alone), tuple(edges), tuple(seen))
        survivors = self.met.survivors
        if key not in survivors:
            with np.errstate(invalid="ignore"):
                excess = alone[:, None] - alone[None, :]
                excess[np.isnan(excess)] = 0.0
                for edge in edges:
                    gain, places = self._gain(edge)
                    excess += gain if len(gain) == len(alone) else gain.take(places, axis=0).take(places, axis=1)
                for triple, place in among:
                    excess += self._gain_among(triple, place)
            excess[np.isnan(excess)] = -np.inf  # possible with no state of some neighbour
            rows = _undominated(excess)
            survivors[key] = self.met.only(rows) if len(rows) < len(alone) else None
        return survivors[key]

    def _gain(self, edge: int) -> tuple[Costs, Kept]:
        """Entry (b, a): by how much a row like b can be dearer than one like a, where a is possible; whom each is like.

        Where all rows differ, each is like itself.
        """
        gains = self.met.gains
        if edge not in gains:
            number, turned = divmod(edge, 2)
            seen, row_of, column_of = self.met.small_of(self.met.in_order[number])  # pyright: ignore[reportArgumentType]
            seen, places = (seen.T, column_of) if turned else (seen, row_of)
            gap = seen[:, None, :] - seen[None, :, :]
            impossible = np.isinf(seen)
            if np.count_nonzero(impossible):
                gap[np.broadcast_to(impossible[None, :, :], gap.shape)] = -np.inf
            gains[edge] = (np.maximum.reduce(gap, axis=2), places)
        return gains[edge]

    def _gain_among(self, triple: Triple, place: int) -> Costs:
        """The same of a triple, whatever the other two choose."""
        classes = triple.maps[place]
        key = (id(triple.table), place, id(classes))
        gains = self.met.gains_among
        if key not in gains:
            rows = np.moveaxis(triple.table, place, 0).reshape(triple.table.shape[place], -1)
            gap = np.maximum.reduce(rows[:, None, :] - rows[None, :, :], axis=2)
            gains[key] = gap[classes[:, None], classes]
        return gains[key]

    def _take(self, found: _Array, rows: Kept) -> _Array:
        """Some of a vector; equal arrays stay one array."""
        key, cut = (id(found), id(rows), 0), self.met.cut
        if key not in cut:
            cut[key] = self.met.only(found[rows])
        return cut[key]  # pyright: ignore[reportReturnType]

    def _cut(self, costs: Costs, rows: Kept | None, columns: Kept | None) -> Costs:
        """Some rows and columns; None: all."""
        key, cut = (id(costs), id(rows), id(columns)), self.met.cut
        if key not in cut:
            left = costs if rows is None else costs.take(rows, axis=0)
            cut[key] = self.met.only(left if columns is None else left.take(columns, axis=1))
        return cut[key]  # pyright: ignore[reportReturnType]


@cache
def _later(count: int) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Whether the first of two numbers is greater; whether they differ."""
    return np.tri(count, k=-1, dtype=np.bool_), ~np.eye(count, dtype=np.bool_)


@cache
def _numbered(count: int) -> Kept:
    return np.arange(count)


def distinct_rows(costs: _Rows) -> tuple[_Rows, list[int]]:
    """Rows that differ, and for each row which of them it is: states often look alike to one neighbour."""
    width = costs.shape[1] * costs.itemsize
    if not width:
        return costs[:1], [0] * len(costs)
    rows: list[bytes] = np.ascontiguousarray(costs).view(f"V{width}").ravel().tolist()
    number = {row: place for place, row in enumerate(dict.fromkeys(rows))}
    if len(number) == len(rows):
        return costs, list(range(len(rows)))
    first = dict(zip(reversed(rows), range(len(rows) - 1, -1, -1), strict=True))
    return costs.take([first[row] for row in number], axis=0), [number[row] for row in rows]


def _undominated(excess: Costs) -> Kept:
    """Columns a for which no row b has b - a <= 0 whatever the neighbours choose; of two equal ones the first."""
    later, others = _later(len(excess))
    beaten = excess <= 1e-9
    beaten &= ~(beaten.T & later)
    beaten &= others
    rows = (~np.logical_or.reduce(beaten, axis=0)).nonzero()[0]
    return rows if len(rows) else np.arange(1)
