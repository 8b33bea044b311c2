"""Edge lowering: what is computed on edges of their sources alone, as rows of vertices without any edge.

Takes: a Tape whose outputs follow from rows of sources. Gives: the same tape on vertices. Runs once per function.
It is what the tape says of a graph in which every vertex has one edge, to itself.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from vgraph.capture.record.tape_ir import Tape
from vgraph.ir.moves import Gather, SegmentReduce
from vgraph.ir.program import Dim, Op, Rows, Value, needed_ops
from vgraph.ir.space import EDGE, SOURCE, VERTEX


def lower_edges(tape: Tape, outputs: Collection[int]) -> None:
    """Rewrites the tape in place; ``outputs``: ids of what is asked for, all else is dropped."""
    final: dict[int, Value] = {}

    def on_vertices(value: Value) -> Value:
        if value.id not in final:
            shape = tuple(_of_vertices(size) for size in value.shape)
            moved = value.space in (EDGE, SOURCE)
            final[value.id] = tape.new_value(value, space=VERTEX, shape=shape) if moved else value
        return final[value.id]

    def leaf(one: object) -> object:
        return on_vertices(one) if isinstance(one, Value) else _of_vertices(one) if isinstance(one, Rows) else one

    ops: list[Op] = []
    for op in needed_ops(tape.ops, outputs):
        if isinstance(op.target, Gather | SegmentReduce):
            (operand,) = op.operands()
            final[op.results[0].id] = on_vertices(operand)
        else:
            ops.append(replace(op.mapped(leaf), results=tuple(on_vertices(value) for value in op.results)))
    tape.ops = ops
    tape.values = {index: on_vertices(value) for index, value in tape.values.items()}
    tape.inputs = {name: on_vertices(value) for name, value in tape.inputs.items()}


def _of_vertices(size: Dim) -> Dim:
    return Rows(VERTEX, size.times) if isinstance(size, Rows) and size.space in (EDGE, SOURCE) else size
