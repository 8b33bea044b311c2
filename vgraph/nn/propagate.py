"""One round of messages, as layers send them: whatever the graph, also without an edge.

Takes: a graph, rows of senders, weights of edges. Gives: one row a receiver. Runs at every call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor

import vgraph
import vgraph.function as fn
from vgraph.nn.inputs import check_edge_weight, is_without_edges, without_arrivals

Reducer = Callable[[str, str], fn.Reduce]
OfRows = Callable[[Tensor], Tensor]
Finish = Callable[..., Tensor]  # of what arrived, and of each of the receivers' own rows


def in_turn(*functions: OfRows | None) -> OfRows | None:
    """Functions of rows as one, the first first; None: there is none."""
    given = tuple(function for function in functions if function is not None)
    if len(given) < 2:
        return given[0] if given else None

    def all_of_them(rows: Tensor) -> Tensor:
        for function in given:
            rows = function(rows)
        return rows

    return all_of_them


def propagate(graph: vgraph.Graph, message: fn.Message, reduce: fn.Reduce, like: Tensor) -> Tensor:
    """What ``reduce`` calls "out"; without an edge zeros, as wide as the rows of ``like``."""
    if is_without_edges(graph):  # a function that is not called cannot say how wide nothing is
        return without_arrivals(graph, like)
    graph.update_all(message, reduce)
    return graph.dstdata["out"]


def send_rows(
    graph: vgraph.Graph,
    rows: Tensor,
    edge_weight: Tensor | None = None,
    reduce: Reducer = fn.sum,
    *,
    ahead: Tensor | None = None,
    behind: Tensor | None = None,
    start: OfRows | None = None,
    finish: Finish | None = None,
    own: Sequence[Tensor] = (),
) -> Tensor:
    """The senders' rows, each times its edge's weight (edges,) or (edges, 1), reduced where edges end.

    ``start`` makes what senders send of their rows, ``finish(arrived, *own)`` what receivers keep of what arrived and
    of rows of their ``own``; ``ahead`` and ``behind`` scale what is sent and what arrived, one number a vertex and as
    many dims as ``rows``. All of it is part of the loops that send, and products are made where they are fastest.
    """
    graph = graph.local_var()  # which other threads do not see
    graph.srcdata["h"] = rows
    if ahead is not None:
        graph.srcdata["ahead"] = ahead
    if behind is not None:
        graph.dstdata["behind"] = behind
    if edge_weight is not None:
        graph.edata["w"] = check_edge_weight(graph, edge_weight).reshape(-1, *(1,) * (rows.dim() - 1))
    if is_without_edges(graph):
        rows = rows if start is None else start(rows)
        arrived = without_arrivals(graph, rows)
        return arrived if finish is None else finish(arrived, *own)
    message = _sender(start, ahead is not None, edge_weight is not None)
    then = finisher(graph, "out", finish, own, scales=behind is not None)
    graph.update_all(message, reduce("m", "out"), then)
    return graph.dstdata["out"]


def finisher(
    graph: vgraph.Graph, name: str, finish: Finish | None, own: Sequence[Tensor], *, scales: bool = False
) -> Callable[[Any], dict[str, Tensor]] | None:
    """The function of nodes that makes ``finish(arrived, *own)`` of what arrived as ``name``; None: there is none.

    Behind a reduction it runs in the loop that reduces, where rows do not depend on one another and each has arrived.
    ``scales``: by the receivers' "behind", before. What it reads is put into the receivers' frame.
    """
    if finish is None and not scales:
        return None
    places = [f"own {number}" for number in range(len(own))]
    for place, rows in zip(places, own, strict=True):
        graph.dstdata[place] = rows

    def then(nodes: Any) -> dict[str, Tensor]:
        rows = nodes.data[name] * nodes.data["behind"] if scales else nodes.data[name]
        return {name: rows if finish is None else finish(rows, *[nodes.data[place] for place in places])}

    return then


def _sender(start: OfRows | None, scales: bool, weighs: bool) -> fn.Message:
    if start is None and not scales:
        return fn.u_mul_e("h", "w", "m") if weighs else fn.copy_u("h", "m")

    def message(edges: Any) -> dict[str, Tensor]:
        rows = edges.src["h"] if start is None else start(edges.src["h"])
        rows = rows * edges.src["ahead"] if scales else rows
        return {"m": rows * edges.data["w"] if weighs else rows}

    return message
