"""States: what a whole cluster can choose in one step, and what each choice costs inside.

Takes: a coarsened step, Options, earlier choices. Gives: states and costs, by kind of cluster;
tempo: once a step of the recursion. Source: Tofu section 5.2 (forward and gradient may be split differently).
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from functools import cache

import numpy as np

from vgraph.ir.program import Value
from vgraph.ir.sharding import Partial, Replicate, Split
from vgraph.partition.classes import Reading
from vgraph.partition.clusters import Cluster, Coarse, Port
from vgraph.partition.cost_graph import Costs
from vgraph.partition.costs import placement_of, transfer, transfer_codes
from vgraph.partition.options import Choice, Options, Past

MAX_STATES = 64

Amount = tuple[float, float]
State = tuple[Choice, ...]  # a choice a member


def dense_bytes(value: Value) -> int:
    """``value.row_bytes`` of a value without rows."""
    return math.prod(value.shape) * value.dtype.itemsize  # pyright: ignore[reportArgumentType, reportCallIssue]


@dataclass(eq=False)
class Kind:
    """What all clusters of one kind have in common: their states and costs inside."""

    states: list[State]
    alone: Costs
    vectors: dict[Port, tuple[int, ...]] = field(default_factory=dict[Port, tuple[int, ...]])

    def codes(self, port: Port) -> tuple[int, ...]:
        """By state, how a result lies (port (True, member, result)) or an operand is read."""
        found = self.vectors.get(port)
        if found is None:
            is_result, member, position = port
            choices = [state[member] for state in self.states]
            found = tuple([c.keeps[position] if is_result else c.reads[position] for c in choices])
            self.vectors[port] = found
        return found

    def halos(self, member: int, position: int) -> list[float]:
        return [state[member].halos[position] for state in self.states]


@dataclass(frozen=True, eq=False)
class Situation:
    """One step of the recursion: ``ways`` workers (or groups), and what the steps before have chosen."""

    coarse: Coarse
    options: Options
    past: Sequence[Past]
    past_ways: Sequence[int]
    ways: int

    @property
    def first_input(self) -> int:
        return len(self.coarse.classes.classes)

    def amount(self, reading: Reading) -> Amount:
        """Bytes that the readers of all groups need, counted once a group; and those of a sum's terms.

        What earlier steps kept as terms and the reader splits is less for every group, but not if this
        step keeps terms as well: then every worker has terms of all of it.
        """
        value = self.coarse.classes.value(reading.source, reading.result)
        whole = terms = float(dense_bytes(value) * reading.count * math.prod(self.past_ways))
        if self.past_ways:
            steps = zip(self.past[reading.reader], self.past[reading.source], self.past_ways, strict=True)
            for reader, source, count in steps:
                if isinstance(placement_of(reader.reads[reading.position]), Split):
                    whole /= count
                    if not isinstance(placement_of(source.keeps[reading.result]), Partial):
                        terms /= count
        return whole, terms

    def made(self, member: int, result: int) -> float:
        """Bytes of a result, of all members of a class in all groups."""
        op_class = self.coarse.classes.classes[member]
        amount = float(dense_bytes(op_class.op.results[result]) * len(op_class.members) * math.prod(self.past_ways))
        for choice, count in zip(self.past[member], self.past_ways, strict=True):
            if choice.strategy is not None and isinstance(choice.strategy.outputs[result], Split):
                amount /= count
        return amount

    def kept(self, member: int, result: int) -> float:
        """Bytes of a result or an input as all groups keep it."""
        count = len(self.coarse.classes.classes[member].members) if member < self.first_input else 1
        amount = float(dense_bytes(self.coarse.classes.value(member, result)) * count * math.prod(self.past_ways))
        for choice, ways in zip(self.past[member], self.past_ways, strict=True):
            if isinstance(choice.kept[result], Split):
                amount /= ways
        return amount

    def brought(self, member: int, result: int) -> float:
        """Bytes that earlier steps moved to keep a result; terms that are kept on are moved one by one."""
        op_class = self.coarse.classes.classes[member]
        amount, total = float(dense_bytes(op_class.op.results[result]) * len(op_class.members)), 0.0
        for choice, count in zip(self.past[member], self.past_ways, strict=True):
            assert choice.strategy is not None
            made, kept = choice.strategy.outputs[result], choice.kept[result]
            if made != kept:
                total += amount * transfer(made, kept, count)
            amount *= 1 if isinstance(made, Split) else count
        return total


@dataclass(eq=False)
class _Wire:
    """A reading within a cluster, by members."""

    source: int
    result: int
    reader: int
    position: int
    amount: Amount


@cache
def is_terms(code: int) -> bool:
    """Whether a code stands for a Partial."""
    return isinstance(placement_of(code), Partial)


class Enumeration:
    """The states of one cluster: the root chooses, a follower takes what fits the operand that it follows."""

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
        self._known: dict[tuple[int, int], list[tuple[Choice, float]]] = {}

    def run(self) -> Kind:
        live = self._live()
        found: list[tuple[State, float]] = [((), 0.0)]
        for place in range(len(self.cluster.members)):
            longer: list[tuple[State, float]] = []
            wires = self.wires[place]
            for state, cost in found:
                for choice, kept in self._choices(place, state):
                    grown = (*state, choice)
                    longer.append((grown, cost + kept + self._cost(grown, wires)))
            is_last = place + 1 == len(
                self.cluster.members
            )  # states that did not become more are as distinct as before
            found = self._distinct(longer, live[place]) if is_last or len(longer) > len(found) else longer
        possible = [each for each in found if each[1] < math.inf] or found
        return Kind([state for state, _ in possible], np.array([cost for _, cost in possible]))

    def _cost(self, state: State, wires: Sequence[_Wire]) -> float:
        total = 0.0
        for wire in wires:
            reader = state[wire.reader]
            have, need = state[wire.source].keeps[wire.result], reader.reads[wire.position]
            moved = transfer_codes(have, need, self.ways) + reader.halos[wire.position]
            if moved:
                total += wire.amount[is_terms(have)] * moved
        return total

    def _choices(self, place: int, state: State) -> list[tuple[Choice, float]]:
        """What a member may choose, and the cost of bringing its results to where they are kept."""
        wire = self.followed[place]
        have = -1 if wire is None else state[wire.source].keeps[wire.result]
        found = self._known.get((place, have))
        if found is None:
            found = [(choice, self._keeping(place, choice)) for choice in self._made(place, have)]
            self._known[place, have] = found
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
        if isinstance(given, Replicate):
            fitting = [c for c in fitting if c.strategy and not c.strategy.index] or fitting
        if isinstance(given, Partial) and fitting:
            return fitting
        return fitting or [c for c in every if c.strategy and c.strategy.index not in ("", "+")] or every

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

    def _distinct(self, found: list[tuple[State, float]], ports: Sequence[Port]) -> list[tuple[State, float]]:
        """Of states that look the same from here on the cheapest, and of many the cheapest ones."""
        if len(found) < 2:
            return found
        best: dict[Hashable, tuple[State, float]] = {}
        for each in found:
            state = each[0]
            key = tuple([state[m].keeps[i] if out else (state[m].reads[i], state[m].halos[i]) for out, m, i in ports])
            known = best.get(key)
            if known is None or each[1] < known[1]:
                best[key] = each
        if len(best) <= MAX_STATES:
            return list(best.values())
        return sorted(best.values(), key=lambda each: each[1])[:MAX_STATES]
