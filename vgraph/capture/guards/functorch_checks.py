"""Transforms: what torch.func, forward-mode derivatives and recorders do to tensors, which kernels cannot follow.

Takes: nothing. Gives: an error where one is active. Runs at every call. Of several gradients at once, which a transform
makes of one, every backward is asked for one after another.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import torch
import torch.autograd.forward_ad
from torch import Tensor

from vgraph.errors import FunctionError

Grads = tuple[Tensor | None, ...]
_functorch: Any = torch._C._functorch  # noqa: TID251  # pyright: ignore
_count_modes: Callable[[], int] = torch._C._len_torch_dispatch_stack  # noqa: TID251  # pyright: ignore
_mode_at: Callable[[int], object] = torch._C._get_dispatch_stack_at  # noqa: TID251  # pyright: ignore
_MOST_LEVELS = 64  # of batches within batches, for torch
# Modes under which new tensors hold no numbers, or what kernels do is not seen; others count operators and the like.
_WITHOUT_NUMBERS = {
    "FakeTensorMode": "FakeTensorMode has tensors without numbers, which do",
    "ProxyTorchDispatchMode": "make_fx does",
    "FunctionalTensorMode": "functionalization does",
}


def is_batched(grad: Tensor) -> bool:
    """Whether it stands for several gradients at once, which lie where no kernel finds them.

    ``torch.vmap`` makes such tensors, and in an older way ``is_grads_batched`` and ``vectorize=True``.
    """
    return _functorch.is_legacy_batchedtensor(grad) or _functorch.is_batchedtensor(grad)


def one_by_one(backward: Callable[[Grads], Grads], grads: Grads) -> Grads:
    """What a backward gives; of several gradients at once it is asked for one after another.

    Raises:
        FunctionError: they are batched twice in the older way, or by torch.vmap for a derivative that gets a graph.
    """
    batches = [_batch_of(grad) for grad in grads if grad is not None and is_batched(grad)]
    if not batches:
        return backward(grads)
    batch = max(batches, key=lambda one: one.level)  # the innermost; the others are taken apart in each of these calls
    if batch.home is _functorch and torch.is_grad_enabled():
        raise FunctionError(
            "torch.vmap over torch.autograd.grad(..., create_graph=True) does not reach into functions on graphs",
            cure="torch.autograd.grad(..., is_grads_batched=True, create_graph=True) does, without torch.vmap",
        )
    columns = [batch.rows(grad) for grad in grads]
    count = next(len(rows) for rows in columns if rows is not None)
    columns = [rows.new_zeros(1, *rows.shape[1:]) if rows is not None and not count else rows for rows in columns]
    calls = [
        one_by_one(backward, tuple(g if rows is None else rows[i] for g, rows in zip(grads, columns, strict=True)))
        for i in range(max(count, 1))
    ]
    return tuple(batch.of_rows(found, count) for found in zip(*calls, strict=True))


@dataclass(frozen=True)
class _Batch:
    """The dim of gradients that are several at once; ``home``: where torch has the functions for it."""

    home: ModuleType
    level: int

    def rows(self, grad: Tensor | None) -> Tensor | None:
        """The gradients one below the other; None: it is the same for all."""
        if grad is None or not is_batched(grad) or _batch_of(grad) != self:
            return None
        return self.home._remove_batch_dim(grad, self.level, 1, 0)

    def of_rows(self, found: Sequence[Tensor | None], count: int) -> Tensor | None:
        rows = [one for one in found if one is not None]
        return self.home._add_batch_dim(torch.stack(rows)[:count], 0, self.level) if rows else None


def _batch_of(grad: Tensor) -> _Batch:
    if _functorch.is_batchedtensor(grad):
        return _Batch(_functorch, _functorch.maybe_get_level(grad))
    legacy: ModuleType = torch
    for level in range(1, _MOST_LEVELS):  # torch tells no level; taken away is the dim of the one that it has
        if not is_batched(legacy._remove_batch_dim(grad, level, 1, 0)):  # pyright: ignore[reportPrivateUsage]
            return _Batch(legacy, level)
    raise FunctionError(
        "gradients that are batched twice (is_grads_batched, vectorize=True) do not reach into functions on graphs",
        cure="take the outer ones one after another: vectorize=False",
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
