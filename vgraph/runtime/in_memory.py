"""In memory: what loops are given, by address, holds its own numbers; torch's operators run as they were recorded.

Takes: tensors and the thread's modes as a call meets them. Gives: tensors to read, and a context. Runs at every call.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor

_AS_IT_IS = nullcontext()


def in_memory(tensor: Tensor) -> Tensor:
    """The tensor, or a copy where its memory holds the opposite of its numbers, their conjugates, or is not there.

    Torch keeps ``z.conj().imag`` as a view that says so, and zeros that autograd made as no memory at all.
    """
    if tensor.is_neg() or tensor.is_conj():
        return tensor.resolve_conj().resolve_neg()
    if tensor.layout is torch.strided and tensor.data_ptr() != 0:
        return tensor
    return tensor if has_memory(tensor) else tensor.clone()


def has_memory(tensor: Tensor) -> bool:
    """Whether its elements, if it has any, have addresses; other layouts than torch's usual one have their own."""
    return tensor.layout is not torch.strided or tensor.data_ptr() != 0 or tensor.numel() == 0


def has_elements(tensor: Tensor) -> bool:
    """Whether there are elements that a loop can read."""
    return tensor.layout is torch.strided and tensor.numel() > 0 and tensor.data_ptr() != 0


def as_recorded(kind: str) -> AbstractContextManager[object]:
    """While it lasts, no autocast: every cast that a function makes was recorded, wherever it switched autocast."""
    is_known = kind == "cpu" or torch.amp.is_autocast_available(kind)
    is_on = is_known and torch.is_autocast_enabled(kind)
    return torch.autocast(kind, enabled=False) if is_on else _AS_IT_IS
