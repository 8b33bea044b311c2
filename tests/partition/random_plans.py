"""Legal plans drawn at random: what the rewriter must get right whatever the search chooses."""

from __future__ import annotations

import random
from collections.abc import Sequence

from vgraph.ir.program import Op, Value
from vgraph.ir.sharding import Placement, Replicate, ShardingPlan, Split, Strategy
from vgraph.ir.step import TrainingStep
from vgraph.partition.search.legal import may_read
from vgraph.partition.search.strategies import Factors, shrink, strategies


def random_plan(
    step: TrainingStep, axes: tuple[int, ...], rng: random.Random, factors: Factors | None = None
) -> ShardingPlan:
    program = step.program
    placements = {i.value.id: random_placements(i.value, axes, rng) for i in program.inputs}
    lies = dict(placements)
    placements[step.loss.id] = (Replicate(),) * len(axes)
    for name, value in (*step.gradients.items(), *step.updated.items()):
        placements[value.id] = placements[step.parameters[name].id]
    for name, value in step.new_buffers.items():
        placements[value.id] = placements[step.buffers[name].id]
    for kept in step.history:
        placements[kept.after.id] = placements[kept.before.id]
    chosen: list[tuple[Strategy, ...]] = []
    for op in program.ops:
        chosen.append(random_strategies(op, axes, rng, factors, [lies[value.id] for value in op.operands()]))
        for number, value in enumerate(op.results):
            made = tuple(strategy.outputs[number] for strategy in chosen[-1])
            lies[value.id] = placements.get(value.id, made)
    return ShardingPlan(axes, tuple(chosen), placements)


def random_strategies(
    op: Op, axes: tuple[int, ...], rng: random.Random, factors: Factors | None, lies: Sequence[tuple[Placement, ...]]
) -> tuple[Strategy, ...]:
    """One a step, of those that may read the operands as they lie: maxima of workers are no terms of a sum."""
    found: list[Strategy] = []
    for place, ways in enumerate(axes):
        legal = [
            s
            for s in strategies(op, ways, factors)
            if all(may_read(h[place], n) for h, n in zip(lies, s.inputs, strict=True))
        ]
        options = [s for s in legal if s.index not in ("", "+")] or legal[:1]
        if rng.random() < 0.2:
            options = legal
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
