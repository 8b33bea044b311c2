"""One round of messages, as layers send them: whatever the graph, also without an edge.

Takes: a graph, rows of senders, weights of edges. Gives: one row a receiver; tempo: every call.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

import vgraph
import vgraph.function as fn
from vgraph.nn.inputs import check_edge_weight

Reducer = Callable[[str, str], fn.Reduce]


def propagate(graph: vgraph.Graph, message: fn.Message, reduce: fn.Reduce, like: Tensor) -> Tensor:
    """What ``reduce`` calls "out"; without an edge zeros, as wide as the rows of ``like``."""
    if graph.num_edges() == 0:  # a function that is not called cannot say how wide nothing is
        return like.new_zeros(graph.topology.num_dst, *like.shape[1:])
    graph.update_all(message, reduce)
    return graph.dstdata["out"]


def send_rows(graph: vgraph.Graph, rows: Tensor, edge_weight: Tensor | None = None, reduce: Reducer = fn.sum) -> Tensor:
    """The senders' rows, each times its edge's weight (edges,) or (edges, 1), reduced where edges end."""
    with graph.local_scope():
        graph.srcdata["h"] = rows
        message = fn.copy_u("h", "m")
        if edge_weight is not None:
            weight = check_edge_weight(graph, edge_weight)
            graph.edata["w"] = weight.reshape(-1, *(1,) * (rows.dim() - 1))
            message = fn.u_mul_e("h", "w", "m")
        return propagate(graph, message, reduce("m", "out"), rows)
