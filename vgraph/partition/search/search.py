"""Search: the division of a training step among workers that moves the fewest bytes.

Takes: a TrainingStep, a number of workers. Gives: a Found: the plan and what it costs. Runs once per model.
Source: Tofu section 5.2 and 5.3: coarsen, then two groups of workers at a time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from tqdm import tqdm

from vgraph.collection import uncollected
from vgraph.ir.program import Value
from vgraph.ir.sharding import Placement, Replicate, ShardingPlan, Strategy
from vgraph.ir.step import TrainingStep
from vgraph.ir.tdl.table import is_absent
from vgraph.partition.accounting.readings import readings_of
from vgraph.partition.search.classes import Held, classify
from vgraph.partition.search.clusters import Coarse, coarsen
from vgraph.partition.search.critical import Solved, solve_known
from vgraph.partition.search.critical import solve as solve_graph
from vgraph.partition.search.factors import find_factors, with_hints
from vgraph.partition.search.options import Options, Past
from vgraph.partition.search.states import SearchState
from vgraph.partition.search.step_costs import StepCosts

Solver = Callable[[StepCosts], list[int]]
SMALL_SHARE = 1024  # what is this much smaller than the largest tensor may be kept by every worker
FEW_CLASSES = 200  # so many classes of ops are searched without clusters as well


class _Way(NamedTuple):
    """What every op and input has chosen in the steps so far, and what they move."""

    cost: float
    step_bytes: tuple[float, ...]
    past: list[Past]


@dataclass(frozen=True, eq=False)
class Found:
    """A plan, what each step of the recursion moves beyond those before it, by the search's own costs, and its time.

    ``need``: bytes that a worker needs by the books; 0: they were not asked.
    """

    plan: ShardingPlan
    step_bytes: tuple[float, ...]
    seconds: float
    need: float = 0.0


class Prepared:
    """What searches of one step have in common: the coarsened graph, and what was found of its ops.

    ``graphs``: with it, where ops are few, the graph of the ops themselves, by which no plan is lost that a cluster
    cannot have: what follows an operand lies where that does. ``is_small``: whether they are few. ``held``: inputs that
    lie somewhere already.
    """

    def __init__(self, step: TrainingStep, held: Held | None = None) -> None:
        classes = classify(step)
        hints = find_factors(classes)
        hinted = replace(with_hints(classes, hints), held=held or {})
        self.coarse = coarsen(hinted)
        self.is_small = len(hinted.classes) <= FEW_CLASSES
        self.graphs = (self.coarse, coarsen(hinted, joins=False)) if self.is_small else (self.coarse,)
        factors = {i: [frozenset(s) for s in dims] for i, dims in hints.items()}
        self.options = Options(_small(step), factors, step.loss.id, held=held or {})
        self.solved = Solved()
        self._first: dict[tuple[Coarse, int], StepCosts] = {}

    def problem(self, state: SearchState) -> StepCosts:
        """The costs of a step; those of a first one, of all options, are found once: others solve it, too."""
        if state.past_ways or state.options is not self.options:
            return StepCosts(state)
        key = (state.coarse, state.ways)
        if key not in self._first:
            self._first[key] = StepCosts(state)
        return self._first[key]


def factorised(num_workers: int) -> tuple[int, ...]:
    """Prime factors, the largest first.

    >>> factorised(8), factorised(12), factorised(1)
    ((2, 2, 2), (3, 2, 2), ())
    """
    found: list[int] = []
    divisor = 2
    while num_workers > 1:
        while num_workers % divisor == 0:
            found.append(divisor)
            num_workers //= divisor
        divisor += 1
    return tuple(reversed(found))


def search(
    step: TrainingStep,
    axes: Sequence[int],
    solve: Solver | None = None,
    restrict: Callable[[Options], Options] = lambda options: options,
    prepared: Prepared | None = None,
) -> Found:
    """The plan for ``axes``: the workers of each step of the recursion, the first step first.

    ``solve``: another way to choose states of clusters, for comparisons; None: exactly, of clusters and of ops.
    """
    began = time.perf_counter()
    with uncollected(ages=True):  # looking for what a search leaves would take a third of its time
        prepared = prepared or Prepared(step)
        past, costs = _choose(prepared, axes, solve, restrict(prepared.options))
        plan = plan_of(prepared.coarse, past, tuple(axes))
    return Found(plan, tuple(costs), time.perf_counter() - began)


def _choose(
    prepared: Prepared, axes: Sequence[int], solve: Solver | None, options: Options
) -> tuple[list[Past], list[float]]:
    """What every op and input chooses in every step, and what each step moves beyond what those before it do.

    From a step on to the next go as many ways as there are graphs, the cheapest ones.
    """
    graphs = prepared.graphs if solve is None else prepared.graphs[:1]
    best = [_Way(0.0, (), [()] * len(prepared.coarse.cluster_of))]
    equal: dict[tuple[int, int], Past] = {}  # what chose alike has one past, about which is asked once
    for number, ways in enumerate(tqdm(axes, desc="search", unit="step", leave=False, disable=None)):
        found: dict[tuple[int, ...], _Way] = {}
        for before in best:
            for graph in graphs:
                problem = prepared.problem(SearchState(graph, options, before.past, axes[:number], ways))
                cost, states = _solved(problem, solve, prepared.solved)
                past = list(before.past)
                _extend(past, problem, states, equal)
                way = _Way(cost, (*before.step_bytes, cost - before.cost), past)
                found.setdefault(tuple(map(id, past)), way)
        best = sorted(found.values(), key=lambda way: way.cost)[: len(graphs)]
    return best[0].past, list(best[0].step_bytes)


def _extend(past: list[Past], problem: StepCosts, states: Sequence[int], equal: dict[tuple[int, int], Past]) -> None:
    """Adds what every member of every cluster chooses in one more step; the states of copies are the last ones."""
    known: dict[tuple[int, int, tuple[int, ...]], list[Past]] = {}
    histories = problem.search_state.histories
    for cluster, kind, state, history in zip(problem.coarse.clusters, problem.kinds, states, histories, strict=False):
        members, key = cluster.members, (id(kind), state, history)
        found = known.get(key)
        if found is None:
            found = known[key] = []
            for member, choice in zip(members, kind.state(state), strict=True):
                before = past[member]
                found.append(equal.setdefault((id(before), id(choice)), (*before, choice)))
        for member, chosen in zip(members, found, strict=True):
            past[member] = chosen
        for other in cluster.owned:
            past[other] = found[0]


def _solved(problem: StepCosts, solve: Solver | None, before: Solved) -> tuple[float, list[int]]:
    """What the cheapest states cost, and which they are."""
    if solve is not None:
        states = solve(problem)
        return problem.graph().cost(problem.with_copies(states)), states
    graph = problem.graph()
    states, is_least = solve_known(graph, before=before)
    found = [(graph.cost(states), states)]
    if not is_least:  # where each cluster pays for itself the graph is narrower
        others = problem.with_copies(solve_graph(problem.apart(), before=before))
        found.append((graph.cost(others), others))
    return min(found, key=lambda each: each[0])


def _small(step: TrainingStep) -> int:
    wires = readings_of(step.program)
    return int(wires.bytes[wires.inputs :].max(initial=0.0)) // SMALL_SHARE


def plan_of(coarse: Coarse, past: Sequence[Past], axes: tuple[int, ...]) -> ShardingPlan:
    """The plan that all choices of all steps make."""
    classes, step = coarse.classes, coarse.classes.step
    rows: dict[int, tuple[Strategy, ...]] = {}  # by the id of a past
    equal: dict[tuple[int, ...], tuple[Strategy, ...]] = {}  # equal rows are one tuple, which others ask about once
    for before in {id(past[one.index]): past[one.index] for one in classes.classes}.values():
        row = tuple([c.strategy for c in before if c.strategy is not None])
        rows[id(before)] = equal.setdefault(tuple(map(id, row)), row)
    chosen = [rows[id(past[one.index])] for one in classes.classes]
    placements: dict[int, tuple[Placement, ...]] = {}
    first = len(classes.classes)
    for i, given in enumerate(step.program.inputs):
        placements[given.value.id] = tuple([choice.kept[0] for choice in past[first + i]])
    moved: dict[int, list[tuple[int, tuple[Placement, ...]]]] = {}  # by the id of a past
    homes: dict[tuple[int, ...], tuple[Placement, ...]] = {}  # equal ones are one, too
    for number, op in enumerate(step.ops):
        choices = past[classes.class_of[number]]
        found = moved.get(id(choices))
        if found is None:
            found = moved[id(choices)] = list(_brought(choices, len(op.results), homes))
        for result, kept in found:
            if not is_absent(op.results[result]):
                placements[op.results[result].id] = kept
    _place_outputs(step, placements, len(axes))
    return ShardingPlan(axes, tuple([chosen[c] for c in classes.class_of]), placements)


def _brought(
    choices: Past, num_results: int, homes: dict[tuple[int, ...], tuple[Placement, ...]]
) -> Iterator[tuple[int, tuple[Placement, ...]]]:
    """The results that are not kept as they are made, and how they are kept."""
    for result in range(num_results):
        codes = tuple([choice.keeps[result] for choice in choices])
        kept = homes.setdefault(codes, tuple([choice.kept[result] for choice in choices]))
        made = tuple([choice.strategy.outputs[result] for choice in choices if choice.strategy])
        if kept != made:
            yield result, kept


def _place_outputs(step: TrainingStep, placements: dict[int, tuple[Placement, ...]], depth: int) -> None:
    """Gradients and updates lie as their parameters do; every worker has the loss, and what is returned beside it."""

    def like(value: Value, given: Value) -> None:
        placements[value.id] = placements[given.id]

    for value in step.results_for_all:
        placements[value.id] = (Replicate(),) * depth
    for name, value in step.gradients.items():
        like(value, step.parameters[name])
    for name, value in step.updated.items():
        like(value, step.parameters[name])
    for name, value in step.new_buffers.items():
        like(value, step.buffers[name])
    for history in step.history:
        like(history.after, history.before)
