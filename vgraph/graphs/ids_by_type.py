"""Ids by type, of whatever a user names nodes or edges by.

Takes: a graph, and ids, masks, slices or pairs of ends, by type where there are several. Gives: ids. Runs once per
sample.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

from torch import Tensor

from vgraph.errors import GraphError, NameLookupError
from vgraph.graphs.frame import resolve_ids
from vgraph.graphs.graph_data import GraphData
from vgraph.graphs.types import Edges, EdgeType, Ends, Ids, Nodes

T = TypeVar("T")


def nodes_by_type(g: GraphData, nodes: Nodes) -> dict[str, Tensor]:
    """The ids (k,) int64 of the nodes that are named, by type; nothing of types that are not named.

    Raises:
        GraphError: an id is out of range, or there are several types and none is named.
        DTypeError: ids are not whole numbers, or a mask has not one truth value for each node.
        NameLookupError: there is no such type.
    """
    if not isinstance(nodes, Mapping):
        nodes = {_only(g.ntypes, "nodes"): nodes}
    found: dict[str, Tensor] = {}
    for name, ids in nodes.items():
        if name not in g.ntypes:
            raise NameLookupError(f"there is no type of node {name!r}", cure=f"one of {', '.join(g.ntypes)}")
        found[name] = resolve_ids(ids, g.num_nodes(name), g.device)
    return found


def edge_ids_by_type(g: GraphData, edges: Edges) -> dict[EdgeType, Tensor]:
    """The ids (k,) int64 of the edges that are named, by type; nothing of types that are not named.

    Raises:
        GraphError: an id is out of range, or there are several types and none is named.
        DTypeError: ids are not whole numbers, or a mask has not one truth value for each edge.
        NameLookupError: there is no such type.
    """
    if not isinstance(edges, Mapping):
        edges = {_only(g.canonical_etypes, "edges"): edges}
    found: dict[EdgeType, Tensor] = {}
    for etype, ids in edges.items():
        key = g.to_canonical_etype(etype)
        if isinstance(ids, tuple):
            u, v = both_ends(ids)
            ids = g.edge_ids(u, v, etype=key)
        found[key] = resolve_ids(ids, g.num_edges(key), g.device, "edge")
    return found


def both_ends(edges: tuple[Ids, ...]) -> Ends:
    """Sources and destinations; GraphError: these are not two."""
    if len(edges) != 2:
        fact = f"edges are a tuple of {len(edges)}"
        raise GraphError(fact, cure="give (sources, destinations); ids in a list or a tensor")
    return edges


def _only(types: Sequence[T], what: str) -> T:
    """The type of which all are; GraphError: there are several."""
    if len(types) != 1:
        raise GraphError(
            f"{what} without a type in a graph of {len(types)} types", cure="give ids by type: {type: ids}"
        )
    return types[0]
