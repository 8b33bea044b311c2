"""The plan of one step that moves the fewest bytes: an integer program over the ops themselves.

It knows an op's strategies, how results may be kept, what a fetch costs and that a copy is fetched once, for a matrix
and its turns; it knows nothing of clusters, of dominance or of cost graphs, so that it can judge them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
import torch
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import coo_array

from vgraph.ir.program import Op, Value
from vgraph.ir.sharding import Placement, Replicate, ShardingPlan, Split
from vgraph.ir.step import TrainingStep
from vgraph.ir.tdl.table import is_absent, reads_values
from vgraph.partition.accounting.costs import IMPOSSIBLE, transfer
from vgraph.partition.search.options import Choice
from vgraph.partition.search.search import Prepared

Homes = dict[Placement, list[int]]  # by placement the variables of which one is 1 if a value is kept so


@dataclass
class IntegerProgram:
    """Variables between 0 and 1, what they cost, and sums of them between two bounds."""

    costs: list[float] = field(default_factory=list[float])
    whole: list[bool] = field(default_factory=list[bool])
    entries: list[tuple[int, int, float]] = field(default_factory=list[tuple[int, int, float]])
    bounds: list[tuple[float, float]] = field(default_factory=list[tuple[float, float]])

    def variable(self, cost: float, *, is_whole: bool) -> int:
        self.costs.append(cost)
        self.whole.append(is_whole)
        return len(self.costs) - 1

    def constrain(self, plus: Iterable[int], minus: Iterable[int], low: float, high: float) -> None:
        """The sum of some less that of others lies between two bounds."""
        row = len(self.bounds)
        self.entries += [(row, variable, 1.0) for variable in plus]
        self.entries += [(row, variable, -1.0) for variable in minus]
        self.bounds.append((low, high))

    def solve(self) -> list[bool]:
        rows, columns, values = zip(*self.entries, strict=True)
        matrix = coo_array((values, (rows, columns)), shape=(len(self.bounds), len(self.costs))).tocsr()
        low, high = np.array(self.bounds).T
        scale = max(self.costs)
        found = milp(
            np.array(self.costs) / max(scale, 1.0),
            constraints=LinearConstraint(matrix, low, high),
            integrality=np.array(self.whole, dtype=int),
            bounds=Bounds(0.0, 1.0),
            options={"mip_rel_gap": 1e-9},
        )
        assert found.x is not None, found.message
        return [bool(x > 0.5) for x in found.x]


def exact_plan(step: TrainingStep, ways: int) -> ShardingPlan:
    """The plan of one step for ``ways`` workers of which ``account`` counts the fewest bytes."""
    return _Exact(step, ways).run()


def _turned(placement: Placement) -> Placement:
    """Where a matrix is cut whose turn is cut so."""
    return Split(1 - placement.dim, placement.outer) if isinstance(placement, Split) else placement


class _Exact:
    def __init__(self, step: TrainingStep, ways: int) -> None:
        self.step, self.ways, self.program = step, ways, IntegerProgram()
        self.homes: dict[int, Homes] = {}  # by value
        self.choices: list[list[tuple[int, Choice]]] = []  # by op, the variable of each choice
        self.reads: dict[int, dict[Placement, dict[int, list[int]]]] = {}  # value, placement, op: variables
        self.values: dict[int, Value] = {}
        self.fetches: dict[tuple[int, Placement], list[tuple[int, Placement]]] = {}  # copies, each from a home
        turned = [op for op in step.ops if op.target is torch.ops.aten.t.default]
        self.turns = {op.results[0].id: next(op.operands()).id for op in turned}

    def run(self) -> ShardingPlan:
        prepared = Prepared(self.step)
        options, classes = prepared.options, prepared.coarse.classes
        for given in self.step.program.inputs:
            value = given.value
            self.homes[value.id], self.values[value.id] = {}, value
            for choice in options.of_input(value, (), (), self.ways):
                self.homes[value.id][choice.kept[0]] = [self.program.variable(0.0, is_whole=True)]
            self._one_of(v for found in self.homes[value.id].values() for v in found)
        self._tie()
        for number, op in enumerate(self.step.ops):
            kind = classes.classes[classes.class_of[number]].kind
            self._add_op(op, options.of_op(op, kind, (), (), self.ways))
        for value, needs in self.reads.items():
            for need, readers in needs.items():
                self._add_copy(value, need, readers)
        return self._plan(self.program.solve())

    def _one_of(self, variables: Iterable[int]) -> None:
        self.program.constrain(variables, (), 1.0, 1.0)

    def _tie(self) -> None:
        """Gradients, updates and histories lie as their parameters; every worker has the loss."""
        step, homes = self.step, self.homes
        pairs = [(value.id, step.parameters[name].id) for name, value in step.gradients.items()]
        pairs += [(value.id, step.parameters[name].id) for name, value in step.updated.items()]
        pairs += [(value.id, step.buffers[name].id) for name, value in step.new_buffers.items()]
        pairs += [(kept.after.id, kept.before.id) for kept in step.history]
        self.tied = {made: homes[like] for made, like in pairs}
        always = self.program.variable(0.0, is_whole=True)
        self._one_of([always])
        self.tied[step.loss.id] = {Replicate(): [always]}
        for kept in step.history:
            for placement, variables in homes[kept.before.id].items():
                like = homes[step.parameters[kept.parameter].id].get(placement)
                if like is not None:
                    self.program.constrain(variables, like, 0.0, 0.0)

    def _add_op(self, op: Op, choices: list[Choice]) -> None:
        free = [not is_absent(result) and result.id not in self.tied for result in op.results]
        mine: dict[tuple[int, tuple[Placement, ...]], tuple[int, Choice]] = {}
        for choice in choices:
            assert choice.strategy is not None
            key = (id(choice.strategy), tuple(k for k, f in zip(choice.kept, free, strict=True) if f))
            if key not in mine:
                both = zip(op.results, choice.strategy.outputs, choice.kept, free, strict=True)
                cost = sum(result.row_bytes * transfer(made, kept, self.ways) for result, made, kept, f in both if f)
                mine[key] = (self.program.variable(cost, is_whole=True), choice)
        found = list(mine.values())
        self.choices.append(found)
        self._one_of(variable for variable, _ in found)
        for place, result in enumerate(op.results):
            self.values[result.id] = result
            self._add_result(result, place, found, is_free=free[place])
        for variable, choice in found:
            self._read(op, variable, choice)

    def _add_result(self, result: Value, place: int, choices: list[tuple[int, Choice]], *, is_free: bool) -> None:
        made: Homes = {}
        for variable, choice in choices:
            assert choice.strategy is not None
            where = choice.kept[place] if is_free else choice.strategy.outputs[place]
            made.setdefault(where, []).append(variable)
        if is_free or is_absent(result):
            self.homes[result.id] = made
            return
        homes = self.homes[result.id] = self.tied[result.id]
        for have, variables in made.items():
            self._bring(result, have, variables, homes)

    def _bring(self, value: Value, have: Placement, variables: list[int], homes: Homes) -> None:
        """What is made in one place is brought to the home that another tensor chooses."""
        ways = [(home, transfer(have, home, self.ways)) for home in homes]
        pairs = {h: self.program.variable(value.row_bytes * t, is_whole=False) for h, t in ways if t < IMPOSSIBLE}
        self.program.constrain(pairs.values(), variables, 0.0, 0.0)
        for home, pair in pairs.items():
            self.program.constrain([pair], homes[home], -1.0, 0.0)

    def _read(self, op: Op, variable: int, choice: Choice) -> None:
        assert choice.strategy is not None and not choice.strategy.halo, "halos are no copies that others can read"
        for place, (value, need) in enumerate(zip(op.operands(), choice.strategy.inputs, strict=True)):
            if not reads_values(op, place):
                continue
            found = self.reads.setdefault(value.id, {}).setdefault(need, {}).setdefault(op.results[0].id, [])
            if variable not in found:
                found.append(variable)

    def _add_copy(self, value_id: int, need: Placement, readers: dict[int, list[int]]) -> None:
        """One copy for all readers: it is there if any of them needs it, and costs by where the value lies."""
        if not any(transfer(home, need, self.ways) for home in self.homes[value_id]):
            return
        found = [variable for variable, _ in self._copies(value_id, need)]
        for variables in readers.values():
            self.program.constrain(found, variables, 0.0, len(found))

    def _copies(self, value_id: int, need: Placement) -> list[tuple[int, Placement]]:
        """Variables of which one is 1 if there is such a copy, each with where the value then lies.

        It is fetched, or it is a copy of what the value is a turn of, where the one lies as the other.
        """
        found = list(self._fetched(value_id, need))
        if value_id in self.turns and isinstance(need, (Replicate, Split)):
            base = self.turns[value_id]
            for copy, home in self._copies(base, _turned(need)):
                mine = _turned(home)
                if mine in self.homes[value_id]:
                    alike = self.program.variable(0.0, is_whole=False)
                    self.program.constrain([copy], [alike], 0.0, 1.0)
                    self.program.constrain(self.homes[value_id][mine], [alike], 0.0, 1.0)
                    found.append((alike, mine))
        return found

    def _fetched(self, value_id: int, need: Placement) -> list[tuple[int, Placement]]:
        if (value_id, need) not in self.fetches:
            homes, value = self.homes[value_id], self.values[value_id]
            ways = [(home, transfer(home, need, self.ways)) for home in homes]
            pairs = {h: self.program.variable(value.row_bytes * t, is_whole=False) for h, t in ways if t < IMPOSSIBLE}
            for home, pair in pairs.items():
                self.program.constrain([pair], homes[home], -1.0, 0.0)
            self.fetches[value_id, need] = [(pair, home) for home, pair in pairs.items()]
        return self.fetches[value_id, need]

    def _plan(self, chosen: list[bool]) -> ShardingPlan:
        picked = [next(choice for variable, choice in found if chosen[variable]) for found in self.choices]
        placements = {
            value: (next(home for home, found in homes.items() if any(chosen[v] for v in found)),)
            for value, homes in self.homes.items()
            if not is_absent(self.values[value])
        }
        strategies = [choice.strategy for choice in picked]
        return ShardingPlan((self.ways,), tuple((s,) for s in strategies if s is not None), placements)
