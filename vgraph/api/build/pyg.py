"""Graphs of PyG: its Data, HeteroData, and batches of either.

Takes: their objects. Gives: Graphs, and back. Runs once per sample. PyG is not needed to import vgraph.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Mapping, MutableMapping
from typing import Any, TypeGuard

import torch
from torch import Tensor

from vgraph.api.build.construct import Device, graph, heterograph
from vgraph.api.graph import Graph
from vgraph.arguments import checked
from vgraph.errors import FeatureError, FunctionError, GraphError
from vgraph.graphs.frame import Frame
from vgraph.graphs.given import GRAPH
from vgraph.graphs.types import EdgeType

_OF_NODES = ("num_nodes", "batch", "ptr")
_OF_EDGES = ("edge_index",)


def from_pyg(data: Any, *, idtype: torch.dtype | None = None, device: Device = None) -> Graph:
    """A graph from PyG's ``Data`` or ``HeteroData`` (or anything with ``edge_index`` and tensors beside it).

    Tensors of nodes become ``ndata``, those of edges ``edata``, others with one row a graph ``gdata``. What
    holds one row a node is told by the object itself (``is_node_attr``), else by the number of rows.
    A ``Batch`` becomes a batch: its ``ptr``, or ``batch``, says which nodes are whose.
    A ``HeteroData`` becomes a graph with its types of nodes and edges, each with its features.

    Args:
        data: an object with ``edge_index`` (2, edges), whole numbers; a ``HeteroData`` has one for each type of edges.
        idtype: ``torch.int64`` or ``torch.int32``; None: that of the ids.
        device: where ids and features go; None: where the ids are.

    Returns:
        A Graph, its edges in the order of ``edge_index``; types are sorted by name. Tensors that have neither a row
        a node, nor an edge, nor a graph, and what is no tensor, are left out.

    Raises:
        GraphError: there is no ``edge_index`` (2, edges), or its ids are not below the number of nodes.
        DTypeError: its ids are not whole numbers.

    Source: PyG, ``torch_geometric.data.Data`` and ``HeteroData``.

    Example:
        >>> import types, torch, vgraph
        >>> data = types.SimpleNamespace(edge_index=torch.tensor([[0, 1], [1, 2]]), x=torch.ones(3, 4), num_nodes=3)
        >>> vgraph.from_pyg(data)
        Graph(num_nodes=3, num_edges=2, ndata={'x': float32 (3, 4)}, edata={})
    """
    if hasattr(type(data), "edge_types"):
        return _from_hetero_data(data, idtype, device)
    g = graph(_ends_of(data, ""), num_nodes=getattr(data, "num_nodes", None), idtype=idtype, device=device)
    names = list(data.keys()) if hasattr(data, "keys") else list(vars(data))
    sizes = _sizes_of(data, g.num_nodes())
    if sizes is not None:
        g.set_batch_num_nodes(sizes)
        names = [name for name in names if name not in _OF_NODES]
    for name in names:
        value = data[name] if hasattr(data, "__getitem__") else getattr(data, name)
        if name not in _OF_EDGES and isinstance(value, Tensor) and value.ndim:
            frame = _frame_of(g, data, name, value)
            if frame is not None:
                frame[name] = value.to(g.device)
    return g


def _from_hetero_data(data: Any, idtype: torch.dtype | None, device: Device) -> Graph:
    edge_types: list[EdgeType] = list(data.edge_types)
    ends = {etype: _ends_of(data[etype], f" of {etype}") for etype in edge_types}
    stored = {t: data[t].num_nodes for t in data.node_types}
    counts: dict[str, int] = {t: 0 if count is None else count for t, count in stored.items()}
    for (s, _, d), (src, dst) in ends.items():  # a type that nothing is stored of has the nodes that edges name
        for t, ids in ((s, src), (d, dst)):
            if t not in data.node_types and ids.numel():
                counts[t] = max(counts.get(t, 0), int(ids.max()) + 1)
            counts.setdefault(t, 0)
    g = heterograph(ends, counts, idtype, device)
    sizes = {t: _sizes_of(data[t], g.num_nodes(t)) for t in data.node_types}
    known = {t: own for t, own in sizes.items() if own is not None}
    num_graphs = max(map(len, known.values()), default=0)
    is_batch = bool(known) and len(known) == len(counts)
    if is_batch:
        g.set_batch_num_nodes({t: own + [0] * (num_graphs - len(own)) for t, own in known.items()})
    for t in data.node_types:
        _fill(g.nodes[t].data, data[t], (g.num_nodes(t), g.device), _OF_NODES if is_batch else _OF_NODES[:1])
    for etype in edge_types:
        _fill(g.edges[etype].data, data[etype], (g.num_edges(etype), g.device), _OF_EDGES)
    _fill(g.gdata, data.stores[0], (g.batch_size, g.device), ())  # what belongs to no type
    return g


def _ends_of(store: object, whose: str) -> tuple[Tensor, Tensor]:
    """Sources and destinations of the edges in a Data, or in what a HeteroData stores of one type of edges."""
    index = getattr(store, "edge_index", None)
    if not isinstance(index, Tensor):
        raise GraphError(
            f"there is no edge_index{whose}", cure="pass a torch_geometric.data.Data with it; adj_t is not read"
        )
    if index.ndim != 2 or index.shape[0] != 2:
        raise GraphError(f"edge_index{whose} has shape {tuple(index.shape)}", cure="pass (2, num_edges)")
    return index[0], index[1]


def _sizes_of(store: object, num_nodes: int) -> list[int] | None:
    """The nodes of every graph of a batch; None: it is none."""
    ptr, batch = getattr(store, "ptr", None), getattr(store, "batch", None)
    if _are_ids(ptr) and ptr.numel() > 1 and int(ptr[-1]) == num_nodes:
        return ptr.diff().tolist()
    if not _are_ids(batch) or len(batch) != num_nodes or not num_nodes:
        return None
    is_sorted = int(batch[0]) >= 0 and bool((batch.diff() >= 0).all())
    return torch.bincount(batch).tolist() if is_sorted else None


def _are_ids(value: object) -> TypeGuard[Tensor]:
    return isinstance(value, Tensor) and value.ndim == 1 and not (value.is_floating_point() or value.is_complex())


def _frame_of(g: Graph, data: Any, name: str, value: Tensor) -> Frame | None:
    if hasattr(data, "is_node_attr"):
        return g.ndata if data.is_node_attr(name) else g.edata if data.is_edge_attr(name) else _graph_frame(g, value)
    rows = value.shape[0]
    is_edge = "edge" in name or rows != g.num_nodes()
    if rows == g.num_edges() and is_edge:
        return g.edata
    return g.ndata if rows == g.num_nodes() else _graph_frame(g, value)


def _graph_frame(g: Graph, value: Tensor) -> Frame | None:
    return g.gdata if value.shape[0] == g.batch_size else None


def _fill(
    frame: MutableMapping[str, Tensor], store: Any, place: tuple[int, torch.device], left_out: Iterable[str]
) -> None:
    """Puts the tensors of a store with so many rows into a frame, there where it lies."""
    num_rows, device = place
    for name in store.keys():  # noqa: SIM118  (a store of PyG's iterates over values)
        value = store[name]
        if name not in left_out and isinstance(value, Tensor) and value.ndim and value.shape[0] == num_rows:
            frame[name] = value.to(device)


@checked(g=GRAPH)
def to_pyg(g: Graph) -> Any:
    """PyG's ``Data``, or ``HeteroData``, with ``edge_index`` and all features; needs torch_geometric.

    Args:
        g: a graph.

    Returns:
        A ``torch_geometric.data.Data`` with int64 ``edge_index`` (2, edges), which shares the features, of a batch
        with ``batch`` (nodes,) and ``ptr`` (graphs + 1,); a ``HeteroData``, where there are several types of nodes or
        edges.

    Raises:
        FunctionError: torch_geometric is not installed.
        FeatureError: a feature has the name of something that PyG stores itself (``edge_index``, ``num_nodes``,
            ``batch``, ``ptr``), or one that another feature of the same ``Data`` has.
        GraphError: it is a block.

    Source: PyG, ``torch_geometric.data.Data`` and ``HeteroData``.

    Example:
        >>> import vgraph
        >>> data = vgraph.to_pyg(vgraph.graph(([0], [1])))  # doctest: +SKIP
    """
    try:
        package = importlib.import_module("torch_geometric.data")
    except ImportError as error:
        raise FunctionError("to_pyg needs torch_geometric", cure="install it") from error
    if g.is_block:
        raise GraphError("a block has nodes of its own on each side", cure="vgraph.block_to_graph names them")
    if not g.is_homogeneous:
        return _to_hetero_data(g, package)
    data: dict[str, object] = {}
    for stored in (_of_nodes(g, g.ntypes[0]), _of_edges(g, g.canonical_etypes[0]), g.gdata):
        twins = sorted(set(data) & set(stored))
        if twins:
            raise FeatureError(f"{_owners(g, twins[0])} have a feature {twins[0]!r}", cure="rename one of them")
        data |= stored
    return package.Data(**data)


def _owners(g: Graph, name: str) -> str:
    frames = {"nodes": g.ndata, "edges": g.edata, "graphs": g.gdata}
    return " and ".join(owner for owner, frame in frames.items() if name in frame)


def _to_hetero_data(g: Graph, package: Any) -> Any:
    twins = sorted(set(g.gdata) & set(g.ntypes))
    if twins:
        raise FeatureError(f"a feature of graphs has the name of the node type {twins[0]!r}", cure="rename it")
    data = package.HeteroData()
    for t in g.ntypes:
        data[t].update(_of_nodes(g, t))
    for etype in g.canonical_etypes:
        data[etype].update(_of_edges(g, etype))
    for name, value in g.gdata.items():
        data[name] = value
    return data


def _of_nodes(g: Graph, ntype: str) -> dict[str, object]:
    stored: dict[str, object] = {"num_nodes": g.num_nodes(ntype)}
    if g.sizes is not None:
        sizes = g.batch_num_nodes(ntype).to(g.device)
        stored["batch"] = torch.arange(len(sizes), device=g.device).repeat_interleave(sizes)
        stored["ptr"] = torch.cat([sizes.new_zeros(1), sizes.cumsum(0)])
    return _with_features(stored, g.nodes[ntype].data)


def _of_edges(g: Graph, etype: EdgeType) -> dict[str, object]:
    return _with_features({"edge_index": torch.stack(g.edges(etype=etype)).long()}, g.edges[etype].data)


def _with_features(stored: dict[str, object], features: Mapping[str, Tensor]) -> dict[str, object]:
    for name in features:
        if name in stored:
            raise FeatureError(f"PyG has a meaning of its own for the feature {name!r}", cure="rename it")
    return {**stored, **features}
