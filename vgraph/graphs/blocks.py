"""Blocks: only what some nodes need, sources and destinations apart; and graphs without lonely nodes.

Takes: Graphs and ids. Gives: blocks, compacted graphs. Runs once per step of sampled training.
Source: DGL section 3 (message flow graphs).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from vgraph.arguments import checked
from vgraph.errors import GraphError
from vgraph.graphs.frame import Frame, resolve_ids
from vgraph.graphs.given import GRAPH, ONE_OR_MORE, refuse_others
from vgraph.graphs.graph_data import AnyGraph, GraphData
from vgraph.graphs.mutation import ID
from vgraph.graphs.subgraph import first_seen, take, touched_nodes
from vgraph.graphs.types import EdgeType, Nodes
from vgraph.ir.topology import Topology


@checked(g=GRAPH)
def to_block(
    g: AnyGraph, dst_nodes: Nodes | None = None, include_dst_in_src: bool = True, src_nodes: Nodes | None = None
) -> AnyGraph:
    """The edges of a graph as a block: sources and destinations are numbered apart.

    Features come along; ``"_ID"`` of srcdata, dstdata and edata hold the ids in ``g``.

    Args:
        g: a graph; its edges stay in order.
        dst_nodes: the destinations, ids (k,) in order (by type, where there are several; edges to types that it leaves
            out are left out); None: all nodes with an in-edge, ascending.
        include_dst_in_src: make the destinations the first sources, too.
        src_nodes: the sources, ids (k,) in order (by type, where there are several); None: those of the edges as they
            first appear.

    Returns:
        A block of the same class; a destination that no edge reaches stays.

    Raises:
        GraphError: an end of an edge is not among the nodes given, an id is out of range or given twice, or there are
            several types and none is named.
        NameLookupError: there is no such type.

    Source: DGL 1.1, ``dgl.to_block``.

    Example:
        >>> import torch, vgraph
        >>> block = vgraph.to_block(vgraph.graph(([5, 6], [6, 7])), torch.tensor([7, 6]))
        >>> block.srcdata["_ID"].tolist(), block.edges()
        ([7, 6, 5], (tensor([2, 1]), tensor([1, 0])))
    """
    dst = _destinations(g, dst_nodes)
    if isinstance(dst_nodes, Mapping):
        g = _reaching(g, dst)
    src: dict[str, Tensor] = {}
    given = None if src_nodes is None else _given(g, src_nodes)
    for name in g.ntypes:
        known = [dst[name]] if include_dst_in_src else [dst[name].new_empty(0)]
        ends = [g.relation(key)[0].src.long() for key in g.canonical_etypes if key[0] == name]
        src[name] = first_seen(torch.cat([*known, *ends])) if given is None else given[name]
    topologies = {key: _between(g, key, src[key[0]], dst[key[2]]) for key in g.canonical_etypes}
    sides = [{name: _side(g, name, ids) for name, ids in side.items()} for side in (src, dst)]
    edges: dict[EdgeType, Frame] = {}
    for key in g.canonical_etypes:
        edges[key] = g.edge_frames[key].copy()
        edges[key][ID] = torch.arange(g.num_edges(key), dtype=g.idtype, device=g.device)
    return type(g).of_types(topologies, sides[0], sides[1], edges)


def _reaching(g: AnyGraph, dst: Mapping[str, Tensor]) -> AnyGraph:
    """The graph without edges to types that have no destinations."""
    nothing = {key: dst[key[2]] for key in g.canonical_etypes if not len(dst[key[2]])}
    return take(g, {}, nothing, store_ids=False) if nothing else g


def _given(g: GraphData, nodes: Nodes) -> dict[str, Tensor]:
    by_type = nodes if isinstance(nodes, Mapping) else {g.ntypes[g.get_ntype_id(None)]: nodes}
    for name in by_type:
        g.get_ntype_id(name)
    found: dict[str, Tensor] = {t: resolve_ids(by_type.get(t, []), g.num_nodes(t), g.device) for t in g.ntypes}
    for name, ids in found.items():
        if torch.unique(ids).shape != ids.shape:
            raise GraphError(f"a node of type {name!r} is given twice", cure="give every id once")
    return found


def _destinations(g: GraphData, dst_nodes: Nodes | None) -> dict[str, Tensor]:
    if dst_nodes is not None:
        return _given(g, dst_nodes)
    ends: dict[str, list[Tensor]] = {name: [] for name in g.ntypes}
    for key in g.canonical_etypes:
        ends[key[2]].append(g.relation(key)[0].dst.long())
    nothing = torch.empty(0, dtype=torch.int64, device=g.device)
    return {name: torch.unique(torch.cat([nothing, *found])) for name, found in ends.items()}


def _between(g: GraphData, key: EdgeType, src: Tensor, dst: Tensor) -> Topology:
    """The edges of one type between nodes that are numbered as they stand in ``src`` and ``dst``."""
    whole, ends = g.relation(key)[0], []
    for end, ids, name in ((whole.src, src, key[0]), (whole.dst, dst, key[2])):
        places = torch.full((g.num_nodes(name),), -1, dtype=g.idtype, device=g.device)
        places[ids] = torch.arange(ids.shape[0], dtype=g.idtype, device=g.device)
        found = places.index_select(0, end)
        if found.numel() and int(found.min()) < 0:
            edge = int((found < 0).nonzero()[0])
            what = "dst_nodes" if ids is dst and end is whole.dst else "src_nodes"
            fact = f"edge {edge} of {key} is at node {int(end[edge])}, which is not among {what}"
            raise GraphError(fact, cure="remove the edge, or name the node")
        ends.append(found)
    return Topology(ends[0], ends[1], src.shape[0], dst.shape[0])


def _side(g: GraphData, name: str, ids: Tensor) -> Frame:
    frame = g.src_frames[name].take(ids)
    frame[ID] = ids.to(g.idtype)
    return frame


@checked(graphs=ONE_OR_MORE)
def compact_graphs(
    graphs: Any, always_preserve: Nodes | None = None, copy_ndata: bool = True, copy_edata: bool = True
) -> Any:
    """Graphs without the nodes that have no edge in any of them; all number their nodes alike.

    Args:
        graphs: a graph, or several of the same nodes.
        always_preserve: ids (by type, where there are several) of nodes that stay whatever happens, the first in
            order; None: none.
        copy_ndata: take the features of nodes along; ``"_ID"`` holds the ids of before in any case.
        copy_edata: take the features of edges along.

    Returns:
        A graph, or a list of as many as were given.

    Raises:
        GraphError: the graphs differ in types or in the number of nodes.
        FunctionError: an item is no graph.

    Source: DGL 1.1, ``dgl.compact_graphs``.

    Example:
        >>> import vgraph
        >>> vgraph.compact_graphs(vgraph.graph(([7], [3]))).ndata["_ID"].tolist()
        [7, 3]
    """
    if isinstance(graphs, GraphData):
        return compact_graphs([graphs], always_preserve, copy_ndata, copy_edata)[0]
    members: Sequence[GraphData] = list(graphs)
    refuse_others(members)
    if not members:
        return []
    first = members[0]
    for index, g in enumerate(members):
        counts = [{t: h.num_nodes(t) for t in h.ntypes} for h in (first, g)]
        if counts[0] != counts[1]:
            fact = f"graph {index} has nodes {counts[1]}, graph 0 {counts[0]}"
            raise GraphError(fact, cure="compact graphs of the same nodes")
    kept: dict[str, Tensor] | None = None if always_preserve is None else _given(first, always_preserve)
    for g in members:
        kept = touched_nodes(g, {t: torch.arange(g.num_edges(t), device=g.device) for t in g.canonical_etypes}, kept)
    assert kept is not None
    return [_compacted(g, kept, copy_ndata, copy_edata) for g in members]


def _compacted(g: AnyGraph, kept: Mapping[str, Tensor], copy_ndata: bool, copy_edata: bool) -> AnyGraph:
    made = take(g, kept, {}, store_ids=False)
    for name, frame in made.src_frames.items():
        if not copy_ndata:
            frame.columns = {}
        frame[ID] = kept[name].to(g.idtype)
    for frame in () if copy_edata else made.edge_frames.values():
        frame.columns = {}
    return made
