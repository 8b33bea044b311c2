"""Placements: where DTensors can hold the state of a plan, and the same plan with its state held there.

Takes: a TrainingStep, a ShardingPlan. Gives: placements of parameters, a ShardingPlan. Runs once per recorded step.
Source: DTensor has contiguous blocks and whole copies; the cut of an inner factor, as of LSTM gates, it has not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from vgraph.ir.program import Op, Value, op_name
from vgraph.ir.sharding import Placement, Replicate, ShardingPlan, Split
from vgraph.ir.step import UPDATE, TrainingStep

Placements = tuple[Placement, ...]


def in_blocks(shape: Sequence[int], placements: Placements, axes: Sequence[int]) -> Placements:
    """The placements that a DTensor can have in place of these: contiguous blocks of equal size, or whole copies.

    >>> [str(p) for p in in_blocks((16, 3), (Split(0, outer=4), Split(1)), (2, 2))]
    ['S0', 'R']
    """
    left, found = list(shape), list[Placement]()
    for placement, ways in zip(placements, axes, strict=True):
        if isinstance(placement, Split) and left[placement.dim] % ways == 0:
            left[placement.dim] //= ways
            found.append(Split(placement.dim))
        else:
            found.append(Replicate())
    return tuple(found)


def returned_values(step: TrainingStep) -> tuple[Value, ...]:
    """What the model returns in a bare step, in order; the other outputs of its Program follow."""
    others = len(step.gradients) + len(step.new_buffers)
    outputs = step.program.outputs
    return tuple(value for value in outputs[: len(outputs) - others] if value is not None)


def hold_in_blocks(step: TrainingStep, plan: ShardingPlan, parameters: Mapping[str, Placements]) -> ShardingPlan:
    """The plan with parameters and their gradients at these placements, and buffers and results on every worker.

    What an op reads of them elsewhere is fetched from there, so that the plan's strategies stay as they are.
    """
    whole = (Replicate(),) * len(plan.axes)
    placements = dict(plan.placements)
    given = {entry.value.id for entry in step.program.inputs}
    for value in (*step.buffers.values(), *step.new_buffers.values(), *returned_values(step)):
        if value.id not in given or value in step.buffers.values():
            placements[value.id] = whole
    for name, value in step.parameters.items():
        placements[value.id] = parameters[name]
        if name in step.gradients:
            placements[step.gradients[name].id] = parameters[name]
    return replace(plan, placements=placements)


def carried_over(planned: TrainingStep, plan: ShardingPlan, step: TrainingStep) -> ShardingPlan | None:
    """The plan of one recording for another of the same step; None: it is another step. Both are bare."""
    by_name = {entry.name: entry.value for entry in planned.program.inputs}
    is_known = all(entry.name in by_name for entry in step.program.inputs)
    if not is_known or [_look(op) for op in planned.ops] != [_look(op) for op in step.ops]:
        return None
    ids = {by_name[entry.name].id: entry.value.id for entry in step.program.inputs}
    for one, other in zip(planned.ops, step.ops, strict=True):
        ids |= {before.id: after.id for before, after in zip(one.results, other.results, strict=True)}
    placements = {ids[value]: found for value, found in plan.placements.items() if value in ids}
    again = frozenset((op, ids[value]) for op, value in plan.fetched_again)
    return replace(plan, placements=placements, fetched_again=again)


def _look(op: Op) -> tuple[object, ...]:
    """What an op is, but for the numbers of its values."""
    return (str(op.target), *((value.shape, value.dtype) for value in (*op.operands(), *op.results)))


def bare(step: TrainingStep) -> tuple[TrainingStep, list[int]]:
    """The step without its update, and without ops that give what they are given; and which ops are kept.

    Hooks around modules leave such ops behind, which a plan that was made without the hooks does not know.
    """
    same: dict[int, Value] = {}

    def now(leaf: object) -> object:
        return same.get(leaf.id, leaf) if isinstance(leaf, Value) else leaf

    def named(values: Mapping[str, Value]) -> dict[str, Value]:
        return {name: same.get(value.id, value) for name, value in values.items()}

    ops, kept = list[Op](), list[int]()
    for position, op in enumerate(step.ops):
        op = op.mapped(now)
        if op_name(op.target) == "reshape" and op.args[0].shape == op.results[0].shape:
            same[op.results[0].id] = op.args[0]
        elif step.notes[position].phase != UPDATE:
            ops.append(op)
            kept.append(position)
    left = {value.id for value in (*step.updated.values(), *(kept.after for kept in step.history))}
    outputs = [v for v in step.program.outputs if v is not None and v.id not in left]
    made = replace(
        step,
        program=replace(step.program, ops=tuple(ops), outputs=tuple(same.get(v.id, v) for v in outputs)),
        notes=tuple(step.notes[i] for i in kept),
        loss=same.get(step.loss.id, step.loss),
        gradients=named(step.gradients),
        new_buffers=named(step.new_buffers),
        updated={},
        history=(),
    )
    return made, kept


def bare_plan(step: TrainingStep, plan: ShardingPlan) -> tuple[TrainingStep, ShardingPlan]:
    """A bare step, and the plan of all for what is left of it."""
    made, kept = bare(step)
    place = {before: after for after, before in enumerate(kept)}
    values = {entry.value.id for entry in made.program.inputs} | {v.id for op in made.ops for v in op.results}
    return made, ShardingPlan(
        plan.axes,
        tuple(plan.strategies[i] for i in kept),
        {value: found for value, found in plan.placements.items() if value in values},
        frozenset((place[op], value) for op, value in plan.fetched_again if op in place and value in values),
        plan.room,
    )
