"""Readouts: one row a graph of a batch from its nodes or edges, and back.

Takes: a batch with features. Gives: tensors. Runs at every call.
Source: DGL section 3 (readout functions).
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from vgraph.api.messages.groups import segments
from vgraph.api.messages.halo_rows import check_uncut
from vgraph.api.messages.segments import groups_in_graph, reduce_segments, softmax_segments
from vgraph.arguments import POSITIVE, WHOLE, checked
from vgraph.compiled_calls import compiled_calls
from vgraph.errors import FeatureError, FunctionError
from vgraph.graphs.batching import graphs_of
from vgraph.graphs.frame import Frame
from vgraph.graphs.given import GRAPH, TENSOR
from vgraph.graphs.graph_data import GraphData
from vgraph.graphs.types import EType
from vgraph.ir.halo import Halo
from vgraph.ir.topology import Topology


def _nodes(g: GraphData, ntype: str | None) -> tuple[Topology, Frame]:
    """The graphs of the nodes, as groups; kept with the edges' topology."""
    name = g.ntypes[g.get_ntype_id(ntype)]
    frame = g.node_frame(name)
    if torch.compiler.is_dynamo_compiling() and len(g.ntypes) == 1:
        return groups_in_graph(g.relation(g.canonical_etypes[0])[0], False, g.batch_size, frame.num_rows), frame

    def build() -> Topology:
        rows = torch.arange(frame.num_rows, device=g.device)
        sizes = (frame.num_rows,) if g.sizes is None else g.sizes[name]
        return segments(graphs_of(sizes, rows), g.batch_size)

    return g.relation(g.canonical_etypes[0])[0].keep(("graphs of nodes", name), build), frame


def _edges(g: GraphData, etype: EType) -> tuple[Topology, Frame]:
    """The graphs of the edges: those where they end."""
    t, _, _, frame = g.relation(etype)
    if torch.compiler.is_dynamo_compiling():
        return groups_in_graph(t, True, g.batch_size, t.num_edges), frame
    return t.groups(True), frame


def _with_rows(what: str, tensor: Tensor) -> Tensor:
    """The tensor; refused where its rows do not lie in memory one after the other."""
    if tensor.layout is not torch.strided:
        raise FeatureError(
            f"{what} has the layout {tensor.layout}, without rows in memory", cure="give it as .to_dense()"
        )
    return tensor


def _feature(frame: Frame, name: str) -> Tensor:
    return _with_rows(f"the feature {name!r}", frame[name])


def _weighted(frame: Frame, feat: str, weight: str | None) -> Tensor:
    rows = _feature(frame, feat)
    if weight is None:
        return rows
    factor = _feature(frame, weight)
    return rows * factor.reshape(*factor.shape, *(1,) * (rows.ndim - factor.ndim))


def _halo(graph: GraphData) -> Halo | None:
    """Where ranks have parts of a graph: what brings their rows together."""
    return graph.relation(graph.canonical_etypes[0])[0].halo


def _reduced(graph: GraphData, groups: Topology, rows: Tensor, op: str) -> Tensor:
    halo = _halo(graph)
    return reduce_segments(groups, rows, op) if halo is None else halo.reduced(rows, op)


def _softmax(graph: GraphData, groups: Topology, rows: Tensor) -> Tensor:
    halo = _halo(graph)
    return softmax_segments(groups, rows) if halo is None else halo.softmax(rows)


def _check(op: str) -> None:
    if op not in ("sum", "mean", "max", "min"):
        raise FunctionError(f"there is no readout {op!r}", cure="pass sum, mean, max or min")


@checked(graph=GRAPH)
def readout_nodes(
    graph: GraphData, feat: str, weight: str | None = None, *, op: str = "sum", ntype: str | None = None
) -> Tensor:
    """One row a graph from the features of its nodes, (batch_size, ...); 0 where it has none.

    Args:
        graph: a batch; a graph that is none counts as one of a single graph.
        feat: the name of a feature of the nodes, (nodes, ...).
        weight: the name of a feature, (nodes,) or (nodes, 1), that multiplies the rows first; None: nothing does.
        op: "sum", "mean", "max" or "min".
        ntype: the type of nodes, or None where there is one.

    Returns:
        (batch_size, ...) in the dtype of the feature; 0 for a graph without nodes.

    Raises:
        FunctionError: there is no such ``op``.
        NameLookupError: there is no such feature, or no such type.
        GraphError: there are several types of nodes, and none is named.

    Source: DGL 1.1, ``dgl.readout_nodes``.

    Example:
        >>> import torch, vgraph
        >>> g = vgraph.batch([vgraph.graph(([0], [1])), vgraph.graph(([0, 1], [1, 2]))])
        >>> g.ndata["h"] = torch.arange(5.0)
        >>> vgraph.readout_nodes(g, "h", op="max")
        tensor([1., 4.])
    """
    _check(op)
    groups, frame = _nodes(graph, ntype)
    return _reduced(graph, groups, _weighted(frame, feat, weight), op)


@checked(graph=GRAPH)
def readout_edges(
    graph: GraphData, feat: str, weight: str | None = None, *, op: str = "sum", etype: EType = None
) -> Tensor:
    """One row a graph from the features of its edges, (batch_size, ...); 0 where it has none.

    Args:
        graph: a batch; a graph that is none counts as one of a single graph.
        feat: the name of a feature of the edges, (edges, ...).
        weight: the name of a feature, (edges,) or (edges, 1), that multiplies the rows first; None: nothing does.
        op: "sum", "mean", "max" or "min".
        etype: the type of edges: a name, a triple (type of sources, name, type of destinations), or None where there
            is one.

    Returns:
        (batch_size, ...) in the dtype of the feature; an edge belongs to the graph where it ends.

    Raises:
        FunctionError: there is no such ``op``.
        NameLookupError: there is no such feature, or no such type.
        GraphError: there are several types of edges, and none is named.

    Source: DGL 1.1, ``dgl.readout_edges``.

    Example:
        >>> import torch, vgraph
        >>> g = vgraph.batch([vgraph.graph(([0], [1])), vgraph.graph(([0, 1], [1, 2]))])
        >>> g.edata["w"] = torch.ones(3)
        >>> vgraph.readout_edges(g, "w")
        tensor([1., 2.])
    """
    _check(op)
    groups, frame = _edges(graph, etype)
    return _reduced(graph, groups, _weighted(frame, feat, weight), op)


class NodeReadout(Protocol):
    """``sum_nodes`` and its like."""

    def __call__(
        self, graph: GraphData, feat: str, weight: str | None = None, *, ntype: str | None = None
    ) -> Tensor: ...


class EdgeReadout(Protocol):
    """``sum_edges`` and its like."""

    def __call__(self, graph: GraphData, feat: str, weight: str | None = None, *, etype: EType = None) -> Tensor: ...


_MANUAL = """The {what} of a feature over the {rows} of every graph.

Args:
    graph: a batch; a graph that is none counts as one of a single graph.
    feat: the name of a feature of the {rows}, ({rows}, ...).
    weight: the name of a feature, ({rows},) or ({rows}, 1), that multiplies the rows first; None: nothing does. A
        mean divides by the number of {rows} all the same.
    {kind}: the type of {rows}, or None where there is one.

Returns:
    (batch_size, ...); 0 for a graph without {rows}.

Raises:
    NameLookupError: there is no such feature, or no such type.
    GraphError: there are several types of {rows}, and none is named.

Source: DGL 1.1, ``dgl.{op}_{rows}``.

Example:
    >>> import torch, vgraph
    >>> g = vgraph.graph(([0, 0], [1, 1]))
    >>> g.{frame}["h"] = torch.tensor([1.0, 2.0])
    >>> vgraph.{op}_{rows}(g, "h")
    tensor([{shown}])
"""
_READOUTS = {"sum": ("sum", "3."), "mean": ("mean", "1.5000"), "max": ("largest", "2.")}  # words, the example's result


def _of_nodes(op: str) -> NodeReadout:
    def readout(graph: GraphData, feat: str, weight: str | None = None, *, ntype: str | None = None) -> Tensor:
        return readout_nodes(graph, feat, weight, op=op, ntype=ntype)

    what, shown = _READOUTS[op]
    readout.__name__ = readout.__qualname__ = f"{op}_nodes"
    readout.__doc__ = _MANUAL.format(op=op, what=what, rows="nodes", kind="ntype", frame="ndata", shown=shown)
    return checked(graph=GRAPH)(readout)


def _of_edges(op: str) -> EdgeReadout:
    def readout(graph: GraphData, feat: str, weight: str | None = None, *, etype: EType = None) -> Tensor:
        return readout_edges(graph, feat, weight, op=op, etype=etype)

    what, shown = _READOUTS[op]
    readout.__name__ = readout.__qualname__ = f"{op}_edges"
    readout.__doc__ = _MANUAL.format(op=op, what=what, rows="edges", kind="etype", frame="edata", shown=shown)
    return checked(graph=GRAPH)(readout)


sum_nodes, mean_nodes, max_nodes = (_of_nodes(op) for op in _READOUTS)
sum_edges, mean_edges, max_edges = (_of_edges(op) for op in _READOUTS)


@checked(graph=GRAPH)
def softmax_nodes(graph: GraphData, feat: str, *, ntype: str | None = None) -> Tensor:
    """The softmax of a feature over the nodes of every graph.

    Args:
        graph: a batch; a graph that is none counts as one of a single graph.
        feat: the name of a feature of the nodes, (nodes, ...).
        ntype: the type of nodes, or None where there is one.

    Returns:
        (nodes, ...): every column of a graph's rows sums to 1.

    Raises:
        NameLookupError: there is no such feature, or no such type.
        GraphError: there are several types of nodes, and none is named.

    Source: DGL 1.1, ``dgl.softmax_nodes``.

    Example:
        >>> import torch, vgraph
        >>> g = vgraph.graph(([0], [1]))
        >>> g.ndata["h"] = torch.zeros(2)
        >>> vgraph.softmax_nodes(g, "h")
        tensor([0.5000, 0.5000])
    """
    groups, frame = _nodes(graph, ntype)
    return _softmax(graph, groups, _feature(frame, feat))


@checked(graph=GRAPH)
def softmax_edges(graph: GraphData, feat: str, *, etype: EType = None) -> Tensor:
    """The softmax of a feature over the edges of every graph.

    Args:
        graph: a batch; a graph that is none counts as one of a single graph.
        feat: the name of a feature of the edges, (edges, ...).
        etype: the type of edges: a name, a triple (type of sources, name, type of destinations), or None where there
            is one.

    Returns:
        (edges, ...): every column of a graph's rows sums to 1.

    Raises:
        NameLookupError: there is no such feature, or no such type.
        GraphError: there are several types of edges, and none is named.

    Source: DGL 1.1, ``dgl.softmax_edges``.

    Example:
        >>> import torch, vgraph
        >>> g = vgraph.graph(([0, 0], [1, 1]))
        >>> g.edata["w"] = torch.zeros(2)
        >>> vgraph.softmax_edges(g, "w")
        tensor([0.5000, 0.5000])
    """
    groups, frame = _edges(graph, etype)
    return _softmax(graph, groups, _feature(frame, feat))


@checked(graph=GRAPH, graph_feat=TENSOR)
def broadcast_nodes(graph: GraphData, graph_feat: Tensor, *, ntype: str | None = None) -> Tensor:
    """The row of its graph for every node; differentiable.

    Args:
        graph: a batch; a graph that is none counts as one of a single graph.
        graph_feat: (batch_size, ...), or one row for all.
        ntype: the type of nodes, or None where there is one.

    Returns:
        (nodes, ...).

    Raises:
        FeatureError: there is not one row a graph.
        GraphError: there are several types of nodes, and none is named.
        NameLookupError: there is no such type.

    Source: DGL 1.1, ``dgl.broadcast_nodes``.

    Example:
        >>> import torch, vgraph
        >>> g = vgraph.batch([vgraph.graph(([0], [1])), vgraph.graph(([], []), num_nodes=1)])
        >>> vgraph.broadcast_nodes(g, torch.tensor([5.0, 7.0]))
        tensor([5., 5., 7.])
    """
    return _spread(graph, _nodes(graph, ntype)[0], graph_feat)


@checked(graph=GRAPH, graph_feat=TENSOR)
def broadcast_edges(graph: GraphData, graph_feat: Tensor, *, etype: EType = None) -> Tensor:
    """The row of its graph for every edge; differentiable.

    Args:
        graph: a batch; a graph that is none counts as one of a single graph.
        graph_feat: (batch_size, ...), or one row for all.
        etype: the type of edges: a name, a triple (type of sources, name, type of destinations), or None where there
            is one.

    Returns:
        (edges, ...).

    Raises:
        FeatureError: there is not one row a graph.
        GraphError: there are several types of edges, and none is named.
        NameLookupError: there is no such type.

    Source: DGL 1.1, ``dgl.broadcast_edges``.

    Example:
        >>> import torch, vgraph
        >>> vgraph.broadcast_edges(vgraph.graph(([0, 0], [1, 1])), torch.tensor([5.0]))
        tensor([5., 5.])
    """
    return _spread(graph, _edges(graph, etype)[0], graph_feat)


def _spread(graph: GraphData, groups: Topology, rows: Tensor) -> Tensor:
    rows = _with_rows("graph_feat", rows)
    if rows.ndim == 0 or (rows.shape[0] != graph.batch_size and rows.shape[0] != 1):
        fact = f"there are {tuple(rows.shape)[:1]} rows for {graph.batch_size} graphs"
        raise FeatureError(fact, cure="give one row for each")
    return rows.expand(graph.batch_size, *rows.shape[1:]).index_select(0, groups.dst)


@checked(graph=GRAPH, k=POSITIVE, sortby=WHOLE.or_none())
def topk_nodes(
    graph: GraphData, feat: str, k: int, *, descending: bool = True, sortby: int | None = None, ntype: str | None = None
) -> tuple[Tensor, Tensor]:
    """The k largest of a feature in every graph, and which of its nodes they are.

    Args:
        graph: a batch; a graph that is none counts as one of a single graph.
        feat: the name of a feature of the nodes, (nodes,) or (nodes, columns).
        k: how many, from 1 up; graphs with fewer nodes are filled up with zeros.
        descending: choose the largest; False: the smallest.
        sortby: the column that orders whole rows; None: every column is ordered for itself.
        ntype: the type of nodes, or None where there is one.

    Returns:
        Values (batch_size, k, columns) and the places of their nodes within the graph, int64 of that shape, or
        (batch_size, k) with ``sortby``. A feature (nodes,) gives (batch_size, k) twice.

    Raises:
        NameLookupError: there is no such feature, or no such type.
        GraphError: there are several types of nodes, and none is named.
        ArgumentError: ``k`` is no whole number from 1 up, or ``sortby`` none.
        FeatureError: the feature has more than two dims, or there is no column ``sortby``.

    Source: DGL 1.1, ``dgl.topk_nodes``.

    Example:
        >>> import torch, vgraph
        >>> g = vgraph.batch([vgraph.graph(([0], [1])), vgraph.graph(([0, 1], [1, 2]))])
        >>> g.ndata["h"] = torch.tensor([[1.0], [2.0], [5.0], [3.0], [4.0]])
        >>> values, ids = vgraph.topk_nodes(g, "h", 2)
        >>> values.squeeze(2).tolist(), ids.squeeze(2).tolist()
        ([[2.0, 1.0], [5.0, 4.0]], [[1, 0], [0, 2]])
    """
    if torch.compiler.is_dynamo_compiling():
        return compiled_calls.outside(topk_nodes, graph, feat, k, descending=descending, sortby=sortby, ntype=ntype)
    check_uncut(graph.relation(graph.canonical_etypes[0])[0], "topk_nodes")
    return _topk(*_nodes(graph, ntype), feat, k, descending, sortby)


@checked(graph=GRAPH, k=POSITIVE, sortby=WHOLE.or_none())
def topk_edges(
    graph: GraphData,
    feat: str,
    k: int,
    *,
    descending: bool = True,
    sortby: int | None = None,
    etype: EType = None,
) -> tuple[Tensor, Tensor]:
    """The k largest of a feature among the edges of every graph, and which of its edges they are.

    Args:
        graph: a batch; a graph that is none counts as one of a single graph.
        feat: the name of a feature of the edges, (edges,) or (edges, columns).
        k: how many, from 1 up; graphs with fewer edges are filled up with zeros.
        descending: choose the largest; False: the smallest.
        sortby: the column that orders whole rows; None: every column is ordered for itself.
        etype: the type of edges: a name, a triple (type of sources, name, type of destinations), or None where there
            is one.

    Returns:
        Values (batch_size, k, columns) and the places of their edges within the graph, int64 of that shape, or
        (batch_size, k) with ``sortby``. A feature (edges,) gives (batch_size, k) twice.

    Raises:
        NameLookupError: there is no such feature, or no such type.
        GraphError: there are several types of edges, and none is named.
        ArgumentError: ``k`` is no whole number from 1 up, or ``sortby`` none.
        FeatureError: the feature has more than two dims, or there is no column ``sortby``.

    Source: DGL 1.1, ``dgl.topk_edges``.

    Example:
        >>> import torch, vgraph
        >>> g = vgraph.graph(([0, 0], [1, 1]))
        >>> g.edata["w"] = torch.tensor([[1.0], [2.0]])
        >>> vgraph.topk_edges(g, "w", 1)[0].tolist()
        [[[2.0]]]
    """
    if torch.compiler.is_dynamo_compiling():
        return compiled_calls.outside(topk_edges, graph, feat, k, descending=descending, sortby=sortby, etype=etype)
    check_uncut(graph.relation(etype)[0], "topk_edges")
    return _topk(*_edges(graph, etype), feat, k, descending, sortby)


def _topk(
    groups: Topology, frame: Frame, feat: str, k: int, descending: bool, sortby: int | None
) -> tuple[Tensor, Tensor]:
    rows = _feature(frame, feat)
    is_flat = rows.ndim == 1
    if rows.ndim > 2:
        fact = f"the feature {feat!r} has {rows.ndim} dims"
        raise FeatureError(fact, cure="give it one or two")
    rows = rows.unsqueeze(1) if is_flat else rows
    if sortby is not None and not -rows.shape[1] <= sortby < rows.shape[1]:
        fact = f"sortby is {sortby} for {rows.shape[1]} columns of {feat!r}"
        raise FeatureError(fact, cure="name a column that there is")
    keys = rows if sortby is None else rows[:, sortby].unsqueeze(1)
    order = torch.argsort(keys, dim=0, descending=bool(descending), stable=True)
    graphs = groups.dst.index_select(0, order.flatten()).view_as(order)
    order = order.gather(0, torch.argsort(graphs, dim=0, stable=True))
    first = groups.csc.ptr[:-1]
    places = first.unsqueeze(1) + torch.arange(k, device=rows.device)  # (graphs, k)
    missing = places >= groups.csc.ptr[1:].unsqueeze(1)
    if not rows.shape[0]:  # no graph has any: all is filled up
        rows, order = rows.new_zeros(1, rows.shape[1]), order.new_zeros(1, order.shape[1])
    chosen = order.index_select(0, places.clamp(max=rows.shape[0] - 1).flatten())  # (graphs * k, columns)
    found = rows.gather(0, chosen.expand(-1, rows.shape[1])).view(*places.shape, rows.shape[1])
    found = found.masked_fill(missing.unsqueeze(2), 0)
    starts = first.repeat_interleave(k).unsqueeze(1)  # groups lie one after the other
    ids = (chosen - starts).view(*places.shape, -1).masked_fill(missing.unsqueeze(2), 0)
    if is_flat:
        return found.squeeze(2), ids.squeeze(2)
    return found, ids if sortby is None else ids.squeeze(2)
