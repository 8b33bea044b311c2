"""What ops of one form share: their choices are those that each would list alone, plans stay, and less is computed."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn

from benchmarks.partitioning.listed import listed
from tests.partition.small_models import model_and_batch
from vgraph.api.dense.plan_file import plan_digest
from vgraph.capture.step.capture_step import capture_step
from vgraph.ir.program import op_name
from vgraph.ir.sharding import Split
from vgraph.ir.step import TrainingStep
from vgraph.partition.search.choice_tables import Choices
from vgraph.partition.search.enumeration import Enumeration
from vgraph.partition.search.fit import search_best
from vgraph.partition.search.growth import Growth, Layout
from vgraph.partition.search.op_forms import OpForms
from vgraph.partition.search.options import Choice, Options
from vgraph.partition.search.search import Prepared, search
from vgraph.partition.search.skeleton import Numbers, Skeleton

MODELS = ("wresnet", "lstm", "attention", "U-Net, interpolated")


def _step(name: str) -> TrainingStep:
    torch.manual_seed(0)
    small = name in ("wresnet", "lstm", "attention")
    return capture_step(*(model_and_batch(name) if small else listed(name)), lambda p: torch.optim.SGD(p, 0.1, 0.9))


class _Widths(nn.Module):
    """Perceptrons of widths that differ, which all numbers of workers here divide."""

    def __init__(self, widths: tuple[int, ...]) -> None:
        super().__init__()
        self.parts = nn.ModuleList(nn.Sequential(nn.Linear(w, 2 * w), nn.LayerNorm(2 * w)) for w in widths)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return sum((part(x[:, : part[0].in_features]).square().mean() for part in self.parts), torch.zeros(()))


def _widths() -> TrainingStep:
    return capture_step(_Widths((32, 64, 96, 128, 160, 192)), (torch.zeros(64, 192),))


def _alone(patch: pytest.MonkeyPatch) -> None:
    """Has every kind of op be its own form."""
    patch.setattr(OpForms, "_without_sizes", lambda self, op, known: None)


def _calls(patch: pytest.MonkeyPatch, owner: type, name: str) -> list[str]:
    """Grows by one at every call of a method."""
    found: list[str] = []
    made = getattr(owner, name)

    def counted(*args: object) -> object:
        found.append(name)
        return made(*args)

    patch.setattr(owner, name, counted)
    return found


def _told(choices: list[Choice]) -> list[tuple[object, ...]]:
    return [(c.strategy, c.kept, c.keeps, c.reads, c.stays) for c in choices]


@pytest.mark.parametrize("name", MODELS)
def test_choices_of_a_form_are_those_of_each_op(name: str) -> None:
    """In a first step and, after each of a few choices, in a second and in one for another number of workers."""
    prepared = Prepared(_step(name))
    options = prepared.options
    for one in prepared.coarse.classes.classes:
        alone = replace(options)
        for ways in (2, 3, 8):
            shared, own = (o.of_op(one.op, one.kind, (), (), ways) for o in (options, alone))
            assert _told(shared) == _told(own), one.op
            for mine, theirs in list(zip(shared, own, strict=True))[:6]:
                for after in (2, 3):
                    found = options.of_op(one.op, one.kind, (mine,), (ways,), after)
                    assert _told(found) == _told(alone.of_op(one.op, one.kind, (theirs,), (ways,), after)), one.op


@pytest.mark.parametrize("workers", [4, 6])
@pytest.mark.parametrize("name", MODELS)
def test_plans_are_those_of_ops_that_share_nothing(name: str, workers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    step = _step(name)
    shared = search_best(step, workers)
    _alone(monkeypatch)
    held: list[Growth] = []  # they are known by their ids

    def grow(layout: Layout, bones: Skeleton, place: int, found: Choices, looks: Numbers, _: int) -> Growth:
        held.append(layout._grow(bones, place, found, looks))
        return held[-1]

    monkeypatch.setattr(Layout, "growth", grow)
    own = search_best(step, workers)
    assert plan_digest(shared.plan, step) == plan_digest(own.plan, step)
    assert (shared.step_bytes, shared.need) == (own.step_bytes, own.need)


def test_choices_are_listed_once_for_widths_that_divide_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    step, counts = _widths(), list[int]()
    for share in (True, False):
        with monkeypatch.context() as patch:
            if not share:
                _alone(patch)
            made = _calls(patch, Options, "_make")
            search(step, (2, 2))
            counts.append(len(made))
    assert 3 * counts[0] < counts[1]


def test_states_grow_once_for_widths_that_divide_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    """What they cost is found for each width, how they look is not."""
    step = _widths()
    grown, priced = _calls(monkeypatch, Layout, "_grow"), _calls(monkeypatch, Enumeration, "_after")
    search(step, (2, 2))
    assert 2 * len(grown) < len(priced)


def test_states_that_move_nothing_are_priced_once_for_all_widths(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of six weights and of what updates them, which is where they are."""
    counts: list[int] = []
    for widths in ((32,), (32, 64, 96, 128, 160, 192)):
        model, x = _Widths(widths), torch.zeros(64, 192)
        step = capture_step(model, (x,), lambda p: torch.optim.SGD(p, 0.1, 0.9))
        with monkeypatch.context() as patch:
            priced = _calls(patch, Enumeration, "_after")
            search(step, (2,))
            counts.append(len(priced))
    assert counts[1] < 3 * counts[0]


class _Product(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(8, 8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x @ self.weight).square().mean()


@pytest.mark.parametrize("order", [(2, 4), (4, 2)])
def test_what_is_left_of_a_dim_depends_on_the_workers_of_earlier_steps(order: tuple[int, int]) -> None:
    """Of four rows a step of two workers leaves two to each, which the next can divide; one of four does not."""
    prepared = Prepared(capture_step(_Product(), (torch.zeros(4, 8),), None))
    product = next(one for one in prepared.coarse.classes.classes if op_name(one.op.target) == "mm")
    for before in order:
        first = prepared.options.of_op(product.op, product.kind, (), (), before)
        rows = next(c for c in first if c.strategy is not None and c.strategy.outputs == (Split(0),))
        left = prepared.options.of_op(product.op, product.kind, (rows,), (before,), 2)
        assert any(c.strategy == rows.strategy for c in left) == (before == 2)
