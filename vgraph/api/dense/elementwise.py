"""Elementwise: optimizers that step a shard as they would step that part of the whole tensor; others are refused.

Takes: the parameters of a worker. Gives: an error before the first step of an optimizer that mixes elements. Runs once
per optimizer. Source: none (a rehearsal: one small tensor, and its first half along every dim, are stepped alike).
"""

from __future__ import annotations

import copy
import inspect
import warnings
from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import cache
from weakref import WeakSet

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_pre_hook
from torch.utils.weak import WeakIdKeyDictionary

from vgraph.errors import FunctionError

_STEPS, _RATE = 2, 0.1
_shards = WeakIdKeyDictionary()
_checked: WeakSet[Optimizer] = WeakSet()


def watch_optimizers(parameters: Iterable[nn.Parameter]) -> None:
    """From now on an optimizer that is to step one of these is first tried on small tensors."""
    for parameter in parameters:
        _shards[parameter] = True
    _register()


@cache
def _register() -> None:
    register_optimizer_step_pre_hook(_before_step)


def _before_step(optimizer: Optimizer, *_: object) -> None:
    if optimizer in _checked or not any(p in _shards for group in optimizer.param_groups for p in group["params"]):
        return
    refuse_mixing(optimizer)
    _checked.add(optimizer)


def refuse_mixing(optimizer: Optimizer) -> None:
    """Steps a copy of a fresh optimizer on small tensors, and another on a part of each.

    Raises:
        FunctionError: the part is not stepped as it is within the whole.
    """
    name = type(optimizer).__name__
    try:
        with torch.random.fork_rng():
            whole, part = _rehearsed(optimizer, 4), _rehearsed(optimizer, 2)
    except Exception as error:
        warnings.warn(
            f"{name} could not be tried on small tensors ({type(error).__name__}: {error}); on the shards of a worker "
            "it is right only if it works element by element",
            stacklevel=3,
        )
        return
    corners = [tensor[(slice(2),) * tensor.dim()] for tensor in whole]
    if not all(torch.allclose(a, b, rtol=1e-4, atol=1e-6) for a, b in zip(corners, part, strict=True)):
        raise FunctionError(
            f"{name} does not work element by element: on a worker's shards it would take another step than on "
            "the whole parameters",
            cure="use one that does (SGD, Adam, AdamW), or let the plan divide the update where it can be recorded: "
            "parallelize(..., optimizer=)",
        )


def _rehearsed(optimizer: Optimizer, extent: int) -> Sequence[Tensor]:
    """What a copy of the optimizer makes of tensors of this extent, which are corners of larger ones."""
    real = [p for group in optimizer.param_groups for p in group["params"]]
    pairs = [_probe(p, extent, seed) for seed, p in enumerate(real)]
    memo: dict[int, object] = {id(p): probe for p, (probe, _) in zip(real, pairs, strict=True)}
    held = {key: value for key, value in vars(optimizer).items() if key not in ("step", "state") and "hook" not in key}
    tried = object.__new__(type(optimizer))
    vars(tried).update(copy.deepcopy(held, memo))
    state: defaultdict[Tensor, dict[str, object]] = defaultdict(dict)
    vars(tried).update({key: type(value)() for key, value in vars(optimizer).items() if "hook" in key})
    tried.state = state
    for group in tried.param_groups:
        if "lr" in group:  # a rate of 0, as of a warm-up, would show nothing
            group["lr"] = torch.full_like(group["lr"], _RATE) if isinstance(group["lr"], Tensor) else _RATE
    step = type(optimizer).step
    takes_closure = "closure" in inspect.signature(step).parameters
    for number in range(_STEPS):
        for probe, grads in pairs:
            probe.grad = grads[number].clone()
        step(tried, lambda: _loss(probe for probe, _ in pairs)) if takes_closure else step(tried)
    return [probe.detach() for probe, _ in pairs]


def _loss(probes: Iterable[nn.Parameter]) -> float:
    """What has the gradients that the tensors hold: a search along a line moves nothing where the loss stays."""
    return sum((p.detach() * p.grad).sum().real.item() for p in probes if p.grad is not None)


def _probe(parameter: Tensor, extent: int, seed: int) -> tuple[nn.Parameter, list[Tensor]]:
    """A small parameter of as many dims, and gradients for all steps."""
    made = torch.Generator().manual_seed(seed)
    drawn = [torch.randn((4,) * parameter.dim(), generator=made) for _ in range(_STEPS + 1)]
    corners = [d[(slice(extent),) * d.dim()].to(parameter, copy=True).contiguous() for d in drawn]
    return nn.Parameter(corners[0]), corners[1:]
