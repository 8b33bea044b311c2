"""``dgl.backend``: DGL's words for what tensors do, as torch says it.

Takes: torch tensors. Gives: torch tensors. Runs at every call.
"""

from __future__ import annotations

import builtins
import numbers
from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from vgraph.errors import FeatureError

Device = torch.device | str | int | None

backend_name = "pytorch"
bfloat16, float16, float32, float64 = torch.bfloat16, torch.float16, torch.float32, torch.float64
uint8, int8, int16, int32, int64, bool = (
    torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.bool,
)  # fmt: skip
data_type_dict = {
    str(kind).removeprefix("torch."): kind
    for kind in (bfloat16, float16, float32, float64, uint8, int8, int16, int32, int64, bool)
}
reverse_data_type_dict = {kind: name for name, kind in data_type_dict.items()}
matmul, dot, log, sigmoid, tanh, relu, where, reverse = (
    torch.matmul, torch.dot, torch.log, torch.sigmoid, torch.tanh, torch.relu, torch.where, torch.flip,
)  # fmt: skip


class no_grad(torch.no_grad):
    """A block in which no gradients are recorded."""


# ---------------------------------------------------------------- tensors and what they are
def tensor(data: object, dtype: torch.dtype | None = None) -> Tensor:
    """Numbers as a tensor, a single number as one of length 1; a tensor stays on its device."""
    if isinstance(data, numbers.Number):
        data = [data]
    if isinstance(data, list) and data and all(isinstance(item, Tensor) and not item.dim() for item in data):
        return torch.stack(cast("list[Tensor]", data))
    return torch.as_tensor(data, dtype=dtype)


def as_scalar(data: Tensor) -> int | float | builtins.bool:
    """The number in a tensor of one."""
    return data.item()


def get_preferred_backend() -> str:
    """The library of tensors."""
    return backend_name


def is_enabled(api: str) -> builtins.bool:
    """Whether there is a function of this name."""
    return api in globals()


def cpu() -> torch.device:
    """The CPU."""
    return torch.device("cpu")


def device_type(ctx: torch.device | str | int) -> str:
    """The kind of a device: "cpu", "cuda"."""
    return torch.device(ctx).type


def device_id(ctx: torch.device | str | int) -> int:
    """The number of a device among those of its kind."""
    device = torch.device(ctx)
    number = cast("int | None", device.index)
    if number is None:
        return 0 if device.type == "cpu" else torch.cuda.current_device()
    return number


def to_backend_ctx(dglctx: torch.device | str | int) -> torch.device:
    """A device."""
    return torch.device(dglctx)


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
    """The tensor as an array, without gradient; a sparse one is written out."""
    return (input.to_dense() if input.layout != torch.strided else input).numpy(force=True)


def copy_to(input: Tensor, ctx: torch.device | str | int, **kwargs: Any) -> Tensor:
    """The tensor on a device."""
    return input.to(ctx, **kwargs)


def is_pinned(input: Tensor) -> builtins.bool:
    """Whether its memory is locked for copies to a GPU."""
    return input.is_pinned()


# ---------------------------------------------------------------- new tensors
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


def zeros_like(input: Tensor) -> Tensor:
    """Zeros, of another tensor's shape, dtype and device."""
    return torch.zeros_like(input)


def ones_like(input: Tensor) -> Tensor:
    """Ones, of another tensor's shape, dtype and device."""
    return torch.ones_like(input)


def empty(shape: Sequence[int], dtype: torch.dtype, ctx: Device) -> Tensor:
    """Memory as it is found."""
    return torch.empty(shape, dtype=dtype, device=ctx)


def randint(shape: Sequence[int], dtype: torch.dtype, ctx: Device, low: int, high: int) -> Tensor:
    """Whole random numbers from ``low`` to below ``high``."""
    return torch.randint(low, high, shape, dtype=dtype, device=ctx)


def rand_shuffle(arr: Tensor) -> Tensor:
    """The rows in a random order."""
    return arr[torch.randperm(len(arr))]


def clone(input: Tensor) -> Tensor:
    """A copy."""
    return input.clone()


def randn(shape: Sequence[int]) -> Tensor:
    """Numbers of a normal distribution."""
    return torch.randn(*shape)


def uniform(shape: Sequence[int], dtype: torch.dtype, ctx: Device, low: float, high: float) -> Tensor:
    """Numbers of a uniform distribution."""
    return torch.empty(shape, dtype=dtype, device=ctx).uniform_(low, high)


# ---------------------------------------------------------------- numbers of numbers
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


def reduce_sum(input: Tensor) -> Tensor:
    """The sum of all."""
    return input.sum()


def reduce_mean(input: Tensor) -> Tensor:
    """The mean of all."""
    return input.mean()


def reduce_max(input: Tensor) -> Tensor:
    """The largest of all."""
    return input.max()


def reduce_min(input: Tensor) -> Tensor:
    """The smallest of all."""
    return input.min()


def cumsum(input: Tensor, dim: int) -> Tensor:
    """Sums of all before and at each place."""
    return torch.cumsum(input, dim=dim)


def floor_div(in1: Tensor, in2: Tensor) -> Tensor:
    """Quotients, rounded down."""
    return in1 // in2


def exp(input: Tensor) -> Tensor:
    """The exponential of each."""
    return torch.exp(input)


def sqrt(input: Tensor) -> Tensor:
    """The root of each."""
    return torch.sqrt(input)


def inverse(input: Tensor) -> Tensor:
    """The inverse of matrices."""
    return torch.inverse(input)


def softmax(input: Tensor, dim: int = -1) -> Tensor:
    """The softmax along a dim."""
    return torch.softmax(input, dim=dim)


def clamp(data: Tensor, min_val: float, max_val: float) -> Tensor:
    """Each, kept within two bounds."""
    return torch.clamp(data, min_val, max_val)


def replace_inf_with_zero(x: Tensor) -> Tensor:
    """The tensor with zeros for infinities."""
    return torch.masked_fill(x, torch.isinf(x), 0)


def count_nonzero(input: Tensor) -> int:
    """How many are not zero."""
    return int(torch.count_nonzero(input))


def topk(input: Tensor, k: int, dim: int, descending: builtins.bool = True) -> Tensor:
    """The k largest along a dim, or the smallest."""
    return torch.topk(input, k, dim, largest=descending).values


def argtopk(input: Tensor, k: int, dim: int, descending: builtins.bool = True) -> Tensor:
    """Where the k largest along a dim stand, or the smallest."""
    return torch.topk(input, k, dim, largest=descending).indices


def unique(input: Tensor, return_inverse: builtins.bool = False, return_counts: builtins.bool = False) -> Any:
    """The different ones, sorted; those of truth values as int8."""
    kept = input.to(int8) if input.dtype == bool else input
    return torch.unique(kept, return_inverse=return_inverse, return_counts=return_counts)


def sort_1d(input: Tensor) -> tuple[Tensor, Tensor]:
    """The sorted numbers, and where each was."""
    found = torch.sort(input)
    return found.values, found.indices


def equal(x: Tensor, y: Tensor) -> Tensor:
    """Where two tensors are equal."""
    return x == y


def allclose(x: Tensor, y: Tensor, rtol: float = 1e-4, atol: float = 1e-4) -> builtins.bool:
    """Whether two tensors are nearly equal."""
    return torch.allclose(x, y, rtol=rtol, atol=atol)


def logical_not(input: Tensor) -> Tensor:
    """What is not true."""
    return ~input


def logical_and(input1: Tensor, input2: Tensor) -> Tensor:
    """What is true of both."""
    return input1 & input2


def argsort(input: Tensor, dim: int, descending: builtins.bool) -> Tensor:
    """The order that sorts a dim."""
    return torch.argsort(input, dim=dim, descending=descending)


# ---------------------------------------------------------------- rows and shapes
def stack(seq: Sequence[Tensor], dim: int = 0) -> Tensor:
    """Tensors side by side, along a new dim."""
    return torch.stack(list(seq), dim)


def split(input: Tensor, sizes_or_sections: int | list[int], dim: int) -> tuple[Tensor, ...]:
    """Parts of so many rows each."""
    return torch.split(input, sizes_or_sections, dim)


def repeat(input: Tensor, repeats: int | Tensor, dim: int) -> Tensor:
    """Each row so often."""
    return torch.repeat_interleave(input, repeats, dim)


def squeeze(input: Tensor, dim: int) -> Tensor:
    """The tensor without a dim of 1."""
    return torch.squeeze(input, dim)


def unsqueeze(input: Tensor, dim: int) -> Tensor:
    """The tensor with a dim of 1."""
    return torch.unsqueeze(input, dim)


def take(data: Tensor, indices: Tensor, dim: int) -> Tensor:
    """Rows by index, in the shape of the indices."""
    shape = (*data.shape[:dim], *indices.shape, *data.shape[dim + 1 :])
    return torch.index_select(data, dim, indices.reshape(-1)).reshape(shape)


def narrow_row(x: Tensor, start: int, stop: int) -> Tensor:
    """Rows from one to before another."""
    return x[start:stop]


def index_add_inplace(data: Tensor, row_idx: Tensor, value: Tensor) -> None:
    """Adds rows to some of a tensor's, in place."""
    data.index_add_(0, row_idx, value)


def scatter_row_inplace(data: Tensor, row_index: Tensor, value: Tensor) -> None:
    """Writes some of a tensor's rows, in place."""
    data[row_index.long()] = value


def pad_packed_tensor(input: Tensor, lengths: Tensor | Sequence[int], value: float, l_min: int | None = None) -> Tensor:
    """Rows of many sequences one after the other as (sequences, the longest, ...), ``value`` where one has ended."""
    sizes = torch.as_tensor(lengths).tolist()
    padded = pad_sequence(list(torch.split(input, sizes)), batch_first=True, padding_value=value)
    missing = builtins.max(0, (l_min or 0) - padded.shape[1])
    return torch.cat([padded, padded.new_full((len(sizes), missing, *padded.shape[2:]), value)], 1)


def pack_padded_tensor(input: Tensor, lengths: Tensor | Sequence[int]) -> Tensor:
    """(sequences, the longest, ...) as the rows of many sequences one after the other."""
    places = torch.arange(input.shape[1], device=input.device)
    return input[places < torch.as_tensor(lengths, device=input.device)[:, None]]


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
    return input[mask.to(bool)]


def nonzero_1d(input: Tensor) -> Tensor:
    """Where a vector is not zero."""
    return torch.nonzero(input).squeeze(1)


# ---------------------------------------------------------------- other libraries' arrays
def zerocopy_from_numpy(np_array: NDArray[np.generic]) -> Tensor:
    """An array as a tensor over the same memory."""
    return torch.from_numpy(np.ascontiguousarray(np_array))


def zerocopy_to_numpy(input: Tensor) -> NDArray[np.generic]:
    """A tensor as an array, over the same memory where it is on the CPU."""
    return asnumpy(input)


def zerocopy_to_dlpack(input: Tensor) -> object:
    """A tensor's memory as DLPack has it."""
    return input.contiguous().__dlpack__()


def zerocopy_from_dlpack(dlpack_tensor: object) -> Tensor:
    """A tensor over memory as DLPack has it."""
    return torch.from_dlpack(dlpack_tensor)


def zerocopy_to_dgl_ndarray(data: Tensor) -> Tensor:
    """What DGL's C functions take: here a tensor, without gaps, truth values as bytes."""
    return (data.byte() if data.dtype == bool else data).contiguous()


def zerocopy_to_dgl_ndarray_for_write(input: Tensor) -> Tensor:
    """The same, of a tensor that is all of its memory, so that what is written there is seen.

    Raises:
        FeatureError: it is a view, or has gaps.
    """
    whole = input.is_contiguous() and input.data_ptr() == input.untyped_storage().data_ptr()
    if input.numel() and not whole:
        raise FeatureError(f"a view of {tuple(input.shape)} cannot be written through", cure="give x.clone()")
    return zerocopy_to_dgl_ndarray(input)


def zerocopy_from_dgl_ndarray(data: Tensor) -> Tensor:
    """The tensor itself."""
    return data


to_dgl_nd, from_dgl_nd = zerocopy_to_dgl_ndarray, zerocopy_from_dgl_ndarray


# ---------------------------------------------------------------- gradients
def attach_grad(x: Tensor) -> Tensor:
    """The same tensor, which gets a gradient; one that it has becomes zero."""
    if x.grad is None:
        return x.requires_grad_()
    x.grad.zero_()
    return x


def backward(x: Tensor, head_gradient: Tensor | None = None) -> None:
    """Computes gradients; of a single number ``head_gradient`` may have one row."""
    given = head_gradient is not None and tuple(head_gradient.shape) == (1,)
    x.backward(head_gradient.reshape(x.shape) if given and head_gradient is not None else head_gradient)


def grad(x: Tensor) -> Tensor | None:
    """A tensor's gradient."""
    return x.grad


def is_no_grad(x: Tensor) -> builtins.bool:
    """Whether there is no gradient, or one of zeros."""
    return x.grad is None or not builtins.bool((x.grad != 0).any())


def is_recording() -> builtins.bool:
    """Whether gradients are recorded."""
    return torch.is_grad_enabled()


class record_grad:
    """A block in which gradients are recorded, as they are everywhere."""

    def __enter__(self) -> None:
        """Nothing is to be done."""

    def __exit__(self, exc_type: object, exc_value: object, exc_traceback: object) -> None:
        """Nothing is to be undone."""


def sync() -> None:
    """Nothing: torch waits by itself."""
