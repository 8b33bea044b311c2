"""Sinks: where the numbers of a loop over features go; one text for CPUs and GPUs.

Takes: a Sink and the body of its loop. Gives: the line that puts the number there; tempo: once a function.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from vgraph.fusion.feature_body import Body
from vgraph.fusion.layout import Sink
from vgraph.ir.program import EDGE, Op


def put_sink(body: Body, sink: Sink, accumulate: Callable[[Body, Op], None]) -> None:
    """``accumulate``: puts what adds a number to a reduction over edges."""
    value, flat = sink.value, body.features.flat()
    size = math.prod(value.row_shape)
    if sink.kind == "reduce":
        accumulate(body, sink.op)
    elif sink.kind == "feature":
        body.add_features(sink.op)
    elif sink.kind == "product":
        body.multiply(sink.op)
    elif sink.kind in ("left", "right"):
        rows = f"rows{sink.op.results[0].id}"
        _store(body, f"{sink.kind}{sink.op.results[0].id} + {rows} * {size} + {flat}", body.get(value, reader=sink.op))
    elif sink.kind == "store":
        row = "e" if value.space == EDGE else "v"
        _store(body, f"o{value.id} + {row} * {size} + {flat}", body.get(value))
    elif sink.kind == "keep":
        _store(body, f"k{value.id} + j * {size} + {flat}", body.get(value))
    else:
        _store(body, f"t{value.id} + {flat}", body.get(value))


def _store(body: Body, place: str, given: str) -> None:
    body.put(f"vg_store<{body.features.width}>({place}, {given});")


def combined(op: Op, target: str, given: str, *, place: str = "", position: str = "", first: str = "false") -> str:
    """A number (or a partial result) joins a reduction; ``place``: of an extremum's slot, ``position``: its slot."""
    reduction = op.target.reduction
    if reduction in ("sum", "prod"):
        return f"{target} = {target} {'+' if reduction == 'sum' else '*'} {given};"
    largest = "true" if reduction == "max" else "false"
    if place:
        return f"vg_extremum<{largest}>({target}, {place}, {given}, {position});"
    return f"vg_extreme<{largest}>({target}, {given}, {first});"
