"""Linear: the map of rows by a matrix, by vgraph's products where those are the faster.

Takes: rows, a matrix, a bias. Gives: rows. Runs at every call.
Source: ADR 0007 (products of our own).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.overrides import has_torch_function

from vgraph.capture.guards.functorch_checks import is_batched, is_transformed
from vgraph.native_part import load_native
from vgraph.runtime.in_memory import in_memory


class _Linear(torch.autograd.Function):
    """``rows @ weight.T + bias`` for two dims; its gradients are such maps again, so that it has all orders."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(rows, weight)
        native = load_native()
        assert native is not None, "linear asked for it"
        return native.mm(rows, weight.t()) if bias is None else native.addmm(bias, rows, weight.t())

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor | None, ...]:
        (grad,) = grad_outputs
        rows, weight = ctx.saved_tensors
        of_rows, of_weight, of_bias = ctx.needs_input_grad
        return (
            linear(grad, weight.t()) if of_rows else None,
            linear(grad.t(), rows.t()) if of_weight else None,
            grad.sum(0) if of_bias else None,
        )


def linear(rows: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """What ``torch.nn.functional.linear`` gives, by products that use vectors which torch leaves idle on some CPUs.

    Differentiable to any order. Sums are taken in another order than torch's. Where torch's library was measured to be
    the faster for these sizes, on other devices and dtypes than float32 and float64 on the CPU, under autocast,
    ``torch.compile``, ``torch.jit.trace``, ``torch.func`` and modes that watch functions, it is torch's own call.

    Args:
        rows: (..., columns).
        weight: (outputs, columns).
        bias: (outputs,), which is added to every row; None: nothing is.

    Returns:
        (..., outputs) in the dtype of ``rows``.

    Raises:
        RuntimeError: shapes, dtypes or devices that do not fit, as torch says it.

    Source: Goto and van de Geijn 2008; docs/adr/0007.

    Example:
        >>> import torch, vgraph
        >>> vgraph.linear(torch.ones(3, 2), torch.tensor([[1.0, 2.0]]))
        tensor([[3.],
                [3.],
                [3.]])
    """
    tensors = (rows, weight) if bias is None else (rows, weight, bias)
    if torch.compiler.is_compiling() or has_torch_function(tensors) or not _is_plain_call() or not _fit(tensors):
        return functional.linear(rows, weight, bias)
    found: Tensor = _Linear.apply(rows if rows.dim() == 2 else rows.flatten(0, -2), weight, bias)
    return found if rows.dim() == 2 else found.unflatten(0, rows.shape[:-1])


def _fit(tensors: tuple[Tensor, ...]) -> bool:
    """Whether native code can read them: torch says what is wrong with the others."""
    if any(type(t) not in (Tensor, nn.Parameter) or t.layout != torch.strided or is_batched(t) for t in tensors) or any(
        t.device.type != "cpu" or in_memory(t) is not t for t in tensors
    ):
        return False
    rows, weight = tensors[:2]
    return (
        rows.dim() >= 2
        and weight.dim() == 2
        and rows.shape[-1] == weight.shape[1]
        and len({t.dtype for t in tensors}) == 1
        and (len(tensors) == 2 or tensors[2].shape == weight.shape[:1])
    )


def _is_plain_call() -> bool:
    """Whether no transform is active, and the products here are the faster."""
    if is_transformed() or torch.is_autocast_enabled("cpu") or torch.jit.is_tracing():
        return False
    native = load_native()
    return native is not None and native.multiplies
