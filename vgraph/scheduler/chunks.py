"""Chunks: of a phase that runs once, the ops that hold rows of edges run on some of the edges at a time.

Takes: a Phase. Gives: Phases that do the same, those with rows of edges marked. Runs once per function.
Source: DGL section 4 (a message that is stored must not be as long as the graph has edges).
"""

from __future__ import annotations

from dataclasses import replace

from vgraph.ir.moves import Gather, SegmentReduce
from vgraph.ir.program import Op
from vgraph.ir.schedule import Phase
from vgraph.ir.space import EDGE, SHARED, SOURCE, VERTEX
from vgraph.ir.tdl.rowwise import Effect, row_effects

_SPACES = (VERTEX, EDGE, SOURCE, SHARED)


def split_edge_rows(phase: Phase) -> tuple[Phase, ...]:
    """Even parts run over all rows, odd ones over any vertices and their in-edges at a time.

    What an odd part makes of the sources or of all rows is a sum: over the chunks it adds up, and who reads
    it comes later. The phase as it is, where an op needs all edges at once.
    """
    if phase.is_loop or not all(_can_be_cut(op) for op in phase.ops):
        return (phase,)
    stage_of: dict[int, int] = {}  # ids of values
    members: dict[int, list[Op]] = {}
    for op in phase.ops:
        stage = max((_ready(v.id, v.space in (SOURCE, SHARED), stage_of) for v in op.operands()), default=0)
        if touches_edges(op):
            stage += stage % 2 == 0
        elif stage % 2 and any(v.space != VERTEX for v in op.results):
            stage += 1
        members.setdefault(stage, []).append(op)
        stage_of.update((v.id, stage) for v in op.results)
    return tuple(replace(phase, ops=tuple(members[s]), is_chunked=s % 2 == 1) for s in sorted(members))


def touches_edges(op: Op) -> bool:
    """Whether it reads or makes rows of edges."""
    return any(v.space == EDGE for v in (*op.operands(), *op.results))


def _ready(value_id: int, is_sum: bool, stage_of: dict[int, int]) -> int:
    stage = stage_of.get(value_id, 0)
    return stage + (is_sum and stage % 2 == 1)


def _can_be_cut(op: Op) -> bool:
    values = (*op.operands(), *op.results)
    if any(v.space not in _SPACES for v in values):
        return False
    if isinstance(op.target, (Gather, SegmentReduce)):
        return op.target.end in ("src", "dst") and not op.target.part
    effects = row_effects(op)
    if not touches_edges(op):
        return all(v.space != VERTEX for v in op.results) or all(e is Effect.ROWWISE for e in effects)
    return all(
        effect is Effect.ROWWISE if result.space == EDGE else effect is Effect.CONTRACT and result.space == SHARED
        for effect, result in zip(effects, op.results, strict=True)
    )
