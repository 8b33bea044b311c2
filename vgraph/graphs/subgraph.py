"""Subgraphs: some of a graph's nodes and edges as a graph, with their features.

Takes: a Graph and ids. Gives: Graphs whose ``"_ID"`` features hold the ids of before. Runs once per sample.
Source: DGL section 3 (subgraphs, the blocks of sampled training); its order of nodes and edges is kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from vgraph.arguments import COUNT, EACH, checked
from vgraph.errors import GraphError
from vgraph.graphs.frame import Frame, resolve_ids
from vgraph.graphs.given import GRAPH
from vgraph.graphs.graph_data import AnyGraph, GraphData
from vgraph.graphs.ids_by_type import edge_ids_by_type
from vgraph.graphs.mutation import ID, kept_topology
from vgraph.graphs.types import Device, Edges, EdgeType, EType, Nodes
from vgraph.ir.topology import Topology

NodeIds = Mapping[str, Tensor]
EdgeIds = Mapping[EdgeType, Tensor]


def take(g: AnyGraph, nodes: NodeIds, edges: EdgeIds, *, store_ids: bool = True) -> AnyGraph:
    """Some nodes and edges in the order given; of types that are not named, all."""
    sizes = None if nodes or g.sizes is None else g.sizes
    src = {t: _taken(frame, nodes.get(t), store_ids and bool(nodes)) for t, frame in g.src_frames.items()}
    kept = {t: _taken(frame, edges.get(t), store_ids) for t, frame in g.edge_frames.items()}
    topologies = {t: kept_topology(g.relation(t)[0], t, nodes, edges, sizes) for t in g.canonical_etypes}
    gdata = None if nodes else g.gdata.copy()
    return type(g).of_types(topologies, src, None, kept, gdata, sizes)


def _taken(frame: Frame, ids: Tensor | None, store_ids: bool) -> Frame:
    taken = frame.copy() if ids is None else frame.take(ids)
    if store_ids:
        taken[ID] = torch.arange(frame.num_rows, device=frame.device) if ids is None else ids
    return taken


def gathering_lazily(g: AnyGraph) -> AnyGraph:
    """The same graph; the features of parts that are taken of it are gathered when they are first read."""
    topologies = {t: g.relation(t)[0] for t in g.canonical_etypes}
    nodes = {t: frame.lazily() for t, frame in g.src_frames.items()}
    edges = {t: frame.lazily() for t, frame in g.edge_frames.items()}
    return type(g).of_types(topologies, nodes, None, edges, g.gdata.lazily(), g.sizes)


def _whole(g: AnyGraph) -> AnyGraph:
    if g.is_block:
        raise GraphError("a block has no subgraphs", cure="turn it into a graph with block_to_graph")
    return g


def _stored(g: AnyGraph, made: AnyGraph) -> AnyGraph:
    """Ids of before have the graph's own dtype."""
    for frame in (*made.src_frames.values(), *made.dst_frames.values(), *made.edge_frames.values()):
        if ID in frame and frame[ID].dtype != g.idtype:
            frame[ID] = frame[ID].to(g.idtype)
    return made


def _by_node_type(g: GraphData, nodes: Nodes) -> dict[str, Tensor]:
    """Ids by node type, as the user gave them; none of types that are not named."""
    if not isinstance(nodes, Mapping):
        if len(g.src_frames) > 1:
            cure = "pass ids by type, as in {" + repr(g.ntypes[0]) + ": ids}"
            raise GraphError(f"the graph has node types {', '.join(g.ntypes)}", cure=cure)
        nodes = {g.ntypes[0]: nodes}
    found = {t: resolve_ids([], 0, g.device) for t in g.src_frames}
    for t, ids in nodes.items():
        count = g.num_nodes(t)
        found[t] = resolve_ids(ids, count, g.device)
    return found


def _by_edge_type(g: GraphData, edges: Edges) -> dict[EdgeType, Tensor]:
    nothing = {t: resolve_ids([], 0, g.device, "edge") for t in g.canonical_etypes}
    return nothing | edge_ids_by_type(g, edges)


def _refuse_twins(ids: Mapping[str, Tensor]) -> None:
    for t, own in ids.items():
        found, counts = torch.unique(own, return_counts=True)
        if found.shape != own.shape:
            twin = int(found[counts > 1][0])
            raise GraphError(f"node {twin} of type {t!r} is given twice", cure="give every id once")


def _by_source(t: Topology, ids: Tensor, places: Tensor) -> Tensor:
    """Edge ids in order of their sources' new numbers, then of ids."""
    order = places.index_select(0, t.src.index_select(0, ids)).argsort(stable=True)
    return ids.index_select(0, order)


@checked(graph=GRAPH)
def node_subgraph(
    graph: AnyGraph, nodes: Nodes, *, relabel_nodes: bool = True, store_ids: bool = True, output_device: Device = None
) -> AnyGraph:
    """The nodes given, in that order, and the edges between them, in order of their sources.

    Args:
        graph: a graph.
        nodes: an id, ids (k,), a mask or a slice; a dict of those by type, where there are several. Types that it
            leaves out have none.
        relabel_nodes: keep only those nodes, and number them anew; else all nodes stay.
        store_ids: set the feature ``"_ID"`` of edges, and of nodes that are numbered anew, to the ids of before.
        output_device: where the result goes; None: where the graph is.

    Returns:
        A graph of the same class, with the features of what it has. Where nodes are numbered anew it is no batch any
        more.

    Raises:
        GraphError: an id is out of range or given twice, the graph is a block, or it has several types and none is
            named.
        DTypeError: ids are not whole numbers.
        NameLookupError: there is no such type.

    Source: DGL 1.1, ``dgl.node_subgraph``.

    Example:
        >>> import vgraph
        >>> part = vgraph.node_subgraph(vgraph.graph(([0, 1, 2], [1, 2, 3])), [2, 1])
        >>> part.edges(), part.ndata["_ID"].tolist(), part.edata["_ID"].tolist()
        ((tensor([1]), tensor([0])), [2, 1], [1])
    """
    chosen = _by_node_type(_whole(graph), nodes)
    _refuse_twins(chosen)
    edges: dict[EdgeType, Tensor] = {}
    for key in graph.canonical_etypes:
        t = graph.relation(key)[0]
        ends = [_is_among(chosen[name], graph.num_nodes(name))[end] for end, name in ((t.src, key[0]), (t.dst, key[2]))]
        ids = (ends[0] & ends[1]).nonzero().squeeze(1)
        edges[key] = _by_source(t, ids, _places(chosen[key[0]], graph.num_nodes(key[0])))
    made = take(graph, chosen if relabel_nodes else {}, edges, store_ids=store_ids)
    return _placed(_stored(graph, made), output_device)


def _is_among(ids: Tensor, count: int) -> Tensor:
    return torch.zeros(count, dtype=torch.bool, device=ids.device).index_fill_(0, ids, True)


def _places(ids: Tensor, count: int) -> Tensor:
    places = torch.zeros(count, dtype=torch.int64, device=ids.device)
    places[ids] = torch.arange(ids.shape[0], device=ids.device)
    return places


def _placed(g: AnyGraph, device: Device) -> AnyGraph:
    return g if device is None else g.to(device)


@checked(graph=GRAPH)
def edge_subgraph(
    graph: AnyGraph, edges: Edges, *, relabel_nodes: bool = True, store_ids: bool = True, output_device: Device = None
) -> AnyGraph:
    """The edges given, in that order, and the nodes at their ends.

    Args:
        graph: a graph.
        edges: an id, ids (k,), a mask, a slice, or a pair (u, v) of ends for the edges ``u[i] -> v[i]``, the first of
            several; a dict of those by type, where there are several. Types that it leaves out have none.
        relabel_nodes: keep only the nodes at their ends, numbered as they first appear, sources first; else all nodes
            stay.
        store_ids: set the feature ``"_ID"`` of edges, and of nodes that are numbered anew, to the ids of before.
        output_device: where the result goes; None: where the graph is.

    Returns:
        A graph of the same class, with the features of what it has. Where nodes are numbered anew it is no batch any
        more.

    Raises:
        GraphError: an id is out of range, the graph is a block, or it has several types and none is named.
        DTypeError: ids are not whole numbers.
        NameLookupError: there is no such type.

    Source: DGL 1.1, ``dgl.edge_subgraph``.

    Example:
        >>> import vgraph
        >>> part = vgraph.edge_subgraph(vgraph.graph(([0, 1, 2], [1, 2, 3])), [2])
        >>> part.edges(), part.ndata["_ID"].tolist()
        ((tensor([0]), tensor([1])), [2, 3])
    """
    chosen = _by_edge_type(_whole(graph), edges)
    made = take(graph, touched_nodes(graph, chosen) if relabel_nodes else {}, chosen, store_ids=store_ids)
    return _placed(_stored(graph, made), output_device)


def touched_nodes(g: GraphData, edges: EdgeIds, first: NodeIds | None = None) -> dict[str, Tensor]:
    """The nodes at the ends of edges by type: ``first``, then as they first appear, type by type."""
    ends: dict[str, list[Tensor]] = {t: [first[t].long()] if first and t in first else [] for t in g.src_frames}
    for key, ids in edges.items():
        t = g.relation(key)[0]
        ends[key[0]].append(t.src.index_select(0, ids).long())
        ends[key[2]].append(t.dst.index_select(0, ids).long())
    nothing = torch.empty(0, dtype=torch.int64, device=g.device)
    return {name: first_seen(torch.cat([nothing, *found])) for name, found in ends.items()}


def first_seen(ids: Tensor) -> Tensor:
    """Every id once, in order of first appearance."""
    found, inverse = torch.unique(ids, return_inverse=True)
    first = torch.full_like(found, ids.shape[0])
    first.scatter_reduce_(0, inverse, torch.arange(ids.shape[0], device=ids.device), "amin")
    return ids.index_select(0, first.sort().values)


@checked(graph=GRAPH)
def in_subgraph(
    graph: AnyGraph, nodes: Nodes, *, relabel_nodes: bool = False, store_ids: bool = True, output_device: Device = None
) -> AnyGraph:
    """All nodes and the edges that end in those given.

    Args:
        graph: a graph.
        nodes: an id, ids (k,), a mask or a slice; a dict of those by type, where there are several. Types that it
            leaves out have none.
        relabel_nodes: keep only the nodes at the ends of those edges, and number them anew; else all nodes stay.
        store_ids: set the feature ``"_ID"`` of edges, and of nodes that are numbered anew, to the ids of before.
        output_device: where the result goes; None: where the graph is.

    Returns:
        A graph of the same class, with the features of what it has. Where nodes are numbered anew it is no batch any
        more. Edges stand node by node.

    Raises:
        GraphError: an id is out of range, the graph is a block, or it has several types and none is named.
        DTypeError: ids are not whole numbers.
        NameLookupError: there is no such type.

    Source: DGL 1.1, ``dgl.in_subgraph``.

    Example:
        >>> import vgraph
        >>> vgraph.in_subgraph(vgraph.graph(([0, 1, 2], [1, 2, 2])), [2]).edges()
        (tensor([1, 2]), tensor([2, 2]))
    """
    chosen = _by_node_type(_whole(graph), nodes)
    edges = {k: graph.in_edges(chosen[k[2]], "eid", k).long() for k in graph.canonical_etypes}
    return edge_subgraph(graph, edges, relabel_nodes=relabel_nodes, store_ids=store_ids, output_device=output_device)


@checked(graph=GRAPH)
def out_subgraph(
    graph: AnyGraph, nodes: Nodes, *, relabel_nodes: bool = False, store_ids: bool = True, output_device: Device = None
) -> AnyGraph:
    """All nodes and the edges that begin in those given.

    Args:
        graph: a graph.
        nodes: an id, ids (k,), a mask or a slice; a dict of those by type, where there are several. Types that it
            leaves out have none.
        relabel_nodes: keep only the nodes at the ends of those edges, and number them anew; else all nodes stay.
        store_ids: set the feature ``"_ID"`` of edges, and of nodes that are numbered anew, to the ids of before.
        output_device: where the result goes; None: where the graph is.

    Returns:
        A graph of the same class, with the features of what it has. Where nodes are numbered anew it is no batch any
        more. Edges stand node by node.

    Raises:
        GraphError: an id is out of range, the graph is a block, or it has several types and none is named.
        DTypeError: ids are not whole numbers.
        NameLookupError: there is no such type.

    Source: DGL 1.1, ``dgl.out_subgraph``.

    Example:
        >>> import vgraph
        >>> vgraph.out_subgraph(vgraph.graph(([0, 1, 2], [1, 2, 2])), [1]).edges()
        (tensor([1]), tensor([2]))
    """
    chosen = _by_node_type(_whole(graph), nodes)
    edges = {k: graph.out_edges(chosen[k[0]], "eid", k).long() for k in graph.canonical_etypes}
    return edge_subgraph(graph, edges, relabel_nodes=relabel_nodes, store_ids=store_ids, output_device=output_device)


@checked(graph=GRAPH, k=COUNT)
def khop_in_subgraph(
    graph: GraphData,
    nodes: Nodes,
    k: int,
    *,
    relabel_nodes: bool = True,
    store_ids: bool = True,
    output_device: Device = None,
) -> Any:
    """The nodes from which those given are reached in at most ``k`` steps, and the edges between them.

    Args:
        graph: a graph.
        nodes: an id, ids (k,), a mask or a slice; a dict of those by type, where there are several. Types that it
            leaves out have none.
        k: how many steps, from 0 up.
        relabel_nodes: keep only those nodes, and number them anew; else all nodes stay.
        store_ids: set the feature ``"_ID"`` of edges, and of nodes that are numbered anew, to the ids of before.
        output_device: where the result goes; None: where the graph is.

    Returns:
        A graph of the same class, its nodes in order of their ids; with ``relabel_nodes`` a pair of it and of the new
        ids (k,) of the nodes given, a dict by type where they were one.

    Raises:
        ArgumentError: ``k`` is no whole number from 0 up.
        GraphError: an id is out of range, the graph a block, or of several types and none is named.
        DTypeError: ids are not whole numbers.
        NameLookupError: there is no such type.

    Source: DGL 1.1, ``dgl.khop_in_subgraph``.

    Example:
        >>> import vgraph
        >>> part, ids = vgraph.khop_in_subgraph(vgraph.graph(([0, 1, 2], [1, 2, 3])), 2, k=1)
        >>> part.ndata["_ID"].tolist(), ids
        ([1, 2], tensor([1]))
    """
    return _khop(graph, nodes, k, (True, relabel_nodes, store_ids, output_device))


@checked(graph=GRAPH, k=COUNT)
def khop_out_subgraph(
    graph: GraphData,
    nodes: Nodes,
    k: int,
    *,
    relabel_nodes: bool = True,
    store_ids: bool = True,
    output_device: Device = None,
) -> Any:
    """The nodes that are reached from those given in at most ``k`` steps, and the edges between them.

    Args:
        graph: a graph.
        nodes: an id, ids (k,), a mask or a slice; a dict of those by type, where there are several. Types that it
            leaves out have none.
        k: how many steps, from 0 up.
        relabel_nodes: keep only those nodes, and number them anew; else all nodes stay.
        store_ids: set the feature ``"_ID"`` of edges, and of nodes that are numbered anew, to the ids of before.
        output_device: where the result goes; None: where the graph is.

    Returns:
        A graph of the same class, its nodes in order of their ids; with ``relabel_nodes`` a pair of it and of the new
        ids (k,) of the nodes given, a dict by type where they were one.

    Raises:
        ArgumentError: ``k`` is no whole number from 0 up.
        GraphError: an id is out of range, the graph a block, or of several types and none is named.
        DTypeError: ids are not whole numbers.
        NameLookupError: there is no such type.

    Source: DGL 1.1, ``dgl.khop_out_subgraph``.

    Example:
        >>> import vgraph
        >>> vgraph.khop_out_subgraph(vgraph.graph(([0, 1, 2], [1, 2, 3])), 1, k=2)[0].ndata["_ID"].tolist()
        [1, 2, 3]
    """
    return _khop(graph, nodes, k, (False, relabel_nodes, store_ids, output_device))


def _khop(g: GraphData, nodes: Nodes, k: int, options: tuple[bool, bool, bool, Device]) -> Any:
    is_in, relabel_nodes, store_ids, output_device = options
    given = _by_node_type(_whole(g), nodes)
    reached, before = {name: torch.unique(ids) for name, ids in given.items()}, -1
    for _ in range(k):
        if before == (before := sum(map(len, reached.values()))):  # further steps reach no others
            break
        found = {name: [ids] for name, ids in reached.items()}
        for key in g.canonical_etypes:
            near, far = (key[2], key[0]) if is_in else (key[0], key[2])
            ends = g.predecessors(reached[near], key) if is_in else g.successors(reached[near], key)
            found[far].append(ends.long())
        reached = {name: torch.unique(torch.cat(ids)) for name, ids in found.items()}
    made = node_subgraph(g, reached, relabel_nodes=relabel_nodes, store_ids=store_ids, output_device=output_device)
    if not relabel_nodes:
        return made
    new = {t: torch.searchsorted(reached[t], ids).to(g.idtype) for t, ids in given.items()}
    return made, new if isinstance(nodes, Mapping) else next(iter(new.values()))


@checked(graph=GRAPH, ntypes=EACH)
def node_type_subgraph(graph: AnyGraph, ntypes: Iterable[str], output_device: Device = None) -> AnyGraph:
    """All nodes of some types and the edges between them, features included.

    Args:
        graph: a graph.
        ntypes: names of node types.
        output_device: where the result goes; None: where the graph is.

    Returns:
        A graph of the same class with all nodes of these types, also those without edges; a batch stays a batch.

    Raises:
        NameLookupError: there is no such type.
        GraphError: no type of edges is left, or the graph is a block.

    Source: DGL 1.1, ``dgl.node_type_subgraph``.

    Example:
        >>> import vgraph
        >>> g = vgraph.heterograph({("a", "to", "b"): ([0], [1]), ("b", "by", "b"): ([0], [1])})
        >>> vgraph.node_type_subgraph(g, ["b"]).canonical_etypes
        [('b', 'by', 'b')]
    """
    names = [t for t in graph.ntypes if t in {graph.ntypes[graph.get_ntype_id(name)] for name in ntypes}]
    edges = [t for t in graph.canonical_etypes if t[0] in names and t[2] in names]
    return _placed(_of_some_types(_whole(graph), names, edges), output_device)


@checked(graph=GRAPH, etypes=EACH)
def edge_type_subgraph(graph: AnyGraph, etypes: Iterable[EType], output_device: Device = None) -> AnyGraph:
    """All edges of some types and all nodes of the types at their ends, features included.

    Args:
        graph: a graph.
        etypes: edge types: names or triples (type of sources, name, type of destinations).
        output_device: where the result goes; None: where the graph is.

    Returns:
        A graph of the same class with all nodes of the types at their ends; a batch stays a batch.

    Raises:
        NameLookupError: there is no such type.
        GraphError: no type is chosen, or the graph is a block.

    Source: DGL 1.1, ``dgl.edge_type_subgraph``.

    Example:
        >>> import vgraph
        >>> g = vgraph.heterograph({("a", "to", "b"): ([0], [1]), ("b", "by", "b"): ([0], [1])})
        >>> vgraph.edge_type_subgraph(g, ["to"]).num_nodes()
        3
    """
    chosen = {graph.to_canonical_etype(t) for t in etypes}
    edges = [t for t in graph.canonical_etypes if t in chosen]
    names = [t for t in graph.ntypes if any(t in (e[0], e[2]) for e in edges)]
    return _placed(_of_some_types(_whole(graph), names, edges), output_device)


def _of_some_types(g: AnyGraph, names: Sequence[str], edges: Sequence[EdgeType]) -> AnyGraph:
    if not edges:
        raise GraphError("no type of edges is left", cure="choose more types")
    frames = {t: g.src_frames[t] for t in names}  # all rows stay: what is set there is set here
    kept = {t: g.edge_frames[t] for t in edges}
    for frame in (*frames.values(), *kept.values()):
        frame.is_shared = True
    sizes = None if g.sizes is None else {t: g.sizes[t] for t in names}
    return type(g).of_types({t: g.relation(t)[0] for t in edges}, frames, None, kept, g.gdata.copy(), sizes)
