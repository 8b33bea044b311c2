"""Transforms: what torch.func and forward-mode derivatives do to tensors, which kernels cannot follow.

Takes: nothing. Gives: an error where one is active; tempo: every call.
"""

from __future__ import annotations

import torch
import torch.autograd.forward_ad

from vgraph.api.tracer import user_line
from vgraph.errors import FunctionError


def refuse_transforms() -> None:
    """Raises FunctionError inside vmap, grad, jvp and their kind, whose tensors hold no rows of their own.

    Whether one is active only private parts of torch tell (ADR 0004).
    """
    if torch._C._functorch.peek_interpreter_stack() is not None:  # noqa: TID251  # pyright: ignore
        raise FunctionError(
            "torch.func's transforms (vmap, grad, jacrev, jvp) do not reach into functions on graphs",
            cure="call torch.autograd.grad, to any order; for vmap, give features one more dim, (rows, batch, ...)",
            line=user_line(),
        )  # fmt: skip
    if torch.autograd.forward_ad._current_level >= 0:  # pyright: ignore[reportPrivateUsage]
        raise FunctionError(
            "forward-mode derivatives do not reach into functions on graphs",
            cure="take two reverse ones: the gradient of (gradient * v) with respect to v", line=user_line(),
        )  # fmt: skip
