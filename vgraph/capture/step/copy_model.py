"""Copy of a model: its modules around other tensors, so that a recording, or a plan, holds none of its numbers.

Takes: a model, what stands for each tensor. Gives: a module. Runs once per recording.
Source: none; ``copy.deepcopy`` with the tensors given.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

from torch import Tensor, nn

from vgraph.capture.errors import CaptureError


def copy_around(
    model: nn.Module, stand_in: Callable[[Tensor], Tensor], within: AbstractContextManager[None] | None = None
) -> nn.Module:
    """The same modules with ``stand_in(tensor)`` for each parameter and buffer; other tensors keep their numbers.

    ``within``: entered while parameters are made of what stands for them, and left before the rest is copied.

    Raises:
        CaptureError: a module holds what cannot be copied.
    """
    memo: dict[int, object] = {}
    with within or nullcontext():
        for tensor in (*model.parameters(), *model.buffers()):
            made = stand_in(tensor).requires_grad_(tensor.requires_grad)
            memo[id(tensor)] = nn.Parameter(made, tensor.requires_grad) if isinstance(tensor, nn.Parameter) else made
    for module in model.modules():  # what a call has left behind, such as a last activation
        left = [t for t in vars(module).values() if isinstance(t, Tensor) and not t.is_leaf]
        memo |= {id(tensor): tensor.detach() for tensor in left}
    try:
        return copy.deepcopy(model, memo)
    except Exception as error:
        cure = "delete what it holds beside tensors and numbers (locks, open files, generators)"
        raise CaptureError(f"its modules cannot be copied: {error}", "", cure) from error
