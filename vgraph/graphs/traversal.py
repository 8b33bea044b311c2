"""Traversals: nodes and edges in the order of a breadth-first, depth-first or topological walk.

Takes: a Graph and where to begin. Gives: ids, step by step. Runs once per topology.
Source: DGL section 3 (propagation orders); its order of edges within a step is kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vgraph.arguments import checked
from vgraph.graphs.adjacency import runs
from vgraph.graphs.frame import resolve_ids
from vgraph.graphs.given import GRAPH
from vgraph.graphs.graph_data import GraphData
from vgraph.graphs.subgraph import first_seen
from vgraph.graphs.transform import one_type
from vgraph.graphs.types import Ids
from vgraph.ir.topology import Compressed, Topology
from vgraph.scheduler.frontiers import levels

FORWARD, REVERSE, NONTREE = 0, 1, 2  # what DGL calls the labels of edges


def _walked(g: GraphData, reverse: bool) -> Topology:
    t = g.relation(one_type(g, "a traversal"))[0]
    return t.reversed if reverse else t


def _out(t: Topology, nodes: Tensor) -> tuple[Tensor, Tensor]:
    """Ends and ids of the edges that leave ``nodes``, node by node."""
    first = t.csr.ptr.index_select(0, nodes)
    at = runs(first, t.csr.ptr.index_select(0, nodes + 1) - first)
    return t.csr.other.index_select(0, at).long(), at if t.csr.edge_ids is None else t.csr.edge_ids.index_select(0, at)


def _bfs(g: GraphData, source: Ids, reverse: bool) -> Iterator[tuple[Tensor, Tensor]]:
    """The nodes of every step and the edges by which they were found."""
    t = _walked(g, reverse)
    front = resolve_ids(source, t.num_src, g.device)
    seen = torch.zeros(t.num_src, dtype=torch.bool, device=g.device).index_fill_(0, front, True)
    edges = front[:0]
    while front.numel():
        yield front.to(g.idtype), edges.to(g.idtype)
        ends, ids = _out(t, front)
        fresh = (~seen.index_select(0, ends)).nonzero().squeeze(1)
        ends, ids = ends.index_select(0, fresh), ids.index_select(0, fresh)
        front = first_seen(ends)
        order = torch.argsort(ends, stable=True)  # the first edge to reach a node found it
        sorted_ends = ends.index_select(0, order)
        is_first = torch.ones_like(sorted_ends, dtype=torch.bool)
        is_first[1:] = sorted_ends[1:] != sorted_ends[:-1]
        edges = ids.index_select(0, order[is_first].sort().values)
        seen.index_fill_(0, front, True)


@checked(graph=GRAPH)
def bfs_nodes_generator(graph: GraphData, source: Ids, reverse: bool = False) -> list[Tensor]:
    """The nodes at distance 0, 1, 2 ... from some nodes.

    Args:
        graph: a graph with one type of nodes and edges.
        source: where to begin: an id, ids (k,), a mask or a slice.
        reverse: walk against the edges.

    Returns:
        A list of tensors, one a distance, each (nodes,) in the dtype of ids; what is not reached is not in it.

    Raises:
        GraphError: there are several types of nodes or edges, or an id is out of range.
        DTypeError: ids are not whole numbers.

    Source: DGL 1.1, ``dgl.bfs_nodes_generator``.

    Example:
        >>> import vgraph
        >>> [step.tolist() for step in vgraph.bfs_nodes_generator(vgraph.graph(([0, 0, 1], [1, 2, 2])), 0)]
        [[0], [1, 2]]
    """
    return [nodes for nodes, _ in _bfs(graph, source, reverse)]


@checked(graph=GRAPH)
def bfs_edges_generator(graph: GraphData, source: Ids, reverse: bool = False) -> list[Tensor]:
    """The edges by which a breadth-first walk finds new nodes, step by step.

    Args:
        graph: a graph with one type of nodes and edges.
        source: where to begin: an id, ids (k,), a mask or a slice.
        reverse: walk against the edges.

    Returns:
        A list of tensors, one a step, each (edges,) in the dtype of ids, with one edge for every node that is found.

    Raises:
        GraphError: there are several types of nodes or edges, or an id is out of range.
        DTypeError: ids are not whole numbers.

    Source: DGL 1.1, ``dgl.bfs_edges_generator``.

    Example:
        >>> import vgraph
        >>> [step.tolist() for step in vgraph.bfs_edges_generator(vgraph.graph(([0, 0, 1], [1, 2, 2])), 0)]
        [[0, 1]]
    """
    return [edges for _, edges in _bfs(graph, source, reverse)][1:]


@checked(graph=GRAPH)
def topological_nodes_generator(graph: GraphData, reverse: bool = False) -> list[Tensor]:
    """The nodes in steps: each as soon as all nodes before it were given.

    Args:
        graph: a graph with one type of nodes and edges.
        reverse: go against the edges.

    Returns:
        A list of tensors, one a step, each (nodes,) ascending in the dtype of ids; every node is in one.

    Raises:
        CycleError: there is a cycle.
        GraphError: there are several types of nodes or edges.

    Source: Kahn 1962; DGL 1.1, ``dgl.topological_nodes_generator``.

    Example:
        >>> import vgraph
        >>> [step.tolist() for step in vgraph.topological_nodes_generator(vgraph.graph(([0, 0, 1], [1, 2, 2])))]
        [[0], [1], [2]]
    """
    found = torch.from_numpy(levels(_walked(graph, reverse)).astype(np.int64))
    counts = torch.bincount(found).tolist()
    order = torch.argsort(found, stable=True).to(graph.device, graph.idtype)
    return list(order.split(counts)) if counts else []


@checked(graph=GRAPH)
def dfs_edges_generator(graph: GraphData, source: Ids, reverse: bool = False) -> list[Tensor]:
    """The edges by which depth-first walks find new nodes; walks of several sources go in step.

    Args:
        graph: a graph with one type of nodes and edges.
        source: where to begin: an id, ids (k,), a mask or a slice.
        reverse: walk against the edges.

    Returns:
        A list of tensors in the dtype of ids; the i-th has the i-th edge of every walk that is as long.

    Raises:
        GraphError: there are several types of nodes or edges, or an id is out of range.
        DTypeError: ids are not whole numbers.

    Source: DGL 1.1, ``dgl.dfs_edges_generator``.

    Example:
        >>> import vgraph
        >>> [step.tolist() for step in vgraph.dfs_edges_generator(vgraph.graph(([0, 0, 1], [1, 2, 2])), 0)]
        [[0], [2]]
    """
    return _in_step(graph, [[e for e, kind in walk if kind == FORWARD] for walk in _dfs(graph, source, reverse)])


@checked(graph=GRAPH)
def dfs_labeled_edges_generator(
    graph: GraphData,
    source: Ids,
    reverse: bool = False,
    has_reverse_edge: bool = False,
    has_nontree_edge: bool = False,
    return_labels: bool = True,
) -> Any:
    """The edges of depth-first walks with labels: 0 found a node, 1 goes back, 2 leads to a known node.

    Args:
        graph: a graph with one type of nodes and edges.
        source: where to begin: an id, ids (k,), a mask or a slice; walks of several sources go in step.
        reverse: walk against the edges.
        has_reverse_edge: give also the steps back.
        has_nontree_edge: give also the edges to known nodes.
        return_labels: give the labels, too.

    Returns:
        A list of tensors in the dtype of ids, the i-th with the i-th edge of every walk that is as long; with
        ``return_labels`` a pair of such lists, edges and labels.

    Raises:
        GraphError: there are several types of nodes or edges, or an id is out of range.
        DTypeError: ids are not whole numbers.

    Source: DGL 1.1, ``dgl.dfs_labeled_edges_generator``.

    Example:
        >>> import vgraph
        >>> g = vgraph.graph(([0, 1], [1, 2]))
        >>> edges, labels = vgraph.dfs_labeled_edges_generator(g, 0, has_reverse_edge=True)
        >>> [step.tolist() for step in edges], [step.tolist() for step in labels]
        ([[0], [1], [1], [0]], [[0], [0], [1], [1]])
    """
    wanted = {FORWARD} | ({REVERSE} if has_reverse_edge else set()) | ({NONTREE} if has_nontree_edge else set())
    walks = [[(e, kind) for e, kind in walk if kind in wanted] for walk in _dfs(graph, source, reverse)]
    edges = _in_step(graph, [[e for e, _ in walk] for walk in walks])
    if not return_labels:
        return edges
    return edges, _in_step(graph, [[kind for _, kind in walk] for walk in walks])


def _in_step(graph: GraphData, walks: list[list[int]]) -> list[Tensor]:
    longest = max((len(walk) for walk in walks), default=0)
    steps = ([walk[i] for walk in walks if i < len(walk)] for i in range(longest))
    return [torch.tensor(step, dtype=graph.idtype, device=graph.device) for step in steps]


def _dfs(g: GraphData, source: Ids, reverse: bool) -> list[list[tuple[int, int]]]:
    """Edges and labels of a walk from each source."""
    t = _walked(g, reverse)
    ptr, ends, ids = _on_cpu(t.csr)
    return [_dfs_from(start, ptr, ends, ids) for start in resolve_ids(source, t.num_src, g.device).tolist()]


def _on_cpu(grouped: Compressed) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    count = grouped.other.shape[0]
    ids = np.arange(count) if grouped.edge_ids is None else grouped.edge_ids.cpu().numpy()
    return grouped.ptr.cpu().numpy(), grouped.other.cpu().long().numpy(), ids


def _dfs_from(
    start: int, ptr: NDArray[np.int64], ends: NDArray[np.int64], ids: NDArray[np.int64]
) -> list[tuple[int, int]]:
    seen, walk = {start}, list[tuple[int, int]]()
    stack = [(start, int(ptr[start]), -1)]  # a node, its next edge, the edge that led to it
    while stack:
        node, at, came_by = stack.pop()
        if at == ptr[node + 1]:
            if came_by >= 0:
                walk.append((came_by, REVERSE))
            continue
        stack.append((node, at + 1, came_by))
        end, edge = int(ends[at]), int(ids[at])
        if end in seen:
            walk.append((edge, NONTREE))
            continue
        seen.add(end)
        walk.append((edge, FORWARD))
        stack.append((end, int(ptr[end]), edge))
    return walk
