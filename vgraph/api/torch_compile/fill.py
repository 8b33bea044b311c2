"""Fills the slot of calls inside torch.compile; what they need loads with the first of them, as it loads Dynamo.

Takes: the slot of ``vgraph/compiled_calls.py``. Gives: its functions; runs once, with ``import vgraph``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

from vgraph.compiled_calls import CompiledCalls, Results


def fill(calls: CompiledCalls) -> None:
    """Puts the functions below into the slot."""
    calls.outside = outside
    calls.updated = updated
    calls.edges_evaluated = edges_evaluated
    calls.vertices_evaluated = vertices_evaluated
    calls.degrees = degrees
    calls.groups = groups


def outside(function: Callable[..., Any], *args: Any, **named: Any) -> Any:
    """Calls a function outside the compiled graph."""
    from vgraph.api.torch_compile import probe

    return probe.outside(function, *args, **named)


def updated(topology: Any, frames: Any, message: Any, reduce: Any) -> Results | None:
    """What ``propagate`` gives, by an operator."""
    from vgraph.api.torch_compile import probe

    return probe.updated(topology, frames, message, reduce)


def edges_evaluated(topology: Any, frames: Any, function: Any) -> Results | None:
    """What ``evaluate_edges`` gives, by an operator."""
    from vgraph.api.torch_compile import probe

    return probe.edges_evaluated(topology, frames, function)


def vertices_evaluated(function: Any, graph: Any, features: dict[str, Any]) -> Results | None:
    """What a call of a VertexFunction gives, by an operator."""
    from vgraph.api.torch_compile import probe

    return probe.vertices_evaluated(function, graph, features)


def degrees(handle: Tensor, out: bool, count: int) -> Tensor:
    """The degrees of a topology's vertices, by an operator."""
    from vgraph.runtime import custom_op

    return custom_op.degrees(handle, out, count)


def groups(handle: Tensor, of_edges: bool, num_rows: int) -> tuple[Tensor, Tensor]:
    """The graphs of a batch as groups of rows, by an operator: a handle and the group of every row."""
    from vgraph.runtime import custom_op

    return custom_op.groups(handle, of_edges, num_rows)
