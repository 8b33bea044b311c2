"""Split: which of some nodes, or edges, a rank trains on.

Takes: a mask of own rows, or ids of any. Gives: own ids. Runs once per training.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from vgraph.distributed.dist_graph import DistGraph
from vgraph.errors import GraphError


def node_split(nodes: Any, g: DistGraph, ntype: str | None = None) -> Tensor:
    """The new ids of own nodes among some.

    Loaders make batches of the ids of all ranks, so that ranks need not have as many as one another.

    Args:
        nodes: (own nodes,) or (all nodes,) truth values, by new ids, as ``g.ndata["train_mask"]``; or (k,) new ids of
            any nodes.
        g: the distributed graph.
        ntype: the type of nodes; None where there is one.

    Returns:
        (own nodes among them,): of a mask int64 and ascending, of ids in their dtype and order.

    Raises:
        GraphError: a mask of another length, or no type where there are several.
        NameLookupError: there is no such type.

    Source: DGL 1.1, ``dgl.distributed.node_split``.

    Example:
        >>> import tempfile, torch, vgraph, vgraph.distributed as vd
        >>> folder = tempfile.mkdtemp()
        >>> _ = vd.partition_graph(vgraph.graph(([0, 1, 2], [1, 2, 0])), folder, num_parts=1)
        >>> vd.node_split(torch.tensor([True, False, True]), vd.DistGraph(folder))
        tensor([0, 2])
    """
    found = g.ntypes[g.get_ntype_id(ntype)]
    first, last = g.whole.own(found)
    return _split(nodes, first, last, g.num_nodes(found), "nodes")


def edge_split(edges: Any, g: DistGraph, etype: Any = None) -> Tensor:
    """The new ids of own edges among some: those that end in own nodes.

    Args:
        edges: (own edges,) or (all edges,) truth values, by new ids, as ``g.edata["train_mask"]``; or (k,) new ids of
            any edges.
        g: the distributed graph.
        etype: the type of edges: a name, a triple (type of sources, name, type of destinations), or None where there
            is one.

    Returns:
        (own edges among them,): of a mask int64 and ascending, of ids in their dtype and order.

    Raises:
        GraphError: a mask of another length; there are several types of edges, and none of them is named.
        NameLookupError: there is no such type.

    Source: DGL 1.1, ``dgl.distributed.edge_split``.

    Example:
        >>> import tempfile, torch, vgraph, vgraph.distributed as vd
        >>> folder = tempfile.mkdtemp()
        >>> _ = vd.partition_graph(vgraph.graph(([0, 1, 2], [1, 2, 0])), folder, num_parts=1)
        >>> vd.edge_split(torch.tensor([2, 0]), vd.DistGraph(folder))
        tensor([2, 0])
    """
    key = g.to_canonical_etype(etype)
    firsts, bounds = g.whole.first_parts, g.whole.stored.edge_bounds(key)
    first, last = (int(bounds[firsts[g.whole.ranks.rank + i]]) for i in (0, 1))
    return _split(edges, first, last, g.num_edges(key), "edges")


def _split(given: Any, first: int, last: int, count: int, what: str) -> Tensor:
    some = torch.as_tensor(given)
    if some.dtype != torch.bool:
        return some[(some >= first) & (some < last)]
    if len(some) not in (last - first, count):
        fact = f"a mask has {len(some)} entries; this rank has {last - first} of {count} {what}"
        raise GraphError(fact, cure="give a mask of own rows, or of all by new ids")
    own = some if len(some) == last - first else some[first:last]
    return own.nonzero().squeeze(1) + first
