"""Names that DGL's programs use and that are no better called anything else in vgraph.

Takes: nothing. Gives: constants, the class of graphs, errors. Runs once per process.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor

import vgraph
from vgraph.compat import arguments
from vgraph.errors import VGraphError
from vgraph.graphs.types import EType
from vgraph.ir.topology import Topology
from vgraph.sampling import Uniform

__version__ = "1.1.3+vgraph"  # what programs compare
ALL, NID, EID, NTYPE, ETYPE = vgraph.ALL, vgraph.NID, vgraph.EID, vgraph.NTYPE, vgraph.ETYPE
DGLError = VGraphError
seed = vgraph.seed
PerSourceUniform = Uniform  # both are DGL's names of one sampler
apply_each = arguments.apply_each


to_simple_graph = vgraph.to_simple


class _AnyGraph(type):
    """What makes ``isinstance(g, DGLGraph)`` true of every graph."""

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, vgraph.Graph) if cls is DGLGraph else super().__instancecheck__(instance)

    def __subclasscheck__(cls, subclass: type) -> bool:
        return issubclass(subclass, vgraph.Graph) if cls is DGLGraph else super().__subclasscheck__(subclass)


class DGLGraph(vgraph.Graph, metaclass=_AnyGraph):
    """``vgraph.Graph``, made of what programs give: edges as ``vgraph.graph`` reads them, a graph of NetworkX.

    Args:
        gidx: the edges; None: a graph without nodes.
        **old: ``readonly``, ``multigraph`` and others that DGL 1.x ignores.
    """

    def __init__(self, gidx: object = None, **old: object) -> None:
        if gidx is None or isinstance(gidx, Topology):
            super().__init__(gidx)
            return
        made = vgraph.from_networkx(gidx) if hasattr(gidx, "adjacency") else vgraph.graph(gidx)
        super().__init__(made.topology)


DGLHeteroGraph = DGLGraph


def copy_u(g: vgraph.Graph, x_node: Tensor, etype: EType = None) -> Tensor:
    """The rows of sources, (nodes, ...), edge by edge, along one type of edges."""
    return vgraph.ops.copy_u(g if etype is None else g[etype], x_node)


def copy_v(g: vgraph.Graph, x_node: Tensor, etype: EType = None) -> Tensor:
    """The rows of destinations, (nodes, ...), edge by edge, along one type of edges."""
    return vgraph.ops.copy_v(g if etype is None else g[etype], x_node)


class DGLWarning(UserWarning):
    """A warning that a program raises with ``dgl_warning``."""


def dgl_warning(message: str, category: type[Warning] = DGLWarning, stacklevel: int = 2) -> None:
    """Warns."""
    warnings.warn(message, category, stacklevel=stacklevel)


def is_internal_column(name: str) -> bool:
    """Whether a feature's name is one that functions of graphs write."""
    return name in (NID, NTYPE)


def is_all(arg: object) -> bool:
    """Whether an argument is DGL's word for all nodes or edges."""
    return isinstance(arg, str) and arg == ALL


def add_reverse_edges(
    g: vgraph.Graph,
    readonly: bool | None = None,
    copy_ndata: bool = True,
    copy_edata: bool = False,
    ignore_bipartite: bool = False,
    exclude_self: bool = True,
) -> vgraph.Graph:
    """``vgraph.add_reverse_edges``; where features of edges come along, ``"_ID"`` holds their ids of before."""
    if copy_edata:
        g = g.local_var()
        for etype in g.canonical_etypes:
            g.edge_frames[etype][EID] = torch.arange(g.num_edges(etype), dtype=g.idtype, device=g.device)
    return vgraph.add_reverse_edges(g, readonly, copy_ndata, copy_edata, ignore_bipartite, exclude_self)


def save_graphs(
    filename: str | Path,
    g_list: vgraph.Graph | Sequence[vgraph.Graph],
    labels: Mapping[str, Tensor] | None = None,
    formats: str | Sequence[str] | None = None,
) -> None:
    """``vgraph.save_graphs``, which here makes the folder, too."""
    Path(filename).parent.mkdir(parents=True, exist_ok=True)
    vgraph.save_graphs(filename, g_list, labels, formats)
