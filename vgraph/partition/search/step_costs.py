"""StepCosts: the CostGraph of one step of the recursion.

Takes: a SearchState. Gives: states and costs of every cluster and pair; equal ones are computed once. Runs once per
step of the recursion. Source: Tofu section 5.2.
"""

from __future__ import annotations

import functools
import math
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from vgraph.partition.accounting.costs import are_terms, times
from vgraph.partition.accounting.several_steps import factors_between
from vgraph.partition.search.classes import Reading
from vgraph.partition.search.clusters import ClassView, Link, Outgoing, Result
from vgraph.partition.search.cost_graph import CostGraph, Costs, Kept, Triple
from vgraph.partition.search.dominance import distinct_rows
from vgraph.partition.search.enumeration import Enumeration
from vgraph.partition.search.part_copies import Event, PartCopy, is_fetched, part_copies
from vgraph.partition.search.shared_copies import (
    Copy,
    Home,
    Need,
    Uses,
    as_array,
    fetching,
    joined,
    reads_of,
    reads_parts,
    shared_copies,
    whole,
    without,
)
from vgraph.partition.search.states import Kind, SearchState
from vgraph.partition.search.view_copies import Families, Taken, in_base, lying, taking, turned

Part = tuple[bool, int]  # whether the matrix is transposed, its number


class StepCosts:
    """``kinds[c]``: the states of cluster c; the first vertices of ``graph()`` are clusters."""

    def __init__(self, search_state: SearchState) -> None:
        self.search_state, self.coarse = search_state, search_state.coarse
        self._graph: CostGraph | None = None
        self._kinds: dict[Hashable, Kind] = {}
        self._known: dict[Hashable, _Fetched] = {}
        self._of_clusters: dict[Hashable, _Fetched] = {}
        self._readers: list[list[int]] = []  # by copy that is a vertex, the clusters that may read it
        alike = search_state.options.alike.setdefault(search_state.ways, _Alike())
        assert isinstance(alike, _Alike)
        self._alike, self._numbers, self._matrices = alike, alike.numbers, alike.matrices
        self._views: dict[Hashable, int] = {}  # how many views are between what a link reads and what it is read as
        self._read: dict[Hashable, _Reader] = {}
        self.kinds = list(map(self._kind, range(len(self.coarse.clusters)), self.coarse.forms, search_state.histories))

    def _kind(self, index: int, form: int, history: tuple[int, ...]) -> Kind:
        found = self._kinds.get((form, history))
        if found is None:
            cluster = self.coarse.clusters[index]
            key = (form, tuple([self.search_state.numbers(member) for member in cluster.members]))
            found = self._kinds.get(key)
            if found is None:
                found = self._kinds[key] = Enumeration(self.search_state, cluster).run()
            self._kinds[form, history] = found
        return found

    def graph(self) -> CostGraph:
        """The costs of all clusters, of pairs and triples, and after the clusters a vertex for copies that more share.

        A copy of a value that two clusters may read is no vertex: a triple tells what it costs, with all others that
        the two may read. It is one if a view of the value may be read of it.
        """
        if self._graph is None:
            self._graph, self._readers = self._build(frozenset())
        return self._graph

    def graph_apart(self, apart: Set[int]) -> CostGraph:
        """The same where nothing is shared of what these clusters make or read."""
        return self._build(apart)[0]

    def apart(self) -> CostGraph:
        """The same where every cluster fetches for itself: vertices are clusters alone."""
        return self._build(frozenset(range(len(self.kinds))))[0]

    def with_copies(self, states: Sequence[int]) -> list[int]:
        """States of clusters, and of the copies: fetched are those that are read, if they are not told as well."""
        graph = self.graph()
        if len(states) == graph.num_vertices:
            return list(states)
        found = list(states[: len(self.kinds)])
        for copy, readers in enumerate(self._readers, len(self.kinds)):
            found.append(int(any(graph.pairs[reader, copy][found[reader], 0] for reader in readers)))
        return found

    def _build(self, apart: Set[int]) -> tuple[CostGraph, list[list[int]]]:
        """The graph, and by copy that is a vertex the clusters that may read it."""
        parts: dict[tuple[int, int], list[Part]] = {}
        vertices: dict[tuple[Result, Copy], int] = {}
        copy_readers: list[list[int]] = []
        sizes: list[int] = []
        triples: list[Triple] = []
        values, families = self._values(apart)
        for source, readers, found, value in values:
            for place, matrix in found.alone:
                reader = readers[place]
                pair = (source, reader) if source < reader else (reader, source)
                parts.setdefault(pair, []).append((source > reader, matrix))
            for one, other, table, maps in found.of_two:
                triples.append(Triple((source, readers[one], readers[other]), self._matrices[table], maps))
            for copy, fetched, read in found.copies:
                vertex = len(self.kinds) + len(copy_readers)
                if value is not None:
                    vertices[value, copy] = vertex
                copy_readers.append([readers[place] for place, _ in read])
                sizes.append(self._matrices[fetched].shape[1])
                parts.setdefault((source, vertex), []).append((False, fetched))
                for place, uses in read:
                    parts.setdefault((readers[place], vertex), []).append((False, uses))
        for value, told in families.items():
            self._tie(value, told, vertices, sizes, parts)
        alone = [*[kind.alone for kind in self.kinds], *map(_free, sizes)]
        pairs = {pair: self._sum(matrices) for pair, matrices in parts.items()}
        return CostGraph(alone, pairs, triples), copy_readers

    def _values(
        self, apart: Set[int]
    ) -> tuple[list[tuple[int, Sequence[int], _Fetched, Result | None]], dict[Result, dict[Copy, Taken | None]]]:
        """Sources, readers and what is fetched; of all values of a cluster at once, or of one, which is named.

        One at a time are those that are apart, and of clusters that have values with views in others: the families.
        """
        found: list[tuple[int, Sequence[int], _Fetched, Result | None]] = []
        one_by_one: list[Link] = []
        viewed = {self._cluster(value) for view, (base, _) in self.coarse.viewed.items() for value in (view, base)}
        for outgoing in self.coarse.outgoing:
            if apart or outgoing.source in viewed:
                one_by_one += outgoing.links
            else:
                found.append((outgoing.source, outgoing.readers, self._of_cluster(outgoing), None))
        values = self._shared(one_by_one, apart)
        families = self._families(values)
        for value, links in values:
            fetched = self._known_value(links, families.get(value, {}))
            found.append((links[0].source, [link.reader for link in links], fetched, value))
        return found, families

    def _of_cluster(self, outgoing: Outgoing) -> _Fetched:
        """What is fetched of one cluster, readers by their places there."""
        kinds = self.kinds
        key = (outgoing.form, id(kinds[outgoing.source]), *[id(kinds[reader]) for reader in outgoing.readers])
        found = self._of_clusters.get(key)
        if found is None:
            found = self._of_clusters[key] = _Fetched([], [], [])
            for _, links in self._shared(outgoing.links, frozenset()):
                at = [outgoing.readers.index(link.reader) for link in links]
                mine = self._known_value(links, {})
                found.alone.extend([(at[place], matrix) for place, matrix in mine.alone])
                found.of_two.extend([(at[one], at[other], table, maps) for one, other, table, maps in mine.of_two])
                for copy, fetched, read in mine.copies:
                    found.copies.append((copy, fetched, [(at[place], uses) for place, uses in read]))
        return found

    def _shared(self, links: Iterable[Link], apart: Set[int]) -> list[tuple[Result, list[Link]]]:
        """Every value with its readers, who may share copies; with one at a time where one of them is apart."""
        values: dict[Result, list[Link]] = {}
        for link in links:
            values.setdefault(self._base(link)[0], []).append(link)
        found: list[tuple[Result, list[Link]]] = []
        for value, mine in values.items():
            is_apart = apart and (self._cluster(value) in apart or any(link.reader in apart for link in mine))
            found += [(value, [link]) for link in mine] if is_apart else [(value, mine)]
        return found

    def _known_value(self, links: Sequence[Link], told: Mapping[Copy, Taken | None]) -> _Fetched:
        """``_value`` of the first one that is read alike."""
        kinds = self.kinds
        readers = [part for link in links for part in (id(kinds[link.reader]), link.form)]
        key = (id(kinds[links[0].source]), *readers, *_ties(told))
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self._value(links, told)
        return found

    def _families(self, found: Sequence[tuple[Result, list[Link]]]) -> dict[Result, dict[Copy, Taken | None]]:
        """The copies that a value and views of it in other clusters may both read."""
        counts = Counter(value for value, _ in found)  # one that is read apart is there several times
        values = {value: links for value, links in found if counts[value] == 1}
        views = {v: found for v, found in self.coarse.viewed.items() if v in values and found[0] in values}
        members = {*views, *[base for base, _ in views.values()]}
        read: dict[Result, list[Copy]] = {}
        terms = are_terms()
        for value in members:
            copies = dict.fromkeys(copy for link in values[value] for copy in self._reader(link).copies)
            read[value] = [copy for copy in copies if not terms[copy.code]]
        have = {value: self._have(value) for value in members}
        return Families(views, read, have).found

    def _tie(
        self,
        value: Result,
        told: Mapping[Copy, Taken | None],
        vertices: Mapping[tuple[Result, Copy], int],
        sizes: Sequence[int],
        parts: dict[tuple[int, int], list[Part]],
    ) -> None:
        """A copy that is taken from one of the base: that is there, and the base lies as the view does."""
        for copy, taken in told.items():
            vertex = vertices.get((value, copy))
            other = vertices.get((taken.base, taken.there)) if taken is not None else None
            if vertex is None or other is None or taken is None:
                continue
            view, dearest = self.coarse.views[value][1], self._dearest(copy)
            homes = [turned(code, view) for code in taken.homes]
            count, others = [sizes[one - len(self.kinds)] for one in (vertex, other)]
            lies = lying(self._have(taken.base), homes, dearest, count)
            parts.setdefault((self._cluster(taken.base), vertex), []).append((False, self._keep_equal(lies)))
            tie = self._keep_equal(taking(len(homes), (count, others), dearest))
            parts.setdefault((min(vertex, other), max(vertex, other)), []).append((vertex > other, tie))

    def _cluster(self, value: Result) -> int:
        return self.coarse.cluster_of[value[0]]

    def _have(self, value: Result) -> tuple[int, ...]:
        """By state of its cluster, where a value lies."""
        return self.kinds[self._cluster(value)].codes((True, max(self.coarse.member_of[value[0]], 0), value[1]))

    def _home(self, value: Result) -> Home:
        state = self.search_state
        shape = self.coarse.classes.value(*value).row_shape
        return Home(self._have(value), state.home(value), shape, state.axes)

    def _dearest(self, copy: Copy) -> float:
        """No copy costs more to fetch."""
        return 2.0 * self.search_state.ways * math.prod(self.search_state.past_ways) * copy.amount

    def _sum(self, parts: list[Part]) -> Costs:
        key, sums = tuple(parts), self._alike.sums
        if key not in sums:
            matrices = [self._matrices[m].T if turned else self._matrices[m] for turned, m in parts]
            sums[key] = functools.reduce(np.add, matrices)
        return sums[key]

    def _reader(self, link: Link) -> _Reader:
        """How a cluster needs a value, in terms of what that is a view of."""
        source, kind = self.kinds[link.source], self.kinds[link.reader]
        key = (id(source), id(kind), link.form)
        found = self._read.get(key)
        if found is None:
            views, needs = self._base(link)[1], needs_of(self.search_state, source, kind, link.readings)[1]
            needs = [in_base(need, views) for need in needs] if views else needs
            about = tuple([(*n[:2], n.members, n.member if reads_parts(n.codes) else -1) for n in needs])
            number = self._alike.readers.setdefault(about, len(self._alike.readers))
            has_parts = any(reads_parts(codes) for need in needs for codes in (need.codes, need.before))
            found = self._read[key] = _Reader(needs, number, has_parts)
        return found

    def _value(self, links: Sequence[Link], told: Mapping[Copy, Taken | None]) -> _Fetched:
        """The costs of one value: what every reader fetches for itself, and the copies that they share."""
        value = self._base(links[0])[0]
        home = self._home(value)
        every = [self._reader(link) for link in links]
        clusters = [link.reader for link in links]
        order = self._order(links, every) if any(reader.has_parts for reader in every) else ()
        befores: dict[tuple[int, ...], int] = {home.before: 0}  # which of them are alike matters, not what they are
        key = (
            home.have,
            _ties(told),
            order,
            *[
                (
                    reader.number,
                    clusters.index(at),
                    *[(befores.setdefault(n.before, len(befores)), home.way(n.before, n.codes)) for n in reader.needs],
                )
                for reader, at in zip(every, clusters, strict=True)
            ],
        )
        found = self._alike.values.get(key)
        if found is None:
            found = self._alike.values[key] = self._costs_of(home, every, clusters, told, order)
        return found

    def _order(self, links: Sequence[Link], every: Sequence[_Reader]) -> tuple[tuple[int, ...], ...]:
        """By reader and need, when it reads."""
        clusters = self.coarse.clusters
        pairs = zip(links, every, strict=True)
        times = [[(clusters[link.reader].members[n.member], i) for i, n in enumerate(one.needs)] for link, one in pairs]
        ranks = {time: rank for rank, time in enumerate(sorted({time for mine in times for time in mine}))}
        return tuple([tuple([ranks[time] for time in mine]) for mine in times])

    def _costs_of(
        self,
        home: Home,
        every: Sequence[_Reader],
        clusters: Sequence[int],
        told: Mapping[Copy, Taken | None],
        order: Sequence[Sequence[int]],
    ) -> _Fetched:
        """The same; ``clusters``: which ones the readers are; ``order``: when they read, if any reads a part."""
        shared = dict.fromkeys(shared_copies([reader.copies for reader in every]) if len(every) > 1 else ())
        of_parts = part_copies([reader.reads for reader in every], order) if order else dict[Copy, PartCopy]()
        shared |= dict.fromkeys(copy for copy, part in of_parts.items() if part.is_served)
        costs = fetching(home, dict.fromkeys((*shared, *told)), self.search_state.ways)
        costs = {copy: table for copy, table in costs.items() if copy in told or np.count_nonzero(table)}
        alone: list[tuple[int, int]] = []
        for place, reader in enumerate(every):
            paid = tuple([copy for copy in costs if copy in reader.copies])
            alone.append((place, self._matrix(home, reader, paid)))
        copies: list[tuple[Copy, int, list[tuple[int, int]]]] = []
        both: dict[tuple[int, int], list[tuple[Costs, list[Event]]]] = {}
        for copy, table in costs.items():
            part = of_parts.get(copy)
            reads = [Event(at, 0, reader.copies[copy]) for at, reader in enumerate(every) if copy in reader.copies]
            places = [event.reader for event in reads] if part is None else part.readers
            if copy not in told and len(places) == 2 and clusters[places[0]] != clusters[places[1]]:
                found = [(table[:, 1], reads)] if part is None else part.of_two(table[:, 1], home)
                both.setdefault((places[0], places[1]), []).extend(found)
            else:
                copies.append((copy, *self._vertex(home, copy, table, reads, told.get(copy), part)))
        return _Fetched(alone, copies, [(*places, *self._of_two(places, found)) for places, found in both.items()])

    def _vertex(
        self, home: Home, copy: Copy, table: Costs, reads: Sequence[Event], taken: Taken | None, part: PartCopy | None
    ) -> tuple[int, list[tuple[int, int]]]:
        """Costs of a copy that is a vertex, with its source and its readers: of fetching it, and of not having it."""
        fetched, dearest = table[:, 1], float(table.max())
        if taken is not None:
            dearest = self._dearest(copy)
            table = np.hstack([table, lying(home.have, taken.homes, dearest, 2 + len(taken.homes))[:, 2:]])
        first = table.shape[1]
        if part is None:
            read = [(event.reader, without(event.uses, dearest, first)) for event in reads]
        else:
            read = part.without(dearest, first)
            table = np.hstack([table, part.states(fetched, home)])
        return self._keep_equal(table), [(place, self._keep_equal(costs)) for place, costs in read]

    def _matrix(self, home: Home, reader: _Reader, paid: tuple[Copy, ...]) -> int:
        """The number of what a reader fetches for itself; ``paid``: copies that are paid elsewhere."""
        befores = (home.before, *[need.before for need in reader.needs]) if len(reader.needs) > 1 or paid else ()
        ways = tuple([home.way(need.before, need.codes) for need in reader.needs])
        key = (home.have, paid, befores, ways, reader.number)
        number = self._numbers.get(key, -1)
        if number < 0:
            found = combined(home, reader.needs, self.search_state.ways, paid, reader.reads if paid else ())
            number = self._keep(key, found)
        return number

    def _of_two(
        self, places: tuple[int, int], copies: Sequence[tuple[Costs, list[Event]]]
    ) -> tuple[int, tuple[Kept, Kept, Kept]]:
        """The table of copies that two may read: what is fetched if either does; and the classes of their states."""
        fetched, source = distinct_rows(np.stack([costs for costs, _ in copies], axis=1))
        classes = [
            distinct_rows(np.stack([e.uses for _, events in copies for e in events if e.reader == place], axis=1))[1]
            for place in places
        ]
        states = [[of.index(number) for number in range(max(of) + 1)] for of in classes]
        each = [
            fetched[:, at, None, None] * is_fetched(events, places, states) for at, (_, events) in enumerate(copies)
        ]
        table = functools.reduce(np.add, each)
        first, second, third = [self._map(found) for found in (source, *classes)]
        return self._keep_equal(table), (first, second, third)

    def _map(self, classes: Sequence[int]) -> Kept:
        """Equal ones are one array."""
        found = np.array(classes, np.intp)
        return self._alike.maps.setdefault(found.tobytes(), found)

    def _base(self, link: Link) -> tuple[Result, tuple[ClassView, ...]]:
        """What the value of a link is a view of, and by which views, where in every state the one lies as the other."""
        value, views = (link.readings[0].source, link.readings[0].result), self.coarse.views
        if value not in views:
            return value, ()
        key = (id(self.kinds[link.source]), id(self.kinds[link.reader]), link.form)
        count = self._views.get(key)
        if count is None:
            count = self._views[key] = self._count_views(link)
        through: list[ClassView] = []
        for _ in range(count):
            value, view = views[value]
            through.append(view)
        return value, tuple(through)

    def _count_views(self, link: Link) -> int:
        value, count = (link.readings[0].source, link.readings[0].result), 0
        source, reader, member_of = self.kinds[link.source], self.kinds[link.reader], self.coarse.member_of
        past = self.search_state.past
        needs = {code for r in link.readings for code in reader.codes((False, max(member_of[r.reader], 0), r.position))}
        needs |= {choice.reads[r.position] for r in link.readings for choice in past[r.reader]}
        while value in self.coarse.views:
            base, view = self.coarse.views[value]
            if self._cluster(base) != link.source:
                break
            seen = {code: turned(code, view) for code in needs}
            mine, theirs = (source.codes((True, max(member_of[item], 0), result)) for item, result in (value, base))
            mine += tuple([choice.keeps[value[1]] for choice in past[value[0]]])
            theirs += tuple([choice.keeps[base[1]] for choice in past[base[0]]])
            there = {code: turned(code, view) for code in set(mine)}
            if -1 in seen.values() or tuple([there[code] for code in mine]) != theirs:
                break
            value, needs, count = base, set(seen.values()), count + 1
        return count

    def _keep_equal(self, costs: Costs) -> int:
        return self._keep((costs.shape, costs.tobytes()), costs)

    def _keep(self, key: Hashable, costs: Costs) -> int:
        """The number of a matrix; equal ones are one."""
        number = self._numbers.setdefault(key, len(self._numbers))
        self._matrices.setdefault(number, costs)
        return number


def _ties(told: Mapping[Copy, Taken | None]) -> tuple[Hashable, ...]:
    """What tells the copies that get a vertex from others."""
    return tuple([(copy, taken.homes if taken is not None else None) for copy, taken in told.items()]) if told else ()


class _Alike:
    """What was found of values, which the steps of a search for as many workers have in common; matrices by number."""

    def __init__(self) -> None:
        self.numbers: dict[Hashable, int] = {}
        self.matrices: dict[int, Costs] = {}
        self.sums: dict[Hashable, Costs] = {}
        self.maps: dict[bytes, Kept] = {}
        self.readers: dict[Hashable, int] = {}
        self.values: dict[Hashable, _Fetched] = {}


@dataclass(eq=False)
class _Reader:
    """How one cluster reads a value: its needs; by need and of all the copies that serve them.

    ``number``: equal for those that read alike, whatever earlier steps read; ``has_parts``: whether it may read a part
    of what its strategies name.
    """

    needs: list[Need]
    number: int
    has_parts: bool

    @cached_property
    def reads(self) -> list[dict[Copy, Uses]]:
        return [reads_of(need) for need in self.needs]

    @cached_property
    def copies(self) -> Mapping[Copy, Uses]:
        return joined(self.reads)


class _Fetched(NamedTuple):
    """What is fetched of one or more values: numbers of matrices, readers by their places among all.

    ``alone``: what a reader fetches for itself; ``copies``: what fetching one costs, and by reader reading it;
    ``of_two``: where two may read the same copies, who they are, the number of their table and its classes.
    """

    alone: list[tuple[int, int]]
    copies: list[tuple[Copy, int, list[tuple[int, int]]]]
    of_two: list[tuple[int, int, int, tuple[Kept, Kept, Kept]]]


@functools.cache
def _free(count: int) -> Costs:
    """By state of a copy: whether it is fetched costs nothing by itself."""
    return np.zeros(count)


def needs_of(
    search_state: SearchState, source: Kind, reader: Kind, readings: Sequence[Reading]
) -> tuple[Home, list[Need]]:
    """Where one value lies by state of its source, and all that read it in one cluster, those that read alike once."""
    first, member_of, past = readings[0], search_state.coarse.member_of, search_state.past
    have = source.codes((True, max(member_of[first.source], 0), first.result))
    found: dict[tuple[object, ...], Need] = {}
    for r in readings:
        place = max(member_of[r.reader], 0)
        need, amount = reader.codes((False, place, r.position)), search_state.bytes_read(r)
        before = tuple([choice.reads[r.position] for choice in past[r.reader]])
        found.setdefault((need, r.members, before), Need(need, amount, before, place, r.members))
    one = (first.source, first.result)
    shape = search_state.coarse.classes.value(*one).row_shape
    return Home(have, search_state.home(one), shape, search_state.axes), list(found.values())


def combined(
    home: Home,
    found: Sequence[Need],
    ways: int,
    paid: Sequence[Copy] = (),
    reads: Sequence[Mapping[Copy, Uses]] = (),
) -> Costs:
    """Costs by state of source and reader; what two need alike is fetched once.

    ``paid``: copies that are paid elsewhere; ``reads``: by need, in which states it reads which copy.
    """
    rows = as_array(home.have)
    codes = [as_array(need.codes) for need in found]
    parts: list[Costs] = []
    for number, need in enumerate(found):
        moved = factors_between(home.way(need.before, need.codes), rows, codes[number], ways)
        part = times(need.amount, moved)
        again = [
            earlier == codes[number]  # fetched for an earlier reader
            for other, earlier in zip(found[:number], codes, strict=False)
            if (other.before, other.members) == (need.before, need.members)
        ]
        again += [reads[number][copy] for copy in paid if copy in reads[number]]
        if again:
            part[functools.reduce(np.logical_or, again) & np.isfinite(part)] = 0.0
        if number and (reads_parts(need.codes) or reads_parts(need.before)):
            part[_within_earlier(home, need, found[:number])] = 0.0
        parts.append(part)
    return functools.reduce(np.add, parts)


def _within_earlier(home: Home, need: Need, earlier: Sequence[Need]) -> Uses:
    """By state of source and reader, whether the whole was copied for an earlier reader, of which a part is read."""
    before, codes = tuple(map(whole, need.before)), np.array(list(map(whole, need.codes)))
    having = [other for other in earlier if (other.before, other.members) == (before, need.members)]
    served = [codes == as_array(other.codes) for other in having]
    lies = as_array(home.have)[:, None] == codes
    return functools.reduce(np.logical_or, served, np.False_) & ~(lies & (home.before == before))
