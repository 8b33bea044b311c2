"""The books of a plan against its generated program: bytes moved, memory of a worker."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from tests.partition.test_search import Heads, Perceptron, Recurrent, captured
from vgraph.ir.step import TrainingStep
from vgraph.partition.account import account
from vgraph.partition.footprint import footprint, whole_footprint
from vgraph.partition.rewrite import rewrite
from vgraph.partition.search import search


def cases() -> list[TrainingStep]:
    return [
        captured(Perceptron((48, 96, 24)), torch.zeros(24, 48), torch.zeros(24, 24)),
        captured(Recurrent(48), torch.zeros(3, 24, 48)),
        captured(Heads(), torch.zeros(8, 16, 64)),
    ]


@pytest.mark.parametrize("axes", [(2,), (2, 2), (3,)])
def test_the_books_are_those_of_the_program(axes: tuple[int, ...]) -> None:
    for step in cases():
        plan = search(step, axes).plan
        book = account(step, plan)
        moved = rewrite(step.program, plan).communicated_bytes
        assert book.total_bytes == pytest.approx(moved, rel=0.25 if len(axes) > 1 else 0.05)
        assert sum(book.step_bytes) == pytest.approx(book.total_bytes)
        assert account(step, plan, reuse=False).total_bytes >= book.total_bytes


def test_a_worker_holds_its_part() -> None:
    for step in cases():
        plan = search(step, (2, 2)).plan
        whole = whole_footprint(step)
        worker = footprint(account(step, plan))
        assert whole.state / 4 <= worker.state <= 1.25 * whole.state / 4
        assert worker.total <= 1.5 * whole.total / 4
        assert footprint(account(step, plan), keeps_copies=True).copies >= worker.copies


def test_the_whole_is_the_liveness_of_a_run() -> None:
    """A chain of squares holds every forward value until its gradient is made."""

    class Chain(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter(torch.ones(()))

        def forward(self, x: Tensor) -> Tensor:
            x = x * self.scale
            for _ in range(3):
                x = x.sin()
            return x.sum()

    step = captured(Chain(), torch.zeros(1000))
    found = whole_footprint(step)
    assert found.copies == 0
    assert 4000 * 4 <= found.activations <= 4000 * 7  # four values, the gradient, the cosine, their product
