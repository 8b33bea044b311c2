"""Exact elimination: the cheapest states of a CostGraph whose width is small.

Takes: a CostGraph. Gives: a state a vertex, or None where the graph is too wide. Runs once per step of the recursion.
Source: Tofu section 5.2 (dynamic programming), on any graph: bucket elimination (Dechter 1999), repeated parts once.
"""

from __future__ import annotations

import functools
import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vgraph.partition.search.cost_graph import CostGraph, Costs, Kept, Triple
from vgraph.partition.search.dominance import Met

MAX_ENTRIES = 1 << 22  # of one table: six neighbours of twelve states
_FEW = 1 << 9  # so many sums are compared at once


_Look = tuple[int, tuple[int, ...]]  # the number of an array; by vertex, of what gives its states their classes
_Factor = tuple[tuple[int, ...], int]  # of which vertices a cost is, and the number of how it looks


@dataclass(frozen=True, eq=False)
class _Made:
    """What is left of an eliminated vertex: how that looks, and by class of its neighbours its best state."""

    look: int
    maps: tuple[int, ...]
    best: NDArray[np.int16]


class Tables:
    """Tables and maps that were met, equal ones once, and what was eliminated: steps of a search have many alike.

    A cost of several vertices is a table by classes of their states: those of a class look alike to all others.
    """

    def __init__(self, met: Met | None = None) -> None:
        self.met = met or Met()
        self.arrays: list[Costs] = []
        self.looks: list[_Look] = []
        self.classes = _Classes()
        self.known: dict[tuple[object, ...], _Made] = {}
        self._numbers: dict[int, int] = {}
        self._equal: dict[tuple[object, ...], Costs] = {}
        self._lines: dict[tuple[int, bool], int] = {}
        self._small: dict[int, int] = {}
        self._looks: dict[_Look, int] = {}
        self._maps: dict[int, int] = {}
        self._held: list[object] = []  # what is known by its id

    def number(self, costs: Costs) -> int:
        """That of an array, whose content is not looked at."""
        found = self._numbers.setdefault(id(costs), len(self.arrays))
        if found == len(self.arrays):
            self.arrays.append(costs)
        return found

    def number_of_equal(self, costs: Costs) -> int:
        """That of the first array of the same content."""
        return self.number(self._equal.setdefault((costs.shape, costs.tobytes()), costs))

    def number_of_map(self, of: Kept) -> int:
        """Equal maps are one array, whose content is looked at once."""
        if id(of) not in self._maps:
            self._held.append(of)
            self._maps[id(of)] = self.classes.number(of)
        return self._maps[id(of)]

    def look(self, table: int, maps: tuple[int, ...]) -> int:
        """The number of a table by these classes."""
        found = self._looks.setdefault((table, maps), len(self.looks))
        if found == len(self.looks):
            self.looks.append((table, maps))
        return found

    def by_classes(self, costs: Costs) -> int:
        """How a cost of two looks: the table of rows and columns that differ, and their maps."""
        found = self._small.get(id(costs))
        if found is None:
            self._held.append(costs)
            seen, row_of, column_of = self.met.small_of(costs)
            maps = (self.number_of_map(row_of), self.number_of_map(column_of))
            found = self._small[id(costs)] = self.look(self.number_of_equal(seen), maps)
        return found

    def line(self, costs: Costs, *, is_column: bool) -> int:
        """The only row or column."""
        key = (id(costs), is_column)
        if key not in self._lines:
            self._held.append(costs)
            self._lines[key] = self.number_of_equal(costs[:, 0] if is_column else costs[0])
        return self._lines[key]


class Elimination:
    def __init__(self, graph: CostGraph, max_entries: int, tables: Tables | None = None) -> None:
        self.graph, self.max_entries = graph, max_entries
        self.tables = tables or Tables()
        self.classes, self.known = self.tables.classes, self.tables.known
        self.sizes = [len(costs) for costs in graph.alone]
        self.touching: list[dict[int, _Factor]] = [{} for _ in graph.alone]
        self.neighbours: list[set[int]] = [set() for _ in graph.alone]
        self.count = 0
        self.order: list[tuple[int, tuple[int, ...], _Made]] = []
        self.logs = [math.log(size) for size in self.sizes]
        for v, costs in enumerate(graph.alone):
            if self.sizes[v] > 1:  # one state is no choice
                self._add((v,), self.tables.look(self.tables.number(costs), (self.classes.each(len(costs)),)))
        self._add_pairs()
        for triple in graph.triples:
            self._add_triple(triple)
        for v, mine in enumerate(self.neighbours):
            mine.discard(v)

    def _add_pairs(self) -> None:
        """A vertex with one state joins nothing: its neighbours bear what it costs beside them."""
        sizes, touching, neighbours, by_classes = self.sizes, self.touching, self.neighbours, self.tables.by_classes
        for pair, costs in self.graph.pairs.items():
            u, v = pair
            if sizes[u] > 1 and sizes[v] > 1:
                self.count += 1
                touching[u][self.count] = touching[v][self.count] = (pair, by_classes(costs))
                neighbours[u].add(v)
                neighbours[v].add(u)
            elif sizes[u] > 1 or sizes[v] > 1:
                rest = u if sizes[u] > 1 else v
                line = self.tables.line(costs, is_column=rest == u)
                self._add((rest,), self.tables.look(line, (self.classes.each(sizes[rest]),)))

    def _add_triple(self, triple: Triple) -> None:
        """Of vertices with one state its cost in that one is left."""
        table, scope = triple.table, list(triple.scope)
        maps = list(triple.maps)
        for place in (2, 1, 0):
            if self.sizes[scope[place]] == 1:
                table = np.take(table, maps[place][0], axis=place)
                del scope[place], maps[place]
        if scope:
            number = self.tables.number(table) if len(scope) == 3 else self.tables.number_of_equal(table)
            look = self.tables.look(number, tuple([self.tables.number_of_map(of) for of in maps]))
            self._add(tuple(scope), look)
            for v in scope:
                self.neighbours[v].update(scope)

    def _add(self, scope: tuple[int, ...], look: int) -> None:
        self.count += 1
        for v in scope:
            self.touching[v][self.count] = (scope, look)

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
                if (after := self._width(u)) != width[u]:
                    width[u] = after
                    heapq.heappush(queue, (after, u))
        return self._states()

    def _width(self, v: int) -> float:
        logs = self.logs
        return logs[v] + sum(map(logs.__getitem__, self.neighbours[v]))

    def _eliminate(self, v: int) -> tuple[int, ...] | None:
        """The neighbours, which now have a cost together; None: their table is too large."""
        scope = tuple(sorted(self.neighbours[v]))
        factors = self.touching[v]
        place = {u: i for i, u in enumerate(scope)}
        place[v] = len(scope)
        places = place.__getitem__
        key = tuple(sorted([(look, tuple(map(places, of))) for of, look in factors.values()]))
        made = self.known.get(key)
        if made is None:
            made = self._minimise([self.sizes[u] for u in (*scope, v)], key)
            if made is None:
                return None
            self.known[key] = made
        self.order.append((v, scope, made))
        for number, (of, _) in factors.items():
            for u in of:
                if u != v:
                    del self.touching[u][number]
        mine = self.neighbours[v]
        for u in scope:
            theirs = self.neighbours[u]
            theirs |= mine
            theirs.discard(u)
            theirs.discard(v)
        if scope:
            self._add(scope, made.look)
        return scope

    def _minimise(self, sizes: Sequence[int], factors: Sequence[tuple[int, tuple[int, ...]]]) -> _Made | None:
        """The sum of all tables over (scope, v), its least entry over v and where that is; scope by classes."""
        last = len(sizes) - 1
        met: list[list[int]] = [[] for _ in sizes]  # by place, the maps of all factors, in their order
        for look, places in factors:
            for place, number in zip(places, self.tables.looks[look][1], strict=True):
                met[place].append(number)
        joint = [self.classes.joint(tuple(numbers)) for numbers in met[:last]]
        joint.append((-1, self.classes.of(tuple(met[last])), sizes[last]))
        shape = [count for _, _, count in joint]
        if math.prod(shape) > self.max_entries:
            return None
        best, least = _least([shape[last], *shape[:last]], self._parts(shape, joint, factors))
        constant = float(least.min())
        if np.isfinite(constant):  # taken off, so that repeated parts of a chain have equal tables
            least = least - constant
        maps = tuple([number for number, _, _ in joint[:last]])
        return _Made(self.tables.look(self.tables.number_of_equal(least), maps), maps, best)

    def _parts(
        self,
        shape: Sequence[int],
        joint: Sequence[tuple[int, list[Kept], int]],
        factors: Sequence[tuple[int, tuple[int, ...]]],
    ) -> list[Costs]:
        """What tables of the same vertices cost together, the small ones first; of each v, the last place, is first."""
        seen, count, parts = [0] * len(shape), len(shape), dict[tuple[int, ...], Costs]()
        for look, places in factors:
            costs = self.tables.arrays[self.tables.looks[look][0]]
            axes = [(place + 1) % count for place in places]
            for axis, place in enumerate(places):
                taken = joint[place][1][seen[place]]
                seen[place] += 1
                if shape[place] != costs.shape[axis] or not self.classes.is_each(taken):
                    costs = costs.take(taken, axis=axis)
            wanted = sorted(axes)
            if wanted != axes:
                costs = np.ascontiguousarray(costs.transpose([axes.index(axis) for axis in wanted]))
            part = costs.reshape([shape[axis - 1] if axis in axes else 1 for axis in range(count)])
            alike = parts.get(part.shape)
            parts[part.shape] = part if alike is None else alike + part
        return sorted(parts.values(), key=lambda part: part.size)

    def _states(self) -> list[int]:
        states, arrays = [0] * len(self.sizes), self.classes.arrays
        for v, scope, made in reversed(self.order):
            at = [arrays[number][states[u]] for number, u in zip(made.maps, scope, strict=True)]
            states[v] = int(made.best[tuple(at)])
        return states


def _least(shape: Sequence[int], parts: Sequence[Costs]) -> tuple[NDArray[np.int16], Costs]:
    """The first index, of the first dim, at which the sum of all parts is least; and the sum there."""
    count, rest = shape[0], tuple(shape[1:])
    if math.prod(rest) <= _FEW:
        total = functools.reduce(np.add, parts)
        if total.shape != tuple(shape):
            total = np.broadcast_to(total, shape)
        return total.argmin(axis=0).astype(np.int16), np.minimum.reduce(total, axis=0)
    best, least = np.zeros(rest, np.int16), np.empty(rest)
    *others, largest = parts
    if others and sum(part.size for part in others) < largest.size:
        parts = [functools.reduce(np.add, others), largest]
    for index in range(count):  # one after the other stays in the cache
        found = functools.reduce(np.add, [part[index] if len(part) > 1 else part[0] for part in parts])
        if index:
            np.copyto(best, index, where=found < least)
            np.minimum(found, least, out=least)
        else:
            least[...] = found
    return best, least


class _Classes:
    """Maps from states to classes, known by their content."""

    def __init__(self) -> None:
        self.arrays: list[Kept] = []
        self._numbers: dict[bytes, int] = {}
        self._joint: dict[tuple[int, ...], tuple[int, list[Kept], int]] = {}
        self._each: dict[int, tuple[bool, Kept]] = {}
        self._all: dict[int, int] = {}

    def number(self, found: Sequence[int] | Kept) -> int:
        array = np.asarray(found, np.intp)
        number = self._numbers.setdefault(array.tobytes(), len(self.arrays))
        if number == len(self.arrays):
            self.arrays.append(array)
        return number

    def each(self, count: int) -> int:
        """Every state is a class of its own."""
        if count not in self._all:
            self._all[count] = self.number(np.arange(count))
        return self._all[count]

    def is_each(self, of: Kept) -> bool:
        """Whether nothing is reordered or repeated by a map that is asked about often."""
        found = self._each.get(id(of))
        if found is None:
            found = self._each[id(of)] = (bool(np.array_equal(of, np.arange(len(of)))), of)
        return found[0]

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


def eliminate(graph: CostGraph, max_entries: int = MAX_ENTRIES, tables: Tables | None = None) -> list[int] | None:
    """The states of least cost; None if a table would need more than ``max_entries`` entries."""
    return Elimination(graph, max_entries, tables).run()
