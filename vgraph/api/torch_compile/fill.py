"""Fills the slot of calls inside torch.compile; what they need loads with the first of them, as it loads Dynamo.

Takes: the slot of ``vgraph/compiled_calls.py``. Gives: its functions; runs once, with ``import vgraph``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar

import torch
from torch import Tensor

from vgraph.api.messages.batches import OfEdges, OfNodes
from vgraph.api.messages.propagate import Frames
from vgraph.api.vertex.function import VertexFunction
from vgraph.compiled_calls import CompiledCalls, Results
from vgraph.graphs.graph_data import GraphData
from vgraph.ir.topology import Topology

Given = ParamSpec("Given")
Made = TypeVar("Made")


def fill(calls: CompiledCalls) -> None:
    """Puts the functions below into the slot."""
    calls.outside = outside
    calls.updated = updated
    calls.edges_evaluated = edges_evaluated
    calls.vertices_evaluated = vertices_evaluated
    calls.degrees = degrees
    calls.groups = groups


def outside(function: Callable[Given, Made], *args: Given.args, **named: Given.kwargs) -> Made:
    """Calls a function outside the compiled graph."""
    from vgraph.api.torch_compile import probe

    return probe.outside(function, *args, **named)


def updated(topology: Topology, frames: Frames, message: OfEdges, reduce: OfNodes) -> Results | None:
    """What ``propagate`` gives, by an operator."""
    _refuse_export()
    from vgraph.api.torch_compile import probe

    return probe.updated(topology, frames, message, reduce)


def edges_evaluated(topology: Topology, frames: Frames, function: OfEdges) -> Results | None:
    """What ``evaluate_edges`` gives, by an operator."""
    _refuse_export()
    from vgraph.api.torch_compile import probe

    return probe.edges_evaluated(topology, frames, function)


def vertices_evaluated(function: VertexFunction, graph: GraphData, features: dict[str, object]) -> Results | None:
    """What a call of a VertexFunction gives, by an operator."""
    _refuse_export()
    from vgraph.api.torch_compile import probe

    return probe.vertices_evaluated(function, graph, features)


def degrees(handle: Tensor, out: bool, count: int) -> Tensor:
    """The degrees of a topology's vertices, by an operator."""
    _refuse_export()
    from vgraph.runtime import custom_op

    return custom_op.degrees(handle, out, count)


def groups(handle: Tensor, of_edges: bool, num_rows: int) -> tuple[Tensor, Tensor]:
    """The graphs of a batch as groups of rows, by an operator: a handle and the group of every row."""
    _refuse_export()
    from vgraph.runtime import custom_op

    return custom_op.groups(handle, of_edges, num_rows)


def _refuse_export() -> None:
    """An operator names its graph by a number of this process, which means another graph where a file is read."""
    if torch.compiler.is_exporting():
        from vgraph.api.torch_compile import probe

        probe.refused_export()
