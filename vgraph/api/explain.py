"""Explain: what a function became, in text.

Takes: a graph and functions, or a vertex function. Gives: Programs, phases, schedule as text.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vgraph.api.capture import Bound
from vgraph.api.graph import Graph
from vgraph.api.tracer import CaptureError
from vgraph.api.updates import capture_update
from vgraph.api.vertex_function import VertexFunction, capture_vertex
from vgraph.compiler import make_plan
from vgraph.ir.printer import format_memory, format_program, format_schedule
from vgraph.ir.tdl import op_name
from vgraph.runtime.compiled import CompiledProgram, Situation


def explain(target: Graph | VertexFunction, *args: Any, **features: Any) -> str:
    """What a function became: its Programs with the user's lines, phases, schedule and memory.

    Args:
        target: a graph, followed by a message and a reduce function; or a VertexFunction, followed by
            a graph and, by keyword, its features.

    Returns:
        Text. If the function cannot be captured, the reason and the line stand first.

    >>> import torch, vgraph, vgraph.function as fn
    >>> g = vgraph.graph(([0, 1], [2, 2]))
    >>> g.ndata["h"] = torch.ones(3, 4)
    >>> print(vgraph.explain(g, fn.copy_u("h", "m"), fn.sum("m", "s")).splitlines()[0])
    captured: 2 Moves, 0 loops over frontiers
    """
    try:
        if isinstance(target, Graph):
            bound, situation = capture_update(target, *args)
        else:
            bound, situation = capture_vertex(target, args[0], features)
    except CaptureError as error:
        where = f"\n  at {error.line}" if error.line else ""
        return f"not captured, runs as written: {error.reason}{where}\n"
    return _explain_captured(bound, situation)


def _explain_captured(bound: Bound, situation: Situation) -> str:
    programs = _programs(bound)
    forward = next(iter(programs.values()))
    moves = sum(not hasattr(op.target, "overloadpacket") for phase in forward.phases for op in phase.ops)
    loops = sum(phase.is_loop for phase in forward.phases)
    parts = [f"captured: {moves} Moves, {loops} loop{'' if loops == 1 else 's'} over frontiers\n"]
    for title, program in programs.items():
        parts += [f"\n{title}\n", format_program(program.program, lines=True), _phases(program)]
    plan = make_plan(forward, situation)
    return "".join([*parts, "\n", format_schedule(plan.schedule), format_memory(plan.memory)])


def _programs(bound: Bound) -> Mapping[str, CompiledProgram]:
    captured = bound.captured
    for pair in captured.pairs.values():
        return {"forward": pair.forward, "backward": pair.backward}
    return {"forward": captured.programs[()]}


def _phases(program: CompiledProgram) -> str:
    lines: list[str] = []
    for number, phase in enumerate(program.phases):
        how = "frontier by frontier" if phase.is_loop else "once over all rows"
        if phase.is_reverse:
            how += ", last frontier first"
        if phase.is_serial:
            how += ", one vertex at a time (an operator is not described by TDL)"
        names = ", ".join(op_name(op.target) for op in phase.ops)
        lines.append(f"  phase {number}, {how}: {names}\n")
    return "".join(lines)
