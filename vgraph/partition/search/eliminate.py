"""Exact elimination: the cheapest states of a CostGraph whose width is small.

Takes: a CostGraph. Gives: a state a vertex, or None where the graph is too wide. Runs once per step of the recursion.
Source: Tofu section 5.2 (dynamic programming), on any graph: bucket elimination (Dechter 1999), repeated parts once.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from vgraph.partition.search.cost_graph import CostGraph, Costs, Kept, Triple
from vgraph.partition.search.dominance import distinct_rows

MAX_ENTRIES = 1 << 22  # of one table: six neighbours of twelve states


class _Factor(NamedTuple):
    """A cost of several vertices at once, by classes of their states: those of a class look alike to all others.

    ``table`` numbers its array among all that differ, ``maps`` what gives each vertex's states their classes.
    """

    scope: tuple[int, ...]
    table: int
    maps: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class _Made:
    table: int
    maps: tuple[int, ...]
    best: NDArray[np.int16]


class Elimination:
    def __init__(self, graph: CostGraph, max_entries: int) -> None:
        self.graph, self.max_entries = graph, max_entries
        self.tables: list[Costs] = []
        self.numbers: dict[int, int] = {}
        self.classes = _Classes()
        self.lines: dict[tuple[int, bool], Costs] = {}
        self.maps: dict[int, int] = {}
        self.small: dict[int, tuple[int, tuple[int, ...]]] = {}
        self.equal: dict[tuple[object, ...], Costs] = {}
        self.known: dict[tuple[object, ...], _Made] = {}
        self.sizes = [len(costs) for costs in graph.alone]
        self.touching: list[dict[int, _Factor]] = [{} for _ in graph.alone]
        self.neighbours: list[set[int]] = [set() for _ in graph.alone]
        self.count = 0
        self.order: list[tuple[int, tuple[int, ...], _Made]] = []
        self.logs = [math.log(size) for size in self.sizes]
        for v, costs in enumerate(graph.alone):
            if self.sizes[v] > 1:  # one state is no choice
                self._add(_Factor((v,), self._number(costs), (self.classes.each(len(costs)),)))
        for pair, costs in graph.pairs.items():
            self._add_pair(pair, costs)
        for triple in graph.triples:
            self._add_triple(triple)
        for factor in {factor for around in self.touching for factor in around.values()}:
            for v in factor.scope:
                self.neighbours[v].update(factor.scope)
        for v, mine in enumerate(self.neighbours):
            mine.discard(v)

    def _add_pair(self, pair: tuple[int, int], costs: Costs) -> None:
        """A vertex with one state joins nothing: its neighbours bear what it costs beside them."""
        u, v = pair
        if self.sizes[u] > 1 and self.sizes[v] > 1:
            if id(costs) not in self.small:
                self.small[id(costs)] = self._by_classes(costs)
            self._add(_Factor(pair, *self.small[id(costs)]))
            return
        if self.sizes[u] == self.sizes[v] == 1:
            return
        rest = u if self.sizes[u] > 1 else v
        key = (id(costs), rest == u)
        if key not in self.lines:
            self.lines[key] = costs[:, 0] if rest == u else costs[0]
        self._add(_Factor((rest,), self._number(self.lines[key]), (self.classes.each(self.sizes[rest]),)))

    def _add_triple(self, triple: Triple) -> None:
        """Of vertices with one state its cost in that one is left."""
        table, scope = triple.table, list(triple.scope)
        maps = list(triple.maps)
        for place in (2, 1, 0):
            if self.sizes[scope[place]] == 1:
                table = np.take(table, maps[place][0], axis=place)
                del scope[place], maps[place]
        if scope:
            number = self._number(table) if len(scope) == 3 else self._number_of_equal(table)
            self._add(_Factor(tuple(scope), number, tuple([self._number_of_map(of) for of in maps])))

    def _number_of_map(self, of: Kept) -> int:
        """Equal ones are one array, whose content is looked at once."""
        if id(of) not in self.maps:
            self.maps[id(of)] = self.classes.number(of)
        return self.maps[id(of)]

    def _by_classes(self, costs: Costs) -> tuple[int, tuple[int, ...]]:
        """The table of rows and columns that differ."""
        rows, row_of = distinct_rows(costs)
        columns, column_of = distinct_rows(rows.T)
        return self._number_of_equal(columns.T), (self.classes.number(row_of), self.classes.number(column_of))

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
        width = [self._width(v) for v in range(len(self.sizes))]
        queue = [(width[v], v) for v, size in enumerate(self.sizes) if size > 1]
        heapq.heapify(queue)
        done = [False] * len(self.sizes)
        while queue:
            now, v = heapq.heappop(queue)
            if done[v] or now != width[v]:  # it was queued again since
                continue
            scope = self._eliminate(v)
            if scope is None:
                return None
            done[v] = True
            for u in scope:
                width[u] = self._width(u)
                heapq.heappush(queue, (width[u], u))
        return self._states()

    def _width(self, v: int) -> float:
        logs = self.logs
        return logs[v] + sum([logs[u] for u in self.neighbours[v]])

    def _eliminate(self, v: int) -> tuple[int, ...] | None:
        """The neighbours, which now have a cost together; None: their table is too large."""
        scope = tuple(sorted(self.neighbours[v]))
        factors = self.touching[v]
        place = {u: i for i, u in enumerate(scope)}
        place[v] = len(scope)
        key = tuple(sorted([(f.table, tuple([place[u] for u in f.scope]), f.maps) for f in factors.values()]))
        made = self.known.get(key)
        if made is None:
            made = self._minimise([self.sizes[u] for u in (*scope, v)], key)
            if made is None:
                return None
            self.known[key] = made
        self.order.append((v, scope, made))
        for number, factor in factors.items():
            for u in factor.scope:
                if u != v:
                    del self.touching[u][number]
        mine = self.neighbours[v]
        for u in scope:
            self.neighbours[u] |= mine
            self.neighbours[u] -= {u, v}
        if scope:
            self._add(_Factor(scope, made.table, made.maps))
        return scope

    def _minimise(
        self, sizes: Sequence[int], factors: Sequence[tuple[int, tuple[int, ...], tuple[int, ...]]]
    ) -> _Made | None:
        """The sum of all tables over (scope, v), its least entry over v and where that is; scope by classes."""
        last = len(sizes) - 1
        met: list[list[int]] = [[] for _ in sizes]  # by place, the maps of all factors, in their order
        for _, places, maps in factors:
            for place, number in zip(places, maps, strict=True):
                met[place].append(number)
        joint = [self.classes.joint(tuple(numbers)) for numbers in met[:last]]
        joint.append((-1, self.classes.of(tuple(met[last])), sizes[last]))
        shape = [count for _, _, count in joint]
        if math.prod(shape) > self.max_entries:
            return None
        total, seen = np.zeros(shape), [0] * len(sizes)
        for table, places, _ in factors:
            index: list[Kept] = []
            for place in places:
                index.append(joint[place][1][seen[place]])
                seen[place] += 1
            wanted = sorted(places)
            costs = self.tables[table][np.ix_(*index)].transpose([places.index(p) for p in wanted])
            total += costs.reshape([shape[p] if p in places else 1 for p in range(len(shape))])
        best = np.argmin(total, axis=-1).astype(np.int16)
        least = np.min(total, axis=-1)
        constant = float(np.min(least))
        if np.isfinite(constant):  # taken off, so that repeated parts of a chain have equal tables
            least = least - constant
        return _Made(self._number_of_equal(least), tuple([number for number, _, _ in joint[:last]]), best)

    def _number_of_equal(self, costs: Costs) -> int:
        known = self.equal.setdefault((costs.shape, costs.tobytes()), costs)
        return self._number(known)

    def _states(self) -> list[int]:
        states, arrays = [0] * len(self.sizes), self.classes.arrays
        for v, scope, made in reversed(self.order):
            at = [arrays[number][states[u]] for number, u in zip(made.maps, scope, strict=True)]
            states[v] = int(made.best[tuple(at)])
        return states


class _Classes:
    """Maps from states to classes, known by their content."""

    def __init__(self) -> None:
        self.arrays: list[Kept] = []
        self._numbers: dict[bytes, int] = {}
        self._joint: dict[tuple[int, ...], tuple[int, list[Kept], int]] = {}

    def number(self, found: Sequence[int] | Kept) -> int:
        array = np.asarray(found, np.intp)
        number = self._numbers.setdefault(array.tobytes(), len(self.arrays))
        if number == len(self.arrays):
            self.arrays.append(array)
        return number

    def each(self, count: int) -> int:
        """Every state is a class of its own."""
        return self.number(np.arange(count))

    def of(self, numbers: tuple[int, ...]) -> list[Kept]:
        return [self.arrays[number] for number in numbers]

    def joint(self, numbers: tuple[int, ...]) -> tuple[int, list[Kept], int]:
        """States alike by all of these maps are a class: its map, the class of each in every map, their number."""
        found = self._joint.get(numbers)
        if found is None:
            columns = self.of(numbers)
            classes: dict[tuple[int, ...], int] = {}
            rows = zip(*[column.tolist() for column in columns], strict=True)
            mine = self.number([classes.setdefault(row, len(classes)) for row in rows])
            index = [np.array(column, np.intp) for column in zip(*classes, strict=True)]
            found = self._joint[numbers] = (mine, index, len(classes))
        return found


def eliminate(graph: CostGraph, max_entries: int = MAX_ENTRIES) -> list[int] | None:
    """The states of least cost; None if a table would need more than ``max_entries`` entries."""
    return Elimination(graph, max_entries).run()
