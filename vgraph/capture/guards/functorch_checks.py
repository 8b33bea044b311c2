"""Transforms: what torch.func, forward-mode derivatives and recorders do to tensors, which kernels cannot follow.

Takes: nothing. Gives: an error where one is active. Runs at every call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
import torch.autograd.forward_ad
from torch import Tensor

from vgraph.errors import FunctionError

_functorch: Any = torch._C._functorch  # noqa: TID251  # pyright: ignore
_count_modes: Callable[[], int] = torch._C._len_torch_dispatch_stack  # noqa: TID251  # pyright: ignore
_mode_at: Callable[[int], object] = torch._C._get_dispatch_stack_at  # noqa: TID251  # pyright: ignore
# Modes under which new tensors hold no numbers, or what kernels do is not seen; others count operators and the like.
_WITHOUT_NUMBERS = {
    "FakeTensorMode": "FakeTensorMode has tensors without numbers, which do",
    "ProxyTorchDispatchMode": "make_fx does",
    "FunctionalTensorMode": "functionalization does",
}


def is_batched(grad: Tensor) -> bool:
    """Whether it stands for several gradients at once (``is_grads_batched``), which lie where no kernel finds them."""
    return _functorch.is_legacy_batchedtensor(grad)


def refuse_batched(grads: Iterable[Tensor | None]) -> None:
    """Raises FunctionError in a backward of several gradients at once."""
    for grad in grads:
        if grad is None or not is_batched(grad):
            continue
        raise FunctionError(
            "several gradients at once (is_grads_batched, vectorize=True) do not reach into functions on graphs",
            cure="take them one after another: vectorize=False",
        )


def is_transformed() -> bool:
    """Whether a transform, a forward-mode derivative or a recorder is active, as private parts of torch tell."""
    level: int = torch.autograd.forward_ad._current_level  # pyright: ignore[reportPrivateUsage]
    return _functorch.peek_interpreter_stack() is not None or level >= 0 or bool(_count_modes() and _mode_active())


def _mode_active() -> str:
    """What cannot follow of the modes that are on; nothing, if all can."""
    names = (type(_mode_at(place)).__name__ for place in range(_count_modes()))
    return next((_WITHOUT_NUMBERS[name] for name in names if name in _WITHOUT_NUMBERS), "")


def refuse_transforms() -> None:
    """Raises FunctionError inside vmap, grad, jvp, export, make_fx and their kind, whose tensors hold no rows."""
    if torch.compiler.is_exporting() or torch.jit.is_tracing():  # before a graph keeps what is no tensor of numbers
        exporter = "torch.jit.trace" if torch.jit.is_tracing() else "torch.export"
        raise FunctionError(
            f"{exporter} does not reach into functions on graphs",
            cure="torch.compile(model, fullgraph=True) does; or export what comes before and after them",
        )
    if not is_transformed():
        return
    mode = _mode_active()
    if mode:
        raise FunctionError(
            f"{mode} not reach into functions on graphs", cure="torch.compile(model, fullgraph=True) records them"
        )
    if _functorch.peek_interpreter_stack() is not None:
        raise FunctionError(
            "torch.func's transforms (vmap, grad, jacrev, jvp) do not reach into functions on graphs",
            cure="call torch.autograd.grad, to any order; for vmap, give features one more dim, (rows, batch, ...)",
        )
    raise FunctionError(
        "forward-mode derivatives do not reach into functions on graphs",
        cure="take two reverse ones: the gradient of (gradient * v) with respect to v",
    )
