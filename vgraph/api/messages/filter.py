"""Selection: the nodes or edges of which a function says that it wants them.

Takes: a graph, a predicate. Gives: ids. Runs at every call. Source: DGL section 3.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from vgraph.api.messages.batches import EdgeBatch, NodeBatch, check_callable
from vgraph.api.messages.propagate import evaluate_edges
from vgraph.api.messages.update_all import Relation, results_on_nodes, some_edges
from vgraph.arguments import checked
from vgraph.errors import FunctionError
from vgraph.graphs.adjacency import is_all
from vgraph.graphs.frame import resolve_ids
from vgraph.graphs.given import GRAPH
from vgraph.graphs.graph_data import GraphData
from vgraph.graphs.types import Ends, EType, Ids


@checked(graph=GRAPH)
def filter_nodes(
    graph: GraphData, predicate: Callable[[NodeBatch], Tensor], nodes: Ids | None = None, ntype: str | None = None
) -> Tensor:
    """The ids of the nodes for which a function is true.

    Args:
        graph: a graph.
        predicate: given a batch of nodes as ``apply_nodes`` gives it; bool (nodes,) or (nodes, 1),
            or numbers, which are true where they are not 0.
        nodes: the nodes to ask of: an id, ids (k,), a mask, a slice, or None for all.
        ntype: the type of nodes, or None where there is one.

    Returns:
        (k,) in the dtype of ids, in the order asked for.

    Raises:
        FunctionError: the predicate gives no truth value a node.
        GraphError: an id is out of range, or there are several types and none is named.
        NameLookupError: a function reads a feature that is not there, or there is no such type.

    Source: DGL 1.1, ``DGLGraph.filter_nodes``.

    Example:
        >>> import torch, vgraph
        >>> g = vgraph.graph(([0, 1], [2, 2]))
        >>> g.ndata["h"] = torch.tensor([1.0, -1.0, 2.0])
        >>> g.filter_nodes(lambda nodes: nodes.data["h"] > 0)
        tensor([0, 2])
    """
    check_callable(predicate)
    frame = graph.node_frame(ntype)
    ids = None if is_all(nodes) else resolve_ids(nodes, frame.num_rows, graph.device)
    mask = _mask(results_on_nodes(frame, lambda batch: {"is": predicate(batch)}, ids)["is"])
    return _chosen(mask, ids).to(graph.idtype)


@checked(graph=GRAPH)
def filter_edges(
    graph: GraphData, predicate: Callable[[EdgeBatch], Tensor], edges: Ids | Ends | None = None, etype: EType = None
) -> Tensor:
    """The ids of the edges for which a function is true.

    Args:
        graph: a graph.
        predicate: given a batch of edges as ``apply_edges`` gives it; bool (edges,) or (edges, 1),
            or numbers, which are true where they are not 0.
        edges: the edges to ask of: an id, ids (k,), a mask, a pair (u, v) of ends, or None for all.
        etype: the type of edges: a name, a triple (type of sources, name, type of destinations), or None where there
            is one.

    Returns:
        (k,) in the dtype of ids, in the order asked for; for a pair of ends ascending.

    Raises:
        FunctionError: the predicate gives no truth value an edge.
        GraphError: an id is out of range, or there are several types and none is named.
        NameLookupError: a function reads a feature that is not there, or there is no such type.

    Source: DGL 1.1, ``DGLGraph.filter_edges``.

    Example:
        >>> import torch, vgraph
        >>> g = vgraph.graph(([0, 1, 2], [2, 2, 0]))
        >>> g.ndata["h"] = torch.tensor([1.0, 5.0, 2.0])
        >>> g.filter_edges(lambda edges: edges.src["h"] > edges.dst["h"])
        tensor([1, 2])
    """
    check_callable(predicate)
    on = Relation(graph, etype)
    ids, part, frames = some_edges(graph, on, edges, etype)
    mask = _mask(evaluate_edges(part, frames, lambda batch: {"is": predicate(batch)})["is"])
    if ids is None or isinstance(edges, tuple):
        return _chosen(mask, ids).to(graph.idtype)
    is_wanted = torch.zeros(on.topology.num_edges, dtype=torch.bool, device=mask.device)
    is_wanted[ids[mask]] = True
    asked = resolve_ids(edges, on.topology.num_edges, graph.device, "edge")
    return asked[is_wanted[asked]].to(graph.idtype)


def _mask(found: Tensor) -> Tensor:
    if found.dtype.is_complex or found[:1].numel() > 1:
        fact = f"the predicate gives {found.dtype} {tuple(found.shape)}"
        raise FunctionError(fact, cure="give one truth value for each")
    return found.reshape(-1) != 0


def _chosen(mask: Tensor, ids: Tensor | None) -> Tensor:
    return mask.nonzero().squeeze(1) if ids is None else ids[mask]
