"""StepCosts: the CostGraph of one step of the recursion.

Takes: a SearchState. Gives: states and costs of every cluster and pair; equal ones are computed once. Runs once per
step of the recursion. Source: Tofu section 5.2.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np

from vgraph.partition.accounting.costs import are_terms, transfers
from vgraph.partition.search.classes import Reading
from vgraph.partition.search.cost_graph import CostGraph, Costs
from vgraph.partition.search.enumeration import Enumeration
from vgraph.partition.search.states import Amount, Kind, SearchState

Part = tuple[bool, Hashable]  # whether the matrix is turned, its key


class StepCosts:
    """``kinds[c]``: the states of cluster c; vertices of ``graph()`` are clusters."""

    def __init__(self, search_state: SearchState) -> None:
        self.search_state, self.coarse = search_state, search_state.coarse
        self._graph: CostGraph | None = None
        self._kinds: dict[Hashable, Kind] = {}
        self._known: dict[Hashable, Hashable] = {}
        self._numbers: dict[Hashable, int] = {}
        self._matrices: dict[Hashable, Costs] = {}
        self._sums: dict[Hashable, Costs] = {}
        numbers = search_state.numbers
        self.kinds = [self._kind(index, numbers) for index in range(len(self.coarse.clusters))]

    def _kind(self, index: int, numbers: Sequence[Hashable]) -> Kind:
        cluster = self.coarse.clusters[index]
        key = (self.coarse.forms[index], tuple([numbers[member] for member in cluster.members]))
        found = self._kinds.get(key)
        if found is None:
            found = self._kinds[key] = Enumeration(self.search_state, cluster).run()
        return found

    def graph(self) -> CostGraph:
        """The costs of all clusters and pairs."""
        if self._graph is None:
            self._graph = self._build()
        return self._graph

    def _build(self) -> CostGraph:
        pairs: dict[tuple[int, int], list[Part]] = {}
        kinds = self.kinds
        for link in self.coarse.between:
            source, reader = link.source, link.reader
            key = (id(kinds[source]), id(kinds[reader]), link.form)
            if key not in self._known:
                self._known[key] = self._matrix(source, reader, link.readings)
            pair = (source, reader) if source < reader else (reader, source)
            pairs.setdefault(pair, []).append((source > reader, self._known[key]))
        alone = [kind.alone for kind in kinds]
        return CostGraph(alone, {pair: self._sum(parts) for pair, parts in pairs.items()})

    def _sum(self, parts: list[Part]) -> Costs:
        key = tuple(parts)
        if key not in self._sums:
            matrices = [self._matrices[m].T if turned else self._matrices[m] for turned, m in parts]
            self._sums[key] = np.sum(matrices, axis=0) if len(matrices) > 1 else matrices[0]
        return self._sums[key]

    def _matrix(self, source: int, reader: int, readings: Sequence[Reading]) -> Hashable:
        have, found = needs_of(self.search_state, self.kinds[source], self.kinds[reader], readings)
        kind = self.kinds[reader]
        key = (have, *((need, amount, kind.halos(m, p)) for need, m, p, amount in found))
        if key not in self._numbers:
            self._numbers[key] = len(self._numbers)
            self._matrices[self._numbers[key]] = combined(have, kind, found, self.search_state.ways)
        return self._numbers[key]


Need = tuple[tuple[int, ...], int, int, Amount]  # codes by state; member, operand; bytes


def needs_of(
    search_state: SearchState, source: Kind, reader: Kind, readings: Sequence[Reading]
) -> tuple[tuple[int, ...], list[Need]]:
    """How one value lies by state of its source, and all that read it in one cluster, those that read alike once."""
    first, member_of = readings[0], search_state.coarse.member_of
    have = source.codes((True, max(member_of[first.source], 0), first.result))
    found: list[Need] = []
    for r in readings:
        place = max(member_of[r.reader], 0)
        need, amount = reader.codes((False, place, r.position)), search_state.amount(r)
        if (need, amount) not in [(n, a) for n, _, _, a in found]:
            found.append((need, place, r.position, amount))
    return have, found


def combined(have: tuple[int, ...], kind: Kind, found: Sequence[Need], ways: int) -> Costs:
    """Costs by state of source and reader; what two readers need alike is fetched once."""
    halos = [np.array(kind.halos(place, position)) for _, place, position, _ in found]
    rows, table = np.array(have)[:, None], transfers(ways)
    terms = are_terms()[rows[:, 0]].astype(np.intp)
    parts = [
        np.array(amount)[terms][:, None] * (table[rows, np.array(need)] + halo)
        for (need, _, _, amount), halo in zip(found, halos, strict=True)
    ]
    if len(found) == 1:
        return parts[0]
    needs = np.array([need for need, _, _, _ in found])
    for i in range(1, len(parts)):  # the same shard of a value was fetched for an earlier reader
        again = (needs[:i] == needs[i]).any(axis=0)
        parts[i] = np.where(again[None, :] & np.isfinite(parts[i]), 0.0, parts[i])
    return np.sum(parts, axis=0)
