"""Transforms: what torch.func and forward-mode derivatives do to tensors, which kernels cannot follow.

Takes: nothing. Gives: an error where one is active. Runs at every call.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
import torch.autograd.forward_ad
from torch import Tensor

from vgraph.errors import FunctionError

_functorch: Any = torch._C._functorch  # noqa: TID251  # pyright: ignore


def refuse_batched(grads: Iterable[Tensor | None]) -> None:
    """Raises FunctionError in a backward of several gradients at once."""
    for grad in grads:
        if grad is None or not _functorch.is_legacy_batchedtensor(grad):
            continue
        raise FunctionError(
            "several gradients at once (is_grads_batched, vectorize=True) do not reach into functions on graphs",
            cure="take them one after another: vectorize=False",
        )


def is_transformed() -> bool:
    """Whether a transform or a forward-mode derivative is active, which only private parts of torch tell (ADR 0004)."""
    level: int = torch.autograd.forward_ad._current_level  # pyright: ignore[reportPrivateUsage]
    return _functorch.peek_interpreter_stack() is not None or level >= 0


def refuse_transforms() -> None:
    """Raises FunctionError inside vmap, grad, jvp, export and their kind, whose tensors hold no rows of their own."""
    if torch.compiler.is_exporting() or torch.jit.is_tracing():  # before a graph keeps what is no tensor of numbers
        exporter = "torch.jit.trace" if torch.jit.is_tracing() else "torch.export"
        raise FunctionError(
            f"{exporter} does not reach into functions on graphs",
            cure="torch.compile(model, fullgraph=True) does; or export what comes before and after them",
        )
    if not is_transformed():
        return
    if _functorch.peek_interpreter_stack() is not None:
        raise FunctionError(
            "torch.func's transforms (vmap, grad, jacrev, jvp) do not reach into functions on graphs",
            cure="call torch.autograd.grad, to any order; for vmap, give features one more dim, (rows, batch, ...)",
        )
    raise FunctionError(
        "forward-mode derivatives do not reach into functions on graphs",
        cure="take two reverse ones: the gradient of (gradient * v) with respect to v",
    )
