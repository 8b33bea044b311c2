"""Messages from edge to edge that leave out what comes back along the same edge, without a line graph.

Takes: a graph and one row an edge. Gives: one row an edge. Runs at every call; which edge leads back is found once per
topology. Source: Hashimoto 1989 (the non-backtracking operator); Yang et al. 2019 (D-MPNN, equation 4).
"""

from __future__ import annotations

import torch
from torch import Tensor

from vgraph.api.messages.batches import EdgeBatch, NodeBatch
from vgraph.api.messages.halo_rows import check_uncut
from vgraph.api.messages.propagate import evaluate_edges, propagate
from vgraph.api.messages.segments import check_rows, reduce_segments
from vgraph.arguments import checked
from vgraph.errors import FunctionError
from vgraph.graphs.edge_formats import number_pairs
from vgraph.graphs.given import GRAPH, TENSOR
from vgraph.graphs.graph_data import GraphData
from vgraph.graphs.transform import one_type
from vgraph.ir.topology import Topology


@checked(g=GRAPH, messages=TENSOR)
def non_backtracking(g: GraphData, messages: Tensor, op: str = "sum") -> Tensor:
    """For each edge u -> v, the sum or mean of the rows of the edges into u, without those from v.

    It is what ``update_all`` with a sum gives on ``line_graph(g, backtracking=False)``, in a time and memory that grow
    with the edges, not with the pairs of edges that follow each other: all that arrives at a node is added up once, and
    each edge takes off what comes back along it. A difference of sums loses the digits that the sums have more than it,
    and an infinity becomes a NaN; on the line graph neither happens.

    Args:
        g: a graph with one type of nodes and edges. Edges that stand there several times count as often; an edge
            without its reverse takes off nothing; a self-loop is its own reverse.
        messages: (edges, ...), floating point or whole numbers; gradients of any order flow through.
        op: "sum" or "mean".

    Returns:
        (edges, ...), 0 where no edge is left.

    Raises:
        FeatureError: there is not one row an edge.
        FunctionError: an unknown ``op``.
        GraphError: there are several types of nodes or edges, the graph is a block, or it is divided among ranks.

    Source: Hashimoto 1989 (the non-backtracking operator); Yang et al. 2019, equation 4 (D-MPNN).

    Example:
        >>> import torch, vgraph
        >>> path = vgraph.graph(([0, 1, 1, 2], [1, 0, 2, 1]))  # 0 - 1 - 2
        >>> vgraph.non_backtracking(path, torch.tensor([1.0, 10.0, 100.0, 1000.0]))
        tensor([   0., 1000.,    1.,    0.])
    """
    if op not in ("sum", "mean"):
        raise FunctionError(f"there is no op {op!r} of messages that leave one out", cure="pass sum or mean")
    t = g.relation(one_type(g, "non_backtracking"))[0]
    check_uncut(t, "non_backtracking")
    check_rows(t, messages)
    if not t.num_edges:
        return messages
    back, left = t.keep("edges that lead back", lambda: _leading_back(t))
    rows = {
        "src": {"all": reduce_segments(t, messages, "sum")},
        "dst": {},
        "edge": {"back": _returned(back, messages), "left": left.reshape(-1, *(1,) * (messages.ndim - 1))},
    }
    return evaluate_edges(t, rows, _mean_of_others if op == "mean" else _sum_of_others)["m"]


def _returned(back: Topology, messages: Tensor) -> Tensor:
    """The sum of the rows of the edges that lead back, an edge; zeros where there is none."""
    if not back.num_edges:
        return torch.zeros_like(messages)
    return propagate(back, {"src": {"x": messages}, "dst": {}, "edge": {}}, _send, _sum)["x"]


def _send(edges: EdgeBatch) -> dict[str, Tensor]:
    return {"m": edges.src["x"]}


def _sum(nodes: NodeBatch) -> dict[str, Tensor]:
    return {"x": nodes.mailbox["m"].sum(1)}


def _sum_of_others(edges: EdgeBatch) -> dict[str, Tensor]:
    others = edges.src["all"] - edges.data["back"]
    return {"m": torch.where(edges.data["left"] > 0, others, torch.zeros_like(others))}  # no rounding error of nothing


def _mean_of_others(edges: EdgeBatch) -> dict[str, Tensor]:
    return {"m": _sum_of_others(edges)["m"] / edges.data["left"].clamp(min=1)}


def _leading_back(t: Topology) -> tuple[Topology, Tensor]:
    """Edges as nodes, each with an edge from every one that leads back; (edges,) how many others lead to each."""
    src, dst, count = t.src.long(), t.dst.long(), max(t.num_src, t.num_dst)
    pairs, order = number_pairs(src, dst, count, count).sort(stable=True)
    turned = number_pairs(dst, src, count, count)
    first, behind = torch.searchsorted(pairs, turned), torch.searchsorted(pairs, turned, right=True)
    counts = behind - first
    edges = torch.repeat_interleave(torch.arange(t.num_edges, device=src.device), counts)
    begins = (first - counts.cumsum(0) + counts).index_select(0, edges)
    places = begins + torch.arange(edges.shape[0], device=src.device)
    returning = order.index_select(0, places)
    back = Topology(returning.to(t.src.dtype), edges.to(t.src.dtype), t.num_edges, t.num_edges)
    return back, t.in_degrees.index_select(0, src) - counts
