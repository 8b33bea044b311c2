"""The Programs of all workers together compute what the whole Program computes, whatever the plan."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.partition.random_plans import random_plan
from tests.partition.small_models import model_and_batch
from tests.partition.training_step import run_whole, step_of
from tests.tables import table
from vgraph.ir.program import Program
from vgraph.ir.sharding import ShardingPlan
from vgraph.partition.rewrite.rewrite import RewriteOptions, rewrite
from vgraph.runtime.distributed.in_process import collect, run_all, scatter

AXES = [(2,), (2, 2), (2, 2, 2), (4,)]


def check(program: Program, inputs: list[Tensor], plan: ShardingPlan, options: RewriteOptions | None = None) -> int:
    parts = rewrite(program, plan, options)
    shards = [scatter(tensor, layout) for tensor, layout in zip(inputs, parts.input_layouts, strict=True)]
    found = run_all(parts, [[s[worker] for s in shards] for worker in range(plan.num_workers)])
    wanted = run_whole(program, inputs)
    for number, tensor in enumerate(wanted):
        layout = parts.output_layouts[number]
        assert layout is not None
        whole = collect([outputs[number] for outputs in found], layout, tensor.shape)
        torch.testing.assert_close(whole, tensor, rtol=1e-9, atol=1e-12)
    return parts.communicated_bytes


def sgd(parameters: list[Tensor]) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9)


def adamw(parameters: list[Tensor]) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, lr=0.1, eps=1.0)


@pytest.mark.parametrize(("seed", "axes"), table(range(3), [*AXES, (3,), (2, 3)]))
def test_random_plans_of_a_product(axes: tuple[int, ...], seed: int) -> None:
    model, batch = model_and_batch("mlp")
    step, inputs = step_of(model, *batch, optimizer=sgd)
    check(step.program, inputs, random_plan(step, axes, random.Random(seed)))


@pytest.mark.parametrize(("name", "axes"), table(["attention", "lstm", "block"], AXES))
def test_random_plans(name: str, axes: tuple[int, ...]) -> None:
    model, batch = model_and_batch(name)
    step, inputs = step_of(model, *batch, optimizer=adamw if name == "attention" else sgd)
    for seed in range(2):
        check(step.program, inputs, random_plan(step, axes, random.Random(seed)))


SWITCHES: list[dict[str, bool | int]] = [
    {"fused_fetch": False}, {"spread_reductions": False}, {"original_order": False}, {"late_fetch": False},
    {"reuse": 2},
]  # fmt: skip


@pytest.mark.parametrize("switch", SWITCHES, ids=lambda s: next(iter(s)))
def test_switches_change_the_program_and_not_its_result(switch: dict[str, Any]) -> None:
    model, batch = model_and_batch("attention")
    step, inputs = step_of(model, *batch, optimizer=sgd)
    plan = random_plan(step, (2, 2), random.Random(0))
    plain, other = rewrite(step.program, plan), rewrite(step.program, plan, RewriteOptions(**switch))
    texts = ["".join(f"{op.target}\n" for op in parts.programs[0].ops) for parts in (plain, other)]
    assert texts[0] != texts[1]
    found = check(step.program, inputs, plan, RewriteOptions(**switch))
    if "reuse" in switch:
        assert found > plain.communicated_bytes  # what is fetched again counts again
    elif "spread_reductions" not in switch:
        assert found == plain.communicated_bytes
