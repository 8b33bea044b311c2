"""Bags of embeddings as lookups and sums, each of which the index notation describes.

Takes: the calls of ``embedding_bag`` that a model makes. Gives: the same in operators whose tables can be divided by
rows and by columns, forward and backward. Runs once per model.
Source: the meaning of ``torch.nn.functional.embedding_bag``; its fused operator hides every index.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from typing import NamedTuple, cast

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode


class _Call(NamedTuple):
    """The arguments of ``embedding_bag``, under its names."""

    input: Tensor
    weight: Tensor
    offsets: Tensor | None
    max_norm: float | None
    norm_type: float
    scale_grad_by_freq: bool
    mode: str
    sparse: bool
    per_sample_weights: Tensor | None
    include_last_offset: bool
    padding_idx: int | None

    @property
    def is_even(self) -> bool:
        """Whether every bag has as many ids as any other: they are a matrix."""
        return self.input.dim() == 2 and self.input.shape[1] > 0

    @property
    def is_known(self) -> bool:
        """Whether it is one of those that are taken apart here; torch runs the others, or refuses them."""
        can_be_summed = self.mode in ("sum", "mean") and self.offsets is not None and self.input.dim() == 1
        is_plain = self.max_norm is None and not self.scale_grad_by_freq  # torch's own way to count ids is kept
        is_legal = self.mode == "sum" or self.per_sample_weights is None
        return is_plain and is_legal and (self.is_even or can_be_summed)


class PlainBags(TorchFunctionMode):
    """Has ``embedding_bag`` run as a lookup and a reduction."""

    def __torch_function__(
        self,
        func: Callable[..., object],
        types: object,
        args: tuple[object, ...] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> object:
        named = kwargs or {}
        if func is F.embedding_bag:
            bound = inspect.signature(F.embedding_bag).bind(*args, **named)
            bound.apply_defaults()
            call = _Call(**bound.arguments)
            if call.is_known:
                return _even(call) if call.is_even else _ragged(call)
        return func(*args, **named)


def _looked_up(call: _Call) -> tuple[Tensor, Tensor | None]:
    """The rows of the table, and which of them count; None: all do."""
    rows = F.embedding(call.input, call.weight, padding_idx=call.padding_idx, sparse=call.sparse)
    if call.per_sample_weights is not None:
        rows = rows * call.per_sample_weights.unsqueeze(-1)
    if call.padding_idx is None:
        return rows, None
    return rows, (call.input != call.padding_idx % call.weight.shape[0]).unsqueeze(-1)


def _even(call: _Call) -> Tensor:
    """A row of ids a bag."""
    rows, counted = _looked_up(call)
    if call.mode == "max":
        if counted is None:
            return rows.max(1).values
        most = rows.masked_fill(~counted, -math.inf).max(1).values
        return torch.where(counted.any(1), most, 0)
    if counted is None:
        return rows.sum(1) if call.mode == "sum" else rows.mean(1)
    total = torch.where(counted, rows, 0).sum(1)
    return total if call.mode == "sum" else total / counted.sum(1).clamp(min=1)


def _ragged(call: _Call) -> Tensor:
    """All ids in one row; a bag begins where an offset says."""
    rows, counted = _looked_up(call)
    offsets = cast(Tensor, call.offsets)
    starts = offsets[:-1] if call.include_last_offset else offsets
    places = torch.arange(call.input.shape[0], dtype=starts.dtype, device=starts.device)
    bags = torch.bucketize(places, starts, right=True) - 1

    def sums(of: Tensor) -> Tensor:
        return of.new_zeros(starts.shape[0], of.shape[1]).index_add(0, bags, of)

    total = sums(rows if counted is None else torch.where(counted, rows, 0))
    if call.mode == "sum":
        return total
    ones = torch.ones_like(rows[:, :1]) if counted is None else counted.to(rows.dtype)
    return total / sums(ones).clamp(min=1)
