"""Which plans may be taken from a file: operators in strategies of their own, and terms read as what they are."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

import vgraph
from tests.partition.random_plans import random_plan
from tests.partition.test_rewrite import check, sgd
from tests.partition.training_step import step_of
from vgraph.api.dense.plan_file import load_plan, save_plan
from vgraph.ir.program import op_name
from vgraph.ir.sharding import Partial, Placement, Replicate, ShardingPlan, Split, Strategy
from vgraph.ir.step import TrainingStep
from vgraph.partition.search.legal import check_plan
from vgraph.partition.search.strategies import replicated, strategies


class Largest(nn.Module):
    """Reads maxima by what is linear in them, where sums of terms may be passed on."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8)
        self.register_buffer("peak", torch.zeros(8))

    def forward(self, x: Tensor) -> Tensor:
        rows = self.layer(x)
        largest = rows.amax(0)
        self.peak.mul_(0.9).add_(largest.detach(), alpha=0.1)
        return (-largest / 2).sum() + (2 * rows.amin(1)).sum() + rows.square().mean()


@pytest.fixture(scope="module")
def made() -> tuple[TrainingStep, list[Tensor]]:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return step_of(Largest().double(), torch.randn(8, 8).double(), optimizer=sgd)


@pytest.mark.parametrize("axes", [(2,), (2, 2), (4,)], ids=str)
def test_random_plans_are_legal_and_right(made: tuple[TrainingStep, list[Tensor]], axes: tuple[int, ...]) -> None:
    """Several of them hold maxima as terms, which no sum reads."""
    (step, inputs), reducers = made, set[str]()
    for seed in range(6):
        plan = random_plan(step, axes, random.Random(seed))
        check_plan(plan, step)
        check(step.program, inputs, plan)
        outputs = [p for chosen in plan.strategies for strategy in chosen for p in strategy.outputs]
        reducers |= {placement.reducer for placement in outputs if isinstance(placement, Partial)}
    assert reducers == {"sum", "max", "min"}


def whole_plan(step: TrainingStep) -> ShardingPlan:
    """Two workers, each of which computes everything."""
    held = [*(given.value for given in step.program.inputs), *(value for value in step.program.outputs if value)]
    chosen = tuple((replicated(op),) for op in step.ops)
    return ShardingPlan((2,), chosen, {value.id: (Replicate(),) for value in held})


def divided(plan: ShardingPlan, step: TrainingStep, name: str, wanted: Callable[[Strategy], bool]) -> ShardingPlan:
    """The plan with another strategy of the first operator of a name."""
    at = next(number for number, op in enumerate(step.ops) if op_name(op.target) == name)
    strategy = next(strategy for strategy in strategies(step.ops[at], 2) if wanted(strategy))
    return replace(plan, strategies=(*plan.strategies[:at], (strategy,), *plan.strategies[at + 1 :]))


def placed(plan: ShardingPlan, value: int, placement: Placement) -> ShardingPlan:
    return replace(plan, placements={**plan.placements, value: (placement,)})


def maxima_as_a_sum(step: TrainingStep) -> ShardingPlan:
    plan = divided(whole_plan(step), step, "amax", lambda strategy: Partial("max") in strategy.outputs)
    return divided(plan, step, "neg", lambda strategy: strategy.index == "+")


def kept_as_a_sum(step: TrainingStep) -> ShardingPlan:
    plan = divided(whole_plan(step), step, "amax", lambda strategy: Partial("max") in strategy.outputs)
    return placed(plan, next(op.results[0].id for op in step.ops if op_name(op.target) == "amax"), Partial())


def another_operators(step: TrainingStep) -> ShardingPlan:
    plan = divided(whole_plan(step), step, "neg", lambda strategy: strategy.index not in ("", "+"))
    chosen = next(chosen for op, chosen in zip(step.ops, plan.strategies, strict=True) if op_name(op.target) == "neg")
    at = next(number for number, op in enumerate(step.ops) if op_name(op.target) == "mean")
    return replace(plan, strategies=(*plan.strategies[:at], chosen, *plan.strategies[at + 1 :]))


REFUSED: dict[str, tuple[Callable[[TrainingStep], ShardingPlan], str]] = {
    "maxima read as terms of a sum": (maxima_as_a_sum, r"neg\.default reads .* as Psum, which it is not as Pmax"),
    "maxima kept as terms of a sum": (kept_as_a_sum, "is kept as Psum, which it is not as Pmax"),
    "a strategy of another operator": (another_operators, r"mean\.default cannot be divided among 2 workers by"),
    "a batch as terms": (
        lambda step: placed(whole_plan(step), step.inputs[0].id, Partial()),
        "is given whole, and not as terms",
    ),
    "a gradient apart from its parameter": (
        lambda step: placed(whole_plan(step), step.gradients["layer.weight"].id, Split(0)),
        "is looked for as R, not S0",
    ),
    "a loss that one worker has a part of": (
        lambda step: placed(whole_plan(step), step.loss.id, Partial()),
        "is looked for as R, not Psum",
    ),
    "a buffer that moves": (
        lambda step: placed(whole_plan(step), step.new_buffers["peak"].id, Split(0)),
        "is looked for as R, not S0",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_plan_file_that_computes_something_else_is_refused(
    case: str, made: tuple[TrainingStep, list[Tensor]], tmp_path: object
) -> None:
    plan_of, fact = REFUSED[case]
    step, path = made[0], f"{tmp_path}/plan.json"
    save_plan(path, whole_plan(step), step)
    assert load_plan(path, step) == whole_plan(step)
    save_plan(path, plan_of(step), step)
    with pytest.raises(vgraph.VGraphError, match=f"is a damaged plan: .*{fact}"):
        load_plan(path, step)
