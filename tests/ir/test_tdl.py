"""The TDL table is true: what it says of rows is checked by running the operators on parts of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.ir.plane_examples import poison_for
from tests.ir.tdl_examples import EXAMPLES, D, Example, aten, grid, rows
from vgraph.capture.errors import CaptureError
from vgraph.capture.record.example_sizes import sizes_for
from vgraph.capture.record.tracer import Tracer
from vgraph.capture.record.unify import unify
from vgraph.ir.operators import POINTWISE
from vgraph.ir.program import Op, Rows, Value, map_leaves, op_name
from vgraph.ir.space import VERTEX
from vgraph.ir.tdl.rowwise import Effect, row_effects
from vgraph.ir.tdl.table import FACTORIES, describe, described_ops, is_absent

COUNT, CUT = 7, 3
UNRECORDED = {  # torch takes them apart before they could be recorded
    "chunk", "narrow", "reshape", "contiguous", "to", "true_divide", "square", "float_power",
    "special_entr", "log_sigmoid_forward", "squeeze", "conv", "alias", "detach", "selu", "celu", "_unsafe_view",
    "unsafe_split", "unsafe_split_with_sizes",
}  # fmt: skip


def recorded(example: Example) -> list[Op]:
    """The ops that a function records on rows of vertices."""
    recordings: list[Any] = []
    for sizes in sizes_for(False):
        tracer = Tracer(sizes)
        with tracer:
            given = [tracer.new_input(f"x{i}", VERTEX, shape, torch.float64) for i, shape in enumerate(example.shapes)]
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
    if value.dtype.is_complex:
        return torch.rand(shape, dtype=value.dtype)
    if not value.dtype.is_floating_point:
        return torch.randint(1, D, shape, dtype=torch.int32 if value.dtype == torch.int32 else torch.int64)
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
    pieces = [run(op, {v.id: part(given[v.id], v, *end) for v in op.operands()}, end[1] - end[0]) for end in ends]
    for index, (value, effect) in enumerate(zip(op.results, effects, strict=True)):
        if whole[index] is None or is_absent(value) or "empty" in op_name(op.target):
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
            part(given[value.id], value, 0, 1).fill_(poison_for(op))
    found = run(op, given, COUNT)
    for index, (value, effect) in enumerate(zip(op.results, effects, strict=True)):
        is_there = found[index] is not None and "empty" not in op_name(op.target)
        if effect is Effect.ROWWISE and value.row_dim is not None and is_there:
            mine = part(found[index], value, 1, COUNT)
            same(mine, part(whole[index], value, 1, COUNT))


@pytest.mark.parametrize("name", EXAMPLES)
def test_claims_hold(name: str) -> None:
    for op in recorded(EXAMPLES[name]):
        check_op(op)


CANDIDATES: list[Callable[[Tensor, Tensor, Tensor], tuple[Any, ...]]] = [
    lambda x, y, z: (x,), lambda x, y, z: (x, y), lambda x, y, z: (x, 0.5),
    lambda x, y, z: (x, y, z), lambda x, y, z: (x > 0, y, z), lambda x, y, z: (x > 0, y > 0),
    lambda x, y, z: (grid(x), grid(y)), lambda x, y, z: (x, y > 0, 0.5), lambda x, y, z: (x > 0,),
    lambda x, y, z: (x, 0.1, 0.2), lambda x, y, z: (x, y, 0.5), lambda x, y, z: (1, x),
    lambda x, y, z: (x, y, 0.5, False), lambda x, y, z: (x, y, 1.0, 20.0), lambda x, y, z: (x, 3, 0.5),
    lambda x, y, z: (x, 0.5, 1, 1, False, y), lambda x, y, z: (x, y, -0.5, 0.5),
    lambda x, y, z: (x, y, 0, 1.0), lambda x, y, z: (x, y > 0, z), lambda x, y, z: (grid(x), 1),
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
    ops = recorded(rows(aten.cholesky_inverse, (3, 3)))
    assert describe(ops[-1]) is None
    assert set(row_effects(ops[-1])) == {Effect.UNKNOWN}


def test_notation_prints_as_tofu_writes_it() -> None:
    (op,) = recorded(EXAMPLES["mm"])
    assert str(describe(op)) == "m k, k n -> m n"
    (op,) = recorded(EXAMPLES["view apart"])
    assert str(describe(op)) == "g0a (g1a g1b) -> g0a g1a g1b"
