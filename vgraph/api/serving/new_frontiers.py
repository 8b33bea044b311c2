"""New frontiers: what one step of a growing graph evaluates, and in which order.

Takes: edges that end at new vertices, the graph of each of them. Gives: frontiers of new vertices, each with the
children that it reads. Runs at every step; takes no longer where many are old.
Source: Cavs section 3.2 (a batch is a set of vertices that are ready, of whatever graphs).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vgraph.api.vertex.function import known_levels
from vgraph.errors import CycleError, GraphError
from vgraph.graphs.frame import as_ids
from vgraph.ir.topology import Topology
from vgraph.ir.upload import send

Ids = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class NewVertices:
    """New vertices of a step with all their in-edges; ids go on where those of the old ones end.

    ``graph_ids``: the graph of each new vertex. ``children``, ``parents``: the ends of the in-edges.
    """

    num_old: int
    graph_ids: Ids
    children: Ids
    parents: Ids

    @property
    def count(self) -> int:
        return len(self.graph_ids)


@dataclass(frozen=True, eq=False)
class NewFrontier:
    """New vertices of which all children are evaluated.

    ``vertices``, ``edges``: which of the step's they are, both from 0; vertices of one graph stand together.
    ``children``: of each edge, an id in the growing graph. ``topology``: each edge has a source of its own.
    """

    vertices: Ids
    edges: Ids
    children: list[int]
    topology: Topology


def new_frontiers(new: NewVertices, num_graphs: int, device: torch.device) -> Iterator[NewFrontier]:
    """The frontiers of a step, children first.

    Raises:
        CycleError: new vertices are each other's children.
    """
    levels = _levels(new)
    order = np.lexsort((new.graph_ids, levels))
    level_of_edge = levels[new.parents - new.num_old]
    edges = np.argsort(level_of_edge, kind="stable")
    place = np.empty(new.count, np.int64)  # of each new vertex among all frontiers
    place[order] = np.arange(new.count)
    num_levels = int(levels.max(initial=0)) + 1
    vertex_ends = np.cumsum(np.bincount(levels, minlength=num_levels))
    edge_ends = np.cumsum(np.bincount(level_of_edge, minlength=num_levels))
    first_vertex = first_edge = 0
    for vertex_end, edge_end in zip(vertex_ends.tolist(), edge_ends.tolist(), strict=True):
        here, inward = order[first_vertex:vertex_end], edges[first_edge:edge_end]
        rows, heads = np.arange(len(inward)), place[new.parents[inward] - new.num_old] - first_vertex
        sizes = tuple(np.bincount(new.graph_ids[here], minlength=num_graphs).tolist())
        topology = Topology(torch.from_numpy(rows), torch.from_numpy(heads), len(inward), len(here), sizes)
        yield NewFrontier(here, inward, new.children[inward].tolist(), _on(topology, device))
        first_vertex, first_edge = vertex_end, edge_end


def _levels(new: NewVertices) -> Ids:
    """How many frontiers of the step come before each new vertex."""
    is_inner = new.children >= new.num_old
    if not is_inner.any():
        return np.zeros(new.count, np.int64)
    src, dst = (torch.from_numpy(ids[is_inner] - new.num_old) for ids in (new.children, new.parents))
    try:
        return np.asarray(known_levels(Topology(src, dst, new.count, new.count)), np.int64)
    except CycleError as error:
        cycle = [vertex + new.num_old for vertex in error.cycle]
        fact = f"new vertices are each other's children: {' -> '.join(map(str, [*cycle, cycle[0]]))}"
        raise CycleError(fact, cycle=cycle, cure="leave out one of these edges") from None


def _on(topology: Topology, device: torch.device) -> Topology:
    if device.type == "cpu":
        return topology
    return topology.stored(send(topology.src, device), send(topology.dst, device))


# ---------------------------------------------------------------- what a caller gives
def check_new(new: NewVertices, graph_ids: list[int], direction: str) -> None:
    """GraphError: an edge does not end at a new vertex, begins nowhere, or joins two graphs.

    ``graph_ids``: the graph of each old vertex.
    """
    near, far = ("dst", "src") if direction == "forward" else ("src", "dst")
    num_old, end = new.num_old, new.num_old + new.count
    edge = _first((new.children < 0) | (new.children >= end))
    if edge is not None:
        fact = f"{far} of edge {edge} is {new.children[edge]}, where there are {num_old} vertices and {new.count} new"
        raise GraphError(fact, cure=f"give ids of vertices that are there, or new: {_range(new)}")
    edge = _first((new.parents < num_old) | (new.parents >= end))
    if edge is not None:
        parent = int(new.parents[edge])
        old = "is there already, with its state" if 0 <= parent < num_old else "is not there"
        fact = f"{near} of edge {edge} is {parent}, which {old}; the new vertices are {_range(new)}"
        raise GraphError(fact, cure="give a vertex together with all the edges that its state depends on")
    of_parents = new.graph_ids[new.parents - num_old]
    of_children = np.array([_graph_of(new, graph_ids, child) for child in new.children.tolist()], np.int64)
    edge = _first(of_children != of_parents)
    if edge is not None:
        ends = f"vertex {new.children[edge]} of graph {of_children[edge]} and vertex {new.parents[edge]}"
        fact = f"edge {edge} joins {ends} of graph {of_parents[edge]}"
        raise GraphError(fact, cure="give graph_ids=, the graph of each new vertex")


def _first(is_wrong: NDArray[np.bool_]) -> int | None:
    return int(is_wrong.argmax()) if is_wrong.any() else None


def _graph_of(new: NewVertices, graph_ids: list[int], vertex: int) -> int:
    return graph_ids[vertex] if vertex < new.num_old else int(new.graph_ids[vertex - new.num_old])


def _range(new: NewVertices) -> str:
    last = new.num_old + new.count - 1
    return {0: "none", 1: f"{last}"}.get(new.count, f"{new.num_old} to {last}")


def graphs_of(graph_ids: object, count: int, num_graphs: int) -> Ids:
    """The graph of each new vertex, as it was given or as it follows from the counts.

    Raises:
        GraphError: it does not follow, or an id is out of range.
        DTypeError: ids are not whole numbers.
    """
    if graph_ids is None:
        if num_graphs == 1:
            return np.zeros(count, np.int64)
        if count == num_graphs:
            return np.arange(count)
        fact = f"{count} new vertices are given for {num_graphs} graphs without graph_ids"
        raise GraphError(fact, cure="give graph_ids=, the graph of each new vertex")
    ids = as_ids(graph_ids, "graph_ids").cpu()
    if ids.shape != (count,):
        fact = f"graph_ids has shape {tuple(ids.shape)} for {count} new vertices"
        raise GraphError(fact, cure="give one whole number for each new vertex")
    if count and not 0 <= int(ids.min()) <= int(ids.max()) < num_graphs:
        fact = f"graph_ids has ids from {int(ids.min())} to {int(ids.max())} for {num_graphs} graphs"
        raise GraphError(fact, cure=f"give ids from 0 to {num_graphs - 1}")
    return ids.long().numpy()


def rows_in_order(parts: list[Tensor], frontiers: list[NewFrontier]) -> Tensor:
    """Rows of all frontiers, as the caller numbers the new vertices."""
    rows = parts[0] if len(parts) == 1 else torch.cat(parts)
    ids = np.concatenate([frontier.vertices for frontier in frontiers])
    if (ids[1:] > ids[:-1]).all():
        return rows
    return rows.index_select(0, send(torch.from_numpy(np.argsort(ids)), rows.device))
