"""Enumeration: all states of one cluster, and what each costs inside, many at a time.

Takes: a Situation and a Cluster. Gives: its Kind; tempo: once a kind of cluster and step of the recursion.
Source: Tofu section 5.2 (forward and gradient may be split differently).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vgraph.ir.sharding import Partial, Replicate, Split
from vgraph.partition.clusters import Cluster, Port
from vgraph.partition.cost_graph import Costs
from vgraph.partition.costs import are_terms, looks_of, placement_of, transfer, transfers
from vgraph.partition.options import Choice
from vgraph.partition.states import Amount, Kind, Situation

MAX_STATES = 64

Numbers = NDArray[np.intp]


@dataclass(eq=False)
class _Wire:
    """A reading within a cluster, by members."""

    source: int
    result: int
    reader: int
    position: int
    amount: Amount


@dataclass(frozen=True, eq=False)
class _Step:
    """How states grew by one member: each from which one, by which choice."""

    parents: Numbers
    chosen: Numbers
    choices: list[Choice]


class Enumeration:
    """The states of one cluster: the root chooses, a follower takes what fits the operand that it follows.

    A state is a column of ``looks``: a number for the placement and halo at every port that anything depends on.
    """

    def __init__(self, situation: Situation, cluster: Cluster) -> None:
        self.situation, self.cluster, self.ways = situation, cluster, situation.ways
        coarse = situation.coarse
        place = {item: max(coarse.member_of[item], 0) for item in (*cluster.members, *cluster.owned)}
        self.wires: list[list[_Wire]] = [[] for _ in cluster.members]  # by the later of both ends
        self.followed: list[_Wire | None] = [None] * len(cluster.members)
        for r in coarse.inside[cluster.index]:
            wire = _Wire(place[r.source], r.result, place[r.reader], r.position, situation.amount(r))
            if r.count:
                self.wires[max(wire.source, wire.reader)].append(wire)
            if wire.position == cluster.follows[wire.reader] and wire.source < wire.reader:
                self.followed[wire.reader] = wire
        self.live = self._live()
        self.rows: dict[Port, int] = {}
        self.ports: list[list[Port]] = [[] for _ in cluster.members]
        for port in self._all_ports():
            self.rows[port] = len(self.rows)
            self.ports[port[1]].append(port)

    def run(self) -> Kind:
        costs, looks = np.zeros(1), np.zeros((len(self.rows), 1), np.intp)
        steps: list[_Step] = []
        last = len(self.cluster.members) - 1
        for place in range(last + 1):
            step, added = self._grown(place, looks)
            before = len(costs)
            if len(step.chosen) > before:
                costs, looks = costs[step.parents], looks[:, step.parents]
            if any(added):
                costs = costs + np.array(added)[step.chosen]
            if self.ports[place]:
                first = self.rows[self.ports[place][0]]
                seen = [[_look(choice, port) for choice in step.choices] for port in self.ports[place]]
                looks[first : first + len(seen)] = np.array(seen, np.intp)[:, step.chosen]
            costs = self._with_wires(costs, looks, self.wires[place])
            if place == last or len(costs) > before:  # else they are as distinct as before
                left = self._distinct(costs, looks, self.live[place])
                costs, looks = costs[left], looks[:, left]
                step = _Step(step.parents[left], step.chosen[left], step.choices)
            steps.append(step)
        possible = np.flatnonzero(costs < math.inf)
        if not len(possible):
            possible = np.arange(len(costs))
        kind, codes = Kind(_states(steps, possible), costs[possible]), looks_of()[0]
        for port in self.situation.coarse.ports[self.cluster.index]:
            kind.vectors[port] = tuple(codes[looks[self.rows[port], possible]].tolist())
        return kind

    def _grown(self, place: int, looks: Numbers) -> tuple[_Step, list[float]]:
        """Every state with every choice of one more member, and what each choice costs."""
        wire = self.followed[place]
        have = [-1] * looks.shape[1]
        if wire is not None:
            have = looks_of()[0][looks[self.rows[True, wire.source, wire.result]]].tolist()
        choices: list[Choice] = []
        added: list[float] = []
        rows: dict[int, range] = {}
        for code in dict.fromkeys(have):
            found = self._choices(place, code)
            rows[code] = range(len(choices), len(choices) + len(found[0]))
            choices += found[0]
            added += found[1]
        picks = [rows[code] for code in have]
        chosen = np.array([number for pick in picks for number in pick], np.intp)
        parents = np.repeat(np.arange(len(picks)), [len(pick) for pick in picks])
        return _Step(parents, chosen, choices), added

    def _with_wires(self, costs: Costs, looks: Numbers, wires: Sequence[_Wire]) -> Costs:
        if not wires:
            return costs
        codes, halos = looks_of()
        table, terms = transfers(self.ways), are_terms()
        for wire in wires:
            have = codes[looks[self.rows[True, wire.source, wire.result]]]
            look = looks[self.rows[False, wire.reader, wire.position]]
            moved = table[have, codes[look]] + halos[look]
            if moved.any():
                amounts = np.where(terms[have], wire.amount[1], wire.amount[0])
                costs = costs + np.multiply(amounts, moved, out=np.zeros_like(moved), where=moved > 0)
        return costs

    # ------------------------------------------------------------ what a member may choose
    def _choices(self, place: int, have: int) -> tuple[list[Choice], list[float]]:
        """Choices, and what it costs to bring results to where they are kept; the same for all members of a kind."""
        situation, member = self.situation, self.cluster.members[place]
        classes, numbers = situation.coarse.classes, tuple([choice.number for choice in situation.past[member]])
        if member < situation.first_input:
            one = classes.classes[member]
            key = (one.kind, len(one.members), self.cluster.follows[place], have, numbers)
        else:
            key = (classes.input_kind(member), numbers)
        found = situation.known.get(key)
        if found is None:
            choices = self._made(place, have)
            found = situation.known[key] = (choices, [self._keeping(place, choice) for choice in choices])
        return found

    def _keeping(self, place: int, choice: Choice) -> float:
        member, total = self.cluster.members[place], 0.0
        if self.situation.options.price:
            shared = sum(self.situation.kept(member, i) for i, p in enumerate(choice.kept) if not isinstance(p, Split))
            total += self.situation.options.price * (self.ways - 1) * shared
        if choice.strategy is not None:
            for result, (made, kept) in enumerate(zip(choice.strategy.outputs, choice.kept, strict=True)):
                if made != kept:
                    total += self.situation.made(member, result) * transfer(made, kept, self.ways)
                elif isinstance(made, Partial):
                    total += (self.ways - 1) * self.situation.brought(member, result)
        return total

    def _made(self, place: int, have: int) -> list[Choice]:
        situation, member = self.situation, self.cluster.members[place]
        options, past = situation.options, situation.past[member]
        if member >= situation.first_input:
            value = situation.coarse.classes.value(member, 0)
            return options.of_input(value, past, situation.past_ways, self.ways)
        op_class, position = situation.coarse.classes.classes[member], self.cluster.follows[place]
        if have < 0:
            return options.of_op(op_class.op, op_class.kind, past, situation.past_ways, self.ways)
        given = placement_of(have)
        every = options.of_op(op_class.op, op_class.kind, past, situation.past_ways, self.ways, (position, given))
        fitting = [c for c in every if c.reads[position] == have]
        if isinstance(given, Partial) and fitting:
            return fitting
        plain = [c for c in fitting if c.strategy and c.strategy.index != "+"]
        if isinstance(given, Replicate):
            plain = [c for c in plain if c.strategy and not c.strategy.index] or plain
        return plain or [c for c in every if c.strategy and c.strategy.index not in ("", "+")] or every

    # ------------------------------------------------------------ what later members or others depend on
    def _live(self) -> list[list[Port]]:
        count = len(self.cluster.members)
        last: dict[Port, int] = dict.fromkeys(self.situation.coarse.ports[self.cluster.index], count)
        for place, wires in enumerate(self.wires):
            for wire in wires:
                for port in ((True, wire.source, wire.result), (False, wire.reader, wire.position)):
                    if port[1] < place:
                        last[port] = max(last.get(port, 0), place)
        for place, wire in enumerate(self.followed):
            if wire is not None:
                port = (True, wire.source, wire.result)
                last[port] = max(last.get(port, 0), place)
        return [[p for p, until in last.items() if p[1] <= k < until] for k in range(count)]

    def _all_ports(self) -> list[Port]:
        """All that anything depends on, member by member."""
        found: dict[Port, None] = dict.fromkeys(self.situation.coarse.ports[self.cluster.index])
        for wire in itertools.chain.from_iterable(self.wires):
            found[True, wire.source, wire.result] = found[False, wire.reader, wire.position] = None
        for wire in self.followed:
            if wire is not None:
                found[True, wire.source, wire.result] = None
        return sorted(found, key=lambda port: port[1])

    def _distinct(self, costs: Costs, looks: Numbers, ports: Sequence[Port]) -> Numbers:
        """Of states that look the same from here on the cheapest, and of many the cheapest ones."""
        values: list[float] = costs.tolist()
        keys: list[Hashable] = [b""] * len(values)
        if ports:
            seen = np.ascontiguousarray(looks[[self.rows[port] for port in ports]].T)
            keys = seen.view(f"V{seen.itemsize * len(ports)}").ravel().tolist()
        best: dict[Hashable, int] = {}
        for number, key in enumerate(keys):
            known = best.setdefault(key, number)
            if values[number] < values[known]:
                best[key] = number
        found = list(best.values())
        if len(found) > MAX_STATES:
            found = sorted(found, key=values.__getitem__)[:MAX_STATES]
        return np.array(found, np.intp)


def _look(choice: Choice, port: Port) -> int:
    is_result, _, position = port
    return choice.keep_looks[position] if is_result else choice.read_looks[position]


def _states(steps: Sequence[_Step], rows: Numbers) -> list[tuple[Choice, ...]]:
    """The choices of all members, from the last to the first."""
    found: list[list[Choice]] = []
    for step in reversed(steps):
        found.append([step.choices[number] for number in step.chosen[rows].tolist()])
        rows = step.parents[rows]
    return list(zip(*reversed(found), strict=True))
