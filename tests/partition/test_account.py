"""The books of a plan against its generated program: bytes moved, memory of a worker."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from benchmarks.partitioning.listed import listed
from tests.partition.test_search import Heads, Perceptron, Recurrent, captured
from vgraph.capture.step.capture_step import capture_step
from vgraph.ir.program import Value, op_name
from vgraph.ir.sharding import Partial, Placement, Replicate, ShardingPlan, Split, Strategy
from vgraph.ir.space import SHARED
from vgraph.ir.step import TrainingStep
from vgraph.ir.tdl.table import reads_values
from vgraph.partition.accounting.account import account, moved
from vgraph.partition.accounting.footprint import footprint, program_footprint, whole_footprint, whole_plan
from vgraph.partition.accounting.let_go import keep_within
from vgraph.partition.rewrite.layout import Workers, build_exchange, placed
from vgraph.partition.rewrite.rewrite import rewrite
from vgraph.partition.search.fit import FAIR_SHARE, search_best
from vgraph.partition.search.named import data_parallel
from vgraph.partition.search.search import search
from vgraph.partition.search.strategies import replicated
from vgraph.partition.search.strategies import strategies as every


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
        assert book.total_bytes == pytest.approx(moved)
        assert sum(book.step_bytes) == pytest.approx(book.total_bytes)
        assert account(step, plan, reuse=False).total_bytes >= book.total_bytes


@pytest.mark.parametrize(
    ("have", "need"),
    [
        ((Split(1), Split(1)), (Replicate(), Split(1, 2))),  # a quarter, within the half of each half that is read
        ((Replicate(), Split(1, 2)), (Split(1), Split(1))),
        ((Split(1, 2), Split(1)), (Split(1), Split(1))),
        ((Split(0), Split(1)), (Split(1), Split(0))),  # two of four workers have what they read
        ((Split(0), Replicate()), (Split(1), Split(0))),
        ((Replicate(), Split(0)), (Split(0), Split(0, 2))),
        ((Split(0), Replicate()), (Replicate(), Replicate())),  # two in each half, of which each fetches the other half
        ((Split(0), Replicate()), (Split(1), Replicate())),
        ((Split(0), Split(0)), (Split(1), Split(1))),  # a quarter of each quarter is there
        ((Split(0), Split(0)), (Replicate(), Split(1))),
    ],
)
def test_what_moves_in_several_steps_is_counted_as_it_moves(
    have: tuple[Placement, ...], need: tuple[Placement, ...]
) -> None:
    value, workers = Value(0, SHARED, torch.float32, (12, 96)), Workers(ShardingPlan((2, 2), (), {}))
    before, after = (placed(value.row_shape, at, workers) for at in (have, need))
    exchange = build_exchange(0, value.dtype, before, after.regions, frozenset(), workers)
    assert sum(moved(value, have, need, (2, 2), (0.0, 0.0))) == exchange.num_bytes


def test_a_worker_holds_its_part() -> None:
    """The plan that is chosen keeps within its share; of a search alone, which has no budget, only copies go beyond."""
    for step in cases():
        whole = whole_footprint(step)
        chosen, alone = (footprint(account(step, f.plan)) for f in (search_best(step, 4), search(step, (2, 2))))
        for worker in (chosen, alone):
            assert whole.state / 4 <= worker.state <= 1.25 * whole.state / 4
            assert sum(worker.excess(whole, 4).values()) == pytest.approx(worker.total - whole.total / 4)
        assert chosen.total <= FAIR_SHARE * whole.total / 4
        assert alone.total - alone.copies <= 1.1 * whole.total / 4


@pytest.mark.parametrize("axes", [(), (2,), (2, 2), (4,)])
def test_memory_of_the_books_is_that_of_the_program(axes: tuple[int, ...]) -> None:
    for step in cases():
        plan = search(step, axes).plan if axes else whole_plan(step)
        program = program_footprint(rewrite(step.program, plan, None, step.overwrites), step)
        assert footprint(account(step, plan)).total == pytest.approx(program.total, rel=0.25 if axes else 1e-9)


@pytest.mark.parametrize("ways", [1, 2])
def test_a_gradient_that_is_one_number_everywhere_takes_no_memory(ways: int) -> None:
    """The gradient of a sum is expanded from one number: a view, as large as what was summed; the peak is here."""

    class Sum(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(8, 256, bias=False)

        def forward(self, x: Tensor) -> Tensor:
            return self.layer(x).square().sum()

    step = captured(Sum(), torch.zeros(64, 8))
    plan = search(step, (ways,)).plan if ways > 1 else whole_plan(step)
    program = program_footprint(rewrite(step.program, plan, None, step.overwrites), step)
    assert footprint(account(step, plan)).total == program.total
    if ways == 1:
        assert whole_footprint(step).total == program.total


def test_copies_are_let_go_where_memory_is_short() -> None:
    """Hidden states are read whole again in backward; a budget makes some be fetched twice."""
    step = captured(Recurrent(128), torch.zeros(8, 16, 128))
    found = search(step, (2, 2)).plan
    book = account(step, found)
    need, copies = footprint(book).total, footprint(book).copies
    assert copies > 0
    budget = need - 0.8 * copies
    kept, after_all = keep_within(book, budget)
    assert kept.fetched_again
    assert footprint(account(step, kept)).total == pytest.approx(after_all)
    assert after_all <= budget
    before, after = (rewrite(step.program, plan, None, step.overwrites) for plan in (found, kept))
    assert program_footprint(after, step).total < program_footprint(before, step).total - 0.5 * copies
    moved = after.communicated_bytes
    assert moved > before.communicated_bytes
    assert moved == pytest.approx(account(step, kept).total_bytes)
    assert keep_within(book, need)[0].fetched_again == frozenset()


@pytest.mark.parametrize("name", ["ResNeXt", "VAE"])
def test_an_operand_of_which_only_the_shape_is_read_is_no_copy(name: str) -> None:
    """The gradient of weights of a convolution needs none of them: no copy is kept for it, let go, or fetched again."""
    step = capture_step(*listed(name))
    book = account(step, search(step, (4,)).plan)
    for op, (number, read) in ((step.ops[key[0]], key) for key in book.copies):
        assert reads_values(op, read), number
    kept, _ = keep_within(book, 0.5 * footprint(book).total)
    moved = rewrite(step.program, kept, None, step.overwrites).communicated_bytes
    assert account(step, kept).total_bytes == moved


def test_a_price_of_memory_makes_plans_that_hold_less() -> None:
    step = captured(Perceptron((64, 256, 64)), torch.zeros(32, 64), torch.zeros(32, 64))
    free, dear = (
        search(step, (2, 2), restrict=lambda o, p=p: replace(o, small=2**20, price=p)).plan for p in (0.0, 64.0)
    )
    need = [footprint(account(step, plan)) for plan in (free, dear)]
    assert need[1].total < need[0].total
    assert account(step, dear).total_bytes > account(step, free).total_bytes


def test_no_price_of_memory_moves_less_and_holds_less() -> None:
    """A batch of 7 among 8 workers: cut along widths, where the plan of fewest bytes holds more than its share."""

    class Encoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.TransformerEncoderLayer(512, 4, 1024, 0.0, batch_first=True)

        def forward(self, x: Tensor) -> Tensor:
            return self.layer(x).square().mean()

    step = captured(Encoder(), torch.zeros(7, 197, 512))
    budget = FAIR_SHARE * whole_footprint(step).total / 8
    book = account(step, search_best(step, 8).plan)
    assert (held := footprint(book).total) > budget
    for price in (0.25, 4.0):
        priced = account(step, search(step, (2, 2, 2), restrict=lambda o, price=price: replace(o, price=price)).plan)
        plan, need = keep_within(priced, budget)
        assert account(step, plan).total_bytes >= book.total_bytes or need > held


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


class Parts(nn.Module):
    def __init__(self, name: str) -> None:
        super().__init__()
        self.weight, self.name = nn.Parameter(torch.zeros(48, 16)), name

    def forward(self, x: Tensor) -> Tensor:
        x = x * self.weight
        if self.name == "shift":
            x = x + torch.cat([torch.zeros_like(x[:1]), x[:-1]])
        elif self.name == "pad":
            x = nn.functional.pad(x, (0, 0, 1, 3))
        elif self.name == "pieces":
            x = torch.cat([part * number for number, part in enumerate(x.split([30, 18]))])
        elif self.name == "slices":
            x = x[2:34] * x[8:40]
        return x.sin().square().sum()


@pytest.mark.parametrize("ways", [2, 4])
@pytest.mark.parametrize("name", ["shift", "pad", "pieces", "slices"])
def test_parts_of_operands_are_counted_as_they_move(name: str, ways: int) -> None:
    """All ops are cut along the dim of which parts are taken, wherever they can be."""
    step = captured(Parts(name), torch.zeros(48, 16))
    strategies = [
        next((s for s in every(op, ways) if all(isinstance(p, Split) and not p.dim for p in s.outputs)), replicated(op))
        for op in step.ops
    ]
    given = [i.value for i in step.program.inputs]
    placements: dict[int, tuple[Placement, ...]] = {v.id: (Split(0) if v.shape else Replicate(),) for v in given}
    placements |= {step.loss.id: (Replicate(),)} | {value.id: (Split(0),) for value in step.gradients.values()}
    plan = ShardingPlan((ways,), tuple((s,) for s in strategies), placements)
    assert account(step, plan).total_bytes == rewrite(step.program, plan).communicated_bytes


class TermsReadTwice(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(16, 48))

    def forward(self, x: Tensor) -> Tensor:
        made = x @ self.weight
        return made.sin().square().sum() + made.cos().square().sum()


@pytest.mark.parametrize("axes", [(2,), (4,), (2, 2)])
@pytest.mark.parametrize("is_let_go", [True, False])
def test_terms_that_were_summed_up_are_not_summed_up_again(axes: tuple[int, ...], *, is_let_go: bool) -> None:
    """Of a product in terms all is read, for which sums are spread out and gathered; then all again, or columns."""
    step = captured(TermsReadTwice(), torch.zeros(24, 16))
    names = [op_name(op.target) for op in step.ops]
    product, again = names.index("mm"), names.index("cos")
    made = step.ops[product].results[0]

    def divided(number: int, ways: int) -> Strategy:
        op = step.ops[number]
        if number == product:
            return next(s for s in every(op, ways) if isinstance(s.outputs[0], Partial))
        if number == again and not is_let_go:
            return next(s for s in every(op, ways) if s.outputs[0] == Split(1))
        return replicated(op)

    whole = (Replicate(),) * len(axes)
    placements = {i.value.id: whole for i in step.program.inputs} | {step.loss.id: whole}
    placements |= {value.id: whole for value in step.gradients.values()}
    strategies = tuple(tuple(divided(number, ways) for ways in axes) for number in range(len(step.ops)))
    plan = ShardingPlan(axes, strategies, placements, frozenset({(again, made.id)} if is_let_go else ()))
    assert account(step, plan).total_bytes == rewrite(step.program, plan).communicated_bytes


class Centred(nn.Module):
    """Rows less their mean, and the mean itself: the one is read whole, of the other terms are enough."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        made = self.linear(x)
        mean = made.mean(0, keepdim=True)
        return (made - mean).square().mean() + mean.squeeze(0).sum()


@pytest.mark.parametrize("workers", [2, 4])
def test_terms_are_there_after_their_sum_was_read(workers: int) -> None:
    step = captured(Centred(), torch.zeros(16, 8))
    plan = data_parallel(step, workers)
    assert plan is not None
    assert account(step, plan).total_bytes == rewrite(step.program, plan).communicated_bytes
