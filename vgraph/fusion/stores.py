"""Sinks: where the numbers of a loop over features go, reductions among them; one text for CPUs and GPUs.

Takes: a Sink and the body of its loop. Gives: the line that puts the number there. Runs once per function.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from vgraph.fusion.expressions import NUMBER_TYPES
from vgraph.fusion.feature_body import Body
from vgraph.fusion.layout import LoopStore
from vgraph.ir.program import Op
from vgraph.ir.reductions import ReduceInfo
from vgraph.ir.space import EDGE


def put_loop_store(body: Body, store: LoopStore, accumulate: Callable[[Body, Op], None]) -> None:
    """``accumulate``: puts what adds a number to a reduction over edges."""
    value, flat = store.value, body.features.flat()
    size = math.prod(value.row_shape)
    if store.kind == "reduce":
        accumulate(body, store.op)
    elif store.kind == "feature":
        body.add_features(store.op)
    elif store.kind == "product":
        body.multiply(store.op)
    elif store.kind in ("left", "right"):
        rows = f"rows{store.op.results[0].id}"
        _store(
            body, f"{store.kind}{store.op.results[0].id} + {rows} * {size} + {flat}", body.get(value, reader=store.op)
        )
    elif store.kind == "store":
        row = "e" if value.space == EDGE else "v"
        _store(body, f"o{value.id} + {row} * {size} + {flat}", body.get(value))
    elif store.kind == "keep":
        _store(body, f"k{value.id} + j * {size} + {flat}", body.get(value))
    else:
        _store(body, f"t{value.id} + {flat}", body.get(value))


def _store(body: Body, place: str, given: str) -> None:
    body.put(f"vg_store<{body.features.width}>({place}, {given});")


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
    row, kind = op.reduction, NUMBER_TYPES[op.results[0].dtype]
    if row.picks:
        return _picked(row, target, given, place, position, first)
    if not row.lift:
        return f"{target} = {row.combine.format(a=target, x=given, T=kind, V=f'vg_t<{kind}, {width}>')};"
    words = {"T": kind, "V": f"vg_t<{kind}, {width}>"}
    lifted = f"const auto y = vg_set<{words['V']}>({row.lift.format(x='x', **words)});"
    joined = row.combine.format(a=target, x="y", **words)
    return f"{{ const auto x = vg_set<{words['V']}>({given}); {lifted} {target} = {joined}; }}"


def combined(op: Op, target: str, given: str, width: int, *, place: str = "", position: str = "") -> str:
    """A partial result joins another one."""
    row, kind = op.reduction, NUMBER_TYPES[op.results[0].dtype]
    if row.picks:
        return _picked(row, target, given, place, position, "false")
    return f"{target} = {row.combine.format(a=target, x=given, T=kind, V=f'vg_t<{kind}, {width}>')};"


def finished(op: Op, given: str, width: int) -> str:
    """The result, of the accumulator of all elements."""
    row, kind = op.reduction, NUMBER_TYPES[op.results[0].dtype]
    return row.finish.format(x=given, T=kind, V=f"vg_t<{kind}, {width}>") if row.finish else given


def _picked(row: ReduceInfo, target: str, given: str, place: str, position: str, first: str) -> str:
    largest = "true" if row.largest else "false"
    if place:
        return f"vg_extremum<{largest}>({target}, {place}, {given}, {position});"
    return f"vg_extreme<{largest}>({target}, {given}, {first});"
