"""Graphs of DGL, where it is installed: their types, features, batches and blocks.

Takes: an object with DGL's methods. Gives: a Graph. Runs once per sample. DGL itself is not imported.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from typing import TYPE_CHECKING, Protocol

import torch
from torch import Tensor

from vgraph.api.build.construct import Device, create_block, heterograph
from vgraph.api.graph import Graph
from vgraph.errors import GraphError
from vgraph.graphs.types import EdgeType

if TYPE_CHECKING:
    from collections.abc import Iterable


class _View(Protocol):
    data: Mapping[str, Tensor]


class _ByType(Protocol):
    def __getitem__(self, name: object) -> _View: ...


class _Edges(_ByType, Protocol):
    def __call__(self, *, form: str, order: str, etype: EdgeType) -> tuple[Tensor, Tensor]: ...


class DGLGraph(Protocol):
    """What is asked of a graph of DGL."""

    canonical_etypes: Iterable[EdgeType]
    ntypes: Iterable[str]
    srctypes: Iterable[str]
    dsttypes: Iterable[str]
    is_block: bool
    batch_size: int
    edges: _Edges
    nodes: _ByType
    srcnodes: _ByType
    dstnodes: _ByType

    def num_nodes(self, ntype: str) -> int: ...
    def num_src_nodes(self, ntype: str) -> int: ...
    def num_dst_nodes(self, ntype: str) -> int: ...
    def batch_num_nodes(self, ntype: str) -> Tensor: ...
    def batch_num_edges(self, etype: EdgeType) -> Tensor: ...


_ASKED = ("canonical_etypes", "ntypes", "is_block", "batch_size", "edges", "nodes", "batch_num_edges")


def from_dgl(g: DGLGraph, *, idtype: torch.dtype | None = None, device: Device = None) -> Graph:
    """A graph from one of DGL: all types of nodes and edges, features, the graphs of a batch, blocks.

    Args:
        g: a ``dgl.DGLGraph``, or a block of its samplers.
        idtype: ``torch.int64`` or ``torch.int32``; None: that of the graph.
        device: where ids and features go; None: where the graph is.

    Returns:
        A Graph; edges keep their ids. Features are DGL's tensors, not copied where they are on the device already.

    Raises:
        GraphError: it is no graph of DGL.
        DTypeError: ``idtype`` is another dtype.
        DeviceError: there is no such device.

    Source: DGL 1.1, ``dgl.DGLGraph``.

    Example:
        >>> import torch, vgraph
        >>> g = vgraph.graph(([0, 1], [2, 2]))  # in the place of one of DGL's, whose methods it has
        >>> g.ndata["h"] = torch.ones(3, 4)
        >>> vgraph.from_dgl(g)
        Graph(num_nodes=3, num_edges=2, ndata={'h': float32 (3, 4)}, edata={})
    """
    missing = [name for name in _ASKED if not hasattr(g, name)]
    if missing:
        fact = f"a {type(g).__name__} is no graph of DGL: it has no {missing[0]}"
        raise GraphError(fact, cure="pass a dgl.DGLGraph; vgraph.graph and vgraph.heterograph take edges")
    edges = {etype: g.edges(form="uv", order="eid", etype=etype) for etype in g.canonical_etypes}
    made = _block(g, edges, idtype, device) if g.is_block else _graph(g, edges, idtype, device)
    for etype in edges:
        _copy(g.edges[etype].data, made.edges[etype].data, made.device)
    return made


Edges = Mapping[EdgeType, tuple[Tensor, Tensor]]


def _graph(g: DGLGraph, edges: Edges, idtype: torch.dtype | None, device: Device) -> Graph:
    made = heterograph(edges, {ntype: g.num_nodes(ntype) for ntype in g.ntypes}, idtype, device)
    if g.batch_size > 1:
        made.set_batch_num_nodes({ntype: g.batch_num_nodes(ntype) for ntype in g.ntypes})
        made.set_batch_num_edges({etype: g.batch_num_edges(etype) for etype in edges})
    for ntype in g.ntypes:
        _copy(g.nodes[ntype].data, made.nodes[ntype].data, made.device)
    return made


def _block(g: DGLGraph, edges: Edges, idtype: torch.dtype | None, device: Device) -> Graph:
    sources = {ntype: g.num_src_nodes(ntype) for ntype in g.srctypes}
    made = create_block(edges, sources, {ntype: g.num_dst_nodes(ntype) for ntype in g.dsttypes}, idtype, device)
    for ntype in g.srctypes:
        _copy(g.srcnodes[ntype].data, made.srcnodes[ntype].data, made.device)
    for ntype in g.dsttypes:
        _copy(g.dstnodes[ntype].data, made.dstnodes[ntype].data, made.device)
    return made


def _copy(columns: Mapping[str, Tensor], into: MutableMapping[str, Tensor], device: torch.device) -> None:
    for name, column in columns.items():
        into[name] = column.to(device)
