"""Account: what every op of a plan fetches, step by step, and how much of every value a worker holds.

Takes: a TrainingStep and its ShardingPlan. Gives: an Account. Runs once per plan.
Source: Tofu section 5.3 (communication), 7.1 (memory a worker).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from vgraph.ir.program import Op, Value
from vgraph.ir.sharding import At, Partial, Placement, Replicate, ShardingPlan, Split, Strategy
from vgraph.ir.step import TrainingStep
from vgraph.ir.tdl.table import reads_values
from vgraph.partition.accounting.costs import transfer
from vgraph.partition.accounting.crossing import (
    MANY,
    Regions,
    crossing_entries,
    lying,
    may_take_part,
    part_entries,
    parts_read,
    ways_to_sum,
)
from vgraph.partition.accounting.readings import Numbers, readings_of
from vgraph.partition.rewrite.layout import Steps, partial_steps
from vgraph.partition.rewrite.regions import index_sizes, notation_of
from vgraph.partition.rewrite.views import View, views_of

Placements = tuple[Placement, ...]
Seen = tuple[Value, Placements]


@dataclass(frozen=True, eq=False)
class Row:
    """What an op's strategies ask of each operand in all steps, and make of each result; many ops share them."""

    needed: tuple[Placements, ...]
    made: tuple[Placements, ...]
    beside: frozenset[int]  # operands with a halo


@dataclass(frozen=True, eq=False)
class Account:
    """``fetched[i][s]``: bytes that cross workers in step s before op i runs, all workers together.

    ``kept[i][s]``: those that cross after it, where a result is brought to its placement. A copy that
    was fetched is kept for later readers that need the same, of the value or of a view of it. ``copies``: by op and
    operand that is not read where it lies, the copy that serves it: often of what the operand is a view of.
    ``largest[i]``: of ``fetched[i]`` what crosses at once, for an op's operands are fetched one after the other.
    """

    step: TrainingStep
    plan: ShardingPlan
    fetched: tuple[tuple[float, ...], ...]
    kept: tuple[tuple[float, ...], ...]
    homes: dict[int, Placements]  # value id -> where it lies
    rows: tuple[Row, ...]  # by op
    copies: Mapping[tuple[int, int], Seen] = field(default_factory=dict[tuple[int, int], Seen])
    largest: tuple[float, ...] = ()
    _shares: dict[int, float] = field(default_factory=dict[int, float], repr=False)  # by the id of a home

    @cached_property
    def total_bytes(self) -> float:
        return sum(map(sum, self.fetched)) + sum(map(sum, self.kept))

    @cached_property
    def step_bytes(self) -> tuple[float, ...]:
        """Bytes of every step of the recursion."""
        rows = [*self.fetched, *self.kept]
        return tuple(sum(row[s] for row in rows) for s in range(len(self.plan.axes)))

    def held_bytes(self, value: Value) -> float:
        """Bytes of a value on one worker."""
        return self.home_share(self.homes[value.id]) * value.row_bytes

    def home_share(self, home: Placements) -> float:
        """``share`` of one of the homes."""
        found = self._shares.get(id(home))
        if found is None:
            found = self._shares[id(home)] = share(home, self.plan.axes)
        return found

    def read_bytes(self, value: Value, needed: Placements) -> float:
        """Bytes of an operand as one worker reads it."""
        return share(needed, self.plan.axes) * value.row_bytes


def share(placements: Placements, axes: tuple[int, ...]) -> float:
    """Which part of a tensor one worker has."""
    cut = (ways for placement, ways in zip(placements, axes, strict=True) if isinstance(placement, (Split, At)))
    return 1 / math.prod(cut)


def account(step: TrainingStep, plan: ShardingPlan, *, reuse: bool = True) -> Account:
    """The books of a plan; ``reuse``: what was fetched once is not fetched again.

    Most ops read and leave everything where it lies; those that do not are found at once.
    """
    wires, numbers = readings_of(step.program), _Numbers()
    rows, row_of = _rows(step, plan)
    needed = _side_by_side([[numbers.of(each) for each in row.needed] for row in rows], row_of)
    made = _side_by_side([[numbers.of(each) for each in row.made] for row in rows], row_of)
    beside = _side_by_side([[place in row.beside for place in range(len(row.needed))] for row in rows], row_of)
    given = [numbers.of(plan.placements[value.id]) for value in wires.values[: wires.inputs]]
    lying = np.concatenate([np.array(given, np.intp), made])
    for value_id, placements in plan.placements.items():
        if value_id in wires.number:
            lying[wires.number[value_id]] = numbers.of(placements)
    homes = dict(zip(wires.number, [numbers.placements[number] for number in lying.tolist()], strict=True))
    copies = _Copies(step, plan, homes, reuse=reuse)
    nothing = (0.0,) * len(plan.axes)
    fetched, kept, largest = [nothing] * len(step.ops), [nothing] * len(step.ops), [0.0] * len(step.ops)
    for number, readings in _by_op(wires.reader, (needed != lying[wires.read]) | (beside == 1)):
        op, row = step.ops[number], rows[row_of[number]]
        read = [position for at in readings if reads_values(op, position := at - int(wires.first[number]))]
        moves = [move for position in read for move in copies.read(number, position, op, row)]
        fetched[number], largest[number] = _sum(moves) or nothing, max(map(sum, moves), default=0.0)
    for number, results in _by_op(wires.maker, (made != lying[wires.inputs :]) & ~wires.absent[wires.inputs :]):
        found = [(wires.values[wires.inputs + at], numbers.placements[made[at]]) for at in results]
        kept[number] = _sum([moved(value, have, homes[value.id], plan.axes, nothing) for value, have in found])
    all_rows = tuple([rows[number] for number in row_of.tolist()])
    return Account(
        step, plan, tuple(fetched), tuple(kept), homes, all_rows, copies=copies.serving, largest=tuple(largest)
    )


class _Numbers:
    """Small numbers that stand for placements in all steps."""

    def __init__(self) -> None:
        self.placements: list[Placements] = []
        self._known: dict[Placements, int] = {}

    def of(self, placements: Placements) -> int:
        found = self._known.setdefault(placements, len(self.placements))
        if found == len(self.placements):
            self.placements.append(placements)
        return found


def _side_by_side(rows: Sequence[Sequence[int]], row_of: Numbers) -> Numbers:
    """One row after the other, as ops have them."""
    entries = np.array(list(itertools.chain.from_iterable(rows)), np.intp)
    lengths = np.array([len(row) for row in rows], np.intp)
    starts, counts = (np.cumsum(lengths) - lengths)[row_of], lengths[row_of]
    return entries[np.repeat(starts - np.cumsum(counts) + counts, counts) + np.arange(counts.sum())]


def _by_op(op_of: Numbers, chosen: NDArray[np.bool_]) -> Iterator[tuple[int, list[int]]]:
    """The places that are chosen, by the op of each."""
    places = chosen.nonzero()[0].tolist()
    for number, found in itertools.groupby(places, key=op_of.tolist().__getitem__):
        yield number, list(found)


class _Copies:
    """What was fetched so far; ``serving``: which copy each operand is read from."""

    def __init__(self, step: TrainingStep, plan: ShardingPlan, homes: Mapping[int, Placements], *, reuse: bool) -> None:
        self.plan, self.homes, self.reuse = plan, homes, reuse
        self.views = views_of(step.program) if reuse else dict[int, View]()
        self.known: dict[int, set[tuple[Placements, Regions | None]]] = {}
        self.sums: dict[tuple[int, Steps], list[tuple[Placements, Regions | None]]] = {}  # what was read of terms
        self.serving: dict[tuple[int, int], Seen] = {}
        self.nothing = (0.0,) * len(plan.axes)
        self.parts: tuple[int, Mapping[int, Regions]] = (-1, {})  # of the op that reads now

    def read(self, number: int, position: int, op: Op, row: Row) -> list[tuple[float, ...]]:
        """Bytes a step of what has to be fetched for an operand that is not read where it lies, if anything."""
        value, halos, strategies = list(op.operands())[position], self.nothing, self.plan.strategies[number]
        if position in row.beside:
            halos = tuple([_halo(value, strategy, position) for strategy in strategies])
        if self.parts[0] != number:
            self.parts = (number, self._parts(op, strategies))
        return self.bring((number, position), value, row.needed[position], halos, self.parts[1].get(position))

    def _parts(self, op: Op, strategies: tuple[Strategy, ...]) -> Mapping[int, Regions]:
        notation = notation_of(op) if may_take_part(op, strategies) and self.plan.num_workers < MANY else None
        return (
            {} if notation is None else parts_read(op, notation, index_sizes(op, notation), strategies, self.plan.axes)
        )

    def bring(
        self, reader: tuple[int, int], value: Value, needed: Placements, halos: tuple[float, ...], parts: Regions | None
    ) -> list[tuple[float, ...]]:
        """Bytes a step of what has to be fetched, if anything: of the value, or of what it is a view of."""
        value, needed, parts = self._base(value, needed, parts)
        known = self.known.setdefault(value.id, set())
        if (reader[0], value.id) in self.plan.fetched_again:
            known -= {copy for copy in known if copy[0] == needed}
        self.serving[reader] = (value, needed)
        home = self.homes[value.id]
        if not known.isdisjoint({(needed, None), (needed, parts)}) or (needed == home and not any(halos)):
            return []
        if self.reuse:
            known.add((needed, parts))
        found = moved(value, home, needed, self.plan.axes, halos)
        if parts is not None:
            found = _of_parts(found, value, home, needed, parts, self.plan.axes)
        return [self._of_sums(found, value, needed, parts)]

    def _of_sums(
        self, found: tuple[float, ...], value: Value, needed: Placements, parts: Regions | None
    ) -> tuple[float, ...]:
        """Of what moves that which moves where an earlier reader had the value's terms summed up, and spread out."""
        home, axes = self.homes[value.id], self.plan.axes
        stays = partial_steps(home) & partial_steps(needed)
        if not self.reuse or stays == partial_steps(home) or self.plan.num_workers >= MANY:
            return found
        earlier = self.sums.setdefault((value.id, stays), [])
        earlier.append((needed, parts))
        if len(earlier) == 1:
            return found
        *before, (at_once, first, then) = [
            ways_to_sum(value.row_shape, home, read or lying(value.row_shape, there, axes), partial_steps(there), axes)
            for there, read in earlier
        ]
        if not any(at_once > first + then for at_once, first, then in before):
            return found
        counted = min(at_once, first + then)
        return tuple([amount * then / counted for amount in found]) if counted else found

    def _base(
        self, value: Value, needed: Placements, parts: Regions | None
    ) -> tuple[Value, Placements, Regions | None]:
        """What a view of it is a view of, where the one lies as the other: a copy of that serves all its views."""
        while (view := self.views.get(value.id)) is not None:
            there, home = view.placements(needed), view.placements(self.homes[value.id])
            if there is None or home != self.homes[view.base.id]:
                break
            if parts is not None:
                seen = [part and view.region(part) for part in parts]
                if None in seen:
                    break
                parts = tuple(seen)
            value, needed = view.base, there
        return value, needed, parts


def _rows(step: TrainingStep, plan: ShardingPlan) -> tuple[list[Row], Numbers]:
    """Rows that differ, and by op which one it has."""
    operands, results = np.diff(readings_of(step.program).first).tolist(), [len(op.results) for op in step.ops]
    keys = list(zip(map(id, plan.strategies), operands, results, strict=True))
    numbers = {key: number for number, key in enumerate(dict.fromkeys(keys))}
    chosen = {id(strategies): strategies for strategies in plan.strategies}
    rows = [_row(chosen[strategies], *counts) for strategies, *counts in numbers]
    return rows, np.array([numbers[key] for key in keys], np.intp)


def _row(strategies: tuple[Strategy, ...], operands: int, results: int) -> Row:
    needed = tuple([tuple([s.inputs[i] for s in strategies]) for i in range(operands)])
    made = tuple([tuple([s.outputs[i] for s in strategies]) for i in range(results)])
    return Row(needed, made, frozenset(i for s in strategies for i in s.halo))


def _halo(value: Value, strategy: Strategy, position: int) -> float:
    if position not in strategy.halo:
        return 0.0
    need = strategy.inputs[position]
    extent = value.shape[need.dim] if isinstance(need, Split) else 0
    return sum(max(n, 0) for n in strategy.halo[position]) / extent if isinstance(extent, int) and extent else 0.0


def moved(
    value: Value, have: Placements, need: Placements, axes: tuple[int, ...], halos: tuple[float, ...]
) -> tuple[float, ...]:
    """Bytes a step, over all workers, to bring a value from one placement to another."""
    if have == need and not any(halos):
        return (0.0,) * len(axes)
    found: list[float] = []
    both = zip(have, need, axes, strict=True)
    # Terms that stay terms move one by one, and to each of those who have what all others have.
    each = math.prod(ways for h, n, ways in both if h == n and isinstance(h, (Partial, Replicate)))
    whole = terms = float(value.row_bytes)
    for h, n, ways, halo in zip(have, need, axes, halos, strict=True):
        amount = terms if isinstance(h, Partial) else whole
        factor = transfer(h, n, ways)
        found.append(amount * ((factor if factor < math.inf else 0.0) + (ways - 1) * halo))
        if h == n and isinstance(h, (Partial, Replicate)):
            continue
        whole, terms = whole * ways, terms * ways
        if isinstance(n, Split):
            whole /= ways
            terms /= 1 if isinstance(h, Partial) else ways
    if len(axes) > 1 and math.prod(axes) < MANY:
        exact, counted = crossing_entries(value.row_shape, have, need, axes) * value.dtype.itemsize / each, sum(found)
        if exact > counted:
            found[-1] += exact - counted
        elif exact < counted:  # what is there of one step may be some of what another needs
            found = [amount * exact / counted for amount in found]
    return tuple([amount * each for amount in found])


def _of_parts(
    found: tuple[float, ...], value: Value, have: Placements, need: Placements, parts: Regions, axes: tuple[int, ...]
) -> tuple[float, ...]:
    """Bytes a step where workers read these parts of what lies so: of the whole steps move ``found``."""
    exact = part_entries(value.row_shape, have, parts, partial_steps(need), axes) * value.dtype.itemsize
    counted = sum(found)
    return tuple([amount * exact / counted for amount in found]) if counted else (*found[:-1], float(exact))


def _sum(rows: list[tuple[float, ...]]) -> tuple[float, ...]:
    return tuple([sum(column) for column in zip(*rows, strict=True)])
