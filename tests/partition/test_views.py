"""A copy that was fetched serves turns and wider casts of its value: in the books and in the programs that run."""

from __future__ import annotations

import random

import pytest
import torch
from torch import Tensor, nn

from tests.partition.random_plans import random_plan
from tests.partition.test_rewrite import check
from tests.partition.test_search import Perceptron
from tests.partition.training_step import step_of
from vgraph.ir.exchange import Fetch
from vgraph.ir.sharding import Split
from vgraph.partition.accounting.account import account
from vgraph.partition.rewrite.rewrite import RewriteOptions, rewrite
from vgraph.partition.search.named import fully_sharded
from vgraph.partition.search.search import search


def test_a_weight_is_gathered_once_for_forward_and_backward() -> None:
    """Forward reads it turned, backward as it is: gathered once, and its gradient scattered."""
    batch = torch.randn(24, 48).double(), torch.randn(24, 24).double()
    step, inputs = step_of(Perceptron((48, 96, 24)).double(), *batch)
    plan = fully_sharded(step, 4)
    assert plan is not None
    share = 3 * sum(value.row_bytes for value in step.parameters.values())
    moved = check(step.program, inputs, plan)
    assert moved == account(step, plan).total_bytes == pytest.approx(2 * share, rel=1e-3)
    assert account(step, plan, reuse=False).total_bytes > moved
    parts = rewrite(step.program, plan)
    wide = [
        op.results[0] for op in parts.programs[0].ops if isinstance(op.target, Fetch) and len(op.results[0].shape) > 1
    ]
    assert sorted(value.row_shape for value in wide if value.row_shape == (96, 48)) == [(96, 48)]


def test_a_part_of_what_a_copy_holds_is_not_fetched_again() -> None:
    """A product reads the batch whole, of which each worker's columns of a cat are another part."""

    class Joined(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.randn(24, 192).double())

        def forward(self, x: Tensor) -> Tensor:
            return (x @ self.weight).tanh().sum() + torch.cat([x, x], 1).softmax(0).square().sum()

    step, inputs = step_of(Joined(), torch.randn(20, 24).double())
    plan = search(step, (3,)).plan
    assert plan.placements[step.inputs[0].id] == (Split(1),)
    for options in (RewriteOptions(), RewriteOptions(late_fetch=False)):
        assert check(step.program, inputs, plan, options) == account(step, plan).total_bytes


def test_a_wider_cast_is_made_of_the_copy() -> None:
    """Numbers are whole, so that no sum is rounded."""

    class Casts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.randint(-3, 4, (16, 16)).float())

        def forward(self, x: Tensor) -> Tensor:
            return (x.double() @ self.weight.double().t()).square().mean().float() + (x @ self.weight).square().mean()

    step, inputs = step_of(Casts(), torch.randint(-3, 4, (16, 16)).float())
    served = 0
    for seed in range(6):
        plan = random_plan(step, (2,), random.Random(seed))
        book = account(step, plan)
        check(step.program, inputs, plan)
        for (number, position), (copy, _) in book.copies.items():
            served += copy.dtype.itemsize < list(step.ops[number].operands())[position].dtype.itemsize
    assert served > 0
