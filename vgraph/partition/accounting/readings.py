"""Readings: which op reads and makes which value, as arrays: what is asked of every op is asked of all at once.

Takes: a Program. Gives: its Readings. Runs once per Program: the books of all its plans have them in common.
Source: none.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vgraph.ir.buffers import shared_operand
from vgraph.ir.program import Program, Value, once_each
from vgraph.ir.tdl.table import is_absent

Numbers = NDArray[np.intp]


@dataclass(frozen=True, eq=False)
class Readings:
    """Readings in the order of ops and their operands; values numbered in the order of inputs, ops and their results.

    ``number``: by the id of a value. ``inputs``: how many values are. ``reader``, ``read``: by reading, which op reads
    which value; ``first``: by op its first reading, and the number of all. ``maker``: by result its op; ``made``: by op
    its first result, as a value. ``bytes``, ``absent``: by value. ``looks``: the ops of one operand whose results may
    lie in its memory.
    """

    values: tuple[Value, ...]
    number: dict[int, int]
    inputs: int
    reader: Numbers
    read: Numbers
    first: Numbers
    maker: Numbers
    made: Numbers
    bytes: NDArray[np.float64]
    absent: NDArray[np.bool_]
    looks: tuple[int, ...]


@once_each
def readings_of(program: Program) -> Readings:
    """Those of a Program, found once."""
    operands = [tuple(op.operands()) for op in program.ops]
    values = [given.value for given in program.inputs]
    values += [value for op in program.ops for value in op.results]
    number = {value.id: place for place, value in enumerate(values)}
    read = [number[value.id] for found in operands for value in found]
    counts, results = [len(found) for found in operands], [len(op.results) for op in program.ops]
    ops, inputs = np.arange(len(operands)), len(program.inputs)
    targets = {id(op.target): op for op in program.ops}  # whether it looks at its operand is asked once a target
    looking = {target for target, op in targets.items() if shared_operand(op) is not None}
    looks = [n for n, op in enumerate(program.ops) if counts[n] == 1 and id(op.target) in looking]
    alike = {(value.shape, value.dtype): value for value in values}
    sizes = {key: float(value.row_bytes) for key, value in alike.items()}
    return Readings(
        values=tuple(values),
        number=number,
        inputs=inputs,
        reader=np.repeat(ops, counts),
        read=np.array(read, np.intp),
        first=np.cumsum([0, *counts]),
        maker=np.repeat(ops, results),
        made=inputs + np.cumsum([0, *results])[:-1],
        bytes=np.array([sizes[value.shape, value.dtype] for value in values]),
        absent=np.array([is_absent(value) for value in values], np.bool_),
        looks=tuple(looks),
    )
