"""Account: what every op of a plan fetches, step by step, and how much of every value a worker holds.

Takes: a TrainingStep and its ShardingPlan. Gives: an Account. Runs once per plan.
Source: Tofu section 5.3 (communication), 7.1 (memory a worker).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from vgraph.ir.program import Value
from vgraph.ir.sharding import At, Partial, Placement, ShardingPlan, Split, Strategy
from vgraph.ir.step import TrainingStep
from vgraph.ir.tdl.table import is_absent, reads_values
from vgraph.partition.accounting.costs import transfer
from vgraph.partition.accounting.crossing import MANY, crosses, crossing_entries
from vgraph.partition.rewrite.views import views_of

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
    """The books of a plan; ``reuse``: what was fetched once is not fetched again."""
    homes: dict[int, Placements] = {i.value.id: plan.placements[i.value.id] for i in step.program.inputs}
    copies = _Copies(step, plan, homes, reuse=reuse)
    nothing = (0.0,) * len(plan.axes)
    fetched: list[tuple[float, ...]] = []
    kept: list[tuple[float, ...]] = []
    largest: list[float] = []
    all_rows = _rows(step, plan)
    for place, (op, row, strategies) in enumerate(zip(step.ops, all_rows, plan.strategies, strict=True)):
        rows: list[tuple[float, ...]] = []
        for position, (value, needed) in enumerate(zip(op.operands(), row.needed, strict=True)):
            if needed == homes[value.id] and position not in row.beside:
                continue
            if not reads_values(op):
                break
            halos = tuple([_halo(value, s, position) for s in strategies]) if position in row.beside else nothing
            rows += copies.bring((place, position), value, needed, halos)
        fetched.append(_sum(rows) if rows else nothing)
        largest.append(max(map(sum, rows)) if rows else 0.0)
        rows = []
        for value, made in zip(op.results, row.made, strict=True):
            home = homes[value.id] = plan.placements.get(value.id, made)
            if home != made and not is_absent(value):
                rows.append(moved(value, made, home, plan.axes, nothing))
        kept.append(_sum(rows) if rows else nothing)
    known = Account(step, plan, tuple(fetched), tuple(kept), homes, all_rows)
    return replace(known, copies=copies.serving, largest=tuple(largest))


class _Copies:
    """What was fetched so far; ``serving``: which copy each operand is read from."""

    def __init__(self, step: TrainingStep, plan: ShardingPlan, homes: Mapping[int, Placements], *, reuse: bool) -> None:
        self.plan, self.homes, self.reuse = plan, homes, reuse
        self.views = views_of(step.program) if reuse else {}
        self.known: dict[int, set[Placements]] = {}
        self.serving: dict[tuple[int, int], Seen] = {}
        self.nothing = (0.0,) * len(plan.axes)

    def bring(
        self, reader: tuple[int, int], value: Value, needed: Placements, halos: tuple[float, ...]
    ) -> list[tuple[float, ...]]:
        """Bytes a step of what has to be fetched, if anything: of the value, or of what it is a view of."""
        if not any(halos):
            value, needed = self._base(value, needed)
        known = self.known.setdefault(value.id, set())
        if (reader[0], value.id) in self.plan.fetched_again:
            known.discard(needed)
        self.serving[reader] = (value, needed)
        if needed in known or (needed == self.homes[value.id] and not any(halos)):
            return []
        if self.reuse:
            known.add(needed)
        return [moved(value, self.homes[value.id], needed, self.plan.axes, halos)]

    def _base(self, value: Value, needed: Placements) -> Seen:
        """What a view of it is a view of, where the one lies as the other: a copy of that serves all its views."""
        while (view := self.views.get(value.id)) is not None:
            there, home = view.placements(needed), view.placements(self.homes[value.id])
            if there is None or home != self.homes[view.base.id]:
                break
            value, needed = view.base, there
        return value, needed


def _rows(step: TrainingStep, plan: ShardingPlan) -> tuple[Row, ...]:
    known: dict[tuple[int, int, int], Row] = {}
    found: list[Row] = []
    for op, strategies in zip(step.ops, plan.strategies, strict=True):
        operands = len(strategies[0].inputs) if strategies else len(list(op.operands()))
        key = (id(strategies), operands, len(op.results))
        row = known.get(key)
        if row is None:
            needed = tuple([tuple([s.inputs[i] for s in strategies]) for i in range(operands)])
            made = tuple([tuple([s.outputs[i] for s in strategies]) for i in range(len(op.results))])
            row = known[key] = Row(needed, made, frozenset(i for s in strategies for i in s.halo))
        found.append(row)
    return tuple(found)


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
    each = math.prod(ways for h, n, ways in both if isinstance(h, Partial) and h == n)  # terms move one by one
    whole = terms = float(value.row_bytes)
    for h, n, ways, halo in zip(have, need, axes, halos, strict=True):
        amount = terms if isinstance(h, Partial) else whole
        factor = transfer(h, n, ways)
        found.append(amount * ((factor if factor < math.inf else 0.0) + (ways - 1) * halo))
        if isinstance(h, Partial) and h == n:
            continue
        whole, terms = whole * ways, terms * ways
        if isinstance(n, Split):
            whole /= ways
            terms /= 1 if isinstance(h, Partial) else ways
    if math.prod(axes) < MANY and crosses(have, need):
        exact, counted = crossing_entries(value.row_shape, have, need, axes) * value.dtype.itemsize / each, sum(found)
        if exact > counted:
            found[-1] += exact - counted
        elif exact < counted:  # what is there of one step may be some of what another needs
            found = [amount * exact / counted for amount in found]
    return tuple([amount * each for amount in found])


def _sum(rows: list[tuple[float, ...]]) -> tuple[float, ...]:
    return tuple([sum(column) for column in zip(*rows, strict=True)])
