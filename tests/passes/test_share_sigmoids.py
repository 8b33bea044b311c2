"""Silu, its derivative and the derivative of that share one sigmoid of an edge's row."""

from __future__ import annotations

from collections import Counter

import torch
from torch import Tensor

from vgraph.ir.program import Input, Op, Program, Rows, Value, op_name
from vgraph.ir.space import EDGE, VERTEX, Space
from vgraph.passes.share_sigmoids import share_sigmoids

_aten = torch.ops.aten


def _value(number: int, space: Space = EDGE) -> Value:
    return Value(number, space, torch.float32, (Rows(space), 4))


def _program(*, space: Space = EDGE, asked: bool = True) -> Program:
    """silu(x), its derivative times g and, if ``asked``, sigmoid(x), in this order."""
    x, g, one, slope, own = (_value(n, space) for n in range(5))
    ops = [
        Op(_aten.silu.default, (x,), {}, (one,)),
        Op(_aten.silu_backward.default, (g, x), {}, (slope,)),
        Op(_aten.sigmoid.default, (x,), {}, (own,)),
    ]
    made = ops if asked else ops[:2]
    return Program("f", (Input(x, "x"), Input(g, "g")), tuple(made), tuple(op.results[0] for op in made))


def _names(program: Program) -> Counter[str]:
    return Counter(op_name(op.target) for op in program.ops)


def _run(program: Program, x: Tensor, g: Tensor) -> list[Tensor]:
    known = {0: x, 1: g}
    for op in program.ops:
        args = [known[arg.id] if isinstance(arg, Value) else arg for arg in op.args]
        known[op.results[0].id] = op.target(*args)
    return [known[value.id] for value in program.outputs if value is not None]


def test_one_sigmoid_is_left() -> None:
    for asked in (True, False):
        names = _names(share_sigmoids(_program(asked=asked)))
        assert names["sigmoid"] == 1
        assert not names.keys() & {"silu", "silu_backward"}


def test_the_numbers_are_the_operators_own() -> None:
    x, g = 4 * torch.randn(2, 50, 4)
    for asked in (True, False):
        before, after = (_run(p, x, g) for p in (_program(asked=asked), share_sigmoids(_program(asked=asked))))
        for one, other in zip(before, after, strict=True):
            torch.testing.assert_close(one, other)


def test_what_stands_alone_or_is_not_of_edges_stays() -> None:
    for program in (_program(space=VERTEX), Program("f", *_of_one(_program(asked=False)))):
        assert share_sigmoids(program) is program


def _of_one(program: Program) -> tuple[tuple[Input, ...], tuple[Op, ...], tuple[Value | None, ...]]:
    return program.inputs, program.ops[:1], program.outputs[:1]
