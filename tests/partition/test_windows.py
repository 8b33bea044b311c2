"""What the search says of a plan is what the books count, also where ops read parts of their operands."""

from __future__ import annotations

import random
from functools import cache

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from vgraph.capture.step.capture_step import capture_step
from vgraph.ir.step import TrainingStep
from vgraph.partition.accounting.account import account
from vgraph.partition.rewrite.rewrite import rewrite
from vgraph.partition.search.search import search


class Drawn(nn.Module):
    """A layer, then slices, pads, shifts, pieces, cats and convolutions of the values made so far, by a seed."""

    def __init__(self, seed: int, length: int) -> None:
        super().__init__()
        self.seed, self.length = seed, length
        self.layer = nn.Linear(48, 96, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        rng = random.Random(self.seed)
        values = [torch.tanh(self.layer(x))]
        while len(values) <= self.length:
            values.append(self._draw(rng, values))
        return torch.stack([value.square().sum() for value in values]).sum()

    def _draw(self, rng: random.Random, values: list[Tensor]) -> Tensor:
        x, dim = rng.choice(values), rng.randrange(2)
        size = x.shape[dim]
        kind = rng.choice(("slice", "pad", "shift", "pieces", "cat", "convolution", "turn"))
        if kind == "slice" and size > 16:
            start = rng.choice((0, 1, size // 4, size // 2))
            return x.narrow(dim, start, size // 2)
        if kind == "pad":
            before, after = rng.choice(((1, 1), (2, 0), (0, 8), (8, 8), (-2, 2)))
            return F.pad(x, (0, 0, before, after) if dim == 0 else (before, after))
        if kind == "shift":
            return torch.cat([torch.zeros_like(x.narrow(dim, 0, 1)), x.narrow(dim, 0, size - 1)], dim)
        if kind == "pieces" and size % 2 == 0:
            one, other = x.chunk(2, dim)
            return one * other
        if kind == "cat" and size < 200:
            return torch.cat([x, torch.sin(x)], dim)
        if kind == "convolution" and x.shape[1] > 8:
            padding = rng.choice((0, 1, 2))
            return F.conv1d(x[None], x.new_ones(24, x.shape[0], 3), None, rng.choice((1, 2)), padding)[0]
        return x.t()


@cache
def _drawn_steps() -> list[TrainingStep]:
    with torch.device("meta"):
        return [capture_step(Drawn(seed, 3 + seed % 4), (torch.zeros(24, 48),)) for seed in range(4)]


@pytest.mark.parametrize("ways", [2, 3, 4, 8])
def test_one_step_of_the_search_counts_as_the_books_do(ways: int) -> None:
    """Where a slice counted as if it fetched its whole operand, several of these differed."""
    for seed, step in enumerate(_drawn_steps()):
        found = search(step, (ways,))
        book = account(step, found.plan).total_bytes
        assert found.step_bytes[0] == pytest.approx(book), seed
        assert book == rewrite(step.program, found.plan).communicated_bytes, seed


@pytest.mark.parametrize("axes", [(2, 2), (3, 2), (2, 2, 2)])
def test_several_steps_of_the_search_count_as_the_books_do(axes: tuple[int, ...]) -> None:
    """A further step was priced as if it were the only one, within what the steps before leave."""
    for seed, step in enumerate(_drawn_steps()):
        found = search(step, axes)
        book = account(step, found.plan).total_bytes
        assert sum(found.step_bytes) == pytest.approx(book), seed
        assert book == pytest.approx(rewrite(step.program, found.plan).communicated_bytes), seed


def test_a_step_goes_on_from_more_than_one_way_to_choose_those_before() -> None:
    """From the cheapest alone 48,440 bytes move."""
    with torch.device("meta"):
        step = capture_step(Drawn(9, 4), (torch.zeros(24, 48),))
    assert account(step, search(step, (2, 2, 2)).plan).total_bytes < 47_000


class Neighbours(nn.Module):
    """Each time step with those beside it, as an unfolding of slices, then a layer."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(16, 16), nn.Linear(48, 16)

    def forward(self, x: Tensor) -> Tensor:
        wide = F.pad(self.first(x), (0, 0, 1, 1))
        rows = torch.cat([wide[:, start : start + x.shape[1]] for start in range(3)], -1)
        return torch.tanh(self.second(rows)).square().mean()


@pytest.mark.parametrize(("axes", "before"), [((2,), 33_000), ((2, 2), 119_000), ((2, 2, 2), 206_000)])
def test_neighbours_are_fetched_not_all_rows(axes: tuple[int, ...], before: int) -> None:
    """As if slices fetched whole operands, the plan cut other dims and moved ``before`` bytes."""
    with torch.device("meta"):
        step = capture_step(Neighbours(), (torch.zeros(1, 192, 16),))
    assert account(step, search(step, axes).plan).total_bytes < 0.75 * before


class WholeAndPart(nn.Module):
    """Products of all rows or columns and of some of them: a worker that has fetched all has those as well."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind
        self.first, self.second = nn.Linear(48, 48, bias=False), nn.Linear(48, 96, bias=False)
        self.third = nn.Linear(24, 96, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.first(x)
        if self.kind == "columns":
            return self.second(hidden).square().sum() + self.third(hidden[:, 4:28]).square().sum()
        sums = [hidden @ hidden.t(), hidden[3:27] @ hidden.t(), self.second(hidden[3:27])]
        return torch.stack([one.square().sum() for one in sums]).sum()


@pytest.mark.parametrize("ways", [2, 4])
@pytest.mark.parametrize("kind", ["columns", "rows"])
def test_a_copy_of_all_serves_who_reads_a_part(kind: str, ways: int) -> None:
    """In another cluster the part was charged beside the whole; the books fetch nothing for it."""
    for rows in (32, 96):
        with torch.device("meta"):
            step = capture_step(WholeAndPart(kind), (torch.zeros(rows, 48),))
        found = search(step, (ways,))
        assert found.step_bytes[0] == pytest.approx(account(step, found.plan).total_bytes)
