"""Reductions of a sparse matrix's entries: row by row, or all of them.

Takes: a pattern, values. Gives: one row of numbers a row, or one for all. Runs at every call.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from vgraph.api.messages.batches import EdgeBatch, NodeBatch
from vgraph.api.messages.propagate import propagate
from vgraph.api.messages.segments import reduce_segments
from vgraph.api.sparse.pattern import Pattern
from vgraph.errors import FunctionError

# a reduction's name -> that of segments, and what it is over all entries
_KINDS: dict[str, tuple[str, Callable[[Tensor], Tensor]]] = {
    "sum": ("sum", lambda value: value.sum(0)),
    "smin": ("min", lambda value: value.amin(0)),
    "smax": ("max", lambda value: value.amax(0)),
    "smean": ("mean", lambda value: value.mean(0)),
    "sprod": ("prod", lambda value: value.prod(0)),
}


def _check(rtype: str) -> None:
    if rtype not in _KINDS:
        raise FunctionError(f"there is no reduction {rtype!r}", cure=f"one of {', '.join(_KINDS)}")


def reduce_values(value: Tensor, rtype: str) -> Tensor:
    """All entries as one; 0 of none."""
    _check(rtype)
    if rtype == "smean" and not (value.is_floating_point() or value.is_complex()):
        value = value.to(torch.get_default_dtype())  # as of every row
    return _KINDS[rtype][1](value) if len(value) else value.sum(0)


def reduce_rows(pattern: Pattern, value: Tensor, rtype: str) -> Tensor:
    """The entries of every row as one, (rows, ...); 0 of none."""
    _check(rtype)
    if rtype == "sprod" and pattern.num_entries:
        return propagate(pattern.topology, {"src": {}, "dst": {}, "edge": {"x": value}}, _send, _multiplied)["x"]
    return reduce_segments(pattern.topology, value, "sum" if rtype == "sprod" else _KINDS[rtype][0])


def _send(edges: EdgeBatch) -> dict[str, Tensor]:
    return {"m": edges.data["x"]}


def _multiplied(nodes: NodeBatch) -> dict[str, Tensor]:
    return {"x": nodes.mailbox["m"].prod(1)}
