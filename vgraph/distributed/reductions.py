"""Reductions over ranks: the mean of a loss, gradients of a model.

Takes: own rows, a model. Gives: what one process would have. Runs at every step.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from vgraph.errors import FeatureError, ModelError
from vgraph.ir.reduction import ACCUMULATED
from vgraph.runtime.distributed.ranks import Ranks, current_ranks


def mean(rows: Tensor, weight: Tensor | None = None) -> Tensor:
    """The mean over the rows of all ranks, each times its weight; the loss of a distributed step.

    Args:
        rows: (rows, ...), a loss for each own row, as ``reduction="none"`` gives it; or truth values: what is right.
        weight: (rows,), numbers or truth values (a mask of training nodes), without gradient; None: 1.

    Returns:
        A scalar in the dtype of ``rows``, of truth values and whole numbers in torch's default one; NaN where all
        weights are 0.

    Raises:
        FeatureError: there is not one weight a row.
        WorkerError: a rank is lost.

    Source: PyTorch, ``torch.nn.parallel.DistributedDataParallel`` (which divides gradients by the ranks).

    Example:
        >>> import torch, vgraph.distributed as vd
        >>> vd.mean(torch.tensor([1.0, 2.0, 6.0]), torch.tensor([True, True, False]))
        tensor(1.5000)
        >>> vd.mean(torch.tensor([3, 1, 2]) == torch.tensor([3, 1, 1]))
        tensor(0.6667)
    """
    if weight is not None and (not rows.ndim or weight.shape != rows.shape[:1]):
        fact = f"weight has shape {tuple(weight.shape)} for rows of shape {tuple(rows.shape)}"
        raise FeatureError(fact, cure="give one weight a row")
    if rows.is_complex():
        return torch.complex(mean(rows.real, weight), mean(rows.imag, weight))
    if not rows.is_floating_point():
        rows = rows.to(torch.get_default_dtype())
    given, ranks = rows.dtype, current_ranks()
    rows = rows.to(ACCUMULATED.get(given, given))  # sums of 16 bits would be rounded, or infinite
    width = rows.shape[1:].numel()
    if weight is None:
        own, count = rows.sum(), torch.full((), rows.numel(), dtype=torch.float64, device=rows.device)
    else:
        factor = weight.detach().to(rows.dtype)
        # rows without weight may be NaN or infinite: they must not be multiplied by 0
        chosen = torch.where((factor != 0).reshape(-1, *(1,) * (rows.ndim - 1)), rows, 0)
        own = (chosen * factor.reshape(-1, *(1,) * (rows.ndim - 1))).sum()
        count = factor.double().sum() * width
    found = _Mean.apply(ranks, own, count)
    ranks.step()
    return found.to(given)


class _Mean(torch.autograd.Function):
    """(own sum, own count) -> the sum of all over the count of all."""

    @staticmethod
    def forward(ctx: Any, ranks: Ranks, own: Tensor, count: Tensor) -> Tensor:
        both = ranks.sum(torch.stack([own.detach().double(), count]), "mean")
        ctx.factor = ranks.size / float(both[1]) if float(both[1]) else float("nan")
        return (both[0] / both[1]).to(own.dtype)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        return None, grads[0] * ctx.factor, None


_NONE, _WHOLE, _SPARSE = range(3)


def _kind_of(gradient: Tensor | None) -> int:
    if gradient is None:
        return _NONE
    return _WHOLE if gradient.layout == torch.strided else _SPARSE


def all_reduce_gradients(model: nn.Module) -> None:
    """Replaces every gradient of the model by its mean over ranks, as ``DistributedDataParallel`` does.

    Args:
        model: a module whose parameters have gradients on some rank.

    Raises:
        ModelError: a gradient is sparse on some rank; no gradient is changed then.
        WorkerError: a rank is lost.

    Source: PyTorch, ``torch.nn.parallel.DistributedDataParallel``.

    Example:
        >>> import torch, vgraph.distributed as vd
        >>> model = torch.nn.Linear(2, 1)
        >>> vd.mean(model(torch.ones(3, 2)).squeeze(1)).backward()
        >>> vd.all_reduce_gradients(model)
        >>> model.weight.grad
        tensor([[1., 1.]])
    """
    ranks = current_ranks()
    named = {name: p for name, p in model.named_parameters() if p.requires_grad}
    if not named or ranks.size == 1:
        return
    parameters = list(named.values())
    has = torch.tensor([_kind_of(p.grad) for p in parameters], dtype=torch.uint8, device="cpu")
    somewhere = ranks.max(has, "which gradients").tolist()
    sparse = [name for name, kind in zip(named, somewhere, strict=True) if kind == _SPARSE]
    if sparse:
        fact = f"the gradient of {sparse[0]} is sparse, and ranks exchange whole ones"
        raise ModelError(fact, cure="make the embedding with sparse=False")
    kinds: dict[Any, list[nn.Parameter]] = {}
    for parameter, needed in zip(parameters, somewhere, strict=True):
        if needed:
            kinds.setdefault((parameter.dtype, parameter.device), []).append(parameter)
    for group in kinds.values():
        flat = torch.cat([(torch.zeros_like(p) if p.grad is None else p.grad.detach()).reshape(-1) for p in group])
        summed = ranks.sum(flat, "gradients") / ranks.size
        for parameter, part in zip(group, summed.split([p.numel() for p in group]), strict=True):
            parameter.grad = part.view_as(parameter).clone()
