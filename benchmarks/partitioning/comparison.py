"""Baselines: what others do, in the same costs: by greed, with less freedom, or without a search.

Takes: a TrainingStep, workers. Gives: ShardingPlans; tempo: in benchmarks.
Source: Tofu section 7.3 (AllRow, Spartan, EqualChop, ICML18), and its section 7.1 (operator placement).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from vgraph.ir.program import Op
from vgraph.ir.sharding import At, Partial, Placement, Replicate, ShardingPlan, Split, Strategy
from vgraph.ir.step import UPDATE, TrainingStep
from vgraph.ir.tdl.table import is_absent
from vgraph.partition.search.cost_graph import CostGraph, Costs
from vgraph.partition.search.critical import solve_by_paths
from vgraph.partition.search.search import Found, search
from vgraph.partition.search.step_costs import StepCosts
from vgraph.partition.search.strategies import strategies


def all_row(step: TrainingStep, axes: Sequence[int], rng: random.Random | None = None) -> Found:
    """Every tensor is cut along its first dim that divides; ops choose in turn, or at random."""
    choose = _greedy if rng is None else partial(_random, rng=rng)
    return search(step, axes, solve=lambda problem: choose(_rows_only(problem)))


def spartan(step: TrainingStep, axes: Sequence[int]) -> Found:
    """The largest tensor first, each where it costs least beside what was decided before."""
    return search(step, axes, solve=lambda problem: _greedy(problem.apart(), _by_size(problem)))


def equal_chop(step: TrainingStep, axes: Sequence[int]) -> Found:
    """One step for all workers: every tensor is cut along a single dim."""
    return search(step, (int(np.prod(axes)),))


def icml18(step: TrainingStep, axes: Sequence[int], *, reduces: bool = False) -> Found:
    """No reduction is divided; with ``reduces`` it is, but its sum is formed at once."""
    return search(step, axes, restrict=lambda o: replace(o, reduces=reduces, keeps_terms=False))


def by_paths(step: TrainingStep, axes: Sequence[int]) -> Found:
    """CriticalDP throughout, as in the first version of the paper."""
    return search(step, axes, solve=lambda problem: solve_by_paths(problem.apart(), 0))


# ---------------------------------------------------------------- without a search
def data_parallel(step: TrainingStep, axes: Sequence[int]) -> ShardingPlan:
    """Every worker has all parameters and a part of the batch; gradients are summed for all."""
    depth = len(axes)
    batch = _batch_of(step, int(np.prod(axes)))
    homes: dict[int, tuple[Placement, ...]] = {}
    placements: dict[int, tuple[Placement, ...]] = {}
    for given in step.program.inputs:
        dim = batch.get(given.value.id)
        where: Placement = Replicate() if dim is None else Split(dim)
        placements[given.value.id] = homes[given.value.id] = (where,) * depth
    for value in (*step.gradients.values(), *step.new_buffers.values()):
        placements[value.id] = (Replicate(),) * depth
    placements[step.loss.id] = (Replicate(),) * depth
    chosen: list[tuple[Strategy, ...]] = []
    for op, note in zip(step.ops, step.notes, strict=True):
        strategy = _following(op, [homes[v.id][0] for v in op.operands()], axes[0], note.phase == UPDATE)
        chosen.append((strategy,) * depth)
        for value, made in zip(op.results, strategy.outputs, strict=True):
            homes[value.id] = placements.get(value.id, (made,) * depth)
    return ShardingPlan(tuple(axes), tuple(chosen), placements)


def _batch_of(step: TrainingStep, workers: int) -> dict[int, int | None]:
    """The dim of each input that counts samples: the size that all inputs have, first of those that divide."""
    shared = set.intersection(*({d for d in v.shape if isinstance(d, int)} for v in step.inputs if v.shape))
    sizes = [d for d in step.inputs[0].shape if d in shared and isinstance(d, int) and d % workers == 0]
    found: dict[int, int | None] = {}
    for value in step.inputs:
        found[value.id] = list(value.shape).index(sizes[0]) if sizes and sizes[0] in value.shape else None
    return found


def _following(op: Op, lies: Sequence[Placement], ways: int, is_update: bool) -> Strategy:
    """The strategy that reads every operand where it lies, of those the one that divides."""
    every = strategies(op, ways)
    if is_update:
        return every[0]
    summed = [Replicate() if isinstance(have, Partial) else have for have in lies]  # statistics of the whole batch
    for given in (lies, summed):
        fitting = [s for s in every if all(_is_free(h, n) for h, n in zip(given, s.inputs, strict=True))]
        divided = [s for s in fitting if s.index and _uses(given, s)]
        if divided:
            return divided[0]
    return every[0]


def _uses(lies: Sequence[Placement], strategy: Strategy) -> bool:
    """A replicated operand is not cut anew for its own sake."""
    cut = [have for have in lies if not isinstance(have, Replicate)]
    return bool(cut) and all(
        have == need for have, need in zip(lies, strategy.inputs, strict=True) if not isinstance(have, Replicate)
    )


def _is_free(have: Placement, need: Placement) -> bool:
    return have == need or (isinstance(have, Replicate) and not isinstance(need, Partial))


def operator_placement(step: TrainingStep, workers: int) -> ShardingPlan:
    """Layers on workers in turn: every module that has parameters, with its gradients and history."""
    names = list(dict.fromkeys(name.rpartition(".")[0] for name in step.parameters))
    tops = list(dict.fromkeys(_layer(name) for name in names))
    worker = {top: i % workers for i, top in enumerate(tops)}
    placements: dict[int, tuple[Placement, ...]] = {}
    owners = {v.id: worker[_layer(n.rpartition(".")[0])] for n, v in step.parameters.items()}
    owners |= {v.id: worker.get(_layer(n.rpartition(".")[0]), 0) for n, v in step.buffers.items()}
    owners |= {h.before.id: worker[_layer(h.parameter.rpartition(".")[0])] for h in step.history}
    for given in step.program.inputs:
        owners.setdefault(given.value.id, 0)
        placements[given.value.id] = (At(owners[given.value.id]),)
    chosen: list[tuple[Strategy, ...]] = []
    for op, note in zip(step.ops, step.notes, strict=True):
        operands = list(op.operands())
        largest = max(operands, key=lambda value: (value.row_bytes, owners[value.id]), default=None)
        beside = owners[largest.id] if largest is not None else 0
        here = At(beside if note.phase == UPDATE else worker.get(_layer(note.module), beside))
        owners.update((value.id, here.worker) for value in op.results)
        chosen.append((Strategy("", 1, (here,) * len(operands), (here,) * len(op.results)),))
    for name, value in step.gradients.items():
        placements[value.id] = placements[step.parameters[name].id]
    return ShardingPlan((workers,), tuple(chosen), placements)


def _layer(module: str) -> str:
    """The part of a path that ends with its last number: ``cells.3.recurrent`` is layer ``cells.3``."""
    parts = module.split(".")
    numbers = [i for i, part in enumerate(parts) if part.isdigit()]
    return ".".join(parts[: numbers[-1] + 1]) if numbers else module


# ---------------------------------------------------------------- choices of states
def _rows_only(problem: StepCosts) -> CostGraph:
    """States that keep every tensor along its first dim are made free to choose, others impossible."""
    graph = problem.apart()
    alone: list[Costs] = []
    for kind, costs in zip(problem.kinds, graph.alone, strict=True):
        barred = np.array([not all(_is_row(p) for choice in state for p in choice.kept) for state in kind.states])
        possible = np.where(barred, np.inf, costs)
        alone.append(possible if np.isfinite(possible).any() else costs)
    return CostGraph(alone, graph.pairs)


def _is_row(placement: Placement) -> bool:
    return placement == Split(0) or isinstance(placement, Replicate)


def _by_size(problem: StepCosts) -> list[int]:
    classes = problem.coarse.classes

    def largest(cluster: int) -> int:
        first = len(classes.classes)
        values = [
            v for c in problem.coarse.clusters[cluster].members
            for v in (classes.classes[c].op.results if c < first else (classes.value(c, 0),)) if not is_absent(v)
        ]  # fmt: skip
        return max((value.row_bytes for value in values), default=0)

    return sorted(range(len(problem.coarse.clusters)), key=largest, reverse=True)


def _greedy(graph: CostGraph, order: Sequence[int] | None = None) -> list[int]:
    """Each vertex in turn takes the state that costs least beside the neighbours that have decided."""
    return _in_turn(graph, order, lambda costs: int(np.argmin(costs)))


def _random(graph: CostGraph, rng: random.Random) -> list[int]:
    """Any state that is possible beside the neighbours that have decided."""
    return _in_turn(graph, None, lambda costs: rng.choice([int(i) for i in np.flatnonzero(np.isfinite(costs))] or [0]))


def _in_turn(graph: CostGraph, order: Sequence[int] | None, choose: Callable[[Costs], int]) -> list[int]:
    around: list[list[tuple[int, Costs]]] = [[] for _ in graph.alone]
    for (u, v), costs in graph.pairs.items():
        around[u].append((v, costs))
        around[v].append((u, costs.T))
    states = [-1] * graph.num_vertices
    for v in order or range(graph.num_vertices):
        costs = graph.alone[v].copy()
        for u, table in around[v]:  # undecided neighbours must still be able to fit
            costs = costs + (table[:, states[u]] if states[u] >= 0 else np.where(np.isinf(table).all(1), np.inf, 0.0))
        states[v] = choose(costs)
    return states
