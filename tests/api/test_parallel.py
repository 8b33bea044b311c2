"""parallelize: workers together compute what one process computes, in process and with processes."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import vgraph
from tests.partition.small_models import model_and_batch

OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
    "adam": lambda p: torch.optim.Adam(p, lr=0.01),
    "adagrad": lambda p: torch.optim.Adagrad(p, lr=0.1),
}


def one_process(
    model: nn.Module, batch: tuple[Tensor, ...], make: Callable[[Any], torch.optim.Optimizer] | None, steps: int = 1
) -> tuple[Tensor, list[Tensor], list[Tensor]]:
    model = copy.deepcopy(model)
    optimizer = make(model.parameters()) if make else None
    loss = torch.zeros(())
    for _ in range(steps):
        model.zero_grad()
        loss = model(*batch)
        loss.backward()
        if optimizer:
            optimizer.step()
    grads = [p.grad for p in model.parameters() if p.grad is not None]
    return loss.detach(), grads, [p.detach() for p in model.parameters()]


def close(found: Any, wanted: Any) -> None:
    torch.testing.assert_close(list(found), list(wanted), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("workers", [1, 2, 4, 8])
@pytest.mark.parametrize(("name", "make"), [("block", "sgd"), ("lstm", "adagrad"), ("attention", "adam")])
def test_in_process(name: str, make: str, workers: int) -> None:
    model, batch = model_and_batch(name)
    model = _without_dropout(model)
    before = copy.deepcopy(model.state_dict())
    plan = vgraph.parallelize(model, batch, workers, optimizer=OPTIMIZERS[make])
    found = plan.run_in_process(*batch)
    again = plan.run_in_process(*batch, state=found.state)
    for result, steps in ((found, 1), (again, 2)):
        loss, grads, parameters = one_process(model, batch, OPTIMIZERS[make], steps)
        close([result.loss], [loss])
        close([g for g in result.grads if g is not None], grads)
        close(result.parameters, parameters)
    assert plan.communicated_bytes == sum(e.num_bytes for e in plan.parts.exchanges)
    assert (plan.communicated_bytes > 0) == (workers > 1)
    for key, tensor in model.state_dict().items():
        assert torch.equal(tensor, before[key])


def _without_dropout(model: nn.Module) -> nn.Module:
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    return model


def test_dropout_does_not_depend_on_the_number_of_workers() -> None:
    model, batch = model_and_batch("attention")
    losses = [vgraph.parallelize(model, batch, n).run_in_process(*batch, seed=3).loss for n in (1, 2, 4)]
    close(losses[1:], losses[:1] * 2)
    other = vgraph.parallelize(model, batch, 2).run_in_process(*batch, seed=4).loss
    assert not torch.equal(losses[0], other)
