"""Graphs of other libraries: PyG's Data, pandas' edge lists, SciPy's and NetworkX' bipartite graphs.

Takes: their objects. Gives: Graphs, and back. Runs once per sample. None of them is needed to import vgraph.
"""

from __future__ import annotations

import importlib
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vgraph.api.build.construct import Device, graph, heterograph
from vgraph.api.build.networkx_scipy import sorted_edges, stack_attribute
from vgraph.api.graph import Graph
from vgraph.errors import FeatureError, FunctionError, GraphError, NameLookupError
from vgraph.graphs.frame import Frame
from vgraph.graphs.transform import one_type
from vgraph.late import late

if TYPE_CHECKING:
    from scipy import sparse
else:
    sparse = late("scipy.sparse")


def from_pyg(data: Any, *, idtype: torch.dtype | None = None, device: Device = None) -> Graph:
    """A graph from PyG's ``Data`` (or anything with ``edge_index`` and tensors beside it).

    Tensors of nodes become ``ndata``, those of edges ``edata``, others with one row a graph ``gdata``. What
    holds one row a node is told by the object itself (``is_node_attr``), else by the number of rows.
    A ``Batch`` becomes a batch: its ``ptr``, or ``batch``, says which nodes are whose.

    Args:
        data: an object with ``edge_index`` (2, edges), whole numbers.
        idtype: ``torch.int64`` or ``torch.int32``; None: that of the ids.
        device: where ids and features go; None: where the ids are.

    Returns:
        A Graph with one type of nodes and edges. Tensors that have neither a row a node, nor an edge, nor a graph,
        and what is no tensor, are left out.

    Raises:
        GraphError: there is no ``edge_index`` (2, edges), or its ids are not below the number of nodes.

    Source: PyG, ``torch_geometric.data.Data``.

    Example:
        >>> import types, torch, vgraph
        >>> data = types.SimpleNamespace(edge_index=torch.tensor([[0, 1], [1, 2]]), x=torch.ones(3, 4), num_nodes=3)
        >>> vgraph.from_pyg(data)
        Graph(num_nodes=3, num_edges=2, ndata={'x': float32 (3, 4)}, edata={})
    """
    index = getattr(data, "edge_index", None)
    if not isinstance(index, Tensor):
        raise GraphError("there is no edge_index", cure="pass a torch_geometric.data.Data")
    if index.ndim != 2 or index.shape[0] != 2:
        raise GraphError(f"edge_index has shape {tuple(index.shape)}", cure="pass (2, num_edges)")
    g = graph((index[0], index[1]), num_nodes=getattr(data, "num_nodes", None), idtype=idtype, device=device)
    names = list(data.keys()) if hasattr(data, "keys") else list(vars(data))
    sizes = _sizes_of(data, g.num_nodes())
    if sizes is not None:
        g.set_batch_num_nodes(sizes)
        names = [name for name in names if name not in ("batch", "ptr")]
    for name in names:
        value = data[name] if hasattr(data, "__getitem__") else getattr(data, name)
        if name != "edge_index" and isinstance(value, Tensor) and value.ndim:
            frame = _frame_of(g, data, name, value)
            if frame is not None:
                frame[name] = value.to(g.device)
    return g


def _sizes_of(data: object, num_nodes: int) -> list[int] | None:
    """The nodes of every graph of a batch; None: it is none."""
    ptr, batch = getattr(data, "ptr", None), getattr(data, "batch", None)
    if isinstance(ptr, Tensor) and ptr.ndim == 1 and ptr.numel() > 1 and int(ptr[-1]) == num_nodes:
        return ptr.diff().tolist()
    if not isinstance(batch, Tensor) or batch.shape != (num_nodes,) or batch.is_floating_point() or not num_nodes:
        return None
    is_sorted = int(batch[0]) >= 0 and bool((batch.diff() >= 0).all())
    return torch.bincount(batch).tolist() if is_sorted else None


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


def to_pyg(g: Graph) -> Any:
    """PyG's ``Data`` with ``edge_index`` and all features, of a batch ``batch`` and ``ptr``; needs torch_geometric.

    Args:
        g: a graph with one type of nodes and edges.

    Returns:
        A ``torch_geometric.data.Data`` with int64 ``edge_index`` (2, edges), which shares the features.

    Raises:
        FunctionError: torch_geometric is not installed.
        FeatureError: a node and an edge feature share a name.
        GraphError: there are several types of nodes or edges.

    Source: PyG, ``torch_geometric.data.Data``.

    Example:
        >>> import vgraph
        >>> data = vgraph.to_pyg(vgraph.graph(([0], [1])))  # doctest: +SKIP
    """
    t = g.relation(one_type(g, "to_pyg"))[0]
    twins = sorted(set(g.ndata) & set(g.edata))
    if twins:
        fact = f"nodes and edges have a feature {twins[0]!r}"
        raise FeatureError(fact, cure="rename one of them")
    try:
        made = importlib.import_module("torch_geometric.data").Data
    except ImportError as error:
        raise FunctionError("to_pyg needs torch_geometric", cure="install it") from error
    features: dict[str, Tensor] = {**g.ndata, **g.edata, **g.gdata}
    if g.sizes is not None:
        sizes = g.batch_num_nodes().to(g.device)
        features["batch"] = torch.arange(len(sizes), device=g.device).repeat_interleave(sizes)
        features["ptr"] = torch.cat([sizes.new_zeros(1), sizes.cumsum(0)])
    return made(edge_index=torch.stack([t.src, t.dst]).long(), num_nodes=g.num_nodes(), **features)


def from_pandas(
    frame: Mapping[str, object],
    source: str = "src",
    target: str = "dst",
    edge_attrs: Sequence[str] | None = None,
    *,
    num_nodes: int | None = None,
    idtype: torch.dtype | None = None,
    device: Device = None,
    node_ids: dict[Hashable, int] | None = None,
) -> Graph:
    """A graph from a table with one edge a row: a pandas DataFrame, or anything with columns by name.

    Args:
        frame: the table.
        source: the name of the column of sources.
        target: the name of the column of destinations.
        edge_attrs: the names of columns that become ``edata``; None: none.
        num_nodes: all ids are below it; None: the largest id + 1.
        idtype: ``torch.int64`` or ``torch.int32``; None: that of the ids.
        device: where ids and features go; None: the CPU.
        node_ids: where nodes have names (text, or anything that a dict takes): the id of each. It gets the names that
            are not in it yet, row by row, with the ids that follow; ``{}`` to begin with, and the same for further
            tables. None: the columns hold ids.

    Returns:
        A Graph with one type of nodes and edges, its edges in the order of rows.

    Raises:
        NameLookupError: there is no such column.
        FeatureError: a column holds no numbers, or a row lacks the name of a node.

    Source: pandas, ``DataFrame`` (columns by name).

    Example:
        >>> import vgraph
        >>> table = {"src": [0, 1], "dst": [1, 2], "w": [0.5, 1.0]}
        >>> vgraph.from_pandas(table, edge_attrs=["w"]).edata["w"].tolist()
        [0.5, 1.0]
        >>> ids = {}
        >>> vgraph.from_pandas({"src": ["Ann", "Bob"], "dst": ["Bob", "Cid"]}, node_ids=ids).edges()
        (tensor([0, 1]), tensor([1, 2]))
        >>> ids
        {'Ann': 0, 'Bob': 1, 'Cid': 2}
    """
    columns = {name: _column(frame, name) for name in (source, target, *(edge_attrs or ()))}
    names = None if node_ids is None else dict(node_ids)
    ends = _ids_of((source, target), (columns[source], columns[target]), names)
    if names is not None and num_nodes is None:
        num_nodes = 1 + max(names.values(), default=-1)
    g = graph(ends, num_nodes=num_nodes, idtype=idtype, device=device)
    for name in edge_attrs or ():
        if columns[name].dtype == object:
            fact = f"the column {name!r} holds no numbers"
            raise FeatureError(fact, cure="convert it first")
        g.edata[name] = torch.from_numpy(columns[name].copy()).to(g.device)
    if node_ids is not None:
        node_ids.update(names or {})
    return g


_Ends = tuple[NDArray[np.generic], NDArray[np.generic]]


def _holds_names(column: NDArray[np.generic]) -> bool:
    """Whether it is text; numbers beyond 64 bits are objects, too, and no names."""
    return column.dtype.kind in "US" or (column.dtype.kind == "O" and not all(isinstance(n, int) for n in column))


def _ids_of(titles: tuple[str, str], ends: _Ends, names: dict[Hashable, int] | None) -> _Ends:
    """Ids as they stand in two columns, or those of names, which are added to the ones known."""
    if names is None:
        if any(_holds_names(column) for column in ends):
            fact = f"the columns {titles[0]!r} and {titles[1]!r} hold names, not ids"
            raise FeatureError(fact, cure="pass node_ids={}, a dict that gets the id of each name")
        return ends
    found: list[int] = []
    following = 1 + max(names.values(), default=-1)
    for row, pair in enumerate(zip(*(end.tolist() for end in ends), strict=True)):
        for title, name in zip(titles, pair, strict=True):
            if not isinstance(name, Hashable) or name is None or name != name:  # noqa: PLR0124  # NaN
                fact = f"row {row} of the column {title!r} is {name!r}, which names no node"
                raise FeatureError(fact, cure="drop the row: frame.dropna(subset=[source, target])")
            found.append(names.setdefault(name, following))
            following += found[-1] == following
    both = np.array(found, np.int64).reshape(-1, 2)
    return both[:, 0], both[:, 1]


def _column(frame: Mapping[str, object], name: str) -> NDArray[np.generic]:
    if name not in frame:
        known = ", ".join(map(repr, frame))
        raise NameLookupError(f"there is no column {name!r}; there is: {known}", cure="name one of them")
    return np.asarray(frame[name])


def to_pandas(g: Graph, edge_attrs: Sequence[str] | None = None) -> Any:
    """A pandas DataFrame with columns src, dst and the edge features named, one row an edge; needs pandas.

    Args:
        g: a graph with one type of edges.
        edge_attrs: names of features of the edges; None: none.

    Returns:
        A ``pandas.DataFrame``, its rows in the order of edge ids; it shares no memory with the graph's ids.

    Raises:
        FunctionError: pandas is not installed.
        NameLookupError: there is no such feature.

    Source: pandas, ``DataFrame`` (columns by name).

    Example:
        >>> import vgraph
        >>> table = vgraph.to_pandas(vgraph.graph(([0], [1])))  # doctest: +SKIP
    """
    t, _, _, frame = g.relation(None)
    columns = {name: list(frame[name].numpy(force=True)) for name in edge_attrs or ()}
    try:
        made = importlib.import_module("pandas").DataFrame
    except ImportError as error:
        raise FunctionError("to_pandas needs pandas", cure="install it") from error
    return made({"src": t.src.cpu().numpy().copy(), "dst": t.dst.cpu().numpy().copy(), **columns})


def bipartite_from_scipy(
    sp_mat: Any,
    utype: str,
    etype: str,
    vtype: str,
    eweight_name: str | None = None,
    idtype: torch.dtype | None = None,
    device: Device = None,
) -> Graph:
    """A graph between two types of nodes with an edge row -> column for every stored entry.

    Args:
        sp_mat: any of ``scipy.sparse``'s; entries stored twice are two edges.
        utype: the name of the type of sources (rows).
        etype: the name of the type of edges.
        vtype: the name of the type of destinations (columns).
        eweight_name: the name in ``edata`` for the entries' values, (edges,) in their dtype; None: they are left out.
        idtype: ``torch.int64`` or ``torch.int32``; None: int64.
        device: where ids and features go; None: the CPU.

    Returns:
        A Graph with two types of nodes (one, where both have the same name).

    Raises:
        GraphError: it is no sparse matrix.
        DTypeError: ``idtype`` is neither int64 nor int32.
        DeviceError: there is no such device.

    Source: DGL 1.1, ``dgl.bipartite_from_scipy``.

    Example:
        >>> import scipy.sparse, vgraph
        >>> g = vgraph.bipartite_from_scipy(scipy.sparse.coo_matrix([[0, 5, 0]]), "a", "to", "b", eweight_name="w")
        >>> g.num_nodes("b"), g.edges(), g.edata["w"].tolist()
        (3, (tensor([0]), tensor([1])), [5])
    """
    if not sparse.issparse(sp_mat) or sp_mat.ndim != 2:
        fact = f"a {type(sp_mat).__name__} is no sparse matrix"
        raise GraphError(fact, cure="pass one of scipy.sparse")
    entries = sp_mat.tocoo()
    ends = (entries.row.astype(np.int64), entries.col.astype(np.int64))
    counts = {utype: sp_mat.shape[0], vtype: sp_mat.shape[1]}
    g = heterograph({(utype, etype, vtype): ends}, counts, idtype, device)
    if eweight_name is not None:
        g.edata[eweight_name] = torch.tensor(entries.data).to(g.device)
    return g


def bipartite_from_networkx(
    nx_graph: Any,
    utype: str,
    etype: str,
    vtype: str,
    u_attrs: Sequence[str] | None = None,
    e_attrs: Sequence[str] | None = None,
    v_attrs: Sequence[str] | None = None,
    edge_id_attr_name: str | None = None,
    idtype: torch.dtype | None = None,
    device: Device = None,
) -> Graph:
    """A graph between two types of nodes from NetworkX' convention: attribute ``bipartite`` is 0 or 1.

    Args:
        nx_graph: a graph of NetworkX whose edges lead from nodes with 0 to nodes with 1.
        utype: the name of the type of sources, the nodes with 0.
        etype: the name of the type of edges.
        vtype: the name of the type of destinations, the nodes with 1.
        u_attrs: names of attributes of sources that become features; None: none.
        e_attrs: names of attributes of edges that become features; None: none.
        v_attrs: names of attributes of destinations that become features; None: none.
        edge_id_attr_name: the attribute that numbers the edges 0, 1, 2 ...; None: they are numbered as NetworkX lists
            them.
        idtype: ``torch.int64`` or ``torch.int32``; None: int64.
        device: where ids and features go; None: the CPU.

    Returns:
        A Graph with two types of nodes, each numbered as NetworkX lists them.

    Raises:
        GraphError: a node has no such attribute, or an edge does not lead from 0 to 1.
        NameLookupError: a node or an edge lacks an attribute.
        FeatureError: values cannot be stacked.

    Source: DGL 1.1, ``dgl.bipartite_from_networkx``.

    Example:
        >>> import networkx, vgraph
        >>> made = networkx.DiGraph()
        >>> made.add_nodes_from(["x", "y"], bipartite=0)
        >>> made.add_node("z", bipartite=1)
        >>> made.add_edge("y", "z")
        >>> vgraph.bipartite_from_networkx(made, "a", "to", "b").edges()
        (tensor([1]), tensor([0]))
    """
    sides = _two_sides(nx_graph.nodes(data=True))
    edges = sorted_edges(list(nx_graph.edges(data=True)), edge_id_attr_name)
    ends = _ends_across([(u, v) for u, v, _ in edges], sides)
    counts = {utype: len(sides[0]), vtype: len(sides[1])}
    g = heterograph({(utype, etype, vtype): ends}, counts, idtype, device)
    nodes = [[(f"node {name!r}", nx_graph.nodes[name]) for name in side] for side in sides]
    every = (g.srcdata, u_attrs, nodes[0]), (g.dstdata, v_attrs, nodes[1])
    for frame, attrs, rows in (*every, (g.edata, e_attrs, [(f"edge {e[:2]!r}", e[2]) for e in edges])):
        for attr in attrs or ():
            frame[attr] = stack_attribute(attr, rows).to(g.device)
    return g


def _two_sides(nodes: Iterable[tuple[Hashable, Mapping[str, object]]]) -> tuple[dict[Hashable, int], ...]:
    """The numbers of the nodes of each side; GraphError: a node is on none."""
    sides: tuple[dict[Hashable, int], ...] = ({}, {})
    for name, attributes in nodes:
        side = attributes.get("bipartite")
        if side not in (0, 1):
            fact = f"node {name!r} has bipartite={side!r}"
            raise GraphError(fact, cure="give every node 0 or 1")
        mine = sides[1 if side else 0]
        mine[name] = len(mine)
    return sides


def _ends_across(
    edges: Sequence[tuple[Hashable, Hashable]], sides: tuple[dict[Hashable, int], ...]
) -> tuple[list[int], list[int]]:
    """The numbers of edges' sources and destinations; GraphError: an edge does not lead across."""
    wrong = next(((u, v) for u, v in edges if u not in sides[0] or v not in sides[1]), None)
    if wrong is not None:
        fact = f"edge {wrong!r} does not lead from bipartite=0 to bipartite=1"
        raise GraphError(fact, cure="turn it round, or remove it")
    return [sides[0][u] for u, _ in edges], [sides[1][v] for _, v in edges]
