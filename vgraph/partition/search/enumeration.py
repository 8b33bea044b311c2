"""Enumeration: all states of one cluster, and what each costs inside, many at a time.

Takes: a SearchState and a Cluster. Gives: its Kind. Runs once per kind of cluster and step of the recursion.
Source: Tofu section 5.2 (forward and gradient may be split differently).
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence

import numpy as np

from vgraph.partition.accounting.costs import are_terms, looks_of, transfers
from vgraph.partition.search.choice_tables import Choices, ChoiceTables
from vgraph.partition.search.clusters import Cluster
from vgraph.partition.search.cost_graph import Costs
from vgraph.partition.search.skeleton import Numbers, Wire, skeleton_of
from vgraph.partition.search.states import Amount, Grown, Kind, SearchState

MAX_STATES = 64


class Enumeration:
    """The states of one cluster: the root chooses, a follower takes what fits the operand that it follows.

    A state is a column of ``looks``: a number for the placement and halo at every port that anything depends on.
    """

    def __init__(self, search_state: SearchState, cluster: Cluster) -> None:
        self.search_state, self.cluster, self.ways = search_state, cluster, search_state.ways
        self.skeleton = skeleton_of(search_state.coarse, cluster)
        self.readings = search_state.coarse.inside[cluster.index]

    def run(self) -> Kind:
        bones, costs = self.skeleton, np.zeros(1)
        looks = np.zeros((bones.num_rows, 1), np.intp)
        grown: list[Grown] = []
        last = len(self.cluster.members) - 1
        for place in range(last + 1):
            found, parents, chosen = self._grow(place, looks)
            if parents is not None:
                costs, looks = costs[parents], looks[:, parents]
            if found.costs is not None:
                costs = costs + found.costs[chosen]
            if ports := bones.ports[place]:
                first = bones.first[place]
                looks[first : first + len(ports)] = found.looks(ports)[:, chosen]
            for wire in bones.wires[place]:
                costs = self._with_wire(costs, looks, wire)
            if place == last or parents is not None:  # else they are as distinct as before
                left = _distinct(costs, looks[bones.live[place]])
                if left is not None:
                    costs, looks, chosen = costs[left], looks[:, left], chosen[left]
                    parents = left if parents is None else parents[left]
            grown.append(Grown(parents, chosen, found.choices))
        return self._kind(grown, costs, looks)

    def _kind(self, grown: list[Grown], costs: Costs, looks: Numbers) -> Kind:
        possible = np.flatnonzero(costs < math.inf)
        if not len(possible):
            possible = np.arange(len(costs))
        kind, (codes, halos) = Kind(grown, possible, costs[possible]), looks_of()
        for port, row in self.skeleton.outside:
            seen = looks[row, possible]
            kind.vectors[port] = tuple(codes[seen].tolist())
            if not port[0]:
                kind.beside[port[1:]] = tuple(halos[seen].tolist())
        return kind

    def _grow(self, place: int, looks: Numbers) -> tuple[Choices, Numbers | None, Numbers]:
        """Every state with every choice of one more member: from which state (None: each from its own), by which."""
        tables = self._tables(place)
        row = self.skeleton.followed[place]
        if row < 0:
            found = tables.choices((-1,))
            count, width = len(found.choices), looks.shape[1]
            if count == 1:
                return found, None, np.zeros(width, np.intp)
            return found, np.repeat(np.arange(width), count), np.tile(np.arange(count), width)
        have: list[int] = looks_of()[0][looks[row]].tolist()
        found = tables.choices(tuple(dict.fromkeys(have)))
        picks = [found.rows[code] for code in have]
        chosen = np.array([number for pick in picks for number in pick], np.intp)
        if len(chosen) == len(have):
            return found, None, chosen
        return found, np.repeat(np.arange(len(have)), [len(pick) for pick in picks]), chosen

    def _with_wire(self, costs: Costs, looks: Numbers, wire: Wire) -> Costs:
        codes, halos = looks_of()
        have, need = codes[looks[wire.have]], looks[wire.need]
        moved = transfers(self.ways)[have, codes[need]] + halos[need]
        if not moved.any():
            return costs
        whole, terms = self._amount(wire.reading)
        amounts = np.where(are_terms()[have], terms, whole)
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
