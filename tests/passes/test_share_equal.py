"""What several ops compute of the same operands is made once, and outputs keep memory of their own."""

from __future__ import annotations

from dataclasses import replace

import torch

from vgraph.ir.moves import Gather, Random, SegmentReduce
from vgraph.ir.program import Carry, Input, Op, Program, Rows, Target, Value, op_name
from vgraph.ir.space import EDGE, VERTEX, Space
from vgraph.passes.share_equal import share_equal

_aten = torch.ops.aten


def _value(number: int, space: Space = EDGE) -> Value:
    return Value(number, space, torch.float32, (Rows(space), 4))


_X = _value(0)


def _program(*ops: Op, outputs: int = 1) -> Program:
    """``outputs``: how many of the last ops give one."""
    return Program("f", (Input(_X, "x"),), ops, tuple(op.results[0] for op in ops[-outputs:]))


def _op(number: int, target: Target, *args: object) -> Op:
    return Op(target, args, {}, (_value(number),))


def _names(program: Program) -> list[str]:
    return [op_name(op.target) for op in program.ops]


def test_a_chain_is_shared_from_its_first_op_on() -> None:
    one, other = _value(1), _value(2)
    sines = _op(1, _aten.sin.default, _X), _op(2, _aten.sin.default, _X)
    roots = _op(3, _aten.sqrt.default, one), _op(4, _aten.sqrt.default, other)
    last = _op(5, _aten.add.Tensor, _value(3), _value(4))
    shared = share_equal(_program(*sines, *roots, last))
    assert _names(shared) == ["sin", "sqrt", "add"]
    assert [value.id for value in shared.ops[-1].operands()] == [3, 3]


def test_gathers_of_the_same_rows_are_one() -> None:
    rows = _value(0, VERTEX)
    ops = [Op(Gather("src"), (rows,), {}, (_value(n),)) for n in (1, 2)]
    program = Program("f", (Input(rows, "x"),), (*ops, _op(3, _aten.mul.Tensor, _value(1), _value(2))), (_value(3),))
    assert len(share_equal(program).ops) == 2


def test_numbers_of_two_types_and_zeros_of_two_signs_differ() -> None:
    for one, other in ((1, 1.0), (0.0, -0.0), (1, True)):
        ops = _op(1, _aten.mul.Scalar, _X, one), _op(2, _aten.mul.Scalar, _X, other)
        program = _program(*ops, _op(3, _aten.add.Tensor, _value(1), _value(2)))
        assert share_equal(program) is program


def test_each_output_has_memory_of_its_own() -> None:
    program = _program(_op(1, _aten.sin.default, _X), _op(2, _aten.sin.default, _X), outputs=2)
    assert share_equal(program) is program


def test_what_is_drawn_is_drawn_for_everybody_anew() -> None:
    seed = Value(9, EDGE, torch.int64, ())
    drawn = [replace(_op(n, Random("uniform", 1), _X), kwargs={"seed": seed}) for n in (1, 2)]
    program = _program(*drawn, _op(3, _aten.add.Tensor, _value(1), _value(2)))
    assert share_equal(replace(program, inputs=(*program.inputs, Input(seed, "seed")))).ops == program.ops


def test_programs_that_loop_stay() -> None:
    ops = _op(1, _aten.sin.default, _X), _op(2, _aten.sin.default, _X), _op(3, _aten.add.Tensor, _value(1), _value(2))
    program = replace(_program(*ops), carries=(Carry(_value(3), _X, Gather("src")),))
    assert share_equal(program) is program


def test_rows_of_vertices_and_sums_over_their_edges_are_shared() -> None:
    """A mean, and the mean within a variance."""
    sums = [Op(SegmentReduce("dst", "sum"), (_X,), {}, (_value(n, VERTEX),)) for n in (1, 2)]
    roots = [Op(_aten.sqrt.default, (_value(n, VERTEX),), {}, (_value(n + 2, VERTEX),)) for n in (1, 2)]
    last = Op(_aten.add.Tensor, (_value(3, VERTEX), _value(4, VERTEX)), {}, (_value(5, VERTEX),))
    shared = share_equal(_program(*sums, *roots, last))
    assert _names(shared) == [op_name(sums[0].target), "sqrt", "add"]
