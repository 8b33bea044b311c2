"""Attention over in-edges: a softmax of scores and the sum that it weighs, in one pass.

Takes: a graph whose frames hold what scores need. Gives: one row a receiver. Runs at every call.
Source: Velickovic et al. 2018, equations 3 and 4; DGL section 3.3 (edge softmax).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

import vgraph
import vgraph.function as fn
from vgraph.arguments import NUMBER, PART, POSITIVE
from vgraph.errors import FunctionError
from vgraph.nn.inputs import is_without_edges, without_arrivals
from vgraph.nn.propagate import Finish, finisher

Score = Callable[[Any], Tensor]
# What numbers layers of several heads take.
OF_HEADS = {"num_heads": POSITIVE, "feat_drop": PART, "attn_drop": PART, "negative_slope": NUMBER}


def sent_row(edges: vgraph.EdgeBatch) -> Tensor:
    """What an edge carries to be weighed: its sender's row."""
    return edges.src["ft"]


def widened(rows: Tensor) -> Tensor:
    """What attention computes with: of short floats, as autocast makes them, float32.

    Nothing on edges is rounded then, so that its derivative, too, needs one pass.
    """
    return rows.float() if rows.dtype in (torch.bfloat16, torch.float16) else rows


def attend(
    graph: vgraph.Graph,
    score: Score,
    *,
    drop: nn.Module,
    weight: Tensor | None = None,
    message: Score = sent_row,
    get_attention: bool = False,
    finish: Finish | None = None,
    own: Sequence[Tensor] = (),
    joins: bool = True,
) -> tuple[Tensor, Tensor | None]:
    """The senders' feature "ft", weighted by the softmax of ``score(edges)`` over each vertex's in-edges.

    Scores are (edges, ..., heads, 1), "ft" is (senders, ..., heads, width). Gives the sums, and the
    weights of the edges where ``get_attention`` asks for them: only then are they stored.
    ``weight``: (edges,), multiplies them after ``drop``. ``message``: what is weighted in place of "ft", of its shape.
    ``finish(sums, *own)``: what receivers keep of sums and of rows of their own; in the same loop if it ``joins``.
    """
    if is_without_edges(graph):
        rows, attention = _attend_to_nothing(graph, get_attention)
    elif get_attention:
        rows, attention = _attend_in_steps(graph, score, drop, weight, message)
    else:
        then = finisher(graph, "ft", finish, own) if joins else None
        rows, attention = _attend_at_once(graph, score, drop, weight, message, then), None
        finish = None if joins else finish
    return (rows if finish is None else finish(rows, *own)), attention


def _attend_at_once(
    graph: vgraph.Graph,
    score: Score,
    drop: nn.Module,
    weight: Tensor | None,
    message: Score,
    then: Callable[[Any], dict[str, Tensor]] | None,
) -> Tensor:
    def weighed(edges: vgraph.EdgeBatch) -> Tensor:
        return message(edges) * edges.data["w"]

    sent = message
    if weight is not None:
        graph.edata["w"], sent = _as_wide(weight, graph.srcdata["ft"]), weighed
    graph.update_all(
        lambda edges: {"m": sent(edges), "e": score(edges)},
        lambda nodes: {"ft": (drop(torch.softmax(nodes.mailbox["e"], 1)) * nodes.mailbox["m"]).sum(1)},
        then,
    )
    return graph.dstdata["ft"]


def _attend_in_steps(
    graph: vgraph.Graph, score: Score, drop: nn.Module, weight: Tensor | None, message: Score
) -> tuple[Tensor, Tensor]:
    graph.apply_edges(lambda edges: {"e": score(edges)})
    attention = drop(edge_softmax(graph, graph.edata.pop("e")))
    if weight is not None:
        attention = attention * _as_wide(weight, attention)
    graph.edata["a"] = attention
    if message is sent_row:
        graph.update_all(fn.u_mul_e("ft", "a", "m"), fn.sum("m", "ft"))
    else:
        graph.update_all(lambda edges: {"m": message(edges) * edges.data["a"]}, fn.sum("m", "ft"))
    return graph.dstdata["ft"], attention


def _attend_to_nothing(graph: vgraph.Graph, get_attention: bool) -> tuple[Tensor, Tensor | None]:
    """Zeros: nothing reaches anybody."""
    rows = graph.srcdata["ft"]
    attention = rows.new_zeros(0, *rows.shape[1:-1], 1) if get_attention else None
    return without_arrivals(graph, rows), attention


def _as_wide(weight: Tensor, like: Tensor) -> Tensor:
    """One number an edge, shaped to broadcast over the other dims of ``like``."""
    return weight.reshape(-1, *(1,) * (like.dim() - 1))


def edge_softmax(
    graph: vgraph.Graph, logits: vgraph.ops.Array, eids: Any = vgraph.ALL, norm_by: str = "dst"
) -> vgraph.ops.Array:
    """The softmax of numbers of edges over the edges that end at the same vertex.

    Args:
        graph: a graph with one type of edges, or a block.
        logits: (edges, ...), one row an edge, or one for each of ``eids``; tensors by edge type: edges of all
            these types that end at one vertex share a softmax.
        eids: ids (k,) of the edges that ``logits`` has rows for; "__ALL__": all of them.
        norm_by: "dst"; "src": over the edges that begin at the same vertex.

    Returns:
        As ``logits``: every column sums to 1 over the edges of a vertex.

    Raises:
        FunctionError: ``norm_by`` is neither.

    Source: Velickovic et al. 2018, equation 3; DGL 1.1, ``dgl.nn.functional.edge_softmax``.

    Example:
        >>> import torch, vgraph
        >>> from vgraph.nn import edge_softmax
        >>> g = vgraph.graph(([0, 1, 2], [2, 2, 0]))
        >>> edge_softmax(g, torch.zeros(3, 1)).squeeze(1)
        tensor([0.5000, 0.5000, 1.0000])
    """
    if norm_by not in ("dst", "src"):
        raise FunctionError(f"norm_by is {norm_by!r}", cure='pass "dst" or "src"')
    if isinstance(logits, Mapping):
        return vgraph.ops.edge_softmax(graph, logits, eids, norm_by)
    if not isinstance(eids, str):
        graph = graph.edge_subgraph(eids, relabel_nodes=False)
    if is_without_edges(graph):
        return logits
    over = graph if norm_by == "dst" else graph.reverse(copy_ndata=False)
    over = over.local_var()  # which other threads do not see
    is_whole = not (logits.is_floating_point() or logits.is_complex())
    over.edata["e"] = logits.long() if is_whole else logits  # differences of narrower whole numbers wrap around
    over.update_all(fn.copy_e("e", "e"), _peak_and_total)
    over.apply_edges(lambda edges: {"a": torch.exp(edges.data["e"] - edges.dst["peak"] - edges.dst["total"])})
    return over.edata["a"]


def _peak_and_total(nodes: Any) -> dict[str, Tensor]:
    """Apart, as there is no room for a logarithm beside a peak of -1e9."""
    logits = nodes.mailbox["e"]
    peak = logits.detach().max(1).values
    return {"peak": peak, "total": torch.exp(logits - peak.unsqueeze(1)).sum(1).log()}
