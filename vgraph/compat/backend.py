"""``dgl.backend``: DGL's words for what tensors do, as torch says it.

Takes: torch tensors. Gives: torch tensors. Runs at every call.
"""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Device = torch.device | str | int | None

backend_name = "pytorch"
float16, float32, float64 = torch.float16, torch.float32, torch.float64
uint8, int8, int16, int32, int64, bool = (
    torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.bool,
)  # fmt: skip
data_type_dict = {
    str(kind).removeprefix("torch."): kind
    for kind in (float16, float32, float64, uint8, int8, int16, int32, int64, bool)
}
tensor, as_scalar, stack, exp, softmax, squeeze, unsqueeze, equal, allclose, logical_not, logical_and = (
    torch.tensor, Tensor.item, torch.stack, torch.exp, torch.softmax, torch.squeeze, torch.unsqueeze, torch.eq,
    torch.allclose, torch.logical_not, torch.logical_and,
)  # fmt: skip
matmul, dot, sqrt, log, sigmoid, tanh, relu, clone, where, unique, cumsum, reverse = (
    torch.matmul, torch.dot, torch.sqrt, torch.log, torch.sigmoid, torch.tanh, torch.relu, torch.clone, torch.where,
    torch.unique, torch.cumsum, torch.flip,
)  # fmt: skip


def cpu() -> torch.device:
    """The CPU."""
    return torch.device("cpu")


def cuda(index: int = 0) -> torch.device:
    """A CUDA device."""
    return torch.device("cuda", index)


def context(input: Tensor) -> torch.device:
    """Where a tensor is."""
    return input.device


def dtype(input: Tensor) -> torch.dtype:
    """A tensor's dtype."""
    return input.dtype


def shape(input: Tensor) -> torch.Size:
    """A tensor's shape."""
    return input.shape


def ndim(input: Tensor) -> int:
    """The number of a tensor's dims."""
    return input.dim()


def is_tensor(obj: object) -> builtins.bool:
    """Whether it is a tensor."""
    return isinstance(obj, Tensor)


def astype(input: Tensor, ty: torch.dtype) -> Tensor:
    """The tensor with another dtype."""
    return input.to(ty)


def asnumpy(input: Tensor) -> NDArray[np.generic]:
    """The tensor as an array, without gradient."""
    return input.numpy(force=True)


def copy_to(input: Tensor, ctx: torch.device | str | int, **kwargs: Any) -> Tensor:
    """The tensor on a device."""
    return input.to(ctx, **kwargs)


def cat(seq: Sequence[Tensor], dim: int = 0) -> Tensor:
    """Tensors one after the other."""
    return torch.cat(list(seq), dim)


def zeros(shape: Sequence[int], dtype: torch.dtype = float32, ctx: Device = None) -> Tensor:
    """Zeros."""
    return torch.zeros(shape, dtype=dtype, device=ctx)


def ones(shape: Sequence[int], dtype: torch.dtype = float32, ctx: Device = None) -> Tensor:
    """Ones."""
    return torch.ones(shape, dtype=dtype, device=ctx)


def arange(start: int, stop: int, dtype: torch.dtype = int64, ctx: Device = None) -> Tensor:
    """start, start + 1, ... below stop."""
    return torch.arange(start, stop, dtype=dtype, device=ctx)


def full_1d(length: int, fill_value: float, dtype: torch.dtype, ctx: Device = None) -> Tensor:
    """A number again and again."""
    return torch.full((length,), fill_value, dtype=dtype, device=ctx)


zeros_like, ones_like = torch.zeros_like, torch.ones_like


def randn(shape: Sequence[int]) -> Tensor:
    """Numbers of a normal distribution."""
    return torch.randn(*shape)


def uniform(shape: Sequence[int], dtype: torch.dtype, ctx: Device, low: float, high: float) -> Tensor:
    """Numbers of a uniform distribution."""
    return torch.empty(shape, dtype=dtype, device=ctx).uniform_(low, high)


def sum(input: Tensor, dim: int | tuple[int, ...], keepdims: builtins.bool = False) -> Tensor:
    """The sum along dims."""
    return torch.sum(input, dim=dim, keepdim=keepdims)


def mean(input: Tensor, dim: int | tuple[int, ...]) -> Tensor:
    """The mean along dims."""
    return torch.mean(input, dim=dim)


def max(input: Tensor, dim: int) -> Tensor:
    """The largest along a dim."""
    return torch.max(input, dim=dim).values


def min(input: Tensor, dim: int) -> Tensor:
    """The smallest along a dim."""
    return torch.min(input, dim=dim).values


def prod(input: Tensor, dim: int) -> Tensor:
    """The product along a dim."""
    return torch.prod(input, dim=dim)


def argsort(input: Tensor, dim: int, descending: builtins.bool) -> Tensor:
    """The order that sorts a dim."""
    return torch.argsort(input, dim=dim, descending=descending)


def reshape(input: Tensor, shape: Sequence[int]) -> Tensor:
    """The tensor in another shape."""
    return torch.reshape(input, shape)


def swapaxes(input: Tensor, axis1: int, axis2: int) -> Tensor:
    """Two dims exchanged."""
    return torch.transpose(input, axis1, axis2)


def gather_row(data: Tensor, row_index: Tensor) -> Tensor:
    """Some rows."""
    return torch.index_select(data, 0, row_index.long())


def scatter_row(data: Tensor, row_index: Tensor, value: Tensor) -> Tensor:
    """The tensor with some rows replaced."""
    return data.index_copy(0, row_index.long(), value)


def slice_axis(data: Tensor, axis: int, begin: int, end: int) -> Tensor:
    """A part of one dim."""
    return torch.narrow(data, axis, begin, end - begin)


def boolean_mask(input: Tensor, mask: Tensor) -> Tensor:
    """The rows where the mask is true."""
    return input[mask]


def nonzero_1d(input: Tensor) -> Tensor:
    """Where a vector is not zero."""
    return torch.nonzero(input).squeeze(1)


def zerocopy_from_numpy(np_array: NDArray[np.generic]) -> Tensor:
    """An array as a tensor over the same memory."""
    return torch.from_numpy(np.ascontiguousarray(np_array))


def zerocopy_to_numpy(input: Tensor) -> NDArray[np.generic]:
    """A tensor as an array over the same memory."""
    return input.detach().numpy()


zerocopy_to_dlpack, zerocopy_from_dlpack = Tensor.__dlpack__, torch.from_dlpack
