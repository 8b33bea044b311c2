"""``dgl.nn.pytorch.utils``: what DGL's layers are made with.

Takes: tensors. Gives: tensors. Runs at every call.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

Identity = nn.Identity


def matmul_maybe_select(A: Tensor, B: Tensor) -> Tensor:
    """A times B; a vector of int64 stands for one-hot rows: rows of B."""
    return B.index_select(0, A) if _are_ids(A) else torch.matmul(A, B)


def bmm_maybe_select(A: Tensor, B: Tensor, index: Tensor) -> Tensor:
    """Each row of A times the matrix of B that ``index`` names; a vector of int64 stands for one-hot rows."""
    if _are_ids(A):
        return B.reshape(-1, B.shape[2]).index_select(0, index * B.shape[1] + A)
    return torch.bmm(A.unsqueeze(1), B.index_select(0, index)).squeeze(1)


def _are_ids(A: Tensor) -> bool:
    return A.dtype == torch.int64 and A.dim() == 1
