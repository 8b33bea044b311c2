"""Enumeration: all states of one cluster, and what each costs inside, many at a time.

Takes: a SearchState and a Cluster. Gives: its Kind. Runs once per kind of cluster and step of the recursion.
Source: Tofu section 5.2 (forward and gradient may be split differently).
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from vgraph.partition.accounting.costs import times
from vgraph.partition.search.choice_tables import Choices, ChoiceTables
from vgraph.partition.search.clusters import Cluster
from vgraph.partition.search.cost_graph import Costs
from vgraph.partition.search.growth import Growth, Layout, Outside, Seen
from vgraph.partition.search.skeleton import Numbers, Wire, skeleton_of
from vgraph.partition.search.states import Grown, Kind, SearchState


@dataclass(eq=False)
class _Grown:
    """States of the first members of a cluster: what each costs, and how they look, whatever they cost."""

    costs: Costs
    layout: Layout
    _seen: dict[Outside, Seen] = field(default_factory=dict[Outside, Seen])

    def seen(self, outside: Outside) -> Seen:
        """The possible states, as others see them."""
        found = self._seen.get(outside)
        if found is None:
            possible = (self.costs < math.inf).nonzero()[0]
            if not len(possible):
                possible = np.arange(len(self.costs))
            found = self._seen[outside] = self.layout.seen(outside, possible)
        return found


class _After(NamedTuple):
    """States with one more member; of each, from which it grew (None: from its own), by which choice."""

    states: _Grown
    parents: Numbers | None
    chosen: Numbers


class Enumeration:
    """The states of one cluster: the root chooses, a follower takes what fits the operand that it follows.

    What grew alike before, of this or an earlier step, is not grown again: neither what states cost, nor, where sizes
    differ, how they look.
    """

    def __init__(self, search_state: SearchState, cluster: Cluster) -> None:
        self.search_state, self.cluster, self.ways = search_state, cluster, search_state.ways
        self.skeleton = skeleton_of(search_state.coarse, cluster)
        self.readings = search_state.coarse.inside[cluster.index]

    def run(self) -> Kind:
        bones, known = self.skeleton, self.search_state.options.grown
        states = known.get(bones.num_rows)
        if states is None:
            layout = Layout(np.zeros((bones.num_rows, 1), np.intp))
            states = known[bones.num_rows] = _Grown(np.zeros(1), layout)
        assert isinstance(states, _Grown)
        grown: list[Grown] = []
        for place in range(len(self.cluster.members)):
            row = bones.followed[place]
            found = self._tables(place).choices((-1,) if row < 0 else states.layout.codes(row)[1])
            looks, told = found.looks(bones.ports[place])
            growth = states.layout.growth(bones, place, found, looks, told)
            moving = list(self._moving(bones.wires[place], growth))
            key = (id(states), id(growth), found.costs_told, *[(amount, id(factors)) for amount, factors in moving])
            after = known.get(key)
            if after is None:
                after = known[key] = self._after(states, growth, found, moving)
            assert isinstance(after, _After)
            grown.append(Grown(after.parents, after.chosen, found.choices))
            states = after.states
        seen = states.seen(bones.outside)
        alone = states.costs[seen.rows]
        return Kind(grown, seen.rows, alone, dict(seen.vectors))

    def _moving(self, wires: Sequence[Wire], growth: Growth) -> Iterator[tuple[float, Costs]]:
        """The bytes of what moves in some state along the wires of a member, and by state how often it does."""
        for number, (wire, has_parts) in enumerate(zip(wires, growth.have_parts, strict=True)):
            reading = self.readings[wire.reading]
            amount, way = self.search_state.amount(reading, has_parts=has_parts)
            factors = growth.moved(number, way, self.ways)
            if factors is not None:
                yield amount, factors

    def _after(self, states: _Grown, growth: Growth, found: Choices, moving: Sequence[tuple[float, Costs]]) -> _After:
        """The states with one more member, of those that look the same from here on the cheapest."""
        parents, chosen, costs = growth.parents, growth.chosen, states.costs
        if parents is not None:
            costs = costs[parents]
        if found.costs is not None:
            costs = costs + found.costs[chosen]
        for amount, factors in moving:
            costs = costs + times(amount, factors)
        left = growth.cheapest(costs)
        if left is not None:
            costs, chosen = costs[left], chosen[left]
            parents = left if parents is None else parents[left]
        return _After(_Grown(costs, growth.after(left)), parents, chosen)

    def _tables(self, place: int) -> ChoiceTables:
        """What a member may choose; the same for all members of a kind that chose alike before."""
        search_state, member = self.search_state, self.cluster.members[place]
        classes, numbers = search_state.coarse.classes, search_state.numbers(member)
        if member < search_state.first_input:
            one = classes.classes[member]
            key: Hashable = (one.kind, len(one.members), self.cluster.follows[place], numbers)
        else:
            key = (classes.input_kind(member), numbers)
        found = search_state.tables.get(key)
        if found is None:
            found = search_state.tables[key] = ChoiceTables(search_state, member, self.cluster.follows[place])
        assert isinstance(found, ChoiceTables)
        return found
