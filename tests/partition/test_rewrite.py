"""The Programs of all workers together compute what the whole Program computes, whatever the plan."""

from __future__ import annotations

import random

import pytest
import torch
from torch import Tensor, nn

from tests.partition.random_plans import random_plan
from tests.partition.training_step import evaluate, step_of
from vgraph.ir.program import Program
from vgraph.ir.sharding import ShardingPlan
from vgraph.partition.rewrite import RewriteOptions, rewrite
from vgraph.runtime.in_process import collect, run_all, scatter

AXES = [(2,), (2, 2), (2, 2, 2), (4,), (3,), (2, 3)]


class MLP(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(12, 24), nn.Linear(24, 12)

    def forward(self, x: Tensor) -> Tensor:
        return (self.second(torch.relu(self.first(x))) ** 2).mean()


def check(program: Program, inputs: list[Tensor], plan: ShardingPlan, options: RewriteOptions | None = None) -> int:
    parts = rewrite(program, plan, options)
    shards = [scatter(tensor, layout) for tensor, layout in zip(inputs, parts.input_layouts, strict=True)]
    found = run_all(parts, [[s[worker] for s in shards] for worker in range(plan.num_workers)])
    wanted = evaluate(program, inputs)
    for number, tensor in enumerate(wanted):
        layout = parts.output_layouts[number]
        assert layout is not None
        whole = collect([outputs[number] for outputs in found], layout, tensor.shape)
        torch.testing.assert_close(whole, tensor, rtol=1e-9, atol=1e-12)
    return parts.communicated_bytes


@pytest.mark.parametrize("axes", AXES)
@pytest.mark.parametrize("seed", range(4))
def test_random_plans(axes: tuple[int, ...], seed: int) -> None:
    program, inputs = step_of(MLP().double(), torch.randn(12, 12, dtype=torch.float64))
    check(program, inputs, random_plan(program, axes, random.Random(seed)))
