"""Verify: what must hold of every Program; run by whatever builds one.

Takes: a Program. Gives: nothing, or an AssertionError that names the op. Runs once per function.
"""

from __future__ import annotations

from vgraph.ir.exchange import Assemble, Fetch, ReplicaMean
from vgraph.ir.moves import MOVES, Random, RandomPart, SegmentReduce
from vgraph.ir.program import Op, Program, Rows
from vgraph.ir.reduction import RowSum
from vgraph.ir.reductions import REDUCTIONS

_NOUNS = (Random, RandomPart, RowSum, Assemble, Fetch, ReplicaMean)  # targets that are not called


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
        _verify_target(op)
    for value in (*program.outputs, *(c.source for c in program.carries)):
        assert value is None or value.id in known, f"output {value} is never made"


def _verify_target(op: Op) -> None:
    """Every target is a noun of ``ir`` or something to call; a reduction has a row of its table."""
    target = op.target
    if isinstance(target, SegmentReduce):
        row = REDUCTIONS.get(target.reduction)
        assert row is not None, f"{target}: there is no reduction {target.reduction!r}, only {', '.join(REDUCTIONS)}"
        assert row.is_linear or target.end == "dst", f"{target}: what is not linear reduces in-edges alone"
        assert len(op.results) == 1 + row.picks, f"{target} gives {1 + row.picks} results, not {len(op.results)}"
    if isinstance(target, RowSum) and target.reduction.name:
        assert target.reduction.name in REDUCTIONS, f"{target}: there is no reduction {target.reduction.name!r}"
    if isinstance(target, MOVES):
        _verify_move(op)
    else:
        assert isinstance(target, _NOUNS) or callable(target), f"there is no operator {target!r}"


def _verify_move(op: Op) -> None:
    (value,) = op.operands()
    assert value.row_dim == 0, f"{op.target} moves rows along the first dim"
    assert op.results[0].row_dim == 0, f"{op.target} gives rows along the first dim"
