"""Long dims that the number of workers does not divide are cut into blocks that differ by one entry."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from tests.partition.test_rewrite import check
from tests.partition.training_step import step_of
from vgraph.ir.sharding import Split
from vgraph.partition.accounting.account import account
from vgraph.partition.rewrite.rewrite import rewrite
from vgraph.partition.search.search import search


class Words(nn.Module):
    def __init__(self, count: int) -> None:
        super().__init__()
        self.words, self.mix = nn.Embedding(count, 8), nn.Linear(8, 8)

    def forward(self, ids: Tensor) -> Tensor:
        mixed = torch.tanh(self.mix(self.words(ids)))
        return nn.functional.cross_entropy((mixed @ self.words.weight.t()).flatten(0, 1), ids.flatten())


@pytest.mark.parametrize(
    ("axes", "lengths"), [((2,), [514, 513]), ((3,), [343, 342, 342]), ((2, 2), [257, 257, 257, 256])]
)
def test_a_vocabulary_that_does_not_divide_is_cut(axes: tuple[int, ...], lengths: list[int]) -> None:
    """It moves no more than one a little longer that does, and computes the same."""
    moved: list[float] = []
    for count in (1027, -(-1027 // math.prod(axes)) * math.prod(axes)):
        step, inputs = step_of(Words(count).double(), torch.arange(24).reshape(6, 4))
        plan = search(step, axes).plan
        words = step.parameters["words.weight"]
        assert plan.placements[words.id] == (Split(0),) * len(axes)
        moved.append(account(step, plan).total_bytes)
        if count == 1027:
            check(step.program, inputs, plan)
            layout = rewrite(step.program, plan).input_layouts[
                [i.value.id for i in step.program.inputs].index(words.id)
            ]
            assert [len(region[0]) for region in layout.regions if region is not None] == lengths
    assert moved[0] <= moved[1]
