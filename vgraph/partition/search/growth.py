"""Growth: how states of a cluster look and become more, member by member, which is the same whatever their sizes.

Takes: choices of a member and the Skeleton of its cluster. Gives: Layouts, and the Growth from one to the next. Runs
once per form of what grows; ``Enumeration`` adds what it costs, once per size.
Source: Tofu section 5.2 (forward and gradient may be split differently).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np

from vgraph.partition.accounting.costs import is_window
from vgraph.partition.accounting.several_steps import Way, factors_of_pairs
from vgraph.partition.search.choice_tables import Choices
from vgraph.partition.search.clusters import Port
from vgraph.partition.search.cost_graph import Costs
from vgraph.partition.search.skeleton import Numbers, Skeleton, Wire

MAX_STATES = 64
Outside = tuple[tuple[Port, int], ...]  # ports that other clusters see, and their rows


class Seen(NamedTuple):
    """States as others see them: which ones, and the codes of ports."""

    rows: Numbers
    vectors: dict[Port, tuple[int, ...]]


class Layout:
    """How states look: a column a state, a row of codes for every port that anything depends on."""

    def __init__(self, looks: Numbers) -> None:
        self.looks = looks
        self._codes: dict[int, tuple[list[int], tuple[int, ...]]] = {}
        self._seen: dict[tuple[Outside, bytes], Seen] = {}
        self._grown: dict[Hashable, Growth] = {}
        self._near: dict[tuple[int, int, int], tuple[Growth, Skeleton]] = {}  # of a skeleton, which is held

    def codes(self, row: int) -> tuple[list[int], tuple[int, ...]]:
        """By state, where what a row stands for is placed; and each placement once."""
        found = self._codes.get(row)
        if found is None:
            have: list[int] = self.looks[row].tolist()
            found = self._codes[row] = (have, tuple(dict.fromkeys(have)))
        return found

    def seen(self, outside: Outside, states: Numbers) -> Seen:
        """Some of the states, as others see them."""
        key = (outside, states.tobytes())
        found = self._seen.get(key)
        if found is None:
            found = self._seen[key] = Seen(states, {})
            for port, row in outside:
                found.vectors[port] = tuple(self.looks[row, states].tolist())
        return found

    def growth(self, bones: Skeleton, place: int, found: Choices, looks: Numbers, told: int) -> Growth:
        """How these become the states with one more member; ``looks``: of its choices, which ``told`` numbers."""
        near = (id(bones), place, told)
        known = self._near.get(near)
        if known is None:
            key = (bones.shapes[place], told)
            growth = self._grown.get(key)
            if growth is None:
                growth = self._grown[key] = self._grow(bones, place, found, looks)
            known = self._near[near] = (growth, bones)
        return known[0]

    def _grow(self, bones: Skeleton, place: int, found: Choices, mine: Numbers) -> Growth:
        parents, chosen = self._pairs(bones.followed[place], found)
        looks = self.looks.copy() if parents is None else self.looks[:, parents]
        if count := len(bones.ports[place]):
            first = bones.first[place]
            looks[first : first + count] = mine[:, chosen]
        is_last = place == len(bones.wires) - 1
        live = bones.live[place] if is_last or parents is not None else None  # else they are as distinct as before
        return Growth(parents, chosen, looks, bones.wires[place], live)

    def _pairs(self, row: int, found: Choices) -> tuple[Numbers | None, Numbers]:
        """Every state with every choice of one more member: from which state (None: each from its own), by which."""
        if row < 0:
            count, width = len(found.choices), self.looks.shape[1]
            if count == 1:
                return None, np.zeros(width, np.intp)
            return np.repeat(np.arange(width), count), np.tile(np.arange(count), width)
        rows = found.rows
        picks = [rows[code] for code in self.codes(row)[0]]
        chosen = np.array([number for pick in picks for number in pick], np.intp)
        if len(chosen) == len(picks):
            return None, chosen
        return np.repeat(np.arange(len(picks)), [len(pick) for pick in picks]), chosen


class Growth:
    """Of each state with one more member, from which it grew (None: from its own), by which choice, how it looks.

    ``wires``: what it reads, and what reads it, within the cluster; ``live``: the rows by which states are told apart
    from here on; None: they are not looked at; ``have_parts``: by wire, whether any state reads a part of what its
    strategy names.
    """

    def __init__(
        self, parents: Numbers | None, chosen: Numbers, looks: Numbers, wires: Sequence[Wire], live: Numbers | None
    ) -> None:
        self.parents, self.chosen, self.looks, self.wires, self.live = parents, chosen, looks, wires, live
        self._moved: dict[tuple[int, Way, int], Costs | None] = {}
        self._after: dict[bytes | None, Layout] = {}
        self.have_parts = [any(map(is_window, set(looks[wire.need].tolist()))) for wire in wires]

    def moved(self, number: int, way: Way, ways: int) -> Costs | None:
        """By state what moves along a wire, as factors of the bytes that are read; None: nothing."""
        key = (number, way, ways)
        if key not in self._moved:
            wire = self.wires[number]
            factors = factors_of_pairs(way, self.looks[wire.have], self.looks[wire.need], ways)
            self._moved[key] = factors if np.count_nonzero(factors) else None
        return self._moved[key]

    @cached_property
    def _alike(self) -> list[list[int]] | None:
        """The states that look the same from here on, in the order of the first of each; None: all differ."""
        if self.live is None:
            return None
        seen = self.looks[self.live]
        keys: Sequence[bytes] = [b""] * seen.shape[1]
        if len(seen):
            rows = np.ascontiguousarray(seen.T)
            keys = rows.view(f"V{rows.itemsize * len(seen)}").ravel().tolist()
        if len(set(keys)) == len(keys):
            return None
        alike: defaultdict[bytes, list[int]] = defaultdict(list)
        for number, key in enumerate(keys):
            alike[key].append(number)
        return list(alike.values())

    def cheapest(self, costs: Costs) -> Numbers | None:
        """Of states that look the same from here on the cheapest, and of many the cheapest ones; None: all."""
        alike = self._alike
        if alike is None and (self.live is None or len(costs) <= MAX_STATES):
            return None
        values: list[float] = costs.tolist()
        price = values.__getitem__
        found = list(range(len(values))) if alike is None else [min(each, key=price) for each in alike]
        if len(found) > MAX_STATES:
            found = sorted(found, key=price)[:MAX_STATES]
        return np.array(found, np.intp)

    def after(self, left: Numbers | None) -> Layout:
        """What is left of the states; None: all."""
        key = None if left is None else left.tobytes()
        found = self._after.get(key)
        if found is None:
            found = self._after[key] = Layout(self.looks if left is None else self.looks[:, left])
        return found
