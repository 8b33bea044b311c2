"""Accumulators: rows of the table of reductions (``ir/reductions.py``) in the C family.

Takes: a reduction over edges, names of variables. Gives: the line that starts, joins or finishes an accumulator. Runs
once per function.
"""

from __future__ import annotations

import math

from vgraph.fusion.expressions import NUMBER_TYPES
from vgraph.ir.program import Op
from vgraph.ir.reductions import ReduceInfo


def start(row: ReduceInfo, kind: str) -> str:
    """What accumulators of numbers of type ``kind`` start with."""
    number = row.empty if row.identity is None else row.identity
    if math.isfinite(number):
        return f"{kind}({number})"
    return f"{kind}({'vg_inf' if number > 0 else '-vg_inf'})"


def accumulated(
    op: Op, target: str, given: str, width: int, *, place: str = "", position: str = "", first: str = "false"
) -> str:
    """A number joins a reduction; ``place``: of the slot of what is picked, ``position``: the number's slot."""
    row, words = op.reduction, _words(op, width)
    if not row.lift:
        return combined(op, target, given, width, place=place, position=position, first=first)
    lifted = f"const auto y = vg_set<{words['V']}>({row.lift.format(x='x', **words)});"
    return f"{{ const auto x = vg_set<{words['V']}>({given}); {lifted} {combined(op, target, 'y', width)} }}"


def combined(
    op: Op, target: str, given: str, width: int, *, place: str = "", position: str = "", first: str = "false"
) -> str:
    """A partial result joins another one."""
    row = op.reduction
    if not row.picks:
        return f"{target} = {row.combine.format(a=target, x=given, **_words(op, width))};"
    largest = "true" if row.largest else "false"
    if place:
        return f"vg_extremum<{largest}>({target}, {place}, {given}, {position});"
    return f"vg_extreme<{largest}>({target}, {given}, {first});"


def finished(op: Op, given: str, width: int) -> str:
    """The result, of the accumulator of all elements."""
    finish = op.reduction.finish
    return finish.format(x=given, **_words(op, width)) if finish else given


def _words(op: Op, width: int) -> dict[str, str]:
    kind = NUMBER_TYPES[op.results[0].dtype]
    return {"T": kind, "V": f"vg_t<{kind}, {width}>"}
