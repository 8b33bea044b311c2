"""Legal plans drawn at random: what the rewriter must get right whatever the search chooses."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from vgraph.ir.program import Op, Program, Value
from vgraph.ir.sharding import Partial, Placement, Replicate, ShardingPlan, Split, Strategy
from vgraph.partition.strategies import Factors, shrink, strategies

Choose = Callable[[Op, Sequence[Strategy]], Strategy]


def random_plan(
    program: Program, axes: tuple[int, ...], rng: random.Random, factors: Factors | None = None
) -> ShardingPlan:
    chosen = [random_strategies(op, axes, rng, factors) for op in program.ops]
    placements = {i.value.id: random_placements(i.value, axes, rng) for i in program.inputs}
    for position, value in enumerate(program.outputs):
        if position == 0 and value is not None:
            placements[value.id] = (Replicate(),) * len(axes)
        elif value is not None and position - 1 < len(program.inputs):
            placements[value.id] = placements[program.inputs[position - 1].value.id]
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


__all__ = ["Partial", "random_plan", "random_placements", "random_strategies"]
