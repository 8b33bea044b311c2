"""Choice tables: what one member of a cluster may choose, and what that costs, by where the operand lies it follows.

Takes: a SearchState and a member. Gives: Choices. Runs once per kind of op and step of the recursion.
Source: Tofu section 5.2; a sum may be kept as terms, scattered, or be given to all (docs/adr/0010).
"""

from __future__ import annotations

import itertools
from collections.abc import Hashable
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from vgraph.ir.sharding import Split
from vgraph.partition.accounting.costs import placement_of
from vgraph.partition.accounting.several_steps import Route, factor_of
from vgraph.partition.search.cost_graph import Costs
from vgraph.partition.search.options import Choice, Fitting
from vgraph.partition.search.skeleton import Numbers, Place
from vgraph.partition.search.states import Amount, SearchState


@dataclass(frozen=True, eq=False)
class _Joined:
    """Choices for several placements, one after the other; how they look is found once for all of a form."""

    parts: list[Fitting]  # held, for they are known by their ids
    choices: list[Choice]
    rows: dict[int, range]
    told: dict[Hashable, int]  # numbers of looks
    _looks: dict[tuple[Place, ...], tuple[Numbers, int]] = field(
        default_factory=dict[tuple[Place, ...], tuple[Numbers, int]]
    )

    def looks(self, ports: tuple[Place, ...]) -> tuple[Numbers, int]:
        """By port and choice, how it looks there; and a number, equal for choices that look the same."""
        found = self._looks.get(ports)
        if found is None:
            rows = [
                [c.keeps[at] for c in self.choices] if is_result else [c.reads[at] for c in self.choices]
                for is_result, at in ports
            ]
            looks = np.array(rows, np.intp)
            told = self.told.setdefault((looks.tobytes(), *self.rows.items()), len(self.told))
            found = self._looks[ports] = (looks, told)
        return found


@dataclass(frozen=True, eq=False)
class Choices:
    """Choices for several placements of the followed operand, and what each costs, if any does."""

    joined: _Joined
    costs: Costs | None

    @property
    def choices(self) -> list[Choice]:
        return self.joined.choices

    @property
    def rows(self) -> dict[int, range]:
        """By placement, which of the choices are for it."""
        return self.joined.rows

    def looks(self, ports: tuple[Place, ...]) -> tuple[Numbers, int]:
        """By port and choice, how it looks there; and a number, equal for choices that look the same."""
        return self.joined.looks(ports)

    @cached_property
    def costs_told(self) -> bytes:
        """Equal for choices that cost the same."""
        return b"" if self.costs is None else self.costs.tobytes()


class ChoiceTables:
    """All choices of one member."""

    def __init__(self, search_state: SearchState, member: int, follows: int) -> None:
        self.search_state, self.member, self.follows = search_state, member, follows
        self._single: dict[int, tuple[Fitting, list[float]]] = {}
        self._choices: dict[tuple[int, ...], Choices] = {}
        self._every: list[Choice] | None = None  # where no inner factor is cut

    def choices(self, codes: tuple[int, ...]) -> Choices:
        """The choices for these placements of the followed operand, one after the other; -1: it follows none."""
        found = self._choices.get(codes)
        if found is None:
            found = self._choices[codes] = self._joined(codes)
        return found

    def _joined(self, codes: tuple[int, ...]) -> Choices:
        parts: list[Fitting] = []
        costs: list[float] = []
        for code in codes:
            if code not in self._single:
                fitting = self._fitting(code)
                self._single[code] = (fitting, self._costs(fitting))
            mine, added = self._single[code]
            parts.append(mine)
            costs += added
        return Choices(self._join(codes, parts), np.array(costs) if any(costs) else None)

    def _join(self, codes: tuple[int, ...], parts: list[Fitting]) -> _Joined:
        """Choices of several placements, one after the other; of equal ones those that were joined first."""
        known, told = self.search_state.options.joined, self.search_state.options.told
        key = (codes, tuple(map(id, parts)))
        found = known.get(key)
        if found is None:
            ends = itertools.accumulate([len(part.choices) for part in parts], initial=0)
            rows = {code: range(*between) for code, between in zip(codes, itertools.pairwise(ends), strict=True)}
            found = known[key] = _Joined(parts, [choice for part in parts for choice in part.choices], rows, told)
        assert isinstance(found, _Joined)
        return found

    def _costs(self, fitting: Fitting) -> list[float]:
        """What each costs by itself: to hold what a second worker holds too, and to bring results where they stay."""
        state, member = self.search_state, self.member
        price, others = state.options.price, state.ways - 1
        costs = [0.0] * len(fitting.choices)
        for at, choice in enumerate(fitting.choices if price else ()):
            shared = sum(state.kept(member, i) for i, p in enumerate(choice.kept) if not isinstance(p, Split))
            costs[at] = price * others * shared
        for at, moves in fitting.moves(state.ways):
            for result, factor in moves:
                amount, way = self._brought[result]
                costs[at] += 0.0 if isinstance(way, Route) else amount * way * factor
        for result, (amount, way) in enumerate(self._brought):
            if isinstance(way, Route):
                for at, (made, kept) in enumerate(fitting.codes(result)):
                    costs[at] += amount * factor_of(way, made, kept, state.ways)
        return costs

    @cached_property
    def _brought(self) -> list[Amount]:
        """By result, its bytes, and how earlier steps brought it to where it is kept."""
        state, member = self.search_state, self.member
        if member >= state.first_input:
            return []
        return [state.brought(member, result) for result in range(len(state.coarse.classes.classes[member].op.results))]

    def _fitting(self, have: int) -> Fitting:
        search_state, member = self.search_state, self.member
        options, past, ways = search_state.options, search_state.past[member], search_state.ways
        if member >= search_state.first_input:
            value = search_state.coarse.classes.value(member, 0)
            return Fitting(options.of_input(value, past, search_state.past_ways, ways))
        op_class = search_state.coarse.classes.classes[member]
        there = None if have < 0 else placement_of(have)
        hint = (self.follows, there) if isinstance(there, Split) and there.outer > 1 else None
        every = self._every if hint is None else None
        if every is None:
            every = options.of_op(op_class.op, op_class.kind, past, search_state.past_ways, ways, hint)
            self._every = every if hint is None else self._every
        return options.fitting(every, self.follows, have)
