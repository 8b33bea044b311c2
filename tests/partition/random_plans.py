"""Legal plans drawn at random: what the rewriter must get right whatever the search chooses."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from vgraph.ir.program import Op, Value
from vgraph.ir.sharding import Placement, Replicate, ShardingPlan, Split, Strategy
from vgraph.ir.step import TrainingStep
from vgraph.partition.search.strategies import Factors, shrink, strategies

Choose = Callable[[Op, Sequence[Strategy]], Strategy]


def random_plan(
    step: TrainingStep, axes: tuple[int, ...], rng: random.Random, factors: Factors | None = None
) -> ShardingPlan:
    program = step.program
    chosen = [random_strategies(op, axes, rng, factors) for op in program.ops]
    placements = {i.value.id: random_placements(i.value, axes, rng) for i in program.inputs}
    placements[step.loss.id] = (Replicate(),) * len(axes)
    for name, value in (*step.gradients.items(), *step.updated.items()):
        placements[value.id] = placements[step.parameters[name].id]
    for kept in step.history:
        placements[kept.after.id] = placements[kept.before.id]
    return ShardingPlan(axes, tuple(chosen), placements)


def random_strategies(
    op: Op, axes: tuple[int, ...], rng: random.Random, factors: Factors | None
) -> tuple[Strategy, ...]:
    found: list[Strategy] = []
    for ways in axes:
        options = strategies(op, ways, factors)
        options = [s for s in options if s.index not in ("", "+")] or options[:1]
        if rng.random() < 0.2:
            options = strategies(op, ways, factors)
        found.append(rng.choice(options))
        op = shrink(op, found[-1], ways)
    return tuple(found)


def random_placements(value: Value, axes: tuple[int, ...], rng: random.Random) -> tuple[Placement, ...]:
    shape = [d for d in value.shape if isinstance(d, int)]
    found: list[Placement] = []
    for ways in axes:
        dims = [d for d, size in enumerate(shape) if size % ways == 0 and size]
        if not dims or rng.random() < 0.1:
            found.append(Replicate())
            continue
        dim = rng.choice(dims)
        found.append(Split(dim))
        shape[dim] //= ways
    return tuple(found)
