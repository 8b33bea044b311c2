"""Graph: who is joined to whom, with features on nodes, edges and whole graphs.

Takes: edge ids and features. Gives: a Topology and its Frames; tempo: once a topology.
Source: DGL section 3; its words (ndata, edata, srcdata) are kept.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from numbers import Integral
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from vgraph.api import udf
from vgraph.api.adjacency import Adjacency
from vgraph.api.frame import FeatureView, Frame, LocalScope, as_ids
from vgraph.api.tracer import user_line
from vgraph.errors import DTypeError, GraphError
from vgraph.ir.topology import Topology

Count: TypeAlias = int  # the class below has a method of the name int
Func: TypeAlias = Callable[..., Any]
MAX_INT32 = 2**31 - 1
IDTYPES = (torch.int64, torch.int32)


def graph(
    data: Any,
    *,
    num_nodes: int | None = None,
    idtype: torch.dtype | None = None,
    device: torch.device | str | None = None,
) -> Graph:
    """A graph with the edges ``src[i] -> dst[i]``, in that order.

    Args:
        data: ``(src, dst)``: tensors, arrays or lists of node ids, each (num_edges,); copied.
        num_nodes: all ids are below it; by default the largest id + 1.
        idtype: torch.int64 or torch.int32; by default that of the ids.
        device: where the ids go; by default where they are.

    Raises:
        GraphError: the ends differ in length or device, or an id is not in [0, num_nodes).
        DTypeError: ids are not whole numbers.

    >>> import vgraph
    >>> g = vgraph.graph(([0, 1, 1], [2, 2, 3]), num_nodes=5)
    >>> g
    Graph(num_nodes=5, num_edges=3, ndata={}, edata={})
    >>> g.in_degrees().tolist()
    [0, 0, 2, 1, 0]
    """
    src, dst = (as_ids(end, name) for end, name in zip(_ends(data), ("src", "dst"), strict=True))
    _check_pair(src, dst, device)
    count = _check_count(src, dst, num_nodes)
    both = torch.int32 if src.dtype == dst.dtype == torch.int32 else torch.int64
    dtype = check_idtype(idtype or both, count, src.shape[0])
    place = src.device if device is None else torch.device(device)
    # copied, so that writing into the caller's tensors later cannot break what was checked
    order = torch.contiguous_format
    src, dst = (end.to(place, dtype, copy=True, memory_format=order) for end in (src, dst))
    return Graph(Topology(src, dst, count, count))


def _ends(data: Any) -> tuple[Any, Any]:
    # a list of two could be edges as well as ends
    is_array = isinstance(data, (Tensor, np.ndarray)) and data.ndim == 2
    if not (isinstance(data, tuple) or is_array) or len(data) != 2:
        fact = f"edges are given as a {type(data).__name__}, not as a pair of ends"
        raise GraphError(fact, cure="pass (src, dst)", line=user_line())
    return data[0], data[1]


def _check_pair(src: Tensor, dst: Tensor, device: object) -> None:
    if src.shape != dst.shape:
        longer, first = ("src", len(dst)) if len(src) > len(dst) else ("dst", len(src))
        fact = f"src has {len(src)} ids and dst has {len(dst)}: edge {first} has only a {longer}"
        raise GraphError(fact, cure="give every edge a src and a dst", line=user_line())
    if src.device != dst.device and device is None:
        fact = f"src is on {src.device} and dst on {dst.device}"
        raise GraphError(fact, cure="move one of them, or pass device=", line=user_line())


def _check_count(src: Tensor, dst: Tensor, num_nodes: int | None) -> int:
    """The number of nodes; GraphError names the first edge with an id outside."""
    if num_nodes is not None and not (isinstance(num_nodes, Integral) and num_nodes >= 0):
        fact = f"num_nodes is {num_nodes!r}"
        raise GraphError(fact, cure="pass a whole number from 0 up", line=user_line())
    limits = [torch.aminmax(end) for end in (src, dst) if end.numel()]
    low = min((int(limit.min) for limit in limits), default=0)
    high = max((int(limit.max) for limit in limits), default=-1)
    count = high + 1 if num_nodes is None else int(num_nodes)
    if low >= 0 and high < count:
        return count
    raise _wrong_edge(src.cpu().long(), dst.cpu().long(), count)


def _wrong_edge(src: Tensor, dst: Tensor, count: int) -> GraphError:
    outside = [(end < 0) | (end >= count) for end in (src, dst)]
    edge = int((outside[0] | outside[1]).nonzero()[0])
    name, end = ("src", src) if outside[0][edge] else ("dst", dst)
    value, there = int(end[edge]), f" where there are {count} nodes"
    fact = f"{name} of edge {edge} is {value}" + ("" if value < 0 else there)
    cure = f"pass num_nodes={value + 1} or more, or correct the id"
    cure = "number the nodes 0, 1, 2, ..." if value < 0 else cure
    return GraphError(fact, cure=cure, line=user_line())


def check_idtype(idtype: torch.dtype, num_nodes: int, num_edges: int) -> torch.dtype:
    """The dtype itself; DTypeError: it is not for ids; GraphError: there are too many of them."""
    if idtype not in IDTYPES:
        fact = f"idtype is {idtype}"
        raise DTypeError(fact, cure="pass torch.int64 or torch.int32", line=user_line())
    if idtype == torch.int32 and max(num_nodes, num_edges) > MAX_INT32:
        fact = f"{num_nodes} nodes and {num_edges} edges cannot be numbered in int32"
        raise GraphError(fact, cure="use idtype=torch.int64", line=user_line())
    return idtype


class Graph(Adjacency):
    """A directed graph with features; made by ``vgraph.graph``, ``vgraph.batch`` and others.

    ``topology`` holds the ids. ``ndata`` and ``edata`` map names to tensors with one row a node and
    one row an edge; ``gdata`` has one row for every graph of a batch. ``srcdata`` and ``dstdata``
    are ``ndata``. Edges are numbered in the order in which they were given.

    >>> import torch, vgraph
    >>> g = vgraph.graph(([0, 1], [2, 2]))
    >>> g.ndata["h"] = torch.ones(3, 4)
    >>> with g.local_scope():
    ...     g.ndata["h"] = torch.zeros(3, 1)
    >>> g.ndata["h"].shape
    torch.Size([3, 4])
    """

    def __init__(
        self,
        topology: Topology,
        ndata: Frame | None = None,
        edata: Frame | None = None,
        gdata: Frame | None = None,
    ) -> None:
        if not isinstance(topology, Topology):  # pyright: ignore[reportUnnecessaryIsInstance]
            fact = f"a Graph is made from a Topology, not from a {type(topology).__name__}"
            raise GraphError(fact, cure="call vgraph.graph((src, dst))", line=user_line())
        super().__init__(topology)
        device = topology.src.device
        self._ndata = Frame(topology.num_dst, device, "node") if ndata is None else ndata
        self._edata = Frame(topology.num_edges, device, "edge") if edata is None else edata
        self._gdata = Frame(self.batch_size, device, "graph") if gdata is None else gdata

    # ------------------------------------------------------------ features
    @property
    def ndata(self) -> Frame:
        return self._ndata

    @property
    def edata(self) -> Frame:
        return self._edata

    @property
    def gdata(self) -> Frame:
        return self._gdata

    srcdata = dstdata = ndata

    def local_scope(self) -> LocalScope:
        """A context at whose end the features are again what they were at its beginning."""
        return LocalScope(self._ndata, self._edata, self._gdata)

    def local_var(self) -> Graph:
        """A graph with the same topology and features; features set in one are not in the other."""
        return Graph(self.topology, self._ndata.copy(), self._edata.copy(), self._gdata.copy())

    clone = __copy__ = local_var

    @property
    def nodes(self) -> FeatureView:
        """``g.nodes()``: all ids; ``g.nodes[ids].data["h"]``: the features of some."""
        return FeatureView(self._ndata, lambda: self._arange(self.num_nodes()))

    @property
    def edges(self) -> FeatureView:
        """``g.edges()``: as ``all_edges``; ``g.edges[ids].data["w"]``: the features of some."""
        return FeatureView(self._edata, self.all_edges)

    # ------------------------------------------------------------ other graphs
    def reverse(self, copy_ndata: bool = True, copy_edata: bool = False) -> Graph:
        """The graph with every edge turned round, as ``vgraph.reverse``."""
        nodes, graphs = (self._ndata.copy(), self._gdata.copy()) if copy_ndata else (None, None)
        edges = self._edata.copy() if copy_edata else None
        return Graph(self.topology.reversed, nodes, edges, graphs)

    def to(self, device: torch.device | str | Count, *, non_blocking: bool = False) -> Graph:
        """The graph with ids and features on ``device``; itself, where it is there already."""
        return self._stored(device, non_blocking)

    def cpu(self) -> Graph:
        """The graph on the CPU."""
        return self._stored("cpu")

    def int(self) -> Graph:
        """The graph with int32 ids; itself, where they are. GraphError: there are too many."""
        check_idtype(torch.int32, self.num_nodes(), self.num_edges())
        return self._stored(torch.int32)

    def long(self) -> Graph:
        """The graph with int64 ids; itself, where they are."""
        return self._stored(torch.int64)

    def _stored(self, place: Any, non_blocking: bool = False) -> Graph:
        """The same graph with ids of another dtype, or with everything on another device."""
        t = self.topology
        src, dst = (end.to(place, non_blocking=non_blocking) for end in (t.src, t.dst))
        if src is t.src and dst is t.dst:
            return self
        # the parts stay as they are: their levels do not depend on how ids are stored
        topology = replace(t, src=src, dst=dst)
        frames = (self._ndata, self._edata, self._gdata)
        moved = [frame.to(src.device, non_blocking=non_blocking) for frame in frames]
        return Graph(topology, moved[0], moved[1], moved[2])

    def __reduce__(self) -> Any:
        frames = ({k: _own(c) for k, c in f.items()} for f in (self._ndata, self._edata, self._gdata))
        t = self.topology
        return _restore, (_own(t.src), _own(t.dst), t.num_dst, t.graph_sizes, *frames)

    def __repr__(self) -> str:
        parts = [f"num_nodes={self.num_nodes()}", f"num_edges={self.num_edges()}"]
        parts += [f"batch_size={self.batch_size}"] if self.topology.graph_sizes else []
        parts += [f"ndata={self._ndata}", f"edata={self._edata}"]
        parts += [f"gdata={self._gdata}"] if self._gdata else []
        parts += [] if self.device.type == "cpu" else [f"device={str(self.device)!r}"]
        return f"Graph({', '.join(parts)})"

    # ------------------------------------------------------------ functions of edges and nodes
    def update_all(self, message_func: Func, reduce_func: Func, apply_node_func: Func | None = None) -> None:
        """Sends messages along all edges, reduces them at their ends, sets what comes of it."""
        udf.update_all(self, message_func, reduce_func, apply_node_func)

    def apply_edges(self, func: Func, edges: Any = None) -> None:
        """Sets what ``func(edges)`` gives as features of all edges, or of those given."""
        udf.apply_edges(self, func, edges)

    def apply_nodes(self, func: Func, v: Any = None) -> None:
        """Sets what ``func(nodes)`` gives as features of all nodes, or of ``v``."""
        udf.apply_nodes(self, func, v)

    def send_and_recv(
        self, edges: Any, message_func: Func, reduce_func: Func, apply_node_func: Func | None = None
    ) -> None:
        """As update_all, with the messages of some edges; only nodes where they end change."""
        udf.send_and_recv(self, edges, message_func, reduce_func, apply_node_func)

    def pull(self, v: Any, message_func: Func, reduce_func: Func, apply_node_func: Func | None = None) -> None:
        """As update_all, with the in-edges of ``v``; only these nodes change."""
        udf.pull(self, v, message_func, reduce_func, apply_node_func)

    def push(self, u: Any, message_func: Func, reduce_func: Func, apply_node_func: Func | None = None) -> None:
        """As update_all, with the out-edges of ``u``; only nodes where they end change."""
        udf.push(self, u, message_func, reduce_func, apply_node_func)


def _own(tensor: Tensor) -> Tensor:
    """The tensor without the rest of the storage that it is a view of, which pickle would write."""
    is_view = tensor.layout == torch.strided and tensor.untyped_storage().nbytes() > tensor.nbytes
    return tensor.clone() if is_view else tensor


def _restore(src: Tensor, dst: Tensor, count: int, graph_sizes: Any, *features: Any) -> Graph:
    made = Graph(Topology(src, dst, count, count, graph_sizes))
    for frame, columns in zip((made.ndata, made.edata, made.gdata), features, strict=True):
        frame.update(columns)
    return made
