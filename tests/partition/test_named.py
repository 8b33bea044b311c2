"""Data parallel, FSDP and Megatron: legal plans with the bytes they are known for, and none is better than ours."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import vgraph
from tests.partition.small_models import model_and_batch
from tests.partition.test_rewrite import check, sgd
from tests.partition.test_search import Heads, Perceptron, captured, indices
from tests.partition.training_step import step_of
from tests.runtime.engine_tasks import example
from vgraph.ir.sharding import Replicate, Split
from vgraph.ir.step import FORWARD
from vgraph.partition.accounting.account import account
from vgraph.partition.accounting.footprint import footprint, whole_footprint
from vgraph.partition.accounting.let_go import keep_within
from vgraph.partition.search.fit import FAIR_SHARE, rows_of_named, search_best
from vgraph.partition.search.named import NAMED, data_parallel, fully_sharded, megatron, named_plans
from vgraph.partition.search.search import Prepared, search
from vgraph.partition.search.states import SearchState
from vgraph.partition.search.step_costs import StepCosts


class Encoder(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(width, 4, 4 * width, 0.0, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x).square().mean()


def test_bytes_are_those_that_these_plans_are_known_for() -> None:
    """A sum for all is twice a worker's share; so is what is gathered once and scattered."""
    ways = 4
    for model, batch in (
        (Encoder(48), (torch.zeros(24, 5, 48),)),
        (Perceptron((48, 96, 24)), (torch.zeros(24, 48), torch.zeros(24, 24))),
    ):
        step = captured(model, *batch)
        share = (ways - 1) * sum(value.row_bytes for value in step.parameters.values())
        summed, sharded = (plan(step, ways) for plan in (data_parallel, fully_sharded))
        assert summed is not None
        assert sharded is not None
        assert account(step, summed).total_bytes == pytest.approx(2 * share, rel=0.02)
        assert 2 * share < account(step, sharded).total_bytes <= 2.02 * share
        assert 2.3 * share < account(step, sharded, reuse=False).total_bytes <= 3.02 * share
        weights = [value for value in step.parameters.values() if len(value.shape) > 1]
        assert all(isinstance(sharded.placements[value.id][0], Split) for value in weights)
        assert all(isinstance(summed.placements[value.id][0], Replicate) for value in weights)
        assert footprint(account(step, sharded)).state < footprint(account(step, summed)).state


def test_megatrons_plan_is_searched_on_known_costs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of one step for as many workers, which a search has asked for already."""
    made: list[SearchState] = []

    def counted(state: SearchState) -> StepCosts:
        made.append(state)
        return StepCosts(state)

    monkeypatch.setattr("vgraph.partition.search.search.StepCosts", counted)
    step = captured(Heads(), torch.zeros(8, 16, 64))
    prepared = Prepared(step)
    search(step, (4,), prepared=prepared)
    count = len(made)
    assert megatron(step, 4, prepared) == megatron(step, 4) is not None
    assert len(made) == count + 1  # the second one of these had prepared nothing


def test_no_weight_moves_by_megatrons_plan() -> None:
    step = captured(Heads(), torch.zeros(8, 16, 64))
    plan = megatron(step, 4)
    assert plan is not None
    assert indices(step, plan, FORWARD, "up") == ["n"]
    assert indices(step, plan, FORWARD, "down") == ["k"]
    weights = {value.id for value in step.parameters.values()}
    for op, strategies in zip(step.ops, plan.strategies, strict=True):
        for value, need in zip(op.operands(), strategies[0].inputs, strict=True):
            assert value.id not in weights or need == plan.placements[value.id][0]


@pytest.mark.parametrize("name", ["block", "attention"])
def test_named_plans_compute_the_step(name: str) -> None:
    model, batch = model_and_batch(name)
    step, inputs = step_of(model, *batch, optimizer=sgd)
    plans = named_plans(step, 2)
    assert list(plans) == list(NAMED)
    for plan in plans.values():
        assert check(step.program, inputs, plan) > 0


def test_no_named_plan_that_fits_is_better() -> None:
    """An encoder on two workers is data parallel, which holds little more than its share; all three fit.

    FSDP keeps gathered weights for backward there, so it gathers once what data parallel sums.
    """
    with torch.device("meta"):
        encoder, x = Encoder(512), torch.zeros(32, 197, 512)
    step = captured(encoder, x)
    budget = FAIR_SHARE * whole_footprint(step).total / 2
    book = account(step, search_best(step, 2).plan)
    fitting: dict[str, float] = {}
    for name, plan in named_plans(step, 2).items():
        kept, need = keep_within(account(step, plan), budget)
        if need <= budget:
            fitting[name] = account(step, kept).total_bytes
    assert footprint(book).total <= budget
    assert list(fitting) == list(NAMED)
    assert book.total_bytes == fitting["data parallel"] == fitting["FSDP, ZeRO-3"] < fitting["Megatron"]


class Burgers(nn.Module):
    """The residual of a differential equation: second derivatives within the model."""

    def __init__(self) -> None:
        super().__init__()
        self.field = nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 1))
        self.viscosity = nn.Parameter(torch.tensor(0.1))

    def forward(self, x: Tensor, t: Tensor, first: Tensor, start: Tensor) -> Tensor:
        x, t = x.detach().requires_grad_(), t.detach().requires_grad_()

        def by(of: Tensor, to: Tensor) -> Tensor:
            return torch.autograd.grad(of, to, torch.ones_like(of), create_graph=True)[0]

        u = self.field(torch.cat((x, t), 1))
        along = by(u, x)
        residual = by(u, t) + u * along - self.viscosity * by(along, x)
        at_start = self.field(torch.cat((first, torch.zeros_like(first)), 1)) - start
        return residual.square().mean() + at_start.square().mean()


def test_no_named_plan_of_second_derivatives_is_better() -> None:
    """A copy that the costs of the search miss, and the books see, made Megatron's plan cheaper."""
    step = captured(Burgers(), *(torch.rand(12, 1) for _ in range(4)))
    for ways in (2, 3, 4):
        best = account(step, search_best(step, ways).plan).total_bytes
        assert best <= min(row.moved for row in rows_of_named(step, ways))


def test_what_is_too_wide_to_be_solved_is_solved_without_sharing() -> None:
    """Queries, keys and values of tied layers have so much in common that two workers' tables are too large.

    By paths alone the plan moved more than data parallel, and a weight of Megatron's had nowhere to lie.
    """
    model, batch = example("gpt")
    step = captured(model, *batch)
    plan = data_parallel(step, 2)
    assert plan is not None
    assert account(step, search(step, (2,)).plan).total_bytes < account(step, plan).total_bytes
    assert megatron(step, 2) is not None


def test_the_loss_takes_parts_of_the_words() -> None:
    """Logits cut by words stay so: maximum, sum and the word asked for are reduced, a number a token each."""

    class Head(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head = nn.Linear(16, 256)

        def forward(self, x: Tensor, y: Tensor) -> Tensor:
            return nn.functional.cross_entropy(self.head(x), y)

    step, inputs = step_of(Head().double(), torch.randn(24, 16).double(), torch.randint(256, (24,)), optimizer=sgd)
    plan = megatron(step, 4)
    assert plan is not None
    moved = check(step.program, inputs, plan)
    assert moved == account(step, plan).total_bytes < 0.5 * 24 * 256 * 8


def test_a_limit_takes_the_named_plan_that_fits_it() -> None:
    step = captured(Encoder(48), torch.zeros(24, 5, 48))
    plan = data_parallel(step, 2)
    assert plan is not None
    book = account(step, plan)
    found = account(step, search_best(step, 2, memory_limit=1.02 * footprint(book).total).plan)
    assert found.total_bytes <= book.total_bytes


def test_a_batch_that_does_not_divide_is_not_data_parallel() -> None:
    step = captured(Perceptron((48, 96, 24)), torch.zeros(5, 48), torch.zeros(5, 24))
    assert data_parallel(step, 4) is fully_sharded(step, 4) is None
    assert list(named_plans(step, 4)) == ["Megatron"]
    assert [row.name for row in rows_of_named(step, 4)] == ["Megatron"]
    assert rows_of_named(step, 1) == []


def test_a_plan_that_divides_no_work_is_none() -> None:
    """No index notation describes this embedding_bag: what follows the batch would be computed by every worker."""

    class Bag(nn.Module):
        def __init__(self, lookup: nn.Module, head: int) -> None:
            super().__init__()
            self.lookup, self.head = lookup, nn.Linear(64, head)

        def forward(self, ids: Tensor) -> Tensor:
            found = self.lookup(ids)
            return self.head(found if found.dim() == 2 else found.sum(1)).square().mean()

    with torch.device("meta"):
        models, ids = (
            [
                Bag(nn.EmbeddingBag(10**6, 64, mode="sum", scale_grad_by_freq=True), 256),
                Bag(nn.Embedding(10**6, 64), 8),
            ],
            torch.zeros(512, 8, dtype=torch.long),
        )
    assert "data parallel" not in named_plans(captured(models[0], ids), 8)
    for model in models:
        assert vgraph.parallelize(model, (ids,), 8).num_workers == 8
