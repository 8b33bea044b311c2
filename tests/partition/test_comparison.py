"""Every baseline is a legal plan, and the search moves less than those that are searched with less freedom."""

from __future__ import annotations

import random

import torch

from benchmarks.partitioning import comparison as baselines
from tests.partition.test_search import Heads, Perceptron, Recurrent, captured
from vgraph.ir.sharding import At, ShardingPlan
from vgraph.ir.step import TrainingStep
from vgraph.partition.rewrite.rewrite import rewrite
from vgraph.partition.search.fit import search_best
from vgraph.partition.search.named import named_plans

AXES = (2, 2)


def models() -> list[TrainingStep]:
    return [
        captured(Perceptron((48, 96, 24)), torch.zeros(24, 48), torch.zeros(24, 24)),
        captured(Recurrent(48), torch.zeros(3, 24, 48)),
        captured(Heads(), torch.zeros(8, 16, 64)),
    ]


def plans(step: TrainingStep) -> dict[str, ShardingPlan]:
    return {
        "rows, greedy": baselines.all_row(step, AXES).plan,
        "rows, random": baselines.all_row(step, AXES, random.Random(0)).plan,
        "spartan": baselines.spartan(step, AXES).plan,
        "equal chop": baselines.equal_chop(step, AXES).plan,
        "icml18": baselines.icml18(step, AXES).plan,
        "icml18 with reductions": baselines.icml18(step, AXES, reduces=True).plan,
        "paths": baselines.by_paths(step, AXES).plan,
        **named_plans(step, 4),
        "operator placement": baselines.operator_placement(step, 4),
    }


def test_all_are_programs_and_none_moves_less() -> None:
    for step in models():
        tofu = rewrite(step.program, search_best(step, 4, memory_limit=2**40).plan).communicated_bytes
        for name, plan in plans(step).items():
            moved = rewrite(step.program, plan).communicated_bytes
            assert moved > 0
            if name != "operator placement":  # which moves little and waits for it
                assert moved >= tofu, name


def test_operators_are_placed_by_layer() -> None:
    step = captured(Perceptron((8, 8, 8)), torch.zeros(4, 8), torch.zeros(4, 8))
    plan = baselines.operator_placement(step, 2)
    where = {n.module: s[0].outputs[0] for n, s in zip(step.notes, plan.strategies, strict=True) if n.module}
    assert where["layers.0"] == At(0)
    assert where["layers.1"] == At(1)
