"""ShardGradient: a worker's part of a gradient, whose norm is that of the whole gradient.

Takes: a gradient of a shard, and what adds up over workers. Gives: a tensor for ``parameter.grad``. Runs at every step.
Source: Tofu section 6 (each worker holds its shards); torch's words for norms stay those of the whole model.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from vgraph.errors import ModelError

Norms = Callable[[Sequence[Tensor], float], Tensor]  # of shards of one dtype: a norm each, over all workers


class ShardGradient(Tensor):
    """A plain tensor to all functions but the norms that ``torch.nn.utils.clip_grad_norm_`` takes."""

    norms: Norms
    is_counted: bool  # of the workers that hold the same part, one counts it

    @classmethod
    def of(cls, gradient: Tensor, norms: Norms, is_counted: bool) -> ShardGradient:
        """The same memory."""
        found = gradient.as_subclass(cls)
        found.norms, found.is_counted = norms, is_counted
        return found

    @classmethod
    def __torch_function__(
        cls,
        func: Callable[..., object],
        types: Sequence[type],
        args: Sequence[object] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> object:
        if whole := _NORMS.get(getattr(func, "__name__", "")):
            return whole(*args, **(kwargs or {}))
        return Tensor.__torch_function__(func, (), tuple(args), dict(kwargs or {}))


def _norms(gradients: Sequence[Tensor], order: float = 2, dtype: torch.dtype | None = None) -> list[Tensor]:
    """Norms of many tensors; the norms of all shards take one exchange."""
    shards = [g for g in gradients if isinstance(g, ShardGradient)]
    found = dict(zip(map(id, shards), shards[0].norms(shards, float(order)), strict=True))
    norms = [found[id(g)] if id(g) in found else torch.linalg.vector_norm(g, order) for g in gradients]
    return [norm.to(dtype or g.dtype) for norm, g in zip(norms, gradients, strict=True)]


def _vector_norm(
    x: Tensor,
    ord: float = 2,
    dim: int | Sequence[int] | None = None,
    keepdim: bool = False,
    *,
    dtype: torch.dtype | None = None,
) -> Tensor:
    """``torch.linalg.vector_norm``, over all workers where it is over all dims."""
    if dim is None and not keepdim:
        return _norms([x], ord, dtype)[0]
    return torch.linalg.vector_norm(x.as_subclass(Tensor), ord, dim, keepdim, dtype=dtype)


_NORMS: dict[str, Callable[..., object]] = {
    "_foreach_norm": _norms,
    "linalg_vector_norm": _vector_norm,
}


def powers(shards: Sequence[Tensor], order: float) -> Tensor:
    """What adds up over workers: of each shard the sum of powers, or the largest of an infinite order.

    Raises:
        ModelError: the order is not above zero.
    """
    if not order > 0:
        raise ModelError(f"no norm of order {order} is taken of shards", cure="take one of an order above 0, such as 2")

    def power(shard: Tensor) -> Tensor:
        magnitude = shard.detach().abs().double()
        if not shard.numel() or not getattr(shard, "is_counted", True):
            return magnitude.new_zeros(())  # counted by another worker
        return magnitude.max() if order == torch.inf else magnitude.pow(order).sum()

    return torch.stack([power(shard) for shard in shards])
