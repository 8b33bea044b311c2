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

from vgraph.ir.sharding import At, Placement, Replicate, ShardingPlan, Split, Strategy
from vgraph.ir.step import UPDATE, TrainingStep
from vgraph.ir.tdl.table import is_absent
from vgraph.partition.search.cost_graph import CostGraph, Costs
from vgraph.partition.search.critical import solve_by_paths
from vgraph.partition.search.search import Found, search
from vgraph.partition.search.step_costs import StepCosts


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
