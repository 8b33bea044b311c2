"""Legal plans: whether a step can be divided as a plan says, which of a plan that was read from a file is not known.

Takes: a ShardingPlan, the TrainingStep. Gives: nothing, or a ValueError. Runs when a file was read.
Source: Tofu section 4.2 (the strategies of an op follow from its description).
"""

from __future__ import annotations

from collections.abc import Sequence

from vgraph.ir.program import Op, Value
from vgraph.ir.sharding import At, Partial, Placement, Replicate, ShardingPlan, Split, Strategy
from vgraph.ir.step import TrainingStep
from vgraph.partition.search.strategies import is_strategy, shrink

Placements = tuple[Placement, ...]


def check_plan(plan: ShardingPlan, step: TrainingStep) -> None:
    """ValueError: an op is divided, or a value placed, as it cannot be, or terms are read as those of another sum."""
    lies: dict[int, Placements] = {}
    for given in step.program.inputs:
        if given.value.id not in plan.placements:
            raise ValueError(f"it does not say where {given.name} lies")
        lies[given.value.id] = plan.placements[given.value.id]
        _check_placements(given.name, given.value, lies[given.value.id], plan.axes)
        if any(isinstance(placement, Partial) for placement in lies[given.value.id]):
            raise ValueError(f"{given.name} is given whole, and not as terms")
    for op, strategies in zip(step.ops, plan.strategies, strict=True):
        _check_op(op, strategies, plan, lies)
    for value, wanted in _outputs(plan, step).items():
        if lies[value] != wanted:
            raise ValueError(
                f"%{value} is a result of the step, and is looked for as {_shown(wanted)}, not {_shown(lies[value])}"
            )


def may_read(have: Placement, need: Placement) -> bool:
    """Whether what lies so may be brought there: terms are those of the same reduction, a whole is those of a sum."""
    if not isinstance(need, Partial):
        return True
    return have == need if isinstance(have, Partial) else need == Partial()


def _check_op(op: Op, strategies: Sequence[Strategy], plan: ShardingPlan, lies: dict[int, Placements]) -> None:
    left = op
    for strategy, ways in zip(strategies, plan.axes, strict=True):
        if not is_strategy(left, strategy, ways):
            raise ValueError(f"{op.target} cannot be divided among {ways} workers by {strategy}")
        left = shrink(left, strategy, ways)
    for position, value in enumerate(op.operands()):
        asked = tuple([strategy.inputs[position] for strategy in strategies])
        _check_terms(f"{op.target} reads {value}", lies[value.id], asked)
    for number, value in enumerate(op.results):
        made = tuple([strategy.outputs[number] for strategy in strategies])
        lies[value.id] = plan.placements.get(value.id, made)
        _check_placements(str(value), value, lies[value.id], plan.axes)
        _check_terms(f"{value} is kept", made, lies[value.id])


def _check_terms(what: str, have: Placements, need: Placements) -> None:
    if not all(map(may_read, have, need)):
        raise ValueError(f"{what} as {_shown(need)}, which it is not as {_shown(have)}")


def _check_placements(name: str, value: Value, placements: Placements, axes: Sequence[int]) -> None:
    left = list(value.row_shape)
    for placement, ways in zip(placements, axes, strict=True):
        if not _fits(placement, left, ways):
            raise ValueError(f"{placement} among {ways} workers, of {left}, is no place of {name}")
        if isinstance(placement, Split):
            left[placement.dim] = -(-left[placement.dim] // ways)


def _fits(placement: Placement, shape: Sequence[int], ways: int) -> bool:
    match placement:
        case Split(dim, outer):
            return 0 <= dim < len(shape) and outer >= 1 and (outer == 1 or shape[dim] % (outer * ways) == 0)
        case At(worker):
            return 0 <= worker < ways
        case Replicate() | Partial():
            return True


def _outputs(plan: ShardingPlan, step: TrainingStep) -> dict[int, Placements]:
    """Where what the step gives must lie: results with every worker, what is new with what it takes the place of."""
    found = {value.id: (Replicate(),) * len(plan.axes) for value in step.results_for_all}
    pairs = [(made, step.parameters[name]) for each in (step.gradients, step.updated) for name, made in each.items()]
    pairs += [(made, step.buffers[name]) for name, made in step.new_buffers.items()]
    pairs += [(kept.after, kept.before) for kept in step.history]
    return found | {made.id: plan.placements[given.id] for made, given in pairs}


def _shown(placements: Placements) -> str:
    return ".".join(map(str, placements))
