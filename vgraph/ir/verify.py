"""Verify: what must hold of every Program; run by whatever builds one.

Takes: a Program. Gives: nothing, or an AssertionError that names the op. Runs once per function.
"""

from __future__ import annotations

from vgraph.ir.exchange import Assemble, Fetch, ReplicaMean
from vgraph.ir.moves import (
    Gather,
    InnerRows,
    LeafRows,
    OuterSum,
    PutSlot,
    Random,
    RandomPart,
    SegmentReduce,
    Select,
    Spread,
    TakeSlot,
)
from vgraph.ir.program import Aten, Op, Program, Routine, Rows, RowSum, Value
from vgraph.ir.reductions import REDUCTIONS
from vgraph.ir.sharding import Region


def verify(program: Program) -> None:
    """Every operand is made before it is read, made once, and Moves join the spaces they say."""
    known = {i.value.id for i in program.inputs} | {c.target.id for c in program.carries}
    assert len({i.name for i in program.inputs}) == len(program.inputs), "two inputs of one name"
    for op in program.ops:
        for value in op.operands():
            assert value.id in known, f"{value} of {op.target} is read before it is made"
        for value in op.results:
            assert value.id not in known, f"{value} of {op.target} is made twice"
            assert len([d for d in value.shape if isinstance(d, Rows)]) <= 1, f"{value} has rows in two dims"
            known.add(value.id)
        _verify_target(op)
    for value in (*program.outputs, *(c.source for c in program.carries)):
        assert value is None or value.id in known, f"output {value} is never made"


def _verify_target(op: Op) -> None:
    """Every target is a noun of ``ir`` or an operator of torch; a reduction has a row of its table."""
    match op.target:
        case SegmentReduce(end, reduction) as move:
            row = REDUCTIONS.get(reduction)
            assert row is not None, f"{move}: there is no reduction {reduction!r}, only {', '.join(REDUCTIONS)}"
            assert row.is_linear or end == "dst", f"{move}: what is not linear reduces in-edges alone"
            assert len(op.results) == 1 + row.picks, f"{move} gives {1 + row.picks} results, not {len(op.results)}"
            _verify_move(op)
        case Gather() | TakeSlot() | PutSlot() | Select() | Spread() | InnerRows() | LeafRows():
            _verify_move(op)
        case RowSum(summed) as target:
            assert not summed.name or summed.name in REDUCTIONS, f"{target}: there is no reduction {summed.name!r}"
        case Random() as target:
            assert "seed" in op.kwargs, f"{target} has no seed"
        case RandomPart(_, _, region) | Assemble(region) as target:
            assert _is_of(op.results, region), f"{target} gives another shape"
        case Fetch(exchange, worker) as target:
            assert _is_of(op.results, exchange.need[worker]), f"{target} gives another shape"
        case ReplicaMean() as target:
            shapes = {value.shape for value in (*op.operands(), *op.results)}
            assert len(shapes) == 1, f"{target} gives another shape"
        case OuterSum() | Routine():
            pass
        case operator:
            _verify_operator(operator)


def _verify_operator(operator: Aten) -> None:
    assert hasattr(operator, "overloadpacket"), f"there is no operator {operator!r}"


def _is_of(results: tuple[Value, ...], region: Region | None) -> bool:
    """Whether there is a result of a region's shape where there is a region, and none where there is none."""
    wanted = [] if region is None else [tuple(len(entries) for entries in region)]
    return [value.shape for value in results] == wanted


def _verify_move(op: Op) -> None:
    (value,) = op.operands()
    assert value.row_dim == 0, f"{op.target} moves rows along the first dim"
    assert op.results[0].row_dim == 0, f"{op.target} gives rows along the first dim"
