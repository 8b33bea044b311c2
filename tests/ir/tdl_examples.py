"""Examples of every operator of the TDL table, on rows of vertices."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tests.ir.plane_examples import plane_examples

aten = torch.ops.aten
D = 4
Function = Callable[..., Any]


@dataclass(frozen=True)
class Example:
    """A function of rows (vertices, *shape) and of whole numbers (vertices,) below D."""

    function: Function
    shapes: tuple[tuple[int, ...], ...] = ((D,),)


def rows(function: Function, *shapes: tuple[int, ...]) -> Example:
    return Example(function, shapes or ((D,),))


W = torch.randn(D, D, dtype=torch.float64)
B = torch.randn(D, dtype=torch.float64)
IDS = torch.tensor([2, 0, 2])
ONE = torch.ones((), dtype=torch.float64)
KERNEL = torch.randn(2, 3, 2, dtype=torch.float64)


def grid(x: Tensor) -> Tensor:
    return (x * 3).long() % D


def fourier(x: Tensor, dim: int) -> Tensor:
    """There and back, with a step among complex numbers."""
    found = aten._fft_c2c(aten._fft_r2c(x, [dim], 0, True), [dim], 0, True)
    return aten._fft_c2r(found, [dim], 2, x.shape[dim])


SIZES = {1: (2, 3), 2: (2, 3, 4), 3: (2, 3, 4, 5)}


def resampled(x: Tensor, name: str, rank: int, *options: bool) -> Tensor:
    """There, and as a gradient back."""
    size = [6] * rank
    made = getattr(aten, f"upsample_{name}")(x, size, *options)
    return getattr(aten, f"upsample_{name}_backward")(made, size, list(x.shape), *options)


def pooled_back(x: Tensor) -> Tensor:
    found, at = aten.max_pool2d_with_indices(x, [2, 2])
    return aten.max_pool2d_with_indices_backward(found, x, [2, 2], [2, 2], [0, 0], [1, 1], False, at)


EXAMPLES: dict[str, Example] = {
    "mm": rows(lambda x: aten.mm(x, W)),
    "mm of rows with rows": rows(lambda x, y: aten.mm(x.t(), y), (3,), (D,)),
    "mm of vertices by vertices": rows(lambda x: aten.mm(x, x.t())),
    "addmm": rows(lambda x: aten.addmm(B, x, W)),
    "addmm over rows": rows(lambda x, y: aten.addmm(W, x.t(), y), (D,), (D,)),
    "bmm": rows(aten.bmm, (2, 3), (3, 2)),
    "bmm over rows": rows(lambda x, y: aten.bmm(x.permute(1, 2, 0), y.permute(1, 0, 2)), (2, 3), (2, 3)),
    "baddbmm": rows(lambda x, y: aten.baddbmm(x[:, :2, :2], x, y), (2, 3), (3, 2)),
    "mv": rows(lambda x: aten.mv(x, B)),
    "addmv": rows(lambda x, y: aten.addmv(y, x, B), (D,), ()),
    "dot": rows(lambda x: aten.dot(x, x), ()),
    "vdot": rows(lambda x: aten.vdot(x, x), ()),
    **{
        f"{name} {dim}": rows(lambda x, name=name, dim=dim: getattr(aten, name)(x, *dim), (3, D))
        for name in ("sum", "mean", "amax", "amin", "logsumexp", "nansum")
        for dim in (([1],), ([0],), ([1, 2],), ([0, 2], True))
    },
    **{
        f"{name} of all": rows(lambda x, name=name: getattr(aten, name)(x), (3,))
        for name in ("sum", "mean", "prod", "any", "all", "max", "min", "median", "argmax", "nansum")
    },
    **{
        f"{name} {dim}": rows(lambda x, name=name, dim=dim: getattr(aten, name)(x, dim), (3,))
        for name in ("prod", "any", "all", "max", "min", "argmax", "argmin", "median")
        for dim in (0, 1)
    },
    **{
        f"{name} {dim}": rows(
            lambda x, name=name, dim=dim: getattr(aten, name).correction(x, [dim], correction=1), (3,)
        )
        for name in ("var", "std", "var_mean", "std_mean")
        for dim in (0, 1)
    },
    "norm of rows": rows(lambda x: aten.norm.ScalarOpt_dim(x, 2, [0])),
    "norm of features": rows(lambda x: aten.norm.ScalarOpt_dim(x, 2, [1])),
    "vector norm of features": rows(lambda x: aten.linalg_vector_norm(x, 2, [1])),
    "vector norm of rows": rows(lambda x: aten.linalg_vector_norm(x, 3, [0], True)),
    **{
        f"{name} {dim}": rows(lambda x, name=name, dim=dim, e=e: getattr(aten, name)(x, dim, *e), (D,))
        for name, e in (
            ("_softmax", (False,)), ("_log_softmax", (False,)), ("_safe_softmax", ()),
            ("cumsum", ()), ("cumprod", ()), ("logcumsumexp", ()), ("sort", ()), ("glu", ()),
        )
        for dim in (0, 1) if (name, dim) != ("glu", 0)
    },
    **{
        f"fft {dim}": rows(lambda x, dim=dim: fourier(x, dim), (3, D))
        for dim in (1, 2)
    },
    **{
        f"{name} at another size": rows(
            lambda x, name=name, rank=rank, options=options: resampled(x, name, rank, *options), SIZES[rank]
        )
        for name, rank, options in (
            ("nearest1d", 1, ()), ("nearest2d", 2, ()), ("nearest3d", 3, ()), ("linear1d", 1, (False,)),
            ("bilinear2d", 2, (True,)), ("bicubic2d", 2, (False,)), ("trilinear3d", 3, (False,)),
        )
    },
    "parts of complex numbers": rows(lambda x: aten.view_as_real(aten.view_as_complex(x)), (3, 2)),
    "bits as another dtype": rows(lambda x: aten.view.dtype(x, torch.int64)),
    "bits as a smaller dtype": rows(lambda x: aten.view.dtype(x, torch.int16)),
    "flip": rows(lambda x: aten.flip(x, [1])),
    "flip of rows": rows(lambda x: aten.flip(x, [0])),
    "roll": rows(lambda x: aten.roll(x, [1], [1])),
    "roll of rows": rows(lambda x: aten.roll(x, [1], [0])),
    "softmax backward": rows(lambda x, y: aten._softmax_backward_data(x, y, 1, torch.float64), (D,), (D,)),
    "log_softmax backward": rows(
        lambda x, y: aten._log_softmax_backward_data(x, y, 1, torch.float64), (D,), (D,)
    ),
    "glu backward": rows(lambda x, y: aten.glu_backward(y, x, 1), (D,), (D // 2,)),
    "topk": rows(lambda x: aten.topk(x, 2)),
    "topk of rows": rows(lambda x: aten.topk(x, 2, 0)),
    "view apart": rows(lambda x: aten.view(x, [-1, 2, 2])),
    "view together": rows(lambda x: aten.view(x, [-1]), (2, 3)),
    "view anew": rows(lambda x: aten.view(x, [x.shape[0], 2, 6]), (3, 4)),
    "view across": rows(lambda x: aten.view(x, [4, -1])),
    "view with ones": rows(lambda x: aten.view(x, [-1, 1, D, 1])),
    "squeeze": rows(lambda x: aten.squeeze.dim(x, 1), (1, D)),
    "slice": rows(lambda x: aten.slice(x, 1, 1, 3)),
    "slice of rows": rows(lambda x: aten.slice(x, 0, 1, 3)),
    "slice of all": rows(lambda x: aten.slice(x, 0, 0, 2**63 - 1)),
    "select": rows(lambda x: aten.select(x, 1, 2)),
    "select of rows": rows(lambda x: aten.select(x, 0, 2)),
    "unbind": rows(lambda x: aten.unbind(x, 1)),
    "split": rows(lambda x: aten.split(x, 2, 1)),
    "split_with_sizes": rows(lambda x: aten.split_with_sizes(x, [1, 3], 1)),
    "unsafe_split": rows(lambda x: aten.unsafe_split(x, 2, 1)),
    "unsafe_split_with_sizes": rows(lambda x: aten.unsafe_split_with_sizes(x, [1, 3], 1)),
    "slice_backward": rows(lambda x: aten.slice_backward(x, [x.shape[0], 6], 1, 1, 5, 1)),
    "select_backward": rows(lambda x: aten.select_backward(x, [x.shape[0], 3, D], 1, 1)),
    "slice_scatter": rows(lambda x, y: aten.slice_scatter(x, y, 1, 1, 3), (D,), (2,)),
    "select_scatter": rows(lambda x, y: aten.select_scatter(x, y, 1, 1), (D,), ()),
    "t": rows(aten.t),
    "permute": rows(lambda x: aten.permute(x, [2, 0, 1]), (3, D)),
    "transpose": rows(lambda x: aten.transpose(x, 0, 1), (3, D)),
    "expand": rows(lambda x: aten.expand(x, [x.shape[0], 3, D]), (1, D)),
    "expand of one": rows(lambda x: aten.expand(B, [x.shape[0], D])),
    "repeat": rows(lambda x: aten.repeat(x, [1, 2])),
    "repeat of ones": rows(lambda x: aten.repeat(x, [1, 3, 1]), (1, D)),
    "repeat of rows": rows(lambda x: aten.repeat(x, [2, 1])),
    "unsqueeze": rows(lambda x: aten.unsqueeze(x, 0)),
    "cat": rows(lambda x, y: aten.cat([x, y], 1), (3,), (D,)),
    "cat of rows": rows(lambda x: aten.cat([x, x])),
    "stack": rows(lambda x: aten.stack([x, x], 1)),
    "pad": rows(lambda x: aten.constant_pad_nd(x, [1, 2], 0.5)),
    "gather": rows(lambda x: aten.gather(x, 1, grid(x))),
    "gather of rows": rows(lambda x: aten.gather(x, 0, grid(x))),
    "scatter": rows(lambda x: aten.scatter.value(x, 1, grid(x), 0.5)),
    "scatter_add": rows(lambda x, y: aten.scatter_add(x, 1, grid(y), y), (D,), (D,)),
    "scatter_add of rows": rows(lambda x, y: aten.scatter_add(x, 0, grid(y), y), (D,), (D,)),
    "embedding": rows(lambda x: aten.embedding(W, grid(x))),
    "embedding of rows": rows(lambda x: aten.embedding(x, IDS)),
    "embedding backward": rows(
        lambda x, y: aten.embedding_dense_backward(y, grid(x), D, -1, False), (), (D,)
    ),
    "embedding backward by frequency": rows(
        lambda x, y: aten.embedding_dense_backward(y, grid(x), D, -1, True), (), (D,)
    ),
    "index of a table": rows(lambda x: aten.index(W, [grid(x)])),
    "index of features": rows(lambda x: aten.index(x, [None, IDS])),
    "index of rows": rows(lambda x: aten.index(x, [IDS])),
    "index_put to a table": rows(
        lambda x, y: aten.index_put(torch.zeros_like(W), [grid(x)], y, True), (), (D,)
    ),
    "index_put to features": rows(
        lambda x, y: aten.index_put(x, [None, IDS], y, True), (D,), (3,)
    ),
    "_index_put_impl": rows(lambda x, y: aten._index_put_impl(x, [None, IDS], y, True), (D,), (3,)),
    "index_select": rows(lambda x: aten.index_select(x, 1, IDS)),
    "index_select of rows": rows(lambda x: aten.index_select(x, 0, IDS)),
    "index_select of a table": rows(lambda x: aten.index_select(W, 0, grid(x)), ()),
    "index_add": rows(lambda x, y: aten.index_add(x, 1, IDS, y), (D,), (3,)),
    "index_add of rows": rows(lambda x, y: aten.index_add(W, 0, grid(x), y), (), (D,)),
    "layer norm": rows(lambda x: aten.native_layer_norm(x, [D], B, B, 1e-5), (3, D)),
    "layer norm over slots": rows(lambda x: aten.native_layer_norm(x, [3, D], None, None, 1e-5), (3, D)),
    "layer norm backward": rows(
        lambda x, y: aten.native_layer_norm_backward(
            y, x, [D], *aten.native_layer_norm(x, [D], B, B, 1e-5)[1:], B, B, [True, True, True]
        ),
        (3, D), (3, D),
    ),
    "layer norm backward of the input": rows(
        lambda x, y: aten.native_layer_norm_backward(
            y, x, [D], *aten.native_layer_norm(x, [D], B, B, 1e-5)[1:], B, B, [True, False, False]
        ),
        (D,), (D,),
    ),
    "batch norm in eval": rows(
        lambda x: aten.native_batch_norm(x, B, B, B, B.abs(), False, 0.1, 1e-5)
    ),
    "batch norm in training": rows(
        lambda x: aten.native_batch_norm(x, B, B, None, None, True, 0.1, 1e-5)
    ),
    "batch norm backward": rows(
        lambda x, y: aten.native_batch_norm_backward(
            y, x, B, B, B.abs(), None, None, False, 1e-5, [True, True, True]
        ), (D,), (D,),
    ),
    "convolution": rows(
        lambda x: aten.convolution(x, KERNEL, None, [1], [0], [1], False, [0], 1), (3, 5)
    ),
    "convolution in groups": rows(
        lambda x: aten.convolution(x, KERNEL[:, :1], None, [1], [0], [1], False, [0], 2), (2, 5)
    ),
    "average pool": rows(lambda x: aten.avg_pool2d(x, [2, 2]), (2, 4, 4)),
    "average pool backward": rows(
        lambda g, x: aten.avg_pool2d_backward(g, x, [2, 2], [2, 2], [0, 0], False, True, None), (2, 2, 2), (2, 4, 4)
    ),
    "maximum pool and its backward": rows(lambda x: pooled_back(x), (2, 4, 4)),
    "adaptive pool": rows(lambda x: aten._adaptive_avg_pool2d(x, [3, 2]), (2, 4, 4)),
    "adaptive pool backward": rows(aten._adaptive_avg_pool2d_backward, (2, 3, 2), (2, 4, 4)),
    "convolution with bias": rows(
        lambda x: aten.convolution(x, KERNEL, B[:2], [1], [1], [1], False, [0], 1), (3, 5)
    ),
    "convolution transposed": rows(
        lambda x: aten.convolution(x, KERNEL, None, [1], [0], [1], True, [0], 1), (2, 5)
    ),
    "convolution backward": rows(
        lambda x, y: aten.convolution_backward(
            y, x, KERNEL, [2], [1], [0], [1], False, [0], 1, [True, True, True]
        ),
        (3, 5), (2, 4),
    ),
    **{
        f"{name} reduction {kind}": rows(
            lambda x, y, name=name, kind=kind: getattr(aten, name)(x, y, kind), (D,), (D,)
        )
        for name in ("mse_loss", "huber_loss", "smooth_l1_loss")
        for kind in (0, 1, 2)
    },
    **{
        f"mse_loss_backward {kind}": rows(
            lambda x, y, kind=kind: aten.mse_loss_backward(ONE, x, y, kind), (D,), (D,)
        )
        for kind in (0, 1, 2)
    },
    **{
        name: rows(lambda x, name=name: getattr(aten, name)([x.shape[0], 2]))
        for name in ("zeros", "ones", "empty")
    },
    "full": rows(lambda x: aten.full([x.shape[0], 2], 0.5)),
    "full of a count": rows(lambda x: aten.full([2], float(3)) * x.shape[0]),
    **{
        name: rows(lambda x, name=name: getattr(aten, name)(x, [x.shape[0], 2]))
        for name in ("new_zeros", "new_ones", "new_empty")
    },
    "new_full": rows(lambda x: aten.new_full(x, [x.shape[0], 2], 0.5)),
    "broadcast of a column": rows(aten.add, (D,), (1,)),
    "broadcast of rows over rows": rows(lambda x: aten.mul(x.view(-1, 1), x), ()),
    "number of rows": rows(lambda x: aten.div(x, x.shape[0])),
    **{name: rows(function, *shapes) for name, (function, shapes) in plane_examples()},
}  # fmt: skip
