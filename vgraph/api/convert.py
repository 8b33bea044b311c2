"""From NetworkX and SciPy to graphs and back; many graphs as one.

Takes: graphs and matrices. Gives: graphs; tempo: once a sample (batch: every step).
Source: DGL section 3 (a batch is one graph of many components).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import networkx as nx
import numpy as np
import scipy.sparse
import torch
from torch import Tensor

from vgraph.api.frame import Frame, concat_frames
from vgraph.api.graph import MAX_INT32, Graph, check_idtype, graph
from vgraph.api.tracer import user_line
from vgraph.errors import FeatureError, FunctionError, GraphError, NameLookupError
from vgraph.ir.topology import Topology

# ---------------------------------------------------------------- many graphs as one


def batch(graphs: Iterable[Graph]) -> Graph:
    """One graph of all ``graphs``, their nodes, edges and features one after the other.

    Differentiable in every feature. A batch among ``graphs`` counts as the graphs it was made of.

    Raises:
        GraphError: there are no graphs, or they differ in device or idtype.
        FeatureError: a feature is missing in some, or differs in dtype, row shape or device.

    >>> import vgraph
    >>> g = vgraph.batch([vgraph.graph(([0], [1])), vgraph.graph(([0, 1], [2, 2]))])
    >>> g.batch_num_nodes().tolist(), g.edges()[0].tolist()
    ([2, 3], [0, 2, 3])
    """
    members = list(graphs)
    topology = _join(_topologies(members))
    nodes, edges = [g.ndata for g in members], [g.edata for g in members]
    gdata = concat_frames([g.gdata for g in members])
    return Graph(topology, concat_frames(nodes), concat_frames(edges), gdata)


def _topologies(graphs: Sequence[Graph]) -> list[Topology]:
    if not graphs:
        raise GraphError("there are no graphs to batch", cure="pass one or more", line=user_line())
    try:
        found = [g.topology for g in graphs]
    except AttributeError:
        index = next(i for i, g in enumerate(graphs) if not hasattr(g, "topology"))
        fact = f"item {index} of the batch is a {type(graphs[index]).__name__}, not a graph"
        cure = "pass the graphs alone, as in batch([sample.graph for sample in samples])"
        raise FunctionError(fact, cure=cure, line=user_line()) from None
    kinds = [(t.src.dtype, t.src.device) for t in found]
    if any(kind != kinds[0] for kind in kinds):
        index = next(i for i, kind in enumerate(kinds) if kind != kinds[0])
        (dtype, device), (first_dtype, first_device) = kinds[index], kinds[0]
        fact = f"graph {index} has {dtype} ids on {device}, graph 0 {first_dtype} on {first_device}"
        cure = "convert them with .long() or .int() and .to(device)"
        raise GraphError(fact, cure=cure, line=user_line())
    return found


def _join(parts: Sequence[Topology]) -> Topology:
    counts = np.array([t.num_dst for t in parts])
    total = int(counts.sum())
    first = parts[0].src
    if first.dtype == torch.int32 and total > MAX_INT32:
        fact = f"{total} nodes cannot be numbered in int32"
        raise GraphError(fact, cure="convert the graphs with .long()", line=user_line())
    offsets = (counts.cumsum() - counts).repeat([t.src.shape[0] for t in parts])
    shift = torch.from_numpy(offsets).to(first.device, first.dtype)
    src, dst = torch.cat([t.src for t in parts]), torch.cat([t.dst for t in parts])
    sizes = tuple(size for t in parts for size in t.graph_sizes or (t.num_dst,))
    flat = tuple(part for t in parts for part in t.parts or (t,))
    return Topology(src.add_(shift), dst.add_(shift), total, total, sizes, flat)


def unbatch(g: Graph) -> list[Graph]:
    """The graphs that a batch was made of; their features are views of the batch's.

    Raises:
        GraphError: an edge joins two of them.

    >>> import vgraph
    >>> pair = vgraph.graph(([0], [1]))
    >>> [part.num_nodes() for part in vgraph.unbatch(vgraph.batch([pair, pair]))]
    [2, 2]
    """
    sizes = g.topology.graph_sizes
    if sizes is None:
        return [g.local_var()]
    topologies, order = _divide(g.topology, sizes)
    edges = g.edata if order is None else g.edata.take(order)
    edata = edges.split([t.num_edges for t in topologies])
    parts = zip(topologies, g.ndata.split(sizes), edata, g.gdata.split([1] * len(sizes)), strict=True)
    return [Graph(t, ndata, edata, gdata) for t, ndata, edata, gdata in parts]


def _divide(whole: Topology, sizes: Sequence[int]) -> tuple[Sequence[Topology], Tensor | None]:
    """A topology for every graph; and the order of edges that groups them, if it is another."""
    parts = whole.parts or ()
    stored = (whole.src.dtype, whole.src.device)
    if len(parts) == len(sizes) and all((t.src.dtype, t.src.device) == stored for t in parts):
        return parts, None
    graphs = whole.graph_ids.index_select(0, whole.dst)
    astray = (graphs != whole.graph_ids.index_select(0, whole.src)).nonzero()
    if len(astray):
        edge = int(astray[0])
        fact = f"edge {edge} ({int(whole.src[edge])} -> {int(whole.dst[edge])}) joins two graphs"
        raise GraphError(fact, cure="remove it before unbatch", line=user_line())
    order = None if bool((graphs[1:] >= graphs[:-1]).all()) else graphs.argsort(stable=True)
    counts = torch.bincount(graphs, minlength=len(sizes)).tolist()
    starts = np.cumsum(sizes) - sizes
    shift = torch.from_numpy(starts).to(whole.src).index_select(0, graphs)
    ends = (end - shift for end in (whole.src, whole.dst))
    src, dst = (e if order is None else e.index_select(0, order) for e in ends)
    pairs = zip(src.split(counts), dst.split(counts), sizes, strict=True)
    return [Topology(u, v, size, size) for u, v, size in pairs], order


# ---------------------------------------------------------------- other edges


def reverse(g: Graph, copy_ndata: bool = True, copy_edata: bool = False) -> Graph:
    """The graph with every edge turned round; edges keep their ids.

    ``copy_ndata`` (``gdata`` too) and ``copy_edata`` say which features it takes along.

    >>> import vgraph
    >>> vgraph.reverse(vgraph.graph(([0], [1]))).edges()
    (tensor([1]), tensor([0]))
    """
    return g.reverse(copy_ndata, copy_edata)


def add_self_loop(g: Graph, fill_data: float = 1.0) -> Graph:
    """A graph with one more edge v -> v for every node, after all others.

    ``fill_data``: the features of the new edges. A batch stays a batch.

    >>> import vgraph
    >>> vgraph.add_self_loop(vgraph.graph(([0], [1]))).edges()
    (tensor([0, 0, 1]), tensor([1, 0, 1]))
    """
    nodes, count = g.nodes(), g.num_nodes()
    columns = {
        name: torch.cat([column, column.new_full((count, *column.shape[1:]), fill_data)])
        for name, column in g.edata.items()
    }
    src, dst = (torch.cat([end, nodes]) for end in g.coo())
    return _with_edges(g, src, dst, columns)


def remove_self_loop(g: Graph) -> Graph:
    """A graph without the edges v -> v; the others keep their order and features.

    >>> import vgraph
    >>> vgraph.remove_self_loop(vgraph.graph(([0, 1], [1, 1]))).edges()
    (tensor([0]), tensor([1]))
    """
    src, dst = g.coo()
    kept = (src != dst).nonzero().squeeze(1)
    return _with_edges(g, src[kept], dst[kept], dict(g.edata.take(kept)))


def _with_edges(g: Graph, src: Tensor, dst: Tensor, edata: dict[str, Tensor]) -> Graph:
    check_idtype(src.dtype, g.num_nodes(), src.shape[0])
    topology = Topology(src, dst, g.num_nodes(), g.num_nodes(), g.topology.graph_sizes)
    edges = Frame(src.shape[0], g.device, "edge", edata)
    return Graph(topology, g.ndata.copy(), edges, g.gdata.copy())


# ---------------------------------------------------------------- NetworkX and SciPy


def from_networkx(
    nx_graph: Any,
    node_attrs: Sequence[str] | None = None,
    edge_attrs: Sequence[str] | None = None,
    edge_id_attr_name: str | None = None,
    *,
    idtype: torch.dtype | None = None,
    device: torch.device | str | None = None,
) -> Graph:
    """A graph from one of NetworkX; an undirected edge becomes one in each direction.

    Nodes are numbered in ascending order of their names (where names cannot be compared, as
    NetworkX lists them), edges as NetworkX lists them.

    Args:
        nx_graph: any graph of NetworkX.
        node_attrs: attributes that become ``ndata``: numbers, arrays or tensors of one shape.
        edge_attrs: attributes that become ``edata``.
        edge_id_attr_name: the attribute that numbers the edges 0, 1, 2 ...; directed graphs only.
        idtype: torch.int64 (the default) or torch.int32.
        device: where ids and features go.

    Raises:
        NameLookupError: a node or edge lacks an attribute.
        FeatureError: an attribute's values cannot be stacked.
        GraphError: the edge ids are not 0, 1, 2 ..., or the graph is undirected and has them.

    >>> import networkx, vgraph
    >>> vgraph.from_networkx(networkx.path_graph(3)).edges()
    (tensor([0, 1, 1, 2]), tensor([1, 0, 2, 1]))
    """
    if edge_id_attr_name is not None and not nx_graph.is_directed():
        fact = "an undirected edge becomes two, which cannot share an id"
        cure = "pass a directed graph, or no edge_id_attr_name"
        raise GraphError(fact, cure=cure, line=user_line())
    directed = nx_graph if nx_graph.is_directed() else nx_graph.to_directed()
    names = _sorted_names(list(directed.nodes))
    number = {name: i for i, name in enumerate(names)}
    edges = _sorted_edges(list(directed.edges(data=True)), edge_id_attr_name)
    ends = ([number[edge[0]] for edge in edges], [number[edge[1]] for edge in edges])
    g = graph(ends, num_nodes=len(names), idtype=idtype, device=device)
    for attr in node_attrs or ():
        rows = [(f"node {name!r}", directed.nodes[name]) for name in names]
        g.ndata[attr] = _stack(attr, rows).to(g.device)
    for attr in edge_attrs or ():
        rows = [(f"edge {edge[:2]!r}", edge[2]) for edge in edges]
        g.edata[attr] = _stack(attr, rows).to(g.device)
    return g


def _sorted_names(names: list[Any]) -> list[Any]:
    try:
        return sorted(names)
    except TypeError:
        return names


def _sorted_edges(edges: list[Any], attr: str | None) -> list[Any]:
    if attr is None:
        return edges
    ids = [_attribute(edge[2], attr, f"edge {edge[:2]!r}") for edge in edges]
    if sorted(ids) != list(range(len(edges))):
        fact = f"edge attribute {attr!r} does not number the edges 0 to {len(edges) - 1}"
        raise GraphError(fact, cure="give every edge another id", line=user_line())
    return [edges[i] for i in np.argsort(ids)]


def _attribute(attributes: Any, attr: str, whose: str) -> Any:
    if attr in attributes:
        return attributes[attr]
    fact = f"{whose} has no attribute {attr!r}"
    raise NameLookupError(fact, cure="give it to all of them", line=user_line())


def _stack(attr: str, rows: list[tuple[str, Any]]) -> Tensor:
    values = [(whose, _attribute(attributes, attr, whose)) for whose, attributes in rows]
    if all(isinstance(value, (bool, int, float)) for _, value in values):
        return torch.tensor([value for _, value in values])
    tensors: list[Tensor] = []
    for whose, value in values:
        try:
            tensors.append(value if isinstance(value, Tensor) else torch.tensor(value))
        except (TypeError, ValueError, RuntimeError) as error:
            fact = f"attribute {attr!r} of {whose} is {value!r}, which is no number or array"
            raise FeatureError(fact, cure="turn it into numbers", line=user_line()) from error
        if tensors[-1].shape != tensors[0].shape:
            shapes = tuple(tensors[-1].shape), tuple(tensors[0].shape)
            fact = f"attribute {attr!r} of {whose} has shape {shapes[0]}; the first has {shapes[1]}"
            raise FeatureError(fact, cure="give all the same shape", line=user_line())
    return torch.stack(tensors)


def to_networkx(
    g: Graph, node_attrs: Sequence[str] | None = None, edge_attrs: Sequence[str] | None = None
) -> nx.MultiDiGraph[int]:
    """A networkx.MultiDiGraph; every edge has its number as attribute ``id``.

    ``node_attrs``, ``edge_attrs``: features that become attributes: the row of a node or an edge.

    >>> import vgraph
    >>> list(vgraph.to_networkx(vgraph.graph(([0, 0], [1, 1]))).edges(data=True))
    [(0, 1, {'id': 0}), (0, 1, {'id': 1})]
    """
    made: nx.MultiDiGraph[int] = nx.MultiDiGraph()
    made.add_nodes_from((i, row) for i, row in enumerate(g.ndata.rows(node_attrs)))
    src, dst = (end.tolist() for end in g.coo())
    rows = enumerate(g.edata.rows(edge_attrs))
    made.add_edges_from((src[i], dst[i], {"id": i, **row}) for i, row in rows)
    return made


def from_scipy(
    matrix: Any,
    eweight_name: str | None = None,
    *,
    idtype: torch.dtype | None = None,
    device: torch.device | str | None = None,
) -> Graph:
    """A graph with an edge row -> column for every stored entry of a square sparse matrix.

    Args:
        matrix: any of ``scipy.sparse``'s; entries stored twice are two edges.
        eweight_name: the name in ``edata`` for the entries' values.
        idtype: torch.int64 (the default) or torch.int32.
        device: where ids and values go.

    Raises:
        GraphError: it is no sparse matrix, or not square.

    >>> import scipy.sparse, vgraph
    >>> g = vgraph.from_scipy(scipy.sparse.csr_matrix([[0, 5], [0, 0]]), eweight_name="w")
    >>> g.edges(), g.edata["w"]
    ((tensor([0]), tensor([1])), tensor([5]))
    """
    if not scipy.sparse.issparse(matrix) or matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        shape = getattr(matrix, "shape", None)
        fact = f"a {type(matrix).__name__} of shape {shape} is no square sparse matrix"
        raise GraphError(fact, cure="pass one of scipy.sparse, n by n", line=user_line())
    entries = matrix.tocoo()
    ends, idtype = (entries.row, entries.col), idtype or torch.int64
    g = graph(ends, num_nodes=matrix.shape[0], idtype=idtype, device=device)
    if eweight_name is not None:
        g.edata[eweight_name] = torch.tensor(entries.data).to(g.device)
    return g
