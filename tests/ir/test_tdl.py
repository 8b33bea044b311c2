"""The TDL table is true: what it says of rows is checked by running the operators on parts of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor

from vgraph.api.tracer import CaptureError, Tracer, sizes_for
from vgraph.api.unify import unify
from vgraph.ir.notation import op_name
from vgraph.ir.program import VERTEX, Op, Rows, Value, map_leaves
from vgraph.ir.rowwise import Effect, row_effects
from vgraph.ir.tdl import FACTORIES, POINTWISE, describe, described_ops, is_absent

aten = torch.ops.aten
COUNT, CUT = 7, 3
D = 4
Function = Callable[..., Any]
UNRECORDED = {  # torch takes them apart before they could be recorded
    "chunk", "narrow", "reshape", "contiguous", "to", "true_divide", "square", "float_power",
    "special_entr", "log_sigmoid_forward", "squeeze", "conv", "selu", "celu", "_unsafe_view",
}  # fmt: skip


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


def _grid(x: Tensor) -> Tensor:
    return (x * 3).long() % D


EXAMPLES: dict[str, Example] = {
    "mm": rows(lambda x: aten.mm(x, W)),
    "mm of rows with rows": rows(lambda x, y: aten.mm(x.t(), y), (3,), (D,)),
    "mm of vertices by vertices": rows(lambda x: aten.mm(x, x.t())),
    "addmm": rows(lambda x: aten.addmm(B, x, W)),
    "addmm over rows": rows(lambda x, y: aten.addmm(W, x.t(), y), (D,), (D,)),
    "bmm": rows(lambda x, y: aten.bmm(x, y), (2, 3), (3, 2)),
    "bmm over rows": rows(lambda x, y: aten.bmm(x.permute(1, 2, 0), y.permute(1, 0, 2)), (2, 3), (2, 3)),
    "baddbmm": rows(lambda x, y: aten.baddbmm(x[:, :2, :2], x, y), (2, 3), (3, 2)),
    "mv": rows(lambda x: aten.mv(x, B)),
    "addmv": rows(lambda x, y: aten.addmv(y, x, B), (D,), ()),
    "dot": rows(lambda x: aten.dot(x, x), ()),
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
    "t": rows(lambda x: aten.t(x)),
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
    "gather": rows(lambda x: aten.gather(x, 1, _grid(x))),
    "gather of rows": rows(lambda x: aten.gather(x, 0, _grid(x))),
    "scatter": rows(lambda x: aten.scatter.value(x, 1, _grid(x), 0.5)),
    "scatter_add": rows(lambda x, y: aten.scatter_add(x, 1, _grid(y), y), (D,), (D,)),
    "scatter_add of rows": rows(lambda x, y: aten.scatter_add(x, 0, _grid(y), y), (D,), (D,)),
    "embedding": rows(lambda x: aten.embedding(W, _grid(x))),
    "embedding of rows": rows(lambda x: aten.embedding(x, IDS)),
    "embedding backward": rows(
        lambda x, y: aten.embedding_dense_backward(y, _grid(x), D, -1, False), (), (D,)
    ),
    "embedding backward by frequency": rows(
        lambda x, y: aten.embedding_dense_backward(y, _grid(x), D, -1, True), (), (D,)
    ),
    "index of a table": rows(lambda x: aten.index(W, [_grid(x)])),
    "index of features": rows(lambda x: aten.index(x, [None, IDS])),
    "index of rows": rows(lambda x: aten.index(x, [IDS])),
    "index_put to a table": rows(
        lambda x, y: aten.index_put(torch.zeros_like(W), [_grid(x)], y, True), (), (D,)
    ),
    "index_put to features": rows(
        lambda x, y: aten.index_put(x, [None, IDS], y, True), (D,), (3,)
    ),
    "_index_put_impl": rows(lambda x, y: aten._index_put_impl(x, [None, IDS], y, True), (D,), (3,)),
    "index_select": rows(lambda x: aten.index_select(x, 1, IDS)),
    "index_select of rows": rows(lambda x: aten.index_select(x, 0, IDS)),
    "index_select of a table": rows(lambda x: aten.index_select(W, 0, _grid(x)), ()),
    "index_add": rows(lambda x, y: aten.index_add(x, 1, IDS, y), (D,), (3,)),
    "index_add of rows": rows(lambda x, y: aten.index_add(W, 0, _grid(x), y), (), (D,)),
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
    "broadcast of a column": rows(lambda x, y: aten.add(x, y), (D,), (1,)),
    "broadcast of rows over rows": rows(lambda x: aten.mul(x.view(-1, 1), x), ()),
    "number of rows": rows(lambda x: aten.div(x, x.shape[0])),
}  # fmt: skip


def recorded(example: Example) -> list[Op]:
    """The ops that a function records on rows of vertices."""
    recordings: list[Any] = []
    for sizes in sizes_for(False):
        tracer = Tracer(sizes)
        with tracer:
            given = [
                tracer.new_input(f"x{i}", VERTEX, shape, torch.float64)
                for i, shape in enumerate(example.shapes)
            ]
            example.function(*given)
        recordings.append(tracer.recording)
    for one, two in zip(recordings[0].lifted, recordings[1].lifted, strict=True):
        assert one[1] == two[1]
    return unify(*recordings).ops


# ---------------------------------------------------------------- an op on parts of its rows
def concrete(value: Value, count: int) -> Tensor:
    shape = [d.times * count if isinstance(d, Rows) else d for d in value.shape]
    if value.dtype == torch.bool:
        return torch.rand(shape) > 0.5
    if not value.dtype.is_floating_point:
        return torch.randint(1, D, shape)
    return (torch.rand(shape, dtype=torch.float64) * 0.8 + 0.1).to(value.dtype)


def part(tensor: Tensor, value: Value, start: int, stop: int) -> Tensor:
    dim = value.row_dim
    if dim is None:
        return tensor
    size: Any = value.shape[dim]
    return tensor.narrow(dim, start * size.times, (stop - start) * size.times)


def run(op: Op, given: dict[int, Tensor], count: int) -> list[Tensor]:
    def swap(leaf: Any) -> Any:
        if isinstance(leaf, Value):
            return given[leaf.id]
        return leaf.times * count if isinstance(leaf, Rows) else leaf

    target = torch.reshape if op_name(op.target) in ("view", "_unsafe_view") else op.target
    kwargs = {key: map_leaves(value, swap) for key, value in op.kwargs.items()}
    found = target(*map_leaves(op.args, swap), **kwargs)
    return list(found) if isinstance(found, (tuple, list)) else [found]


def check_op(op: Op) -> None:
    """Slices of rows give slices of the result; sums of parts give the sum; NaN stays in its row."""
    if not any(v.row_dim is not None for v in (*op.operands(), *op.results)):
        return
    given = {v.id: concrete(v, COUNT) for v in op.operands()}
    ends = [(0, CUT), (CUT, COUNT)]
    effects = row_effects(op)
    if all(effect in (Effect.MIXES, Effect.UNKNOWN) for effect in effects):
        return
    whole = run(op, given, COUNT)
    pieces = [
        run(op, {v.id: part(given[v.id], v, *end) for v in op.operands()}, end[1] - end[0])
        for end in ends
    ]
    for index, (value, effect) in enumerate(zip(op.results, effects, strict=True)):
        if is_absent(value) or "empty" in op_name(op.target):
            continue
        if effect is Effect.ROWWISE and value.row_dim is not None:
            joined = torch.cat([piece[index] for piece in pieces], value.row_dim)
        elif effect is Effect.CONTRACT and value.row_dim is None:
            joined = sum(piece[index] for piece in pieces)
        else:
            continue
        same(joined, whole[index])
    check_poison(op, effects, given, whole)


def same(found: Tensor, wanted: Tensor) -> None:
    torch.testing.assert_close(found, wanted, equal_nan=True)


def check_poison(op: Op, effects: Any, given: dict[int, Tensor], whole: list[Tensor]) -> None:
    for value in op.operands():
        if value.row_dim is not None and value.dtype.is_floating_point:
            given[value.id] = given[value.id].clone()
            part(given[value.id], value, 0, 1).fill_(float("nan"))
    found = run(op, given, COUNT)
    for index, (value, effect) in enumerate(zip(op.results, effects, strict=True)):
        if effect is Effect.ROWWISE and value.row_dim is not None and not is_absent(value):
            if "empty" not in op_name(op.target):
                mine = part(found[index], value, 1, COUNT)
                same(mine, part(whole[index], value, 1, COUNT))


@pytest.mark.parametrize("name", EXAMPLES)
def test_claims_hold(name: str) -> None:
    for op in recorded(EXAMPLES[name]):
        check_op(op)


CANDIDATES: list[Callable[[Tensor, Tensor, Tensor], tuple[Any, ...]]] = [
    lambda x, y, z: (x,), lambda x, y, z: (x, y), lambda x, y, z: (x, 0.5),
    lambda x, y, z: (x, y, z), lambda x, y, z: (x > 0, y, z), lambda x, y, z: (x > 0, y > 0),
    lambda x, y, z: (_grid(x), _grid(y)), lambda x, y, z: (x, y > 0, 0.5), lambda x, y, z: (x > 0,),
    lambda x, y, z: (x, 0.1, 0.2), lambda x, y, z: (x, y, 0.5), lambda x, y, z: (1, x),
    lambda x, y, z: (x, y, 0.5, False), lambda x, y, z: (x, y, 1.0, 20.0), lambda x, y, z: (x, 3, 0.5),
    lambda x, y, z: (x, 0.5, 1, 1, False, y), lambda x, y, z: (x, y, -0.5, 0.5),
    lambda x, y, z: (x, y, 0, 1.0), lambda x, y, z: (x, y > 0, z), lambda x, y, z: (_grid(x), 1),
    lambda x, y, z: (x, y, 0, 0.5), lambda x, y, z: (x, y > 0, 2.0),
]  # fmt: skip


def pointwise_examples(name: str) -> Iterator[list[Op]]:
    for candidate in CANDIDATES:

        def function(x: Tensor, y: Tensor, z: Tensor, make: Any = candidate) -> Any:
            return getattr(aten, name)(*make(x, y, z))

        for shapes in (((D,), (D,), (D,)), ((2, D), (1, D), (2, 1))):
            try:
                yield recorded(Example(function, shapes))
            except (RuntimeError, TypeError, ValueError, CaptureError, IndexError):
                continue


@pytest.mark.parametrize("name", sorted(POINTWISE))
def test_pointwise_claims_hold(name: str) -> None:
    if not hasattr(aten, name):
        pytest.skip("not an operator of this torch")
    seen = 0
    for ops in pointwise_examples(name):
        mine = [op for op in ops if op_name(op.target) == name]
        for op in mine:
            check_op(op)
            assert all(e is Effect.ROWWISE for e in row_effects(op))
        seen += len(mine)
    if not seen:
        pytest.skip("torch takes it apart before it could be recorded")


def test_every_operator_has_an_example() -> None:
    seen = {op_name(op.target) for e in EXAMPLES.values() for op in recorded(e)}
    assert described_ops() - seen - POINTWISE - UNRECORDED == set()
    assert seen >= FACTORIES


EXPECTED = {
    "mm": "ROWWISE", "mm of rows with rows": "CONTRACT", "mm of vertices by vertices": "MIXES",
    "addmm": "ROWWISE", "addmm over rows": "MIXES", "bmm": "ROWWISE", "dot": "CONTRACT",
    "sum ([0],)": "CONTRACT", "sum ([1],)": "ROWWISE", "mean ([0],)": "MIXES",
    "amax ([0],)": "MIXES", "_softmax 0": "MIXES", "_softmax 1": "ROWWISE", "cumsum 0": "MIXES",
    "sort 1": "ROWWISE", "topk": "ROWWISE", "topk of rows": "MIXES", "view across": "MIXES",
    "view apart": "ROWWISE", "view anew": "ROWWISE", "slice of rows": "MIXES",
    "slice of all": "ROWWISE", "cat of rows": "MIXES", "repeat of rows": "MIXES",
    "expand of one": "ROWWISE", "gather": "ROWWISE", "gather of rows": "MIXES",
    "embedding of rows": "MIXES", "embedding backward": "CONTRACT",
    "embedding backward by frequency": "UNKNOWN", "index of a table": "ROWWISE",
    "index of rows": "MIXES", "index_add of rows": "MIXES", "convolution": "ROWWISE",
    "batch norm in eval": "ROWWISE", "batch norm in training": "UNKNOWN", "number of rows": "MIXES",
    "broadcast of rows over rows": "MIXES", "mse_loss_backward 1": "UNKNOWN",
    "norm of features": "ROWWISE", "norm of rows": "MIXES", "vector norm of features": "ROWWISE",
}  # fmt: skip


@pytest.mark.parametrize("name", EXPECTED)
def test_effects(name: str) -> None:
    """Not only never wrong: what runs by rows is known to."""
    op = recorded(EXAMPLES[name])[-1]
    assert row_effects(op)[0].name == EXPECTED[name], describe(op)


def test_an_unknown_operator_is_not_described() -> None:
    ops = recorded(rows(lambda x: aten.linalg_inv_ex(x), (3, 3)))
    assert describe(ops[-1]) is None
    assert set(row_effects(ops[-1])) == {Effect.UNKNOWN}


def test_notation_prints_as_tofu_writes_it() -> None:
    (op,) = recorded(EXAMPLES["mm"])
    assert str(describe(op)) == "m k, k n -> m n"
    (op,) = recorded(EXAMPLES["view apart"])
    assert str(describe(op)) == "g0a (g1a g1b) -> g0a g1a g1b"
