"""Propagation: messages along a graph in a given order of nodes or edges.

Takes: a Graph, steps of ids, functions. Gives: new features in the graph's frames. Runs at every call.
Source: DGL section 3 (propagation); in topological order all steps are one schedule.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch

from vgraph.api.messages.batches import OfEdges, OfNodes
from vgraph.api.messages.topological_update import run_flow
from vgraph.api.messages.update_all import Relation, apply_on, pull, results_on_part, send_and_recv
from vgraph.arguments import Bound, checked, is_iterable
from vgraph.capture.errors import CaptureError
from vgraph.errors import FunctionError
from vgraph.graphs.given import GRAPH
from vgraph.graphs.graph_data import GraphData
from vgraph.graphs.transform import one_type
from vgraph.graphs.traversal import bfs_nodes_generator, dfs_labeled_edges_generator, topological_nodes_generator
from vgraph.graphs.types import Ends, EType, Ids
from vgraph.scheduler.frontiers import levels

_GROUPS = Bound("groups of ids, one after the other", is_iterable, FunctionError)


@checked(graph=GRAPH, nodes_generator=_GROUPS)
def prop_nodes(
    graph: GraphData,
    nodes_generator: Iterable[Ids],
    message_func: OfEdges,
    reduce_func: OfNodes,
    apply_node_func: OfNodes | None = None,
    etype: EType = None,
) -> None:
    """``pull`` for every group of nodes that the generator gives, one after the other; where one raises, for none.

    A group of which no node has in-edges keeps its features; only ``apply_node_func`` runs on it.

    Args:
        graph: a graph.
        nodes_generator: groups of nodes: ids (k,) each.
        message_func: a function of a batch of edges that gives a dict of messages, (edges, ...) each.
        reduce_func: a function of a batch of nodes with mailboxes (nodes, in-edges, ...) that gives a dict of
            features, (nodes, ...) each.
        apply_node_func: a function of a batch of nodes that gives a dict of features; it sees what was reduced. None:
            none.
        etype: the type of edges: a name, a triple (type of sources, name, type of destinations), or None where there
            is one.

    Raises:
        GraphError: an id is out of range, or there are several types and none is named.
        NameLookupError: a function reads a feature that is not there, or there is no such type.
        FunctionError: a function gives no dict of tensors with one row an edge or a node.

    Source: DGL 1.1, ``dgl.prop_nodes``.

    Example:
        >>> import torch, vgraph, vgraph.function as fn
        >>> g = vgraph.graph(([0, 1], [1, 2]))
        >>> g.ndata["h"] = torch.tensor([1.0, 0.0, 0.0])
        >>> vgraph.prop_nodes(g, [[1], [2]], fn.copy_u("h", "m"), fn.sum("m", "h"))
        >>> g.ndata["h"]
        tensor([1., 1., 1.])
    """
    with graph.all_or_nothing():
        for nodes in nodes_generator:
            pull(graph, nodes, message_func, reduce_func, apply_node_func, etype, keeps=True)


@checked(graph=GRAPH, edges_generator=_GROUPS)
def prop_edges(
    graph: GraphData,
    edges_generator: Iterable[Ids | Ends],
    message_func: OfEdges,
    reduce_func: OfNodes,
    apply_node_func: OfNodes | None = None,
    etype: EType = None,
) -> None:
    """``send_and_recv`` for every group of edges that the generator gives, in turn; where one raises, for none.

    Args:
        graph: a graph.
        edges_generator: groups of edges: ids (k,) each, or pairs (u, v) of ends.
        message_func: a function of a batch of edges that gives a dict of messages, (edges, ...) each.
        reduce_func: a function of a batch of nodes with mailboxes (nodes, in-edges, ...) that gives a dict of
            features, (nodes, ...) each.
        apply_node_func: a function of a batch of nodes that gives a dict of features; it sees what was reduced. None:
            none.
        etype: the type of edges: a name, a triple (type of sources, name, type of destinations), or None where there
            is one.

    Raises:
        GraphError: an id is out of range, or there are several types and none is named.
        NameLookupError: a function reads a feature that is not there, or there is no such type.
        FunctionError: a function gives no dict of tensors with one row an edge or a node.

    Source: DGL 1.1, ``dgl.prop_edges``.

    Example:
        >>> import torch, vgraph, vgraph.function as fn
        >>> g = vgraph.graph(([0, 1], [1, 2]))
        >>> g.ndata["h"] = torch.tensor([1.0, 0.0, 0.0])
        >>> vgraph.prop_edges(g, [[0], [1]], fn.copy_u("h", "m"), fn.sum("m", "h"))
        >>> g.ndata["h"]
        tensor([1., 1., 1.])
    """
    with graph.all_or_nothing():
        for edges in edges_generator:
            send_and_recv(graph, edges, message_func, reduce_func, apply_node_func, etype)


@checked(graph=GRAPH)
def prop_nodes_bfs(
    graph: GraphData,
    source: Ids,
    message_func: OfEdges,
    reduce_func: OfNodes,
    reverse: bool = False,
    apply_node_func: OfNodes | None = None,
) -> None:
    """``prop_nodes`` in the order of a breadth-first walk.

    Args:
        graph: a graph with one type of nodes and edges.
        source: where the walk begins: an id, ids (k,), a mask or a slice; these nodes hear from their in-edges first.
        message_func: a function of a batch of edges that gives a dict of messages, (edges, ...) each.
        reduce_func: a function of a batch of nodes with mailboxes (nodes, in-edges, ...) that gives a dict of
            features, (nodes, ...) each.
        reverse: walk against the edges; messages still go along them.
        apply_node_func: a function of a batch of nodes that gives a dict of features; it sees what was reduced. None:
            none.

    Raises:
        GraphError: there are several types of nodes or edges, or ``source`` is out of range.
        NameLookupError: a function reads a feature that is not there.
        FunctionError: a function gives no dict of tensors with one row an edge or a node.

    Source: DGL 1.1, ``dgl.prop_nodes_bfs``.

    Example:
        >>> import torch, vgraph, vgraph.function as fn
        >>> g = vgraph.graph(([0, 1], [1, 2]))
        >>> g.ndata["h"] = torch.tensor([1.0, 0.0, 0.0])
        >>> vgraph.prop_nodes_bfs(g, [0], fn.copy_u("h", "m"), fn.sum("m", "h"))
        >>> g.ndata["h"]
        tensor([1., 1., 1.])
    """
    prop_nodes(graph, bfs_nodes_generator(graph, source, reverse), message_func, reduce_func, apply_node_func)


@checked(graph=GRAPH)
def prop_edges_dfs(
    graph: GraphData,
    source: Ids,
    message_func: OfEdges,
    reduce_func: OfNodes,
    reverse: bool = False,
    has_reverse_edge: bool = False,
    has_nontree_edge: bool = False,
    apply_node_func: OfNodes | None = None,
) -> None:
    """``prop_edges`` in the order of depth-first walks.

    Args:
        graph: a graph with one type of nodes and edges.
        source: where walks begin: an id, ids (k,), a mask or a slice; walks of several sources go in step.
        message_func: a function of a batch of edges that gives a dict of messages, (edges, ...) each.
        reduce_func: a function of a batch of nodes with mailboxes (nodes, in-edges, ...) that gives a dict of
            features, (nodes, ...) each.
        reverse: walk against the edges; messages still go along them.
        has_reverse_edge: go also the steps back, as ``dfs_labeled_edges_generator`` gives them.
        has_nontree_edge: go also the edges to known nodes.
        apply_node_func: a function of a batch of nodes that gives a dict of features; it sees what was reduced. None:
            none.

    Raises:
        GraphError: there are several types of nodes or edges, or ``source`` is out of range.
        NameLookupError: a function reads a feature that is not there.
        FunctionError: a function gives no dict of tensors with one row an edge or a node.

    Source: DGL 1.1, ``dgl.prop_edges_dfs``.

    Example:
        >>> import torch, vgraph, vgraph.function as fn
        >>> g = vgraph.graph(([0, 1], [1, 2]))
        >>> g.ndata["h"] = torch.tensor([1.0, 0.0, 0.0])
        >>> vgraph.prop_edges_dfs(g, 0, fn.copy_u("h", "m"), fn.sum("m", "h"))
        >>> g.ndata["h"]
        tensor([1., 1., 1.])
    """
    walk = dfs_labeled_edges_generator(graph, source, reverse, has_reverse_edge, has_nontree_edge, return_labels=False)
    prop_edges(graph, walk, message_func, reduce_func, apply_node_func)


@checked(graph=GRAPH)
def prop_nodes_topo(
    graph: GraphData,
    message_func: OfEdges,
    reduce_func: OfNodes,
    reverse: bool = False,
    apply_node_func: OfNodes | None = None,
) -> None:
    """``pull`` for every node, after all nodes that it hears from: one schedule, not a loop of pulls.

    Nodes without in-edges keep their features; ``apply_node_func`` runs on them first. With
    ``reverse`` the order is turned round (messages are not): every node hears what was there before.

    Args:
        graph: a graph with one type of nodes and edges.
        message_func: a function of a batch of edges that gives a dict of messages, (edges, ...) each.
        reduce_func: a function of a batch of nodes with mailboxes (nodes, in-edges, ...) that gives a dict of
            features, (nodes, ...) each.
        reverse: turn the order of the nodes round, but not the messages: every node hears what was there before.
        apply_node_func: a function of a batch of nodes that gives a dict of features; it sees what was reduced. None:
            none.

    Raises:
        CycleError: the graph has a cycle.
        GraphError: there are several types of nodes or edges.
        FunctionError: a function gives no dict of tensors with one row an edge or a node.
        NameLookupError: a function reads a feature that is not there, or there is no such type.

    Source: Xu et al. 2018 (Cavs), section 3.2 (the schedule); DGL 1.1, ``dgl.prop_nodes_topo``.

    Example:
        >>> import torch, vgraph, vgraph.function as fn
        >>> g = vgraph.graph(([0, 1, 2, 2], [2, 2, 3, 4]))
        >>> g.ndata["h"] = torch.tensor([1.0, 2.0, 0.0, 0.0, 0.0])
        >>> vgraph.prop_nodes_topo(g, fn.copy_u("h", "m"), fn.sum("m", "h"))
        >>> g.ndata["h"]
        tensor([1., 2., 3., 3., 3.])
    """
    on = Relation(graph, one_type(graph, "prop_nodes_topo"))
    topology, roots = on.topology, (message_func, reduce_func, apply_node_func)
    found = torch.from_numpy(levels(topology)).to(graph.device)
    if reverse or not topology.num_edges:
        prop_nodes(graph, topological_nodes_generator(graph, reverse), *roots)
        return
    first, second = ((found == level).nonzero().squeeze(1) for level in (0, 1))
    with graph.local_scope():
        if apply_node_func is not None:
            apply_on(on.dst, apply_node_func, first)
        try:
            given = results_on_part(on, second[:1], *roots)
            results = run_flow(topology, on.dst.columns, on.edge.columns, roots, given)
        except CaptureError:  # logged where it was found
            results = None
        begun = dict(on.dst.columns)
    if results is not None:
        on.dst.update({**begun, **results})
        return
    prop_nodes(graph, topological_nodes_generator(graph), *roots)
