"""Replicas: a step whose update reads the mean of the gradients of all replicas of its plan.

Takes: a TrainingStep with an update, its plan. Gives: both, with one op a gradient more. Runs once per launch.
Source: an outer data-parallel axis around a plan (Tofu section 8 combines the two).
"""

from __future__ import annotations

from dataclasses import replace

from vgraph.ir.exchange import ReplicaMean
from vgraph.ir.program import Op, Value, map_leaves
from vgraph.ir.sharding import ShardingPlan
from vgraph.ir.step import UPDATE, OpNote, TrainingStep


def average_gradients(step: TrainingStep, plan: ShardingPlan) -> tuple[TrainingStep, ShardingPlan]:
    """Between backward and update every gradient becomes its mean; backward itself reads what it read before."""
    free = 1 + max(v.id for op in step.ops for v in (*op.operands(), *op.results))
    first = next((i for i, note in enumerate(step.notes) if note.phase == UPDATE), len(step.ops))
    raw = _read_by_update(step, first)
    means = {v.id: replace(v, id=free + i) for i, v in enumerate(raw)}
    added = [Op(ReplicaMean(), (v,), {}, (means[v.id],)) for v in raw]
    ops = (*step.ops[:first], *added, *(_reading(op, means) for op in step.ops[first:]))
    gradients = {name: means.get(v.id, v) for name, v in step.gradients.items()}
    outputs = tuple(None if v is None else means.get(v.id, v) for v in step.program.outputs)
    notes = (*step.notes[:first], *(OpNote(UPDATE) for _ in added), *step.notes[first:])
    averaged = replace(step, program=replace(step.program, ops=ops, outputs=outputs), notes=notes, gradients=gradients)
    strategies = (*plan.strategies[:first], *(() for _ in added), *plan.strategies[first:])
    wanted = {means[i].id: placements for i, placements in plan.placements.items() if i in means}
    later = frozenset((at + len(added) * (at >= first), i) for at, i in plan.fetched_again)
    placements = {**plan.placements, **wanted}
    return averaged, replace(plan, strategies=strategies, placements=placements, fetched_again=later)


def _read_by_update(step: TrainingStep, first: int) -> list[Value]:
    """Gradients as backward made them, before any clipping."""
    made = {v.id for op in step.ops[:first] for v in op.results}
    read = (v for op in step.ops[first:] for v in op.operands())
    return list({v.id: v for v in (*step.gradients.values(), *read) if v.id in made}.values())


def _reading(op: Op, means: dict[int, Value]) -> Op:
    def swap(leaf: object) -> object:
        return means.get(leaf.id, leaf) if isinstance(leaf, Value) else leaf

    kwargs = {key: map_leaves(value, swap) for key, value in op.kwargs.items()}
    return replace(op, args=map_leaves(op.args, swap), kwargs=kwargs)
