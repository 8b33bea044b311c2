"""Messages along all types of edges at once: what ends at one node is one sum, whichever types brought it.

Takes: a graph of several edge types, functions of edges and nodes. Gives: features in its frames. Runs at every call.
Source: DGL 1.1, ``DGLGraph.update_all`` and ``DGLGraph.apply_edges`` without an ``etype``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from vgraph.api.messages import update_all as updates
from vgraph.api.messages.batches import OfEdges, OfNodes
from vgraph.api.messages.segments import check_rows, softmax_segments
from vgraph.graphs.adjacency import is_all
from vgraph.graphs.graph_data import GraphData
from vgraph.graphs.types import EdgeType, Ends, EType, Ids
from vgraph.ir.topology import Topology


def update_all(
    graph: GraphData,
    message: OfEdges,
    reduce: OfNodes,
    apply: OfNodes | None = None,
    etype: EType = None,
) -> None:
    """What ``Graph.update_all`` does; the method's docstring is the manual.

    Without an ``etype`` built-ins run along all types: what a reduction is of reductions is known of them alone, and a
    mean of means is not the mean.
    """
    is_open = etype is None and len(graph.edge_frames) > 1 and updates.is_built_in(message)
    if is_open and updates.reduction_of(reduce) in ("sum", "max", "min"):
        with graph.all_or_nothing():
            _update_every_type(graph, message, reduce, apply)
    else:
        updates.update_all(graph, message, reduce, apply, etype)


def apply_edges(graph: GraphData, func: OfEdges, edges: Ids | Ends | None = None, etype: EType = None) -> None:
    """What ``Graph.apply_edges`` does; the method's docstring is the manual."""
    if etype is not None or len(graph.edge_frames) == 1 or not is_all(edges):
        updates.apply_edges(graph, func, edges, etype)
        return
    found = [(key, updates.evaluated_on_edges(graph, func, key)) for key in graph.canonical_etypes]
    with graph.all_or_nothing():
        for key, columns in found:
            graph.edge_frames[key].update(columns)


def _update_every_type(graph: GraphData, message: OfEdges, reduce: OfNodes, apply: OfNodes | None) -> None:
    """``update_all`` along all types; nodes that nothing reaches get zeros."""
    found: dict[str, list[Mapping[str, Tensor]]] = {}
    reached: dict[str, list[Tensor]] = {}
    for etype in graph.canonical_etypes:
        topology = graph.relation(etype)[0]
        if topology.num_edges:
            found.setdefault(etype[2], []).append(updates.results_of(graph, message, reduce, None, etype))
            reached.setdefault(etype[2], []).append(topology.in_degrees > 0)
    for ntype, parts in found.items():
        frame = graph.dst_frames[ntype]
        frame.update({name: _merged(reduce, [part[name] for part in parts], reached[ntype]) for name in parts[0]})
    if apply is not None:
        for ntype in graph.dsttypes:
            updates.apply_to_type(graph, ntype, apply)


def _merged(reduce: OfNodes, parts: list[Tensor], reached: list[Tensor]) -> Tensor:
    """What the reduction gives of all messages, of what it gives of those of each type."""
    name = updates.reduction_of(reduce)
    return torch.stack(parts).sum(0) if name == "sum" else best_of(name, parts, reached)


def best_of(name: str, parts: Sequence[Tensor], reached: Sequence[Tensor]) -> Tensor:
    """The largest ("max") or smallest of rows, (nodes, ...) each, of those alone that a message has ``reached``."""
    best = torch.maximum if name == "max" else torch.minimum
    whole, is_known = parts[0], reached[0]
    for part, mask in zip(parts[1:], reached[1:], strict=True):
        both, one = (flags.view(-1, *[1] * (part.ndim - 1)) for flags in (mask & is_known, mask))
        whole = torch.where(both, best(whole, part), torch.where(one, part, whole))
        is_known = is_known | mask
    return whole


def softmax_of_types(graph: GraphData, rows: Mapping[EType, Tensor], *, by_source: bool) -> dict[EdgeType, Tensor]:
    """The softmax over all edges that end (or begin) at a node, whatever their types; rows by edge type."""
    given = {graph.to_canonical_etype(etype): own for etype, own in rows.items()}
    for etype, own in given.items():
        check_rows(graph.relation(etype)[0], own)
    end = 0 if by_source else 2
    if len({(own.shape[1:], own.dtype) for own in given.values()}) == 1:  # one pass, and no type without a gradient
        groups = [list(given)]
    else:
        groups = [[etype for etype in given if etype[end] == ntype] for ntype in {etype[end]: 0 for etype in given}]
    found: dict[EdgeType, Tensor] = {}
    for group in groups:
        whole, parts = _joined_places(graph, group, by_source), torch.cat([given[etype] for etype in group])
        sizes = [given[etype].shape[0] for etype in group]
        found.update(zip(group, softmax_segments(whole, parts).split(sizes), strict=True))
    return {etype: found[etype] for etype in given}


def _joined_places(graph: GraphData, etypes: Sequence[EdgeType], by_source: bool) -> Topology:
    """Edges of several types, each of a source of its own, at nodes of all types one after the other."""
    starts: dict[str, int] = {}
    count = 0
    places: list[Tensor] = []
    for etype in etypes:
        topology, ntype = graph.relation(etype)[0], etype[0 if by_source else 2]
        if ntype not in starts:
            starts[ntype] = count
            count += topology.num_src if by_source else topology.num_dst
        places.append((topology.src if by_source else topology.dst) + starts[ntype])
    joined = torch.cat(places)
    each = torch.arange(joined.shape[0], dtype=joined.dtype, device=joined.device)
    return Topology(each, joined, joined.shape[0], count)
