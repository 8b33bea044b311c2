"""States: what a whole cluster can choose in one step; the search_state that it chooses in.

Takes: a coarsened step, Options, earlier choices. Gives: amounts of bytes, Kinds of clusters. Runs once per step of
the recursion. Source: Tofu section 5.2 (forward and gradient may be split differently).
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from vgraph.ir.program import Value
from vgraph.ir.sharding import Split
from vgraph.partition.accounting.costs import code_of
from vgraph.partition.accounting.several_steps import Codes, Route, Way, each_of
from vgraph.partition.search.classes import Reading
from vgraph.partition.search.clusters import Coarse, Port
from vgraph.partition.search.cost_graph import Costs
from vgraph.partition.search.options import Choice, Options, Past

Amount = tuple[float, Way]  # bytes of all values that are read; what moves of them depends on the way
State = tuple[Choice, ...]  # a choice a member


def dense_bytes(value: Value) -> int:
    """``value.row_bytes`` of a value without rows."""
    return math.prod(value.shape) * value.dtype.itemsize  # pyright: ignore[reportArgumentType, reportCallIssue]


class Grown(NamedTuple):
    """How states grew by one member: each from which one (None: from its own), by which choice."""

    parents: NDArray[np.intp] | None
    chosen: NDArray[np.intp]
    choices: list[Choice]


@dataclass(eq=False)
class Kind:
    """What all clusters of one kind have in common: their states and costs inside.

    ``vectors``: by state, the code of how a result lies (port (True, member, result)) or an operand is read.
    """

    grown: list[Grown]
    rows: NDArray[np.intp]  # which of those that grew are states
    alone: Costs
    vectors: dict[Port, tuple[int, ...]] = field(default_factory=dict[Port, tuple[int, ...]])
    _asked: dict[int, State] = field(default_factory=dict[int, State], repr=False)

    def state(self, number: int) -> State:
        """The choices of all members in one state."""
        found = self._asked.get(number)
        if found is None:
            found = self._asked[number] = self._states(self.rows[number : number + 1])[0]
        return found

    @cached_property
    def states(self) -> list[State]:
        return self._states(self.rows)

    def _states(self, rows: NDArray[np.intp]) -> list[State]:
        """From the last member to the first."""
        found: list[list[Choice]] = []
        for one in reversed(self.grown):
            found.append([one.choices[number] for number in one.chosen[rows].tolist()])
            rows = rows if one.parents is None else one.parents[rows]
        return list(zip(*reversed(found), strict=True))

    def codes(self, port: Port) -> tuple[int, ...]:
        """By state, how a port looks."""
        found = self.vectors.get(port)
        if found is None:
            is_result, member, position = port
            choices = [state[member] for state in self.states]
            found = tuple([c.keeps[position] if is_result else c.reads[position] for c in choices])
            self.vectors[port] = found
        return found


@dataclass(eq=False)
class SearchState:
    """One step of the recursion: ``ways`` workers (or groups), and what the steps before have chosen."""

    coarse: Coarse
    options: Options
    past: Sequence[Past]
    past_ways: Sequence[int]
    ways: int
    tables: dict[Hashable, object] = field(default_factory=dict[Hashable, object], repr=False)
    _chosen: dict[tuple[int, int, int, int], tuple[Codes, Codes, float]] = field(init=False, repr=False)
    _numbers: dict[int, tuple[int, ...]] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._chosen, self._numbers = {}, {}  # pasts are held, so that their ids stay their own

    @cached_property
    def axes(self) -> tuple[int, ...]:
        return tuple(self.past_ways)

    @cached_property
    def histories(self) -> list[tuple[int, ...]]:
        """By cluster, the ids of what its members chose before: clusters of one form with equal ones chose alike."""
        ids = list(map(id, self.past))  # equal pasts are mostly one tuple
        return [tuple([ids[member] for member in cluster.members]) for cluster in self.coarse.clusters]

    def numbers(self, member: int) -> tuple[int, ...]:
        """The numbers of what an op or an input chose before."""
        past = self.past[member]
        found = self._numbers.get(id(past))
        if found is None:
            found = self._numbers[id(past)] = tuple([choice.number for choice in past])
        return found

    @property
    def first_input(self) -> int:
        return len(self.coarse.classes.classes)

    def bytes_read(self, reading: Reading) -> float:
        """Bytes of the values that members of a class read, each whole and once."""
        one = (reading.source, reading.result)
        size = self.coarse.sizes.get(one)
        if size is None:
            size = self.coarse.sizes[one] = dense_bytes(self.coarse.classes.value(*one))
        return float(size * len(reading.members))

    def home(self, value: tuple[int, int]) -> tuple[int, ...]:
        """The codes of where it lies by earlier steps."""
        return tuple([choice.keeps[value[1]] for choice in self.past[value[0]]])

    def amount(self, reading: Reading, *, has_parts: bool) -> Amount:
        """Bytes that are read, and how earlier steps let the value lie and be read."""
        if not self.past_ways:
            return self.bytes_read(reading), 1.0
        reader, source = self.past[reading.reader], self.past[reading.source]
        key = (id(reader), reading.position, id(source), reading.result)
        found = self._chosen.get(key)
        if found is None:
            have = self.home((reading.source, reading.result))
            need = tuple([choice.reads[reading.position] for choice in reader])
            found = self._chosen[key] = (have, need, each_of(have, self.axes) if have == need else 0.0)
        have, need, each = found
        if each and not has_parts:
            return self.bytes_read(reading), each
        shape = self.coarse.classes.value(reading.source, reading.result).row_shape
        return self.bytes_read(reading), Route(shape, have, need, self.axes)

    def kept(self, member: int, result: int) -> float:
        """Bytes of a result or an input as all groups keep it."""
        count = len(self.coarse.classes.classes[member].members) if member < self.first_input else 1
        amount = float(dense_bytes(self.coarse.classes.value(member, result)) * count * math.prod(self.past_ways))
        for choice, ways in zip(self.past[member], self.past_ways, strict=True):
            if isinstance(choice.kept[result], Split):
                amount /= ways
        return amount

    def brought(self, member: int, result: int) -> Amount:
        """Bytes of a result of all members of a class, and how earlier steps brought it from where it is made."""
        op_class, past = self.coarse.classes.classes[member], self.past[member]
        value = op_class.op.results[result]
        amount = float(dense_bytes(value) * len(op_class.members))
        if not self.past_ways:
            return amount, 1.0
        made = tuple([code_of(choice.strategy.outputs[result]) for choice in past if choice.strategy is not None])
        kept = self.home((member, result))
        return amount, each_of(kept, self.axes) if made == kept else Route(value.row_shape, made, kept, self.axes)
