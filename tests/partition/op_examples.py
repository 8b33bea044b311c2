"""One op each, with tensors: every described operator in the shapes that partition it."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from vgraph.ir.program import Op, Value, map_leaves
from vgraph.ir.space import SHARED

aten = torch.ops.aten


@dataclass(frozen=True, eq=False)
class OpExample:
    """An op and the tensors of its operands, by value id."""

    op: Op
    given: dict[int, Tensor]

    def __str__(self) -> str:
        shapes = "x".join(str(tuple(v.shape)) for v in self.op.operands())
        return f"{self.op.target}{shapes}"


def example(target: Any, *args: Any, **kwargs: Any) -> OpExample:
    """An op as it is called on these tensors."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".* is in beta")  # as some releases of torch say of index_reduce
        found = target(*args, **kwargs)
    many = isinstance(found, (tuple, list))
    given: dict[int, Tensor] = {}

    def value(tensor: Tensor | None) -> Value:
        if tensor is None:
            return Value(1000 + len(given), SHARED, torch.float64, (0,))
        return Value(len(given), SHARED, tensor.dtype, tuple(tensor.shape))

    def swap(leaf: Any) -> Any:
        if not isinstance(leaf, Tensor):
            return leaf
        made = value(leaf)
        given[made.id] = leaf
        return made

    mapped = map_leaves(args, swap)
    named = {key: map_leaves(leaf, swap) for key, leaf in kwargs.items()}
    results: list[Value] = []
    for number, tensor in enumerate(found if many else [found]):
        shape, dtype = ((0,), torch.float64) if tensor is None else (tuple(tensor.shape), tensor.dtype)
        results.append(Value(100 + number, SHARED, dtype, shape))
    return OpExample(Op(target, mapped, named, tuple(results), "", many), given)


def r(*shape: int) -> Tensor:
    return torch.rand(shape, dtype=torch.float64) * 0.8 + 0.1


def ids(most: int, *shape: int) -> Tensor:
    return torch.randint(0, most, shape)


def all_examples() -> Iterator[OpExample]:
    yield from _contractions()
    yield from _views()
    yield from _reductions()
    yield from _indexing()
    yield from _layers()
    yield from _planes()
    yield from _matrices()
    yield from _pointwise()


def _contractions() -> Iterator[OpExample]:
    yield example(aten.mm.default, r(4, 8), r(8, 12))
    yield example(aten.bmm.default, r(4, 6, 8), r(4, 8, 2))
    yield example(aten.mv.default, r(4, 8), r(8))
    yield example(aten.dot.default, r(8), r(8))
    yield example(aten.vdot.default, torch.complex(r(8), r(8)), torch.complex(r(8), r(8)))
    yield example(aten.addmm.default, r(12), r(4, 8), r(8, 12))
    yield example(aten.addmm.default, r(4, 12), r(4, 8), r(8, 12), alpha=2)
    yield example(aten.baddbmm.default, r(4, 6, 2), r(4, 6, 8), r(4, 8, 2))
    yield example(aten.addmv.default, r(4), r(4, 8), r(8))


def _views() -> Iterator[OpExample]:
    x = r(4, 8, 6)
    yield example(aten.reshape.default, x, [32, 6])
    yield example(aten.reshape.default, x, [4, 2, 4, 6])
    yield example(aten.reshape.default, r(4, 48), [4, 2, 4, 6])
    yield example(aten.reshape.default, r(4, 12), [8, 6])
    yield example(aten.reshape.default, r(8, 2, 6), [4, 24])
    yield example(aten.reshape.default, r(4, 6), [6, 4])
    yield example(aten.view.default, r(8, 6), [4, 2, 6])
    yield example(aten.view.dtype, r(4, 8), torch.int64)
    yield example(aten.view.dtype, r(4, 8), torch.int32)
    yield example(aten.permute.default, x, [2, 0, 1])
    yield example(aten.transpose.int, x, 0, -1)
    yield example(aten.t.default, r(4, 8))
    yield example(aten.expand.default, r(4, 1, 6), [4, 8, 6])
    yield example(aten.unsqueeze.default, r(4, 8), 1)
    yield example(aten.squeeze.dims, r(4, 1, 8), [1])
    yield example(aten.view_as_real.default, torch.complex(r(4, 8), r(4, 8)))
    yield example(aten.view_as_complex.default, r(4, 8, 2))
    yield example(aten.repeat.default, r(4, 8), [2, 3])
    yield example(aten.slice.Tensor, x, 1, 2, 6)
    yield example(aten.slice.Tensor, x, 1, 4, 8)
    yield example(aten.slice.Tensor, r(4, 17), 1, 1, 17, 2)
    yield example(aten.slice_backward.default, r(4, 4, 6), [4, 8, 6], 1, 2, 6, 1)
    yield example(aten.slice_backward.default, r(4, 8), [4, 16], 1, 0, 16, 2)
    yield example(aten.slice_backward.default, r(4, 3), [4, 8], -1, -7, 8, 3)
    yield example(aten.slice_backward.default, r(1, 6), [8, 6], 0, 1, 4, 4)
    yield example(aten.slice_backward.default, r(4, 4, 6), [4, 8, 6], -2, 2, 6, 1)
    yield example(aten.select.int, x, 1, 3)
    yield example(aten.select_backward.default, r(4, 6), [4, 8, 6], 1, 3)
    yield example(aten.split.Tensor, x, 4, 1)
    yield example(aten.split_with_sizes.default, x, [3, 5], 1)
    yield example(aten.unbind.int, x, 1)
    yield example(aten.cat.default, [x, r(4, 4, 6), r(4, 12, 6)], 1)
    yield example(aten.cat.default, [r(4, 8), r(4, 8), r(4, 8), r(4, 8)], 1)
    yield example(aten.stack.default, [r(4, 6), r(4, 6)], 1)
    yield example(aten.constant_pad_nd.default, x, [1, 1, 2, 2], 0.0)
    yield example(aten.constant_pad_nd.default, x, [0, 0, -2, 0], 0.0)
    yield example(aten.slice_scatter.default, x, r(4, 4, 6), 1, 2, 6)
    yield example(aten.select_scatter.default, x, r(4, 6), 1, 3)


def _reductions() -> Iterator[OpExample]:
    x = r(4, 8, 6)
    for op in (aten.sum.dim_IntList, aten.mean.dim, aten.amax.default, aten.amin.default):
        yield example(op, x, [1], True)
        yield example(op, x, [0, 2], False)
    yield example(aten.sum.default, x)
    yield example(aten.mean.default, x)
    yield example(aten.prod.dim_int, x, 1)
    yield example(aten.any.dim, x > 0.5, 1)
    yield example(aten.all.dim, x > 0.2, 1)
    yield example(aten.max.dim, x, 1)
    yield example(aten.argmax.default, x, 1)
    yield example(aten.logsumexp.default, x, [1])
    yield example(aten.var_mean.correction, x, [1], correction=1)
    yield example(aten.linalg_vector_norm.default, x, 2, [1])
    yield example(aten._softmax.default, x, 1, False)
    yield example(aten._log_softmax.default, x, -1, False)
    yield example(aten.cumsum.default, x, 1)
    yield example(aten.flip.default, x, [1])
    yield example(aten._fft_r2c.default, x, [1], 0, True)
    yield example(aten._fft_c2r.default, torch.complex(r(4, 5, 6), r(4, 5, 6)), [1], 2, 8)
    yield example(aten._fft_c2c.default, torch.complex(x, x), [0, 1], 0, True)
    yield example(aten.sort.default, x, 1)
    yield example(aten.topk.default, x, 2, 1)


def _indexing() -> Iterator[OpExample]:
    yield example(aten.embedding.default, r(8, 6), ids(8, 4, 2))
    yield example(aten.embedding_dense_backward.default, r(4, 2, 6), ids(8, 4, 2), 8, -1, False)
    yield example(aten.embedding_dense_backward.default, r(4, 2, 6), ids(8, 4, 2), 8, 5, False)
    yield example(aten.gather.default, r(4, 8), 1, ids(8, 4, 1))
    yield example(aten.gather.default, r(8, 6), 0, ids(8, 4, 6))
    yield example(aten.gather.default, r(4, 8), 1, ids(8, 2, 4))
    yield example(aten.scatter.value, r(4, 8), 1, ids(8, 4, 1), -1.0)
    yield example(aten.scatter.src, r(4, 8), 1, torch.tensor([[1], [7], [0], [3]]), r(4, 1))
    yield example(aten.scatter_add.default, r(4, 8), 1, ids(8, 4, 6), r(4, 6))
    yield example(aten.index_select.default, r(4, 8), 1, ids(8, 6))
    yield example(aten.index.Tensor, r(4, 8), [None, ids(8, 6)])
    yield example(aten.index.Tensor, r(4, 8, 6), [None, ids(8, 2, 1), ids(6, 4)])
    yield example(aten.index.Tensor, r(4, 8, 6), [ids(4, 2), None, ids(6, 2)])
    yield example(aten.index_put.default, r(4, 8, 6), [None, ids(8, 2), ids(6, 2)], r(4, 2), True)
    yield example(aten.index_put.default, r(4, 8), [ids(4, 6)], r(6, 8), True)
    yield example(aten.index_add.default, r(4, 8), 1, ids(8, 6), r(4, 6))


def _layers() -> Iterator[OpExample]:
    x, w = r(4, 6, 8, 8), r(4, 6, 3, 3)
    plain: tuple[Any, ...] = (False, [0, 0], 1)
    yield example(aten.convolution.default, x, w, r(4), [1, 1], [1, 1], [1, 1], *plain)
    yield example(aten.convolution.default, x, w, None, [2, 2], [1, 1], [1, 1], *plain)
    yield example(aten.convolution.default, x, r(4, 6, 1, 1), None, [2, 2], [0, 0], [1, 1], *plain)
    yield example(aten.convolution.default, r(2, 2, 12, 4), r(2, 2, 3, 1), None, [1, 1], [2, 0], [2, 1], *plain)
    yield example(aten.convolution.default, x, r(8, 3, 3, 3), r(8), [1, 1], [1, 1], [1, 1], False, [0, 0], 2)
    yield example(aten.convolution.default, r(4, 6, 9), r(2, 6, 2), None, [1], [0], [1], False, [0], 1)
    g = r(4, 4, 8, 8)
    for mask in ([True, True, True], [False, True, False], [True, False, False]):
        yield example(aten.convolution_backward.default, g, x, w, [4], [1, 1], [1, 1], [1, 1], False, [0, 0], 1, mask)
    yield example(
        aten.convolution_backward.default, r(4, 8, 8, 8), x, r(8, 3, 3, 3), [8], [1, 1], [1, 1], [1, 1], False, [0, 0],
        2, [True, True, True],
    )  # fmt: skip
    yield from _transposed(x)
    yield example(aten.avg_pool2d.default, x, [2, 2], [2, 2])
    yield example(aten.avg_pool2d_backward.default, r(4, 6, 4, 4), x, [2, 2], [2, 2], [0, 0], False, True, None)
    yield example(aten.max_pool2d_with_indices.default, x, [3, 3], [2, 2], [1, 1])
    indices = aten.max_pool2d_with_indices(x, [2, 2], [2, 2])[1]
    yield example(
        aten.max_pool2d_with_indices_backward.default, r(4, 6, 4, 4), x, [2, 2], [2, 2], [0, 0], [1, 1], False, indices
    )
    yield example(aten.upsample_nearest2d.default, x, [16, 12])
    yield example(aten.upsample_bilinear2d_backward.default, r(4, 6, 16, 12), [16, 12], [4, 6, 8, 8], False)
    y = r(4, 8, 6)
    yield example(aten.native_layer_norm.default, y, [6], r(6), r(6), 1e-5)
    mean, scale = aten.native_layer_norm(y, [6], None, None, 1e-5)[1:]
    yield example(
        aten.native_layer_norm_backward.default, r(4, 8, 6), y, [6], mean, scale, r(6), r(6), [True, True, True]
    )
    yield example(aten.native_batch_norm.default, x, r(6), r(6), r(6), r(6), False, 0.1, 1e-5)


def _transposed(x: Tensor) -> Iterator[OpExample]:
    """Transposed convolutions and their gradients, with groups."""
    w, up = r(6, 4, 4, 4), ([2, 2], [1, 1], [1, 1], True, [0, 0])
    yield example(aten.convolution.default, x, w, r(4), *up, 1)
    yield example(aten.convolution.default, x, r(6, 2, 3, 3), None, [2, 2], [1, 1], [1, 1], True, [1, 1], 2)
    yield example(aten.convolution.default, r(2, 6, 5), r(6, 4, 3), None, [1], [0], [2], True, [0], 1)
    g, pair = r(4, 4, 16, 16), r(6, 2, 4, 4)
    yield example(aten.convolution_backward.default, g, x, w, [4], *up, 1, [True, True, True])
    yield example(aten.convolution_backward.default, g, x, pair, None, *up, 2, [True, True, False])


def _planes() -> Iterator[OpExample]:
    """Pooling, padding, windows and samples, with their gradients."""
    x, deep = r(4, 6, 8, 8), r(4, 6, 4, 4, 4)
    for target, given, made in (
        (aten.adaptive_max_pool2d, x, [2, 2]),
        (aten.adaptive_max_pool3d, deep, [2, 2, 2]),
        (aten.max_pool3d_with_indices, deep, [2, 2, 2]),
    ):
        yield example(target.default, given, made)
        largest, indices = target(given, made)
        sizes = ([2] * 3, [2] * 3, [0] * 3, [1] * 3, False) if "indices" in str(target) else ()
        backward = getattr(aten, f"{target.__name__}_backward")
        yield example(backward.default, torch.rand_like(largest), given, *sizes, indices)
    yield example(aten.avg_pool3d.default, deep, [2, 2, 2], [2, 2, 2])
    sizes = ([2] * 3, [2] * 3, [0] * 3, False, True, None)
    yield example(aten.avg_pool3d_backward.default, r(4, 6, 2, 2, 2), deep, *sizes)
    yield example(aten._adaptive_avg_pool3d.default, deep, [2, 2, 2])
    yield example(aten._adaptive_avg_pool3d_backward.default, r(4, 6, 2, 2, 2), deep)
    yield example(aten.max_unpool2d.default, *aten.max_pool2d_with_indices(x, [2, 2]), [8, 8])
    for given in (r(4, 6, 8), x, deep):
        space = given.dim() - 2
        for kind in ("reflection", "replication"):
            target = getattr(aten, f"{kind}_pad{space}d")
            yield example(target.default, given, [1] * 2 * space)
            grad = torch.rand_like(target(given, [1] * 2 * space))
            yield example(getattr(aten, f"{kind}_pad{space}d_backward").default, grad, given, [1] * 2 * space)
    yield example(aten.im2col.default, x, [3, 3], [1, 1], [1, 1], [2, 2])
    yield example(aten.im2col.default, r(6, 8, 8), [2, 2], [1, 1], [0, 0], [1, 1])
    yield example(aten.col2im.default, r(4, 24, 9), [4, 4], [2, 2], [1, 1], [0, 0], [1, 1])
    yield example(aten.unfold.default, r(4, 8, 6), 1, 4, 2)
    yield example(aten.unfold_backward.default, r(4, 3, 6, 4), [4, 8, 6], 1, 4, 2)
    for given in (x, deep):
        name, rank = f"grid_sampler_{given.dim() - 2}d", given.dim() - 2
        grid = r(4, *([4] * rank), rank)
        yield example(getattr(aten, name).default, given, grid, 0, 0, False)
        backward = getattr(aten, f"{name}_backward").default
        for mask in ([True, True], [False, True]):
            yield example(backward, r(4, 6, *([4] * rank)), given, grid, 0, 0, True, mask)
    yield example(aten.affine_grid_generator.default, r(4, 2, 3), [4, 6, 8, 8], False)
    yield example(aten.pixel_shuffle.default, r(2, 16, 4, 6), 2)
    yield example(aten.pixel_unshuffle.default, r(2, 4, 8, 12), 2)
    yield example(aten.channel_shuffle.default, r(4, 8, 4, 4), 2)
    yield example(aten._upsample_nearest_exact2d_backward.default, r(4, 6, 16, 12), [16, 12], [4, 6, 8, 8])
    yield example(aten._upsample_bilinear2d_aa.default, x, [4, 4], False)


def _matrices() -> Iterator[OpExample]:
    """Matrices one at a time, distances, diagonals, and what picks along a dim."""
    x = r(4, 2, 3, 3)
    square = x @ x.mT + torch.eye(3, dtype=torch.float64)
    yield example(aten.linalg_cholesky_ex.default, square)
    yield example(aten.linalg_inv_ex.default, square)
    yield example(aten._linalg_solve_ex.default, square, r(4, 2, 3, 2))
    yield example(aten._linalg_solve_ex.default, square, r(4, 2, 3))
    yield example(aten.linalg_lu_solve.default, *aten.linalg_lu_factor_ex(square)[:2], r(4, 2, 3, 2))
    yield example(aten.linalg_solve_triangular.default, square, r(4, 2, 3, 2), upper=True)
    for target in (
        aten.linalg_lu_factor_ex, aten.linalg_matrix_exp, aten.linalg_qr, aten._linalg_eigh, aten._linalg_svd
    ):  # fmt: skip
        yield example(target.default, square)
    yield example(aten._linalg_eigh.default, square, compute_v=False)
    yield example(aten._linalg_svd.default, square, compute_uv=False)
    for target in (aten._linalg_det, aten._linalg_slogdet, aten.tril, aten.triu):
        yield example(target.default, square)
    yield example(aten._cdist_forward.default, r(4, 6), r(8, 6), 1.0, None)
    for p in (2.0, 3.0):
        points, others = r(2, 4, 6), r(2, 8, 6)
        apart = aten._cdist_forward(points, others, p, None)
        yield example(aten._cdist_forward.default, points, others, p, None)
        yield example(aten._cdist_backward.default, r(2, 4, 8), points, others, p, apart)
    yield example(aten._euclidean_dist.default, r(4, 6), r(8, 6))
    yield example(aten.diagonal.default, r(4, 6, 6), 1, -2, -1)
    yield example(aten.diagonal.default, r(6, 6, 4))
    yield example(aten.diagonal_backward.default, r(4, 5), [4, 6, 6], 1, 1, 2)
    yield example(aten.diagonal_scatter.default, r(4, 6, 6), r(4, 5), 1, -2, -1)
    yield example(aten.diag_embed.default, r(4, 6))
    yield example(aten.cummax.default, r(4, 8), 1)
    yield example(aten.cummin.default, r(4, 8), -2)
    yield example(aten.kthvalue.default, r(4, 8), 2, 1)
    yield example(aten.mode.default, r(4, 8), 1, True)
    yield example(aten.nanmedian.dim, r(4, 8), 1)
    yield example(aten.scatter_reduce.two, r(4, 8), 1, ids(8, 4, 6), r(4, 6), "amax")
    yield example(aten.scatter_reduce.two, r(8, 4), 0, ids(8, 6, 4), r(6, 4), "mean", include_self=False)
    yield example(aten.index_reduce.default, r(4, 8), 1, ids(8, 6), r(4, 6), "amin")
    yield example(aten.bucketize.Tensor, -r(4, 8).abs(), torch.tensor([0.2, 0.5]).double())


def _pointwise() -> Iterator[OpExample]:
    x, y = r(4, 8), r(4, 8)
    yield example(aten.add.Tensor, x, r(8), alpha=2)
    yield example(aten.sub.Tensor, x, y)
    yield example(aten.mul.Tensor, x, r(4, 1))
    yield example(aten.div.Tensor, x, 3.0)
    yield example(aten.where.self, x > 0.5, x, r(1, 8))
    yield example(aten.tanh.default, x)
    yield example(aten.gelu.default, x)
    yield example(aten.threshold_backward.default, x, y, 0.95)
    yield example(aten.addcmul.default, x, y, r(4, 1), value=0.5)
    yield example(aten.lerp.Scalar, x, y, 0.3)
    yield example(aten._to_copy.default, x, dtype=torch.float32)
    yield example(aten.zeros_like.default, x)
    yield example(aten.full_like.default, x, 3.0)
    yield example(aten.fill.Scalar, x, 2.0)
    yield example(aten.new_zeros.default, x, [6, 4])
    yield example(aten.full.default, [4, 8], 2.0, dtype=torch.float64)
    yield example(aten.neg.default, x)
