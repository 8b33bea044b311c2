"""Every row of the table of operators that has C text, in every dtype, with special numbers: kernels for CPUs and the
text for GPUs give what torch gives."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

import vgraph
from tests.cuda import shim
from tests.fusion.fuzz import running
from tests.tables import table
from vgraph import compiler
from vgraph.capture import capture
from vgraph.fusion.cpu import build
from vgraph.ir.operators import OPERATORS, OpInfo
from vgraph.ir.program import op_name

pytestmark = pytest.mark.skipif(build.find_compiler() is None, reason="there is no C++ compiler")
DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16]
WITH_TEXT = [name for name, row in OPERATORS.items() if row.text or row.choose]
Arguments = Callable[[Tensor, Tensor], tuple[Any, ...]]
EDGES = (0, 2.5, -2.5)  # beside 0.5: what ends at 3 and -3
NUMBERS: dict[str, list[Arguments]] = {  # of operators that take other things than tensors of numbers
    "pow": [lambda x, y, e=e: (x, e) for e in (0, 0.5, 1, 2, 3, -1, -2)],
    "leaky_relu": [lambda x, y: (x,), lambda x, y: (x, 0.1)],
    "leaky_relu_backward": [lambda x, y: (x, y, 0.1, False)],
    "threshold_backward": [lambda x, y: (x, y, 0.5)],
    "elu": [lambda x, y: (x,), lambda x, y: (x, 0.5, 2.0, 1.5)],
    "elu_backward": [lambda x, y, r=r: (x, 0.5, 2.0, 1.5, r, y) for r in (False, True)],
    "celu": [lambda x, y: (x,), lambda x, y: (x, 1.5)],
    "threshold": [lambda x, y: (x, 0.5, 2.0)],
    "softplus": [lambda x, y: (x,), lambda x, y: (x, 2.0, 3.0)],
    "softplus_backward": [lambda x, y: (x, y, 1.0, 20.0)],
    "hardtanh": [lambda x, y: (x,), lambda x, y: (x, -0.5, 0.5)],
    "hardtanh_backward": [lambda x, y: (x, y, -0.5, 0.5)],
    **{name: [lambda x, y, by=by: (x + by,) for by in EDGES] for name in ("hardsigmoid", "hardswish")},
    **{f"hard{name}_backward": [lambda x, y, by=by: (x, y + by) for by in EDGES] for name in ("sigmoid", "swish")},
    **{f"{kind}shrink": [lambda x, y: (x,), lambda x, y: (x, 1.0)] for kind in ("hard", "soft")},
    **{f"{kind}shrink_backward": [lambda x, y: (x, y, 0.5)] for kind in ("hard", "soft")},
    "where": [lambda x, y: (x > 0, x, y)],
    "masked_fill": [lambda x, y: (x, y > 0, 2.0)],
    "clamp": [
        lambda x, y: (x, -0.5, 0.5), lambda x, y: (x, None, 0.5), lambda x, y: (x, -0.5),
        lambda x, y: (x, y), lambda x, y: (x, None, y), lambda x, y: (x, y, y + 1), lambda x, y: (x, math.nan),
    ],
    "clamp_min": [lambda x, y: (x, 0.5), lambda x, y: (x, y), lambda x, y: (x, math.nan)],
    "clamp_max": [lambda x, y: (x, 0.5), lambda x, y: (x, y), lambda x, y: (x, math.nan)],
    "full_like": [lambda x, y: (x, 2.5)],
    **{name: [lambda x, y: (x > 0,)] for name in ("logical_not", "bitwise_not")},
    **{
        f"{kind}_{name}": [lambda x, y: (x > 0, y > 0)]
        for kind in ("logical", "bitwise") for name in ("and", "or")
    },
}  # fmt: skip
OTHERWISE = {"alias", "detach", "square"}  # recorded as something else: their operand, or pow


def is_minus_zero(x: Tensor) -> Tensor:
    return (x == 0) & x.signbit()


# Where torch's own loops differ from one another, or an argument is no result of the operator that is differentiated.
ASIDE: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    # of inf NaN in torch's vectors, inf in its other loops; which zero of what is below: 0.0 in its vectors with AVX2
    "gelu": lambda x, y: (x == math.inf) | is_minus_zero(x) | (x < -13),
    "pow": lambda x, y: (x == -math.inf) | is_minus_zero(x),  # the root: NaN, -0.0 in 32 and 64 bits; inf, 0.0 in 16
    "tanh": lambda x, y: is_minus_zero(x),  # 0.0 in our vectors of 32 bits
    "hardtanh_backward": lambda x, y: y.isnan(),  # 0 in torch's vectors, the gradient in its other loops
    "softshrink": lambda x, y: x.signbit() & (x.abs() <= 1),  # 0.0 in torch's vectors, -0.0 in its other loops
    # which zero, where a bound is the other one: the bound in torch's vectors, x in its other loops
    **{name: lambda x, y: (x == 0) & ((y == 0) | (y == -1)) for name in ("clamp", "clamp_min", "clamp_max")},
    **{f"{kind}shrink_backward": lambda x, y: y.isnan() for kind in ("hard", "soft")},  # as hardtanh_backward
    **{f"{name}_backward": lambda x, y: y.isnan() for name in ("elu", "hardswish")},  # NaN in torch's vectors
    "sigmoid_backward": lambda x, y: ~((y >= 0) & (y <= 1)),
}
DIFFERENTIABLE = [
    name
    for name in WITH_TEXT
    if OPERATORS[name].types == "same" and not name.endswith("_backward") and OPERATORS[name].pointwise
]


@pytest.fixture(autouse=True)
def kernels(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    capture.forget()
    shim.launched.clear()
    yield
    capture.forget()


def special(dtype: torch.dtype) -> list[float]:
    about = torch.finfo(dtype)
    ends = [math.inf, math.nan, 0.0, about.max, about.tiny, about.tiny / 4, about.eps]
    return [s * x for x in [*ends, 1.0, 0.5, 0.3, 2.5, 20.5, 90.0] for s in (1, -1)]


def calls(row: OpInfo) -> list[Arguments]:
    """What its arguments may be: as many tensors as its text speaks of, if nothing else is said."""
    count = row.num_arguments
    return NUMBERS.get(row.name) or [lambda x, y: (x, y)[:count]]


def evaluate(name: str, x: Tensor, y: Tensor) -> list[Tensor]:
    return [getattr(torch.ops.aten, name)(*make(x, y)) for make in calls(OPERATORS[name])]


class Everything(vgraph.VertexFunction):
    """All operators of the table, each on the same two features."""

    def forward(self, v: vgraph.Vertex) -> None:
        x, y = v.pull("x"), v.pull("y")
        for name in WITH_TEXT:
            for number, out in enumerate(evaluate(name, x, y)):
                v.push(**{f"{name}_{number}": out})


@pytest.mark.parametrize(("dtype", "way"), table(DTYPES, ["kernels", "cuda-shim"]))
def test_special_numbers(dtype: torch.dtype, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pairs = torch.tensor(list(itertools.product(special(dtype), repeat=2)), dtype=torch.float64).to(dtype)
    x, y = pairs[:, :1].contiguous(), pairs[:, 1:].contiguous()
    g = vgraph.graph(([], []), num_nodes=len(pairs))
    made: set[str] = set()
    with running(way):
        target = compiler.TARGETS["cpu"]

        def note(specs: Any) -> Any:
            made.update(op_name(op.target) for spec in specs for op in spec.ops)
            return target(specs)

        monkeypatch.setitem(compiler.TARGETS, "cpu", note)
        found = Everything()(g, x=x, y=y)
        monkeypatch.undo()
    assert set(WITH_TEXT) - made <= OTHERWISE
    wrong = [
        f"{name}_{number}: {difference}"
        for name in WITH_TEXT
        for number, wanted in enumerate(evaluate(name, x, y))
        if (difference := unlike(name, found[f"{name}_{number}"], wanted, x, y))
    ]
    assert not wrong, "\n".join(wrong)


COMPARED: dict[str, list[tuple[str, object]]] = {  # each of these features with a number, or with the other one
    "truth": [
        ("eq", "other"), ("gt", "other"), ("le", "other"),
        ("eq", True), ("gt", 0), ("ne", 2), ("lt", 200), ("ge", 0.5),
    ],
    "whole": [
        ("lt", 0.5), ("lt", math.inf), ("ne", math.nan), ("eq", 16777217.0),
        ("eq", -(2**63)), ("lt", 2**40), ("ge", True),
    ],
    "short": [("lt", 0.5), ("eq", 1)],
    "number": [("eq", 1j), ("lt", 0.1)],
}  # fmt: skip


class Compared(vgraph.VertexFunction):
    """Truth values, whole numbers and others, in vectors, compared with one another and with numbers."""

    def forward(self, v: vgraph.Vertex) -> None:
        v.push(**comparisons({kind: (v.pull(kind), v.pull(f"{kind}_too")) for kind in (*COMPARED, "wide")}))


def comparisons(rows: dict[str, tuple[Tensor, Tensor]]) -> dict[str, Tensor]:
    made = {"masks": (rows["number"][0] > 0) < (rows["wide"][1] > 0)}  # whose lanes have other widths
    for kind, pairs in COMPARED.items():
        one, other = rows[kind]
        for name, with_what in pairs:
            made[f"{kind}_{name}_{with_what}"] = getattr(torch, name)(one, other if with_what == "other" else with_what)
    return made


class Smooth(vgraph.VertexFunction):
    """What has a derivative, in one sum."""

    def forward(self, v: vgraph.Vertex) -> None:
        v.push(o=total(v.pull("x"), v.pull("y")))


def total(x: Tensor, y: Tensor) -> Tensor:
    made = [out for name in DIFFERENTIABLE for out in evaluate(name, x, y)]
    return sum((out * math.cos(number) for number, out in enumerate(made)), start=x * 0)


@pytest.mark.parametrize("way", ["kernels", "cuda-shim"])
def test_comparisons(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "warn", pytest.fail)  # a kernel that is not compiled is torch's operators
    dtypes = (torch.bool, torch.int64, torch.int32, torch.float32, torch.float64)
    pairs = torch.tensor(list(itertools.product((-1, 0, 1, 2**24), repeat=2))).repeat_interleave(5, 1)
    rows = {
        kind: (pairs[:, :5].to(dtype), pairs[:, 5:].to(dtype))
        for kind, dtype in zip((*COMPARED, "wide"), dtypes, strict=True)
    }
    given = {f"{kind}{end}": pair[end != ""] for kind, pair in rows.items() for end in ("", "_too")}
    with running(way):
        found = Compared()(vgraph.graph(([], []), num_nodes=len(pairs)), **given)
    assert [name for name, wanted in comparisons(rows).items() if not torch.equal(found[name], wanted)] == []


@pytest.mark.parametrize("way", ["kernels", "cuda-shim"])
def test_gradients(way: str) -> None:
    """What autograd writes for an operator is in kernels, too."""
    x, y = (torch.rand(40, 3, dtype=torch.float64) * 2 + 0.1 for _ in range(2))
    x, y = x.requires_grad_(), y.requires_grad_()
    with running(way):
        out = Smooth()(vgraph.graph(([], []), num_nodes=len(x)), x=x, y=y)["o"]
        found = torch.autograd.grad(out.sum(), [x, y])
    for mine, theirs in zip(found, torch.autograd.grad(total(x, y).sum(), [x, y]), strict=True):
        torch.testing.assert_close(mine, theirs)


def unlike(name: str, found: Tensor, wanted: Tensor, x: Tensor, y: Tensor) -> str:
    """Where numbers differ by more than some units of the last place."""
    assert found.dtype == wanted.dtype and found.shape == wanted.shape
    if not wanted.is_floating_point():
        bad = found != wanted
    else:
        about, (mine, theirs) = torch.finfo(wanted.dtype), (found.double(), wanted.double())
        near = (mine - theirs).abs() <= 8 * about.eps * theirs.abs() + 2 * about.tiny
        bad = ~(near | (mine == theirs) | (mine.isnan() & theirs.isnan()))
        bad |= (mine == 0) & (theirs == 0) & (mine.signbit() != theirs.signbit())
    places = (bad & ~ASIDE[name](x, y) if name in ASIDE else bad).nonzero()[:, 0].tolist()
    shown = [f"({x[i, 0]}, {y[i, 0]}): {found[i, 0]}, not {wanted[i, 0]}" for i in places[:4]]
    return f"{len(places)} of {len(x)}, {'; '.join(shown)}" if places else ""
