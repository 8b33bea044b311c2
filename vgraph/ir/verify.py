"""Verify: what must hold of every Program; run by whatever builds one.

Takes: a Program. Gives: nothing, or an AssertionError that names the op; tempo: once a function.
"""

from __future__ import annotations

from vgraph.ir.moves import MOVES
from vgraph.ir.program import Op, Program, Rows


def verify(program: Program) -> None:
    """Every operand is made before it is read, made once, and Moves join the spaces they say."""
    known = {i.value.id for i in program.inputs} | {c.target.id for c in program.carries}
    assert len({i.name for i in program.inputs}) == len(program.inputs), "two inputs of one name"
    for op in program.ops:
        for value in op.operands():
            assert value.id in known, f"{value} of {op.target} is read before it is made"
        for value in op.results:
            assert value.id not in known, f"{value} of {op.target} is made twice"
            assert sum(isinstance(d, Rows) for d in value.shape) <= 1, f"{value} has rows in two dims"
            known.add(value.id)
        if isinstance(op.target, MOVES):
            _verify_move(op)
    for value in (*program.outputs, *(c.source for c in program.carries)):
        assert value is None or value.id in known, f"output {value} is never made"


def _verify_move(op: Op) -> None:
    (value,) = op.operands()
    assert value.row_dim == 0, f"{op.target} moves rows along the first dim"
    assert op.results[0].row_dim == 0, f"{op.target} gives rows along the first dim"
