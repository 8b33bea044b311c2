"""Examples of operators that mix the last dims, planes or matrices, on rows of vertices."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from vgraph.ir.program import Op, op_name

aten = torch.ops.aten
Called = tuple[Callable[..., Any], tuple[tuple[int, ...], ...]]
EYE = 9 * torch.eye(3, dtype=torch.float64)


def largest(x: Tensor, name: str, *sizes: Any) -> Tensor:
    """The largest entries of windows, and as a gradient back."""
    found, at = getattr(aten, name)(x, [2] * (x.dim() - 2))
    return getattr(aten, f"{name}_backward")(found, x, *sizes, at)


def sampled(x: Tensor, points: Tensor, name: str) -> Tensor:
    found = getattr(aten, name)(x, points, 0, 0, False)
    return getattr(aten, f"{name}_backward")(found, x, points, 0, 0, False, [True, True])[0]


def apart(x: Tensor, y: Tensor) -> Tensor:
    found = aten._cdist_forward(x, y, 2.0, None)
    return aten._cdist_backward(found, x, y, 2.0, found)


def resampled(x: Tensor, name: str) -> Tensor:
    size = [6] * (x.dim() - 2)
    options = (False,) if name.endswith("aa") else ()
    return getattr(aten, f"{name}_backward")(getattr(aten, name)(x, size, *options), size, list(x.shape), *options)


def padded(x: Tensor, name: str) -> Tensor:
    pairs = [1] * 2 * (x.dim() - 2)
    return getattr(aten, f"{name}_backward")(getattr(aten, name)(x, pairs), x, pairs)


def plane_examples() -> Iterator[tuple[str, Called]]:
    flat, deep = (2, 4, 4), (2, 4, 4, 4)
    volume = ([2] * 3, [2] * 3, [0] * 3, [1] * 3, False)
    pooled = ([2] * 3, [2] * 3, [0] * 3, False, True, None)
    yield "largest, adaptive 2", (lambda x: largest(x, "adaptive_max_pool2d"), (flat,))
    yield "largest, adaptive 3", (lambda x: largest(x, "adaptive_max_pool3d"), (deep,))
    yield "largest 3", (lambda x: largest(x, "max_pool3d_with_indices", *volume), (deep,))
    yield "mean 3", (lambda x: aten.avg_pool3d_backward(aten.avg_pool3d(x, [2] * 3, [2] * 3), x, *pooled), (deep,))
    yield "mean, adaptive 3", (
        lambda x: aten._adaptive_avg_pool3d_backward(aten._adaptive_avg_pool3d(x, [2] * 3), x), (deep,)
    )  # fmt: skip
    yield "unpooled", (lambda x: aten.max_unpool2d(*aten.max_pool2d_with_indices(x, [2, 2]), [4, 4]), (flat,))
    for kind in ("reflection", "replication"):
        for space in (1, 2, 3):
            name = f"{kind}_pad{space}d"
            yield name, (lambda x, name=name: padded(x, name), ((2, *[4] * space),))
    for name, space in (
        ("nearest_exact", 1),
        ("nearest_exact", 2),
        ("nearest_exact", 3),
        ("bilinear", 2),
        ("bicubic", 2),
    ):
        full = f"_upsample_{name}{space}d{'' if 'exact' in name else '_aa'}"
        yield full, (lambda x, full=full: resampled(x, full), ((2, *[4] * space),))
    for space in (2, 3):
        name = f"grid_sampler_{space}d"
        yield name, (lambda x, p, name=name: sampled(x, p, name), ((2, *[4] * space), (*[2] * space, space)))
    yield (
        "windows of planes",
        (
            lambda x: aten.col2im(
                aten.im2col(x, [2, 2], [1, 1], [0, 0], [1, 1]), [4, 4], [2, 2], [1, 1], [0, 0], [1, 1]
            ),
            (flat,),
        ),
    )
    yield "windows", (lambda x: aten.unfold_backward(aten.unfold(x, 1, 2, 2), list(x.shape), 1, 2, 2), ((4,),))
    yield "affine grid", (lambda x: aten.affine_grid_generator(x, [x.shape[0], 1, 2, 2], False), ((2, 3),))
    yield from matrix_examples()


def poison_for(op: Op) -> float:
    """What is seen in results wherever it is read: not a number, or a large one where LAPACK refuses that."""
    return 1e3 if op_name(op.target) in ("_linalg_eigh", "_linalg_svd") else math.nan


def matrix_examples() -> Iterator[tuple[str, Called]]:
    square = (3, 3)
    yield "distances", (lambda x, y: apart(x, y), ((3, 4), (2, 4)))
    yield "euclidean distances", (lambda x, y: aten._euclidean_dist(x, y), ((3, 4), (2, 4)))
    yield "diagonal", (lambda x: aten.diagonal_backward(aten.diagonal(x, 0, 1, 2), list(x.shape), 0, 1, 2), (square,))
    yield "diagonals written", (lambda x, y: aten.diagonal_scatter(x, y, 0, 1, 2), (square, (3,)))
    yield "diagonals made", (lambda x: aten.diag_embed(x), ((3,),))
    yield "pixels", (lambda x: aten.pixel_unshuffle(aten.pixel_shuffle(x, 2), 2), ((8, 2, 2),))
    yield "channels", (lambda x: aten.channel_shuffle(x, 2), ((4, 2, 2),))
    for name in (
        "tril",
        "triu",
        "linalg_matrix_exp",
        "linalg_qr",
        "_linalg_det",
        "_linalg_slogdet",
        "linalg_lu_factor_ex",
    ):
        yield name, (lambda x, name=name: getattr(aten, name)(x + EYE), (square,))
    for name in ("linalg_cholesky_ex", "linalg_inv_ex", "_linalg_eigh", "_linalg_svd"):
        yield name, (lambda x, name=name: getattr(aten, name)(x @ x.mT + EYE), (square,))
    yield "eigenvalues", (lambda x: aten._linalg_eigh(x @ x.mT, compute_v=False), (square,))
    yield "singular values", (lambda x: aten._linalg_svd(x, compute_uv=False), (square,))
    yield "solved", (lambda x, y: aten._linalg_solve_ex(x + EYE, y), (square, (3, 2)))
    yield "solved by factors", (
        lambda x, y: aten.linalg_lu_solve(*aten.linalg_lu_factor_ex(x + EYE)[:2], y), (square, (3, 2))
    )  # fmt: skip
    yield "solved by rows", (lambda x, y: aten.linalg_solve_triangular(x + EYE, y, upper=True), (square, (3, 2)))
    yield "running extremes", (lambda x: aten.cummin(aten.cummax(x, 1)[0], 1)[0], ((4,),))
    yield "running maxima of rows", (lambda x: aten.cummax(x, 0)[0], ((4,),))
    yield "kthvalue", (lambda x: aten.kthvalue(x, 2, 1), ((4,),))
    yield "mode", (lambda x: aten.mode(x, 1), ((4,),))
    yield "nanmedian", (lambda x: aten.nanmedian(x, 1), ((4,),))
    yield "scatter_reduce", (lambda x: aten.scatter_reduce(x, 1, (x * 3).long() % 4, x, "amax"), ((4,),))
    yield "index_reduce", (lambda x: aten.index_reduce(x, 1, torch.tensor([2, 0, 2, 1]), x, "amin"), ((4,),))
    yield "bucketize", (lambda x: aten.bucketize(x, torch.tensor([0.1, 0.5]).double()), ((4,),))
