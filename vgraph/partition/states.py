"""States: what a whole cluster can choose in one step; the situation that it chooses in.

Takes: a coarsened step, Options, earlier choices. Gives: amounts of bytes, Kinds of clusters;
tempo: once a step of the recursion. Source: Tofu section 5.2 (forward and gradient may be split differently).
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

from vgraph.ir.program import Value
from vgraph.ir.sharding import Partial, Split
from vgraph.partition.classes import Reading
from vgraph.partition.clusters import Coarse, Port
from vgraph.partition.cost_graph import Costs
from vgraph.partition.costs import placement_of, transfer
from vgraph.partition.options import Choice, Options, Past

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
    beside: dict[tuple[int, int], tuple[float, ...]] = field(default_factory=dict[tuple[int, int], tuple[float, ...]])

    def codes(self, port: Port) -> tuple[int, ...]:
        """By state, how a result lies (port (True, member, result)) or an operand is read."""
        found = self.vectors.get(port)
        if found is None:
            is_result, member, position = port
            choices = [state[member] for state in self.states]
            found = tuple([c.keeps[position] if is_result else c.reads[position] for c in choices])
            self.vectors[port] = found
        return found

    def halos(self, member: int, position: int) -> tuple[float, ...]:
        found = self.beside.get((member, position))
        if found is None:
            found = self.beside[member, position] = tuple([state[member].halos[position] for state in self.states])
        return found


@dataclass(frozen=True, eq=False)
class Situation:
    """One step of the recursion: ``ways`` workers (or groups), and what the steps before have chosen."""

    coarse: Coarse
    options: Options
    past: Sequence[Past]
    past_ways: Sequence[int]
    ways: int
    known: dict[Hashable, tuple[list[Choice], list[float]]] = field(default_factory=dict, repr=False)

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
