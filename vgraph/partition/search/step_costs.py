"""StepCosts: the CostGraph of one step of the recursion.

Takes: a SearchState. Gives: states and costs of every cluster and pair; equal ones are computed once. Runs once per
step of the recursion. Source: Tofu section 5.2.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import NamedTuple

import numpy as np

from vgraph.partition.accounting.costs import are_terms, transfers
from vgraph.partition.search.classes import Reading
from vgraph.partition.search.clusters import Link
from vgraph.partition.search.cost_graph import CostGraph, Costs
from vgraph.partition.search.enumeration import Enumeration
from vgraph.partition.search.shared_copies import Copy, Need, fetching, reads_copy, shared_copies, without
from vgraph.partition.search.states import Kind, SearchState

Part = tuple[bool, int]  # whether the matrix is turned, its number


class StepCosts:
    """``kinds[c]``: the states of cluster c; the first vertices of ``graph()`` are clusters."""

    def __init__(self, search_state: SearchState) -> None:
        self.search_state, self.coarse = search_state, search_state.coarse
        self._graph: CostGraph | None = None
        self._kinds: dict[Hashable, Kind] = {}
        self._known: dict[Hashable, _Value] = {}
        self._readers: list[list[int]] = []  # by copy, the clusters that may read it
        self._numbers: dict[Hashable, int] = {}
        self._matrices: dict[int, Costs] = {}
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
        """The costs of all clusters and pairs, and after the clusters a vertex for every copy that several may read."""
        if self._graph is None:
            self._graph = self._build(shares=True)
        return self._graph

    def apart(self) -> CostGraph:
        """The same where every cluster fetches for itself: vertices are clusters alone."""
        return self._build(shares=False)

    def with_copies(self, states: Sequence[int]) -> list[int]:
        """States of clusters, and of the copies: fetched are those that are read."""
        found = list(states[: len(self.kinds)])
        for copy, readers in enumerate(self._readers, len(self.kinds)):
            graph = self.graph()
            found.append(int(any(graph.pairs[reader, copy][found[reader], 0] for reader in readers)))
        return found

    def _build(self, shares: bool) -> CostGraph:
        parts: dict[tuple[int, int], list[Part]] = {}
        values: dict[tuple[int, int], list[Link]] = {}
        for link in self.coarse.between:
            values.setdefault((link.readings[0].source, link.readings[0].result), []).append(link)
        for links in values.values() if shares else [[link] for link in self.coarse.between]:
            source = links[0].source
            key = (id(self.kinds[source]), *[(id(self.kinds[link.reader]), link.form) for link in links])
            found = self._known.get(key)
            if found is None:
                found = self._known[key] = self._value(links)
            for link, matrix in zip(links, found.readers, strict=True):
                pair = (min(source, link.reader), max(source, link.reader))
                parts.setdefault(pair, []).append((source > link.reader, matrix))
            for fetched, read in found.copies:
                copy = len(self.kinds) + len(self._readers)
                self._readers.append([link.reader for link, uses in zip(links, read, strict=True) if uses >= 0])
                parts[source, copy] = [(False, fetched)]
                for link, uses in zip(links, read, strict=True):
                    if uses >= 0:
                        parts[link.reader, copy] = [(False, uses)]
        alone = [*[kind.alone for kind in self.kinds], *[_FREE] * len(self._readers)]
        return CostGraph(alone, {pair: self._sum(matrices) for pair, matrices in parts.items()})

    def _sum(self, parts: list[Part]) -> Costs:
        key = tuple(parts)
        if key not in self._sums:
            matrices = [self._matrices[m].T if turned else self._matrices[m] for turned, m in parts]
            self._sums[key] = np.sum(matrices, axis=0) if len(matrices) > 1 else matrices[0]
        return self._sums[key]

    def _value(self, links: Sequence[Link]) -> _Value:
        """The costs of one value: what every reader fetches for itself, and the copies that they share."""
        ways, source = self.search_state.ways, self.kinds[links[0].source]
        kinds, every = [self.kinds[link.reader] for link in links], list[list[Need]]()
        have: tuple[int, ...] = ()
        for link, kind in zip(links, kinds, strict=True):
            have, needs = needs_of(self.search_state, source, kind, link.readings)
            every.append(needs)
        shared = shared_copies(list(zip(kinds, every, strict=True))) if len(links) > 1 else frozenset[Copy]()
        costs = {copy: fetching(have, copy, ways) for copy in sorted(shared)}
        costs = {copy: table for copy, table in costs.items() if table.any()}
        readers: list[int] = []
        for kind, needs in zip(kinds, every, strict=True):
            mine = tuple([copy for copy in costs if any(reads_copy(kind, need, copy).any() for need in needs)])
            key = (have, mine, *[(need, kind.halos(need.member, need.position)) for need in needs])
            number = self._numbers.get(key, -1)
            readers.append(self._keep(key, combined(have, kind, needs, ways, mine)) if number < 0 else number)
        copies: list[tuple[int, list[int]]] = []
        for copy, table in costs.items():
            read: list[int] = []
            for kind, needs in zip(kinds, every, strict=True):
                uses = np.any([reads_copy(kind, need, copy) for need in needs], axis=0)
                table_of = without(uses, float(table.max()))
                read.append(self._keep(("read", table_of.tobytes()), table_of) if uses.any() else -1)
            copies.append((self._keep(("fetch", table.tobytes()), table), read))
        return _Value(readers, copies)

    def _keep(self, key: Hashable, costs: Costs) -> int:
        """The number of a matrix; equal ones are one."""
        number = self._numbers.setdefault(key, len(self._numbers))
        self._matrices.setdefault(number, costs)
        return number


class _Value(NamedTuple):
    """Numbers of matrices: by reader; by copy that of fetching it and, by reader, of reading it (-1: never)."""

    readers: list[int]
    copies: list[tuple[int, list[int]]]


_FREE = np.zeros(2)  # whether a copy is fetched costs nothing by itself


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
        if (need, amount) not in [(n.codes, n.amount) for n in found]:
            before = tuple([choice.reads[r.position] for choice in search_state.past[r.reader]])
            found.append(Need(need, place, r.position, amount, before))
    return have, found


def combined(have: tuple[int, ...], kind: Kind, found: Sequence[Need], ways: int, shared: Sequence[Copy] = ()) -> Costs:
    """Costs by state of source and reader; what two need alike is fetched once, ``shared`` is paid elsewhere."""
    halos = [np.array(kind.halos(need.member, need.position)) for need in found]
    rows, table = np.array(have)[:, None], transfers(ways)
    terms = are_terms()[rows[:, 0]].astype(np.intp)
    parts = [
        np.array(need.amount)[terms][:, None] * (table[rows, np.array(need.codes)] + halo)
        for need, halo in zip(found, halos, strict=True)
    ]
    needs = np.array([need.codes for need in found])
    for i, need in enumerate(found):  # the same shard of a value was fetched for an earlier reader
        again = (needs[:i] == needs[i]).any(axis=0)
        for copy in shared:
            again |= reads_copy(kind, need, copy)
        if again.any():
            parts[i] = np.where(again[None, :] & np.isfinite(parts[i]), 0.0, parts[i])
    return np.sum(parts, axis=0)
