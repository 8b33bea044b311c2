"""Enumeration: all states of one cluster, and what each costs inside, many at a time.

Takes: a SearchState and a Cluster. Gives: its Kind. Runs once per kind of cluster and step of the recursion.
Source: Tofu section 5.2 (forward and gradient may be split differently).
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from vgraph.partition.accounting.costs import are_terms, looks_of, transfers
from vgraph.partition.search.choice_tables import Choices, ChoiceTables
from vgraph.partition.search.clusters import Cluster, Port
from vgraph.partition.search.cost_graph import Costs
from vgraph.partition.search.skeleton import Numbers, Wire, skeleton_of
from vgraph.partition.search.states import Amount, Grown, Kind, SearchState

MAX_STATES = 64


@dataclass(eq=False)
class _Grown:
    """States of the first members of a cluster: by state what it costs, by row and state how that looks."""

    costs: Costs
    looks: Numbers
    _codes: dict[int, tuple[list[int], tuple[int, ...]]] = field(
        default_factory=dict[int, tuple[list[int], tuple[int, ...]]]
    )
    _seen: dict[tuple[tuple[Port, int], ...], _Seen] = field(
        default_factory=dict[tuple[tuple[Port, int], ...], "_Seen"]
    )

    def codes(self, row: int) -> tuple[list[int], tuple[int, ...]]:
        """By state, where what a row stands for is placed; and each placement once."""
        found = self._codes.get(row)
        if found is None:
            have: list[int] = looks_of()[0][self.looks[row]].tolist()
            found = self._codes[row] = (have, tuple(dict.fromkeys(have)))
        return found

    def seen(self, outside: tuple[tuple[Port, int], ...]) -> _Seen:
        """The possible states, as others see them."""
        found = self._seen.get(outside)
        if found is None:
            possible = np.flatnonzero(self.costs < math.inf)
            if not len(possible):
                possible = np.arange(len(self.costs))
            found = self._seen[outside] = _Seen(possible, self.costs[possible], {}, {}, {})
            codes, halos = looks_of()
            for port, row in outside:
                looks = self.looks[row, possible]
                found.vectors[port] = tuple(codes[looks].tolist())
                if not port[0]:
                    found.arrays[port[1:]] = halos[looks]
                    found.beside[port[1:]] = tuple(found.arrays[port[1:]].tolist())
        return found


class _After(NamedTuple):
    """States with one more member; of each, from which it grew (None: from its own), by which choice."""

    states: _Grown
    parents: Numbers | None
    chosen: Numbers


class _Seen(NamedTuple):
    rows: Numbers
    alone: Costs
    vectors: dict[Port, tuple[int, ...]]
    beside: dict[tuple[int, int], tuple[float, ...]]
    arrays: dict[tuple[int, int], Costs]  # the same


class Enumeration:
    """The states of one cluster: the root chooses, a follower takes what fits the operand that it follows.

    A state is a column of ``looks``: a number for the placement and halo at every port that anything depends on.
    What grew alike before, of this or an earlier step, is not grown again.
    """

    def __init__(self, search_state: SearchState, cluster: Cluster) -> None:
        self.search_state, self.cluster, self.ways = search_state, cluster, search_state.ways
        self.skeleton = skeleton_of(search_state.coarse, cluster)
        self.readings = search_state.coarse.inside[cluster.index]

    def run(self) -> Kind:
        bones, known = self.skeleton, self.search_state.options.grown
        states = known.setdefault(bones.num_rows, _Grown(np.zeros(1), np.zeros((bones.num_rows, 1), np.intp)))
        assert isinstance(states, _Grown)
        grown: list[Grown] = []
        for place in range(len(self.cluster.members)):
            row = bones.followed[place]
            found = self._tables(place).choices((-1,) if row < 0 else states.codes(row)[1])
            amounts = tuple([self._amount(wire.reading) for wire in bones.wires[place]])
            key = (id(states), self.ways, bones.shapes[place], found.about(bones.ports[place]), amounts)
            after = known.get(key)
            if after is None:
                after = known[key] = self._after(place, states, found, amounts)
            assert isinstance(after, _After)
            grown.append(Grown(after.parents, after.chosen, found.choices))
            states = after.states
        seen = states.seen(bones.outside)
        return Kind(grown, seen.rows, seen.alone, dict(seen.vectors), dict(seen.beside), dict(seen.arrays))

    def _after(self, place: int, states: _Grown, found: Choices, amounts: Sequence[Amount]) -> _After:
        """The states with one more member."""
        bones, costs, looks = self.skeleton, states.costs, states.looks
        parents, chosen = self._grow(place, states, found)
        if parents is None:
            looks = looks.copy()
        else:
            costs, looks = costs[parents], looks[:, parents]
        if found.costs is not None:
            costs = costs + found.costs[chosen]
        if ports := bones.ports[place]:
            first = bones.first[place]
            looks[first : first + len(ports)] = found.looks(ports)[:, chosen]
        for wire, amount in zip(bones.wires[place], amounts, strict=True):
            costs = self._with_wire(costs, looks, wire, amount)
        if place == len(self.cluster.members) - 1 or parents is not None:  # else they are as distinct as before
            left = _distinct(costs, looks[bones.live[place]])
            if left is not None:
                costs, looks, chosen = costs[left], looks[:, left], chosen[left]
                parents = left if parents is None else parents[left]
        return _After(_Grown(costs, looks), parents, chosen)

    def _grow(self, place: int, states: _Grown, found: Choices) -> tuple[Numbers | None, Numbers]:
        """Every state with every choice of one more member: from which state (None: each from its own), by which."""
        row = self.skeleton.followed[place]
        if row < 0:
            count, width = len(found.choices), states.looks.shape[1]
            if count == 1:
                return None, np.zeros(width, np.intp)
            return np.repeat(np.arange(width), count), np.tile(np.arange(count), width)
        picks = [found.rows[code] for code in states.codes(row)[0]]
        chosen = np.array([number for pick in picks for number in pick], np.intp)
        if len(chosen) == len(picks):
            return None, chosen
        return np.repeat(np.arange(len(picks)), [len(pick) for pick in picks]), chosen

    def _with_wire(self, costs: Costs, looks: Numbers, wire: Wire, amount: Amount) -> Costs:
        codes, halos = looks_of()
        have, need = codes[looks[wire.have]], looks[wire.need]
        moved = transfers(self.ways)[have, codes[need]] + halos[need]
        if not np.count_nonzero(moved):
            return costs
        amounts = np.where(are_terms()[have], amount[1], amount[0])
        return costs + np.multiply(amounts, moved, out=np.zeros_like(moved), where=moved > 0)

    def _amount(self, reading: int) -> Amount:
        return self.search_state.amount(self.readings[reading])

    def _tables(self, place: int) -> ChoiceTables:
        """What a member may choose; the same for all members of a kind that chose alike before."""
        search_state, member = self.search_state, self.cluster.members[place]
        classes, numbers = search_state.coarse.classes, search_state.numbers[member]
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


def _distinct(costs: Costs, seen: Numbers) -> Numbers | None:
    """Of states that look the same from here on the cheapest, and of many the cheapest ones; None: all."""
    values: list[float] = costs.tolist()
    keys: Sequence[Hashable] = [b""] * len(values)
    if len(seen):
        rows = np.ascontiguousarray(seen.T)
        keys = rows.view(f"V{rows.itemsize * len(seen)}").ravel().tolist()
    best = dict(zip(reversed(keys), range(len(values) - 1, -1, -1), strict=True))  # the first of each
    if len(best) < len(values):
        best = {}
        for number, key in enumerate(keys):
            known = best.setdefault(key, number)
            if values[number] < values[known]:
                best[key] = number
    elif len(values) <= MAX_STATES:
        return None
    found = list(best.values()) if len(best) < len(values) else list(range(len(values)))
    if len(found) > MAX_STATES:
        found = sorted(found, key=values.__getitem__)[:MAX_STATES]
    return np.array(found, np.intp)
