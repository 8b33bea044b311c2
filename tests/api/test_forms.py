"""Plans run evaluation and batches of other sizes with the same shards: results are those of one process."""

from __future__ import annotations

import copy
import gc
import inspect
import logging
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import vgraph
from tests.partition.small_models import model_and_batch
from vgraph.api.dense import forms
from vgraph.api.dense.call_form import in_order
from vgraph.errors import ModelError

FACTOR = 1.0


class Classifier(nn.Module):
    """Batch normalisation and dropout tell modes apart; without labels it returns a nest without a loss."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.norm, self.dropout = nn.Linear(16, 32), nn.BatchNorm1d(32), nn.Dropout(0.5)
        self.out = nn.Linear(32, 8)

    def forward(self, x: Tensor, y: Tensor | None = None) -> dict[str, Any]:
        h = torch.relu(self.norm(self.inner(x)))
        logits = self.out(self.dropout(h))
        if y is None:
            return {"logits": logits, "inner": (h, x.shape[0])}
        return {"loss": F.cross_entropy(logits, y), "logits": logits}


def close(found: Any, wanted: Any) -> None:
    torch.testing.assert_close(found, wanted, rtol=1e-10, atol=1e-10)


def classifier() -> tuple[Classifier, Tensor, Tensor]:
    return Classifier().double(), torch.randn(16, 16, dtype=torch.float64), torch.randint(0, 8, (16,))


@pytest.mark.parametrize("workers", [2, 4])
def test_evaluation_between_steps_and_a_short_last_batch(workers: int) -> None:
    model, x, y = classifier()
    model.dropout.p = 0.0
    plan = vgraph.parallelize(model, (x, y), workers, optimizer=lambda p: torch.optim.Adam(p, lr=0.01))
    whole, state = copy.deepcopy(model), None
    optimizer = torch.optim.Adam(whole.parameters(), lr=0.01)
    for rows in (16, 7, 16):
        step = plan.run_in_process(x[:rows], y[:rows], state=state)
        state, wanted = step.state, whole.train()(x[:rows], y[:rows])
        optimizer.zero_grad()
        wanted["loss"].backward()
        optimizer.step()
        assert isinstance(step.returned, dict)
        close(step.returned, {key: tensor.detach() for key, tensor in wanted.items()})
        close([*step.grads], [parameter.grad for parameter in whole.parameters()])
        close([*step.parameters], [parameter.detach() for parameter in whole.parameters()])
        close(step.buffers, dict(whole.named_buffers()))
        with torch.no_grad():
            close(plan.evaluate_in_process(x[:5], state=state), whole.eval()(x[:5]))
            close(plan.evaluate_in_process(x, y, state=state), whole(x, y))


@pytest.mark.parametrize("workers", [2, 4])
def test_a_batch_of_no_rows(workers: int) -> None:
    """What is impossible to bring costs no bytes of an empty tensor, and is impossible all the same."""
    batch = torch.randn(12, 12, dtype=torch.float64), torch.randint(0, 12, (12,))
    model = Scored().double()
    plan = vgraph.parallelize(model, batch, workers)
    empty = tuple(x[:0] for x in batch)
    assert torch.isnan(model(*empty))
    assert torch.isnan(torch.as_tensor(plan.evaluate_in_process(*empty)))
    assert all(grad is not None and not grad.any() for grad in plan.run_in_process(*empty).grads)


@pytest.mark.parametrize("is_cast", [False, True])
def test_casts_around_a_call_are_those_of_the_call(is_cast: bool) -> None:
    """Not of the plan, nor of the call that met a batch of this size first."""
    model, x, y = Scored(), torch.randn(12, 12), torch.randint(0, 12, (12,))
    with torch.autocast("cpu", torch.bfloat16, enabled=is_cast):
        plan = vgraph.parallelize(model, (x, y), 2)
    for rows in (12, 4):
        batch, found = (x[:rows], y[:rows]), list[Tensor]()
        for casts in (True, False):
            with torch.autocast("cpu", torch.bfloat16, enabled=casts):
                wanted = model(*batch).detach()
                found += [plan.run_in_process(*batch).loss, torch.as_tensor(plan.evaluate_in_process(*batch))]
            torch.testing.assert_close(found[-2:], [wanted] * 2, rtol=0, atol=1e-2 if casts else 1e-6)
        assert abs(found[0] - found[2]) > 1e-6 and abs(found[1] - found[3]) > 1e-6


def test_the_default_dtype_is_that_of_the_call() -> None:
    class Made(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            return (super().forward(x) + torch.finfo(torch.zeros(()).dtype).eps * 1e8).mean()

    model, x = Made(4, 4).double(), torch.randn(4, 4, dtype=torch.float64)
    plan = vgraph.parallelize(model, (x,), 2)
    close(plan.run_in_process(x).loss, model(x).detach())
    try:
        torch.set_default_dtype(torch.float64)
        close(plan.run_in_process(x).loss, model(x).detach())
    finally:
        torch.set_default_dtype(torch.float32)


class Scored(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(12, 12), nn.Linear(12, 12)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(self.second(self.first(x).tanh()), y)


def test_dropout_is_off_in_evaluation_alone() -> None:
    model, x, _ = classifier()
    plan = vgraph.parallelize(model, (x, torch.zeros(16, dtype=torch.int64)), 2)
    close(plan.evaluate_in_process(x), plan.evaluate_in_process(x))
    batch = (x[:7], torch.zeros(7, dtype=torch.int64))
    first, other = (plan.run_in_process(*batch, seed=seed) for seed in (1, 2))
    alone = vgraph.parallelize(model, batch, 1).run_in_process(*batch, seed=1)
    assert first.loss != other.loss
    close(first.loss, alone.loss)


@dataclass
class Losses:
    loss: Tensor
    penalty: Tensor


class Shaped(nn.Module):
    def __init__(self, shape: Any) -> None:
        super().__init__()
        self.map, self.shape = nn.Linear(16, 16).double(), shape

    def forward(self, x: Tensor) -> Any:
        y = self.map(x)
        return self.shape(y.square().mean(), y.abs().sum(), y)


def test_the_loss_is_found_in_what_a_model_returns() -> None:
    x = torch.randn(8, 16, dtype=torch.float64)
    for shape in (lambda a, b, y: Losses(a, b), lambda a, b, y: [a, y.max(0)], lambda a, b, y: (y, a)):
        model = Shaped(shape)
        found, wanted = vgraph.parallelize(model, (x,), 2).run_in_process(x), model(x)
        close(found.loss, model.map(x).square().mean().detach())
        assert type(found.returned) is type(wanted)
    with pytest.raises(vgraph.VGraphError, match="returns 2 scalars that depend on parameters"):
        vgraph.parallelize(Shaped(lambda a, b, y: (a, b)), (x,), 2)
    with pytest.raises(vgraph.VGraphError, match="2 tensors, and no scalar"):
        vgraph.parallelize(Shaped(lambda a, b, y: (y, y.detach())), (x,), 2)


class Set(nn.Module):
    """Reads a number of its own, and one that stands in this file."""

    def __init__(self) -> None:
        super().__init__()
        self.map, self.powers = nn.Linear(8, 8).double(), [2.0]

    def forward(self, x: Tensor) -> Tensor:
        return self.map(x).pow(self.powers[0]).mean() * FACTOR


def test_batches_that_no_step_takes() -> None:
    x = torch.randn(8, 8, dtype=torch.float64)
    plan = vgraph.parallelize(Set(), (x,), 2)
    for dtype in (torch.float16, torch.float32, torch.int64):
        with pytest.raises(ModelError, match=r"the plan was made for torch\.float64") as caught:
            plan.evaluate_in_process(x.to(dtype))
        assert __file__ in caught.value.line
    with pytest.raises(ModelError, match="tensor 0 of the batch requires a gradient"):
        plan.run_in_process(x.clone().requires_grad_())


def test_what_the_planned_model_reads_is_not_to_change(monkeypatch: pytest.MonkeyPatch) -> None:
    model, x = Set(), torch.randn(8, 8, dtype=torch.float64)
    plan = vgraph.parallelize(model, (x,), 2)
    model.requires_grad_(False).half()  # what the plan has copied may change
    model.powers[0] = 3.0
    for run in (plan.run_in_process, plan.evaluate_in_process):
        with pytest.raises(ModelError, match=r"^model\.powers\[0\], which Set reads, has changed since it was planned"):
            run(x)
    model.powers[0] = 2.0
    wanted = plan.run_in_process(x).loss
    del model
    gc.collect()
    close(plan.run_in_process(x).loss, wanted)
    monkeypatch.setitem(globals(), "FACTOR", 2.0)
    with pytest.raises(ModelError, match="FACTOR, which Set reads") as caught:
        plan.run_in_process(x)
    assert caught.value.line.startswith(__file__)


def test_a_plan_of_a_forward() -> None:
    model = Shaped(lambda a, b, y: y.view(2, 4, 16)).eval()
    x = torch.randn(8, 16, dtype=torch.float64)
    plan = vgraph.parallelize(model, (x,), 2)
    assert plan.step.gradients == {}
    close(plan.evaluate_in_process(x), model(x).detach())
    close(plan.run_in_process(x).returned, model(x).detach())


def test_forms_are_kept_up_to_a_bound(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(forms, "MOST_FORMS", 2)
    model, (x,) = model_and_batch("mlp")
    plan = vgraph.parallelize(model, (x,), 2)
    made: list[int] = []
    capture = forms.Recipe.capture

    def counted(self: forms.Recipe, batch: Any, *, is_training: bool) -> Any:
        made.append(len(batch[0]))
        return capture(self, batch, is_training=is_training)

    monkeypatch.setattr(forms.Recipe, "capture", counted)
    with caplog.at_level(logging.WARNING, "vgraph"):
        for rows in (16, 6, 7, 6, 16, 5, 6, 7):
            close(plan.run_in_process(x[:rows]).loss, model(x[:rows]).detach())
    assert made == [6, 7, 5, 7]
    assert "pad them to few" in caplog.text


def test_other_batches_keep_the_limit_of_memory() -> None:
    model, (x,) = model_and_batch("mlp")
    need = vgraph.parallelize(model, (x,), 2).memory_per_worker
    plan = vgraph.parallelize(model, (x,), 2, memory_limit=1.5 * need)
    with pytest.raises(vgraph.VGraphError, match=r"with this batch a worker needs .* more than the limit"):
        plan.run_in_process(x.repeat(64, 1))


def test_arguments_by_name_go_to_their_places() -> None:
    """What a call leaves out between two that it passes has its default; what follows is left out."""

    def forward(x: int, y: int | None = None, mask: str = "none", *, scale: float = 1.0) -> None: ...

    signature = inspect.signature(forward)
    assert in_order(signature, (1,), {}) == (1,)
    assert in_order(signature, (1,), {"mask": "all"}) == (1, None, "all")
    assert in_order(signature, (), {"y": 2, "x": 1}) == (1, 2)
    with pytest.raises(ModelError, match="scale can be passed by name alone"):
        in_order(signature, (1,), {"scale": 2.0})
    with pytest.raises(TypeError, match="unexpected keyword argument 'z'"):
        in_order(signature, (1,), {"z": 2})


class Joined(nn.Linear):
    """Reads the items of a dict one after the other, whatever their names."""

    def forward(self, batch: dict[str, Tensor]) -> Tensor:
        return super().forward(torch.cat([*batch.values()], 1)).square().mean()


def test_the_order_of_a_dict_is_part_of_the_form() -> None:
    model, (a, b) = Joined(16, 8).double(), torch.randn(2, 8, 8).double()
    plan = vgraph.parallelize(model, ({"a": a, "b": b},), 2)
    placement = vgraph.place(model, ({"a": a, "b": b},), ["cpu", "cpu"])
    turned = {"b": b, "a": a}
    close(plan.run_in_process(turned).loss, model(turned).detach())
    close(plan.run_in_process({"a": b, "b": a}).loss, model(turned).detach())
    close(placement.run({"a": b, "b": a}), model(turned))
    with pytest.raises(ModelError, match="has its items in another order"):
        placement.run(turned)
