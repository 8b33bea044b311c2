"""``dgl.ndarray``: arrays of DGL's C interface, which here are torch's tensors with its words for them.

Takes: arrays, tensors, DLPack. Gives: tensors that also know ``asnumpy`` and ``to_dlpack``. Runs at every call.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray as Array
from torch import Tensor


class NDArray(Tensor):
    """A tensor over the same memory."""

    def asnumpy(self) -> Array[np.generic]:
        """The array."""
        return self.numpy(force=True)

    def to_dlpack(self) -> object:
        """The memory as DLPack has it."""
        return self.contiguous().__dlpack__()


def array(arr: object, ctx: torch.device | str | None = None) -> NDArray:
    """A copy of an array or of nested lists."""
    return torch.tensor(np.asarray(arr), device=ctx).as_subclass(NDArray)


def from_dlpack(dltensor: object) -> NDArray:
    """A tensor over memory as DLPack has it."""
    return torch.from_dlpack(dltensor).as_subclass(NDArray)
