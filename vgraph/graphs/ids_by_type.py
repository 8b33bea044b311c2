"""Ids of edges by type, of whatever a user names edges by.

Takes: a graph, and ids, masks, slices or pairs of ends, by type where there are several. Gives: ids. Runs once per
sample.
"""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from vgraph.errors import GraphError
from vgraph.graphs.frame import resolve_ids
from vgraph.graphs.graph_data import GraphData
from vgraph.graphs.types import Edges, EdgeType


def edge_ids_by_type(g: GraphData, edges: Edges) -> dict[EdgeType, Tensor]:
    """The ids (k,) int64 of the edges that are named, by type; nothing of types that are not named.

    Raises:
        GraphError: an id is out of range, or there are several types and none is named.
        DTypeError: ids are not whole numbers, or a mask has not one truth value for each edge.
        NameLookupError: there is no such type.
    """
    if not isinstance(edges, Mapping):
        if len(g.canonical_etypes) != 1:
            fact = f"edges without a type in a graph of {len(g.canonical_etypes)} types"
            raise GraphError(fact, cure="give ids by edge type, as in {etype: ids}")
        edges = {g.canonical_etypes[0]: edges}
    found: dict[EdgeType, Tensor] = {}
    for etype, ids in edges.items():
        key = g.to_canonical_etype(etype)
        if isinstance(ids, tuple):
            u, v = ids
            ids = g.edge_ids(u, v, etype=key)
        found[key] = resolve_ids(ids, g.num_edges(key), g.device, "edge")
    return found
