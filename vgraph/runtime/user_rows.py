"""User rows: what loops read and give in the user's order of vertices, row by row as they come to it.

Takes: a Program, its phases and their code. Gives: loops that move rows themselves. Runs once per function.
Source: Cavs section 3.3 (pull and push as memory movement): a row that is in the cache anyway is moved for little.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from vgraph.ir.loop_body import LoopBody
from vgraph.ir.program import Input, Program, Rows, Value
from vgraph.ir.schedule import Phase
from vgraph.ir.space import VERTEX
from vgraph.runtime.call_rows import has_order
from vgraph.runtime.cpu.frontier_loop import FrontierLoop
from vgraph.runtime.python_codegen import PhaseCode


class UserRows(NamedTuple):
    """Inputs that loops read, and outputs that they write, in the user's order."""

    ins: tuple[Input, ...] = ()
    outs: tuple[Value, ...] = ()


def move_in_loops(
    program: Program, phases: Sequence[Phase], codes: Sequence[PhaseCode], num_outputs: int, in_rows: Collection[int]
) -> tuple[tuple[PhaseCode, ...], UserRows]:
    """The same code with native loops that move what no other phase moves."""
    loops = {i: code.loop for i, code in enumerate(codes) if isinstance(code.loop, FrontierLoop) and not phases[i].kind}
    if not loops:
        return tuple(codes), UserRows()
    made = [v for i, v in enumerate(program.outputs[:num_outputs]) if v is not None and i not in in_rows]
    outs = [v for v in made if _has_plain_rows(v) and made.count(v) == 1 and _is_made_by(v, phases, loops)]
    given = {
        i.value.id: i for i in program.inputs if has_order(i) and not i.is_topological and _has_plain_rows(i.value)
    }
    read = {i for index, code in enumerate(codes) if index not in loops for i in code.reads}
    read |= {v.id for v in program.outputs if v is not None}
    moved, changed = dict[int, Input](), list(codes)
    for index, loop in loops.items():
        ins = [given[i].value for i in loop.body.outside if i in given and i not in read | loop.body.whole]
        mine = [v for v in outs if v.id in loop.body.kept]
        body = _with_moves(loop.body, tuple(ins), tuple(mine))
        changed[index] = replace(codes[index], loop=replace(loop, body=body), reads=body.outside)
        moved.update((v.id, given[v.id]) for v in ins)
    return tuple(changed), UserRows(tuple(moved.values()), tuple(outs))


def _has_plain_rows(value: Value) -> bool:
    return value.space == VERTEX and value.row_dim == 0 and value.shape[0] == Rows(VERTEX)


def _is_made_by(value: Value, phases: Sequence[Phase], loops: Mapping[int, FrontierLoop]) -> bool:
    makers = [i for i, phase in enumerate(phases) if any(v.id == value.id for op in phase.ops for v in op.results)]
    return bool(makers) and all(
        i in loops and value.id in loops[i].body.kept and loops[i].body.place(value).root.id == value.id for i in makers
    )


def _with_moves(body: LoopBody, ins: tuple[Value, ...], outs: tuple[Value, ...]) -> LoopBody:
    """What comes in the user's order lies in scratch."""
    numbers = {v.id for v in ins}
    outside = tuple(i for i in body.outside if i not in numbers)
    return replace(body, temporary=(*body.temporary, *ins), outside=outside, ins=ins, outs=outs)


def values_in_loops(phases: tuple[Phase, ...], codes: tuple[PhaseCode, ...]) -> tuple[Value, ...]:
    """What frontiers write, slice by slice; everything else is an ordinary tensor."""
    found = {
        value.id: value
        for phase, code in zip(phases, codes, strict=True)
        if phase.is_loop
        for op in phase.ops
        for value in op.results
        if value.id in code.stores
    }
    return tuple(found.values())
