"""Stand-ins: functions of torch that mix rows, hide them or look at numbers, in words that keep rows apart.

Takes: the arguments of such a function. Gives: its result, or None where it must run itself. Runs once per function.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional


def _bilinear(input1: Tensor, input2: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """As a product of all rows and one matrix, and sums within a row: torch's own operator makes neither."""
    given = weight.permute(1, 0, 2).flatten(1)
    found = ((input1 @ given).unflatten(-1, (weight.shape[0], weight.shape[2])) * input2.unsqueeze(-2)).sum(-1)
    return found if bias is None else found + bias


def _cross(input: Tensor, other: Tensor, dim: int | None = None) -> Tensor | None:
    """By columns: torch's own operator might be along rows."""
    if dim is None or 0 in (dim % input.dim(), dim % other.dim()) or input.shape[dim] != 3 or other.shape[dim] != 3:
        return None
    (a, b, c), (u, v, w) = input.unbind(dim), other.unbind(dim)
    return torch.stack([b * w - c * v, c * u - a * w, a * v - b * u], dim)


def _linalg_cross(input: Tensor, other: Tensor, *, dim: int = -1) -> Tensor | None:
    return _cross(input, other, dim) if input.dim() == other.dim() else None


def _one_hot(tensor: Tensor, num_classes: int = -1) -> Tensor | None:
    """As rows of the unit matrix: torch's own looks at the numbers. What is no class is refused all the same."""
    if num_classes < 1 or tensor.dtype != torch.int64:
        return None
    return functional.embedding(tensor, torch.eye(num_classes, dtype=torch.int64, device=tensor.device))


def _wide(input: Tensor) -> Tensor:
    """Numbers of 16 bits have 32 in a loss under autocast."""
    is_short = input.dtype in (torch.bfloat16, torch.float16)
    return input.float() if is_short and torch.is_autocast_enabled(input.device.type) else input


def _nll_loss(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    ignore_index: int = -100,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor | None:
    """One loss a row, as a choice among its numbers: torch's own adds up weights over all rows besides."""
    if reduction != "none" or size_average is not None or reduce is not None or input.dim() != target.dim() + 1:
        return None
    input = _wide(input)
    counts = target != ignore_index
    classes = torch.where(counts, target, 0).unsqueeze(1)
    chosen = -input.gather(1, classes).squeeze(1)
    if weight is not None:
        chosen = chosen * functional.embedding(classes.squeeze(1), weight.unsqueeze(1)).squeeze(-1)
    return torch.where(counts, chosen, 0)


def _cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    ignore_index: int = -100,
    reduce: bool | None = None,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Tensor | None:
    """One loss a row, from ids of classes; with smoothing a part of it is that of all classes."""
    logs = functional.log_softmax(_wide(input), 1)
    found = _nll_loss(logs, target, weight, size_average, ignore_index, reduce, reduction)
    if found is None or not label_smoothing:
        return found
    each = logs if weight is None else logs * weight.view(-1, *[1] * (logs.dim() - 2))
    smooth = torch.where(target != ignore_index, -each.mean(1), 0)
    return (1 - label_smoothing) * found + label_smoothing * smooth


def _group_norm(
    input: Tensor, num_groups: int, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5
) -> Tensor | None:
    """As a layer norm of each group: the derivative of torch's own adds up parameters over all rows at once."""
    if input.dim() < 2 or input.shape[1] % num_groups:
        return None
    shape = [int(size) for size in input.shape[1:]]
    grouped = input.flatten(1).unflatten(1, (num_groups, -1))
    normed = functional.layer_norm(grouped, (int(grouped.shape[-1]),), eps=eps).flatten(1).unflatten(1, shape)
    tail = (-1, *[1] * (len(shape) - 1))
    scaled = normed if weight is None else normed * weight.view(tail)
    return (scaled if bias is None else scaled + bias.view(tail)).to(input.dtype)  # parameters may be wider


def _instance_norm(
    input: Tensor,
    running_mean: Tensor | None = None,
    running_var: Tensor | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor | None:
    """As a group norm with a group a channel, where no statistics are kept and rows are a dim of their own."""
    if running_mean is not None or not use_input_stats or input.dim() < 3:
        return None
    return _group_norm(input, int(input.shape[1]), weight, bias, eps)


def _batch_norm(
    input: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor | None:
    """In evaluation as what it is then, a map of each row; the derivative of torch's own hides sums over rows."""
    if training or running_mean is None or running_var is None or input.dim() < 2:
        return None
    tail = (-1, *[1] * (input.dim() - 2))
    scale = torch.rsqrt(running_var + eps) if weight is None else weight * torch.rsqrt(running_var + eps)
    normed = (input - running_mean.view(tail)) * scale.view(tail)
    return (normed if bias is None else normed + bias.view(tail)).to(input.dtype)  # statistics may be wider


STAND_INS: dict[Callable[..., object], Callable[..., Tensor | None]] = {
    functional.bilinear: _bilinear,
    torch.cross: _cross,
    Tensor.cross: _cross,
    torch.linalg.cross: _linalg_cross,
    functional.one_hot: _one_hot,
    functional.nll_loss: _nll_loss,
    functional.cross_entropy: _cross_entropy,
    functional.group_norm: _group_norm,
    functional.batch_norm: _batch_norm,
    functional.instance_norm: _instance_norm,
}
EVERYWHERE = frozenset({functional.bilinear, torch.cross, Tensor.cross, torch.linalg.cross})  # not only in one vertex
