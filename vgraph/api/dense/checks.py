"""Checks of what parallelize is called with, before anything is recorded, and of batches.

Takes: its arguments; a batch. Gives: an error, or nothing. Runs once per plan; at every step.
Source: none.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from vgraph.arguments import ABOVE_ZERO
from vgraph.capture.step.optimizer import Optimizer
from vgraph.errors import FunctionError, ModelError
from vgraph.partition.rewrite.rewrite import RewriteOptions

LIMIT = replace(ABOVE_ZERO, number=float).or_none()


def check_arguments(
    num_workers: int,
    speeds: Sequence[float] | None,
    max_norm: float | None,
    optimizer: Optimizer | None,
    options: object,
) -> None:
    """Raises what is wrong with them."""
    if speeds is not None and len(speeds) != num_workers:
        raise ModelError(f"{len(speeds)} speeds were given for {num_workers} devices", cure="pass one speed a device")
    if not isinstance(options, (RewriteOptions, type(None))):
        raise FunctionError(
            f"options is {options!r}", cure="leave it out; plan.with_options(...) switches those of a plan"
        )
    if max_norm is not None and optimizer is None:
        raise ModelError(
            "max_norm= clips gradients before an update, and the plan has none",
            cure="pass optimizer=, or call worker.clip_grad_norm_(max_norm) before your own optimizer's step",
        )
    if optimizer is not None and not callable(optimizer):
        raise FunctionError(
            f"optimizer= is a {type(optimizer).__name__}; a factory is called with the step's own parameters",
            cure="pass optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.1)",
        )


def refuse_trained(batch: Sequence[Tensor]) -> None:
    """Raises where a gradient is wanted of what is passed: a step gives those of its parameters alone."""
    for place, tensor in enumerate(batch):
        if tensor.requires_grad and torch.is_grad_enabled():
            raise ModelError(
                f"tensor {place} of the batch requires a gradient; a step gives those of the model's parameters alone",
                cure="make what computes it a part of the model, or pass tensor.detach()",
            )


def refuse_hooks(parameters: Iterable[tuple[str, Tensor]]) -> None:
    """Raises where a hook waits for the gradient of a parameter: a step gives gradients, and runs none."""
    for name, parameter in parameters:
        if parameter._backward_hooks or parameter._post_accumulate_grad_hooks:  # pyright: ignore[reportPrivateUsage]
            raise ModelError(
                f"{name} has a hook that is to run when its gradient is computed, which a step of a plan would not run",
                cure="remove it, and do the same between the step and optimizer.step(); or register it after "
                "plan.as_dtensor, whose backward() runs hooks",
            )


def refuse_beyond(limit: float | None, need: float, whereby: str, cure: str) -> None:
    """Raises where a worker needs more than the plan's limit of memory."""
    if limit is not None and need > limit:
        raise ModelError(
            f"{whereby} a worker needs {need:.4g} bytes, {need - limit:.4g} more than the limit", cure=cure
        )
