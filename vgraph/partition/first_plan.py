"""First plan: a legal plan made op by op, each with the strategy that reads the fewest remote bytes.

Takes: a TrainingStep, workers. Gives: a ShardingPlan; tempo: once a function.
Source: the greedy baseline that Tofu compares with (section 7.3), op by op instead of tensor by tensor.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from vgraph.ir.program import Op, Value
from vgraph.ir.sharding import Partial, Placement, Replicate, ShardingPlan, Split, Strategy
from vgraph.ir.step import TrainingStep
from vgraph.partition.regions import read_bytes
from vgraph.partition.strategies import shrink, strategies


def first_plan(step: TrainingStep, axes: Sequence[int]) -> ShardingPlan:
    """A plan without search: state is split along its longest dim that divides, the rest follows."""
    program, wanted = step.program, _state_placements(step, axes)
    ops: list[Op] = list(program.ops)
    chosen: list[list[Strategy]] = [[] for _ in ops]
    for number, ways in enumerate(axes):
        lies: dict[int, Placement] = {i: placements[number] for i, placements in wanted.items()}
        for position, op in enumerate(ops):
            strategy = _cheapest(op, ways, lies)
            chosen[position].append(strategy)
            ops[position] = shrink(op, strategy, ways)
            lies.update((v.id, p) for v, p in zip(op.results, strategy.outputs, strict=True) if v.id not in wanted)
    return ShardingPlan(tuple(axes), tuple(tuple(s) for s in chosen), wanted)


def _cheapest(op: Op, ways: int, lies: dict[int, Placement]) -> Strategy:
    def cost(strategy: Strategy) -> tuple[int, int]:
        read = sum(read_bytes(op, i, strategy, ways, lies[v.id]) for i, v in enumerate(op.operands()))
        made = zip(op.results, strategy.outputs, strict=True)
        later = sum(_later(value, placement, lies.get(value.id), ways) for value, placement in made)
        return read + later, not strategy.index

    return min(strategies(op, ways), key=cost)


def _later(value: Value, made: Placement, wanted: Placement | None, ways: int) -> int:
    """Bytes to bring a result to where it is wanted; a replicated result costs what it holds elsewhere."""
    size = value.row_bytes
    if wanted is None or made == wanted:
        return size * (ways - 1) if isinstance(made, Replicate) else 0
    if isinstance(made, Partial):
        return size * (ways - 1) * (2 if isinstance(wanted, Replicate) else 1)
    return 0 if isinstance(made, Replicate) else size * (ways - 1) // ways


def _state_placements(step: TrainingStep, axes: Sequence[int]) -> dict[int, tuple[Placement, ...]]:
    """Inputs begin split; a gradient, an updated value and history lie as their parameter does."""
    found = {i.value.id: split_longest(i.value, axes) for i in step.program.inputs}
    for value in step.inputs:
        found[value.id] = split_longest(value, axes, first=True)
    found[step.loss.id] = (Replicate(),) * len(axes)
    for name, value in (*step.gradients.items(), *step.updated.items()):
        found[value.id] = found[step.parameters[name].id]
    for name, value in step.new_buffers.items():
        found[value.id] = found[step.buffers[name].id]
    for kept in step.history:
        parameter = step.parameters[kept.parameter]
        like = found[parameter.id] if parameter.shape == kept.before.shape else found[kept.before.id]
        found[kept.before.id] = found[kept.after.id] = like
    return found


def split_longest(value: Value, axes: Sequence[int], *, first: bool = False) -> tuple[Placement, ...]:
    """In each step the longest dim that divides (``first``: the first one); replicated where none does."""
    shape = [d for d in value.shape if isinstance(d, int)]
    found: list[Placement] = []
    for ways in axes:
        dims = [d for d, size in enumerate(shape) if size and size % ways == 0]
        if not dims or math.prod(shape) < ways:
            found.append(Replicate())
            continue
        dim = dims[0] if first else max(dims, key=lambda d: shape[d])
        shape[dim] //= ways
        found.append(Split(dim))
    return tuple(found)
