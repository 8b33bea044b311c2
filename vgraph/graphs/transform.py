"""Transforms: graphs with other edges between the same nodes.

Takes: a Graph. Gives: a Graph. Runs once per sample.
Source: DGL section 3; the order of edges is the one that DGL gives.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from vgraph.arguments import WORDS, checked
from vgraph.errors import FeatureError, FunctionError, GraphError
from vgraph.graphs.data import NODE, UNTYPED
from vgraph.graphs.edge_formats import ROWS, check_idtype, number_pairs
from vgraph.graphs.frame import Frame, add_rows
from vgraph.graphs.given import GRAPH
from vgraph.graphs.graph_data import AnyGraph, GraphData
from vgraph.graphs.mutation import ID
from vgraph.graphs.subgraph import take
from vgraph.graphs.types import EdgeType, EType, Ids
from vgraph.ir.topology import Topology

Fill = float | Tensor | str


def rejoin(
    g: AnyGraph,
    topologies: Mapping[EdgeType, Topology],
    edges: Mapping[EdgeType, Frame] | None = None,
    *,
    copy_ndata: bool = True,
) -> AnyGraph:
    """The nodes of a graph with other edges; a batch stays a batch."""
    known: Mapping[EdgeType, Frame] = edges or {}
    frames = {t: frame.copy() if copy_ndata else frame.empty() for t, frame in g.src_frames.items()}
    gdata = g.gdata.copy() if copy_ndata else None
    return type(g).of_types(topologies, frames, None, known, gdata, g.sizes)


def _on(g: GraphData, key: EdgeType, src: Tensor, dst: Tensor) -> Topology:
    check_idtype(g.idtype, 0, src.shape[0])
    old = g.relation(key)[0]
    return Topology(src.to(g.idtype), dst.to(g.idtype), old.num_src, old.num_dst, old.graph_sizes)


def one_type(g: GraphData, what: str) -> EdgeType:
    """The only edge type of a graph without types; GraphError: it has some."""
    if not g.is_homogeneous:
        fact = f"{what} needs a graph with one type of nodes and edges"
        raise GraphError(fact, cure="call to_homogeneous first, or choose types")
    return g.canonical_etypes[0]


@checked(g=GRAPH)
def reverse(
    g: AnyGraph,
    copy_ndata: bool = True,
    copy_edata: bool = False,
    *,
    share_ndata: bool | None = None,
    share_edata: bool | None = None,
) -> AnyGraph:
    """The graph with every edge turned round; edges keep their ids.

    Args:
        g: a graph.
        copy_ndata: take the features of nodes and of graphs along.
        copy_edata: take the features of edges along.
        share_ndata: the old name of ``copy_ndata``; None: that decides.
        share_edata: the old name of ``copy_edata``; None: that decides.

    Returns:
        A graph of the same class; an edge type (a, name, b) becomes (b, name, a), and a batch stays a batch.

    Source: DGL 1.1, ``dgl.reverse``.

    Example:
        >>> import vgraph
        >>> vgraph.reverse(vgraph.graph(([0], [1]))).edges()
        (tensor([1]), tensor([0]))
    """
    copy_ndata = copy_ndata if share_ndata is None else share_ndata
    copy_edata = copy_edata if share_edata is None else share_edata
    turned = {(d, name, s): _turned(g, (s, name, d)) for s, name, d in g.canonical_etypes}
    edges = {(t[2], t[1], t[0]): frame.copy() for t, frame in g.edge_frames.items()} if copy_edata else None
    return rejoin(g, turned, edges, copy_ndata=copy_ndata)


def _turned(g: GraphData, key: EdgeType) -> Topology:
    """The edges of a type the other way; in a batch they belong to the graphs of the nodes where they end then."""
    turned = g.relation(key)[0].reversed
    return turned if g.sizes is None or key[0] == key[2] else replace(turned, graph_sizes=g.sizes[key[0]], host=None)


@checked(g=GRAPH, edge_feat_names=WORDS.or_none())
def add_self_loop(
    g: AnyGraph, edge_feat_names: Sequence[str] | None = None, fill_data: Fill = 1.0, etype: EType = None
) -> AnyGraph:
    """A graph with one more edge v -> v for every node, after all others.

    Args:
        g: a graph; a batch stays a batch.
        edge_feat_names: the names of the edge features that ``fill_data`` gives to the new edges, while others are
            zero there; None: all.
        fill_data: a number or a row for them; or "sum", "mean", "max" or "min" over the node's in-edges, 0 where it
            has none.
        etype: the type of edges, which begins and ends in one type of nodes; None where there is one.

    Returns:
        A graph of the same class. Nodes that had a self-loop have another one.

    Raises:
        GraphError: the type joins two types of nodes, the graph is a block, or there are several types and none is
            named.
        ArgumentError: ``edge_feat_names`` are no names.
        FeatureError: ``fill_data`` does not fill a row.
        FunctionError: an unknown reduction.
        NameLookupError: there is no such type or feature.

    Source: DGL 1.1, ``dgl.add_self_loop``.

    Example:
        >>> import vgraph
        >>> vgraph.add_self_loop(vgraph.graph(([0], [1]))).edges()
        (tensor([0, 0, 1]), tensor([1, 0, 1]))
    """
    key = _looping(g, etype)
    t, _, _, frame = g.relation(key)
    nodes = torch.arange(t.num_src, dtype=g.idtype, device=g.device)
    names = list(frame) if edge_feat_names is None else list(edge_feat_names)
    filled = frame.copy()
    add_rows(filled, t.num_src, {name: _fill(t, frame[name], fill_data) for name in names})
    joined = _on(g, key, torch.cat([t.src, nodes]), torch.cat([t.dst, nodes]))
    kept = {k: g.relation(k)[0] for k in g.canonical_etypes}
    return rejoin(g, {**kept, key: joined}, {**{k: f.copy() for k, f in g.edge_frames.items()}, key: filled})


def _check_all_here(g: GraphData) -> None:
    """GraphError: other processes have the rest of the graph."""
    if any(g.relation(key)[0].halo is not None for key in g.canonical_etypes):
        raise GraphError(
            "a distributed graph stays as it was partitioned: its edges would change",
            cure="change the graph before vgraph.distributed.partition_graph",
        )


def _looping(g: GraphData, etype: EType) -> EdgeType:
    key = g.to_canonical_etype(etype)
    _check_all_here(g)
    if key[0] != key[2] or g.is_block:
        fact = f"edges of type {key} cannot be self-loops"
        raise GraphError(fact, cure="choose a type that begins and ends in one type of nodes")
    return key


def _filled(row: object, column: Tensor, shape: tuple[int, ...]) -> Tensor:
    """A row as often as there are new edges; FeatureError: it is none of this feature."""
    try:
        found = torch.as_tensor(row, device=column.device)
        rows = found.expand(shape)
    except (TypeError, ValueError, RuntimeError) as error:
        fact = f"fill_data, a {type(row).__name__}, does not fill rows of shape {tuple(shape[1:])}: {error}"
        raise FeatureError(fact, cure="give a number, or a row of that shape") from error
    if found.is_complex() and not column.is_complex():
        raise FeatureError("fill_data is complex, and the feature is not", cure="give a real number or row")
    return rows.to(column.dtype, copy=True, memory_format=torch.contiguous_format)


def _fill(t: Topology, column: Tensor, given: Fill) -> Tensor:
    shape = (t.num_dst, *column.shape[1:])
    if not isinstance(given, str):
        return _filled(given, column, shape)
    reductions = {"sum": "sum", "mean": "mean", "max": "amax", "min": "amin"}
    if given not in reductions:
        fact = f"fill_data is {given!r}"
        raise FunctionError(fact, cure='pass a number, "sum", "mean", "max" or "min"')
    ends = t.dst.long().reshape(-1, *(1,) * (column.ndim - 1)).expand_as(column)
    zeros = column.new_zeros(shape)
    return zeros.scatter_reduce(0, ends, column, reductions[given], include_self=False)


@checked(g=GRAPH)
def remove_self_loop(g: AnyGraph, etype: EType = None) -> AnyGraph:
    """A graph without the edges v -> v; the others keep their order and features.

    Args:
        g: a graph; a batch stays a batch.
        etype: the type of edges, which begins and ends in one type of nodes; None where there is one.

    Returns:
        A graph of the same class; one without self-loops has the same edges.

    Raises:
        GraphError: the type joins two types of nodes, the graph is a block, or there are several types and none is
            named.
        NameLookupError: there is no such type.

    Source: DGL 1.1, ``dgl.remove_self_loop``.

    Example:
        >>> import vgraph
        >>> vgraph.remove_self_loop(vgraph.graph(([0, 1], [1, 1]))).edges()
        (tensor([0]), tensor([1]))
    """
    key = _looping(g, etype)
    t = g.relation(key)[0]
    return take(g, {}, {key: (t.src != t.dst).nonzero().squeeze(1)}, store_ids=False)


@checked(g=GRAPH)
def to_simple(
    g: GraphData,
    return_counts: str | None = "count",
    writeback_mapping: bool = False,
    copy_ndata: bool = True,
    copy_edata: bool = False,
    aggregator: str = "arbitrary",
) -> Any:
    """A graph with one edge where there were several alike, sorted by source and destination.

    Args:
        g: a graph.
        return_counts: the edge feature, (edges,) in the dtype of ids, that counts them; None: nothing counts.
        writeback_mapping: also give, for every old edge, the new one.
        copy_ndata: take the node features along.
        copy_edata: take the edge features along, those of edges alike by ``aggregator``; with "arbitrary" the feature
            ``"_ID"`` says which edge that is.
        aggregator: "arbitrary" (the row of the first), "sum" or "mean".

    Returns:
        A graph of the same class; with ``writeback_mapping`` a pair of it and of ids (old edges,), which are a dict
        by type where there are several types.

    Raises:
        FunctionError: an unknown ``aggregator``.
        GraphError: there are so many nodes that int64 cannot number pairs of them.

    Source: DGL 1.1, ``dgl.to_simple``.

    Example:
        >>> import vgraph
        >>> g = vgraph.to_simple(vgraph.graph(([1, 0, 1], [2, 1, 2])))
        >>> g.edges(), g.edata["count"].tolist()
        ((tensor([0, 1]), tensor([1, 2])), [1, 2])
    """
    if aggregator not in ("arbitrary", "sum", "mean"):
        fact = f"aggregator is {aggregator!r}"
        raise FunctionError(fact, cure='pass "arbitrary", "sum" or "mean"')
    topologies: dict[EdgeType, Topology] = {}
    edges: dict[EdgeType, Frame] = {}
    mappings: dict[EdgeType, Tensor] = {}
    for key in g.canonical_etypes:
        t, _, _, frame = g.relation(key)
        pairs = number_pairs(t.src, t.dst, t.num_src, t.num_dst)
        pairs, inverse, counts = torch.unique(pairs, return_inverse=True, return_counts=True)
        topologies[key] = _on(g, key, pairs // max(t.num_dst, 1), pairs % max(t.num_dst, 1))
        made = edges[key] = Frame(pairs.shape[0], g.device, "edge", type_name=frame.type_name)
        if copy_edata and aggregator == "arbitrary":
            _keep_first(made, frame, _first(inverse, counts), g.idtype)
        elif copy_edata:
            made.update({name: _summed(column, inverse, counts, aggregator) for name, column in frame.items()})
        if return_counts is not None:
            made[return_counts] = counts.to(g.idtype)
        mappings[key] = inverse.to(g.idtype)
    simple = rejoin(g, topologies, edges, copy_ndata=copy_ndata)
    if not writeback_mapping:
        return simple
    return simple, mappings if len(mappings) > 1 else next(iter(mappings.values()))


def _first(inverse: Tensor, counts: Tensor) -> Tensor:
    """Which of the old edges comes first among those that become one."""
    first = torch.full_like(counts, inverse.shape[0])
    return first.scatter_reduce_(0, inverse, torch.arange(inverse.shape[0], device=inverse.device), "amin")


def _keep_first(made: Frame, frame: Frame, first: Tensor, idtype: torch.dtype) -> None:
    made.update({name: column.index_select(0, first) for name, column in frame.items()})
    made[ID] = first.to(idtype)


def _summed(column: Tensor, inverse: Tensor, counts: Tensor, aggregator: str) -> Tensor:
    whole = column.new_zeros((counts.shape[0], *column.shape[1:])).index_add(0, inverse, column)
    return whole if aggregator == "sum" else whole / counts.reshape(-1, *(1,) * (column.ndim - 1))


@checked(g=GRAPH)
def to_bidirected(g: AnyGraph, copy_ndata: bool = False, readonly: bool | None = None) -> AnyGraph:
    """A graph with every edge in both directions once, sorted by source and destination.

    Args:
        g: a graph whose edges begin and end in one type of nodes.
        copy_ndata: take the features of nodes along.
        readonly: ignored; DGL has it.

    Returns:
        A graph of the same class without features of edges. Self-loops stay, once each.

    Raises:
        GraphError: edges join two types of nodes, the graph is a block, or int64 cannot number pairs of its nodes.

    Source: DGL 1.1, ``dgl.to_bidirected``.

    Example:
        >>> import vgraph
        >>> vgraph.to_bidirected(vgraph.graph(([0, 1], [1, 2]))).edges()
        (tensor([0, 1, 1, 2]), tensor([1, 0, 2, 1]))
    """
    for key in g.canonical_etypes:
        _looping(g, key)
    both = add_reverse_edges(g, copy_ndata=copy_ndata)
    return to_simple(both, return_counts=None, copy_ndata=copy_ndata)


@checked(g=GRAPH)
def add_reverse_edges(
    g: AnyGraph,
    readonly: bool | None = None,
    copy_ndata: bool = True,
    copy_edata: bool = False,
    ignore_bipartite: bool = False,
    exclude_self: bool = True,
) -> AnyGraph:
    """A graph where every edge is followed, after all, by one in the other direction.

    Args:
        g: a graph.
        readonly: ignored; DGL has it.
        copy_ndata: take the node features along.
        copy_edata: take the edge features along; a reverse edge has those of its edge.
        ignore_bipartite: edges between two types stay as they are; else they are refused.
        exclude_self: do not double self-loops.

    Returns:
        A graph of the same class: all edges in their order, then the reverse ones.

    Raises:
        GraphError: edges join two types of nodes and that is not to be ignored, or the graph is a block.

    Source: DGL 1.1, ``dgl.add_reverse_edges``.

    Example:
        >>> import vgraph
        >>> vgraph.add_reverse_edges(vgraph.graph(([0, 2], [1, 2]))).edges()
        (tensor([0, 2, 1]), tensor([1, 2, 0]))
    """
    topologies: dict[EdgeType, Topology] = {}
    edges: dict[EdgeType, Frame] = {}
    for key in g.canonical_etypes:
        t, _, _, frame = g.relation(key)
        if key[0] != key[2] and ignore_bipartite:
            topologies[key], edges[key] = t, frame.copy() if copy_edata else frame.empty()
            continue
        _looping(g, key)
        ids = torch.arange(t.num_edges, device=g.device)
        turned = (t.src != t.dst).nonzero().squeeze(1) if exclude_self else ids
        src, dst = (torch.cat([a, b.index_select(0, turned)]) for a, b in ((t.src, t.dst), (t.dst, t.src)))
        topologies[key] = _on(g, key, src, dst)
        rows = torch.cat([ids, turned])
        edges[key] = frame.take(rows) if copy_edata else Frame(rows.shape[0], g.device, "edge", None, frame.type_name)
    return rejoin(g, topologies, edges, copy_ndata=copy_ndata)


add_reverse = add_reverse_edges


@checked(g=GRAPH)
def line_graph(g: AnyGraph, backtracking: bool = True, shared: bool = False) -> AnyGraph:
    """The graph whose nodes are the edges: e -> f where another edge f begins where e ends.

    Args:
        g: a graph with one type of nodes and edges.
        backtracking: join e and f also where f leads back to where e began.
        shared: make the features of edges those of the new nodes.

    Returns:
        A graph of the same class with one node an edge, its edges sorted by source. A self-loop does not follow
        itself. Which edges follow which is found once for a graph and kept with it: later calls cost nothing.

    Raises:
        GraphError: there are several types of nodes or edges, or the graph is a block.

    Source: DGL 1.1, ``dgl.line_graph``.

    Example:
        >>> import vgraph
        >>> vgraph.line_graph(vgraph.graph(([0, 1], [1, 2]))).edges()
        (tensor([0]), tensor([1]))
    """
    t = g.relation(one_type(g, "line_graph"))[0]
    joined = t.keep(("line graph", backtracking), lambda: _edges_in_a_row(t, backtracking))
    nodes = Frame(t.num_edges, g.device, "node")
    if shared:
        nodes.update(g.edata)
    return type(g).of_types({UNTYPED: joined}, {NODE: nodes})


def _edges_in_a_row(t: Topology, backtracking: bool) -> Topology:
    first = t.csr.ptr.index_select(0, t.dst.long())
    counts = t.csr.ptr.index_select(0, t.dst.long() + 1) - first
    src = torch.repeat_interleave(torch.arange(t.num_edges, device=t.device), counts)
    offsets = torch.arange(src.shape[0], device=t.device) - (counts.cumsum(0) - counts).index_select(0, src)
    at = first.index_select(0, src) + offsets
    dst = at if t.csr.edge_ids is None else t.csr.edge_ids.index_select(0, at)
    stays = src != dst  # a self-loop does not follow itself
    if not backtracking:
        stays &= t.src.index_select(0, src) != t.dst.index_select(0, dst)
    src, dst = src[stays], dst[stays]
    return Topology(src.to(t.src.dtype), dst.to(t.src.dtype), t.num_edges, t.num_edges)


# ---------------------------------------------------------------- as methods, but on a copy
@checked(g=GRAPH, num=ROWS)
def add_nodes(g: AnyGraph, num: int, data: Mapping[str, Tensor] | None = None, ntype: str | None = None) -> AnyGraph:
    """A graph with more nodes, numbered after those there are; the given one stays as it is.

    Args:
        g: a graph.
        num: how many.
        data: features by name, (num, ...) each; what it leaves out comes from the initializer, which gives zeros.
        ntype: the type of nodes, or None where there is one.

    Returns:
        A graph of the same class. A batch is one graph afterwards, without ``gdata``.

    Raises:
        ArgumentError: ``num`` is no whole number from 0 up.
        GraphError: the type is not named, or the graph is a block.
        FeatureError: ``data`` has other rows than ``num``, or of another shape.
        NameLookupError: there is no such type.

    Source: DGL 1.1, ``dgl.add_nodes``.

    Example:
        >>> import vgraph
        >>> vgraph.add_nodes(vgraph.graph(([0], [1])), 3).num_nodes()
        5
    """
    made = g.local_var()
    made.add_nodes(num, data, ntype)
    return made


@checked(g=GRAPH)
def add_edges(g: AnyGraph, u: Ids, v: Ids, data: Mapping[str, Tensor] | None = None, etype: EType = None) -> AnyGraph:
    """A graph with more edges, numbered after those there are; the given one stays as it is.

    Args:
        g: a graph.
        u: the sources: an id or ids (k,); one is joined to every ``v``.
        v: the destinations: an id or ids (k,); one is joined to every ``u``. Nodes that do not exist yet are added.
        data: features by name, (k, ...) each; what it leaves out comes from the initializer, which gives zeros.
        etype: the type of edges: a name, a triple (type of sources, name, type of destinations), or None where there
            is one.

    Returns:
        A graph of the same class.

    Raises:
        GraphError: ``u`` and ``v`` differ in length, an id is negative, or the graph is a block.
        FeatureError: ``data`` does not have one row an edge.
        DTypeError: ids are not whole numbers.
        NameLookupError: there is no such type.

    Source: DGL 1.1, ``dgl.add_edges``.

    Example:
        >>> import vgraph
        >>> vgraph.add_edges(vgraph.graph(([0], [1])), [1], [0]).num_edges()
        2
    """
    made = g.local_var()
    made.add_edges(u, v, data, etype)
    return made


@checked(g=GRAPH)
def remove_nodes(g: AnyGraph, nids: Ids, ntype: str | None = None, store_ids: bool = False) -> AnyGraph:
    """A graph without some nodes and the edges at them; the given one stays as it is.

    Args:
        g: a graph.
        nids: the nodes: an id, ids (k,), a mask or a slice.
        ntype: the type of nodes, or None where there is one.
        store_ids: set the features ``"_ID"`` of nodes and edges to the ids of before.

    Returns:
        A graph of the same class; the other nodes are numbered anew, in order.

    Raises:
        GraphError: an id is out of range, or the graph is a block.
        DTypeError: ids are not whole numbers.
        NameLookupError: there is no such type.

    Source: DGL 1.1, ``dgl.remove_nodes``.

    Example:
        >>> import vgraph
        >>> vgraph.remove_nodes(vgraph.graph(([0], [1])), [0]).num_edges()
        0
    """
    made = g.local_var()
    made.remove_nodes(nids, ntype, store_ids)
    return made


@checked(g=GRAPH)
def remove_edges(g: AnyGraph, eids: Ids, etype: EType = None, store_ids: bool = False) -> AnyGraph:
    """A graph without some edges; the given one stays as it is.

    Args:
        g: a graph.
        eids: the edges: an id, ids (k,), a mask or a slice.
        etype: the type of edges: a name, a triple (type of sources, name, type of destinations), or None where there
            is one.
        store_ids: set the feature ``"_ID"`` of edges to the ids of before.

    Returns:
        A graph of the same class; the other edges are numbered anew, in order.

    Raises:
        GraphError: an id is out of range, or the graph is a block.
        DTypeError: ids are not whole numbers.
        NameLookupError: there is no such type.

    Source: DGL 1.1, ``dgl.remove_edges``.

    Example:
        >>> import vgraph
        >>> vgraph.remove_edges(vgraph.graph(([0], [1])), [0]).num_edges()
        0
    """
    made = g.local_var()
    made.remove_edges(eids, etype, store_ids)
    return made
