"""Graphs between two types of nodes, from SciPy's matrices and NetworkX' convention.

Takes: their objects. Gives: Graphs. Runs once per sample. Neither is needed to import vgraph.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from vgraph.api.build.construct import Device, heterograph
from vgraph.api.build.networkx_scipy import refuse_others, sorted_edges, stack_attribute
from vgraph.api.graph import Graph
from vgraph.arguments import NAME, WORDS, checked
from vgraph.errors import GraphError
from vgraph.late import late

if TYPE_CHECKING:
    from scipy import sparse
else:
    sparse = late("scipy.sparse")


@checked(utype=NAME, etype=NAME, vtype=NAME, eweight_name=NAME.or_none())
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
        g.edata[eweight_name] = torch.tensor(entries.data, device="cpu").to(g.device)
    return g


@checked(
    utype=NAME,
    etype=NAME,
    vtype=NAME,
    u_attrs=WORDS.or_none(),
    e_attrs=WORDS.or_none(),
    v_attrs=WORDS.or_none(),
    edge_id_attr_name=NAME.or_none(),
)
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
    refuse_others(nx_graph)
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
