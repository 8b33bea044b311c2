"""``dgl.init``: initializers of the features of new nodes and edges.

Takes: shape, dtype, device, the rows that are new. Gives: their features. Runs once per mutation.
"""

from __future__ import annotations

import torch
from torch import Tensor


def zero_initializer(
    shape: tuple[int, ...], dtype: torch.dtype, ctx: torch.device | str | int, id_range: slice
) -> Tensor:
    """Zeros."""
    return torch.zeros(shape, dtype=dtype, device=ctx)


def base_initializer(
    shape: tuple[int, ...], dtype: torch.dtype, ctx: torch.device | str | int, id_range: slice
) -> Tensor:
    """Zeros; the name that programs give when they mean the default."""
    return zero_initializer(shape, dtype, ctx, id_range)
