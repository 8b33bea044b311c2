"""One op each, with tensors: every described operator in the shapes that partition it."""

from __future__ import annotations

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
