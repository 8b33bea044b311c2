"""Optimizers of shards: those that work element by element are let through, others are refused, warm-up or not."""

from __future__ import annotations

import copy
import warnings
from typing import Any

import pytest
import torch
from torch import nn

import vgraph
from vgraph.api.dense.elementwise import refuse_mixing

OPTIM = torch.optim
PLAIN = [OPTIM.SGD, OPTIM.Adam, OPTIM.AdamW, OPTIM.NAdam, OPTIM.RAdam, OPTIM.Adamax, OPTIM.Adagrad, OPTIM.Adadelta,
         OPTIM.RMSprop, OPTIM.Rprop, OPTIM.ASGD]  # fmt: skip


def parameters() -> list[nn.Parameter]:
    return [nn.Parameter(torch.randn(6, 8)), nn.Parameter(torch.randn(8, 3))]


class Normalised(OPTIM.SGD):
    """A user's own: each tensor is stepped by its normed gradient."""

    def step(self, closure: Any = None) -> None:
        with torch.no_grad():
            for group in self.param_groups:
                for p in group["params"]:
                    p -= group["lr"] * p.grad / p.grad.norm()


@pytest.mark.parametrize("kind", PLAIN, ids=lambda kind: kind.__name__)
def test_elementwise_ones_may_step(kind: Any) -> None:
    """Nothing of the optimizer, its parameters or torch's generator is changed by being looked at."""
    optimizer = kind(given := parameters())
    OPTIM.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, step / 10))
    before, drawn, held = copy.deepcopy(given), torch.get_rng_state(), copy.deepcopy(optimizer.state_dict())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        refuse_mixing(optimizer)
    assert all(torch.equal(a, b) for a, b in zip(given, before, strict=True))
    assert torch.equal(drawn, torch.get_rng_state())
    assert str(optimizer.state_dict()) == str(held)


@pytest.mark.parametrize("kind", [OPTIM.Adafactor, OPTIM.Muon, OPTIM.LBFGS, Normalised], ids=lambda kind: kind.__name__)
def test_others_are_refused(kind: Any) -> None:
    optimizer = kind(parameters(), lr=0.1)
    OPTIM.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, step / 10))
    with pytest.raises(vgraph.VGraphError, match=f"{kind.__name__} does not work element by element"):
        refuse_mixing(optimizer)


def test_one_that_searches_along_a_line_is_refused() -> None:
    with pytest.raises(vgraph.VGraphError, match="LBFGS does not work element by element"):
        refuse_mixing(OPTIM.LBFGS(parameters(), lr=0.1, line_search_fn="strong_wolfe"))


def test_one_that_cannot_be_tried_is_said() -> None:
    class Locked(OPTIM.SGD):
        def step(self, closure: Any = None) -> None:
            raise RuntimeError("only on Sundays")

    with pytest.warns(UserWarning, match="Locked could not be tried.*only on Sundays"):
        refuse_mixing(Locked(parameters(), lr=0.1))
