"""Plan: what training on so many ranks would move and hold, as whole numbers of bytes, before anything is started.

Takes: a manifest, or numbers of a graph on paper; widths of a model. Gives: a table. Runs when somebody asks for it.

A halo row is a node that a rank reads and another one has. A full-graph step sends every layer's halo rows forward,
and their gradients back where the rows that were sent have any; a sampled step asks for neighbours hop by hop, then
for features. The counters of training are compared with these formulas.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from vgraph.arguments import COUNT, FINITE, POSITIVE, checked
from vgraph.distributed.stored.packing import pack_parts
from vgraph.distributed.stored.partitioned_graph import PartitionedGraph

UNEQUAL = 1.2  # of the fullest rank over the mean: more is worth a warning
ID_BYTES, DEGREE_BYTES = 8, 4
# What a process holds of a graph once it has trained a step, beside rows: of every edge its ends, the same two by
# source with the edge's place, its source in order, 32 bits each.
BYTES_OF_AN_EDGE = 20
BYTES_OF_A_NODE = 40  # of an own one: where its in- and out-edges begin, both degrees, its original id
BYTES_OF_A_HALO_NODE = 24  # its new and its original id, and where its out-edges begin


def full_graph_bytes(halo_rows: int, widths: Sequence[int], has_grad: Sequence[bool], element_size: int = 4) -> int:
    """What all ranks receive in one step, given the halo rows of all ranks together.

    Inputs that never change and are kept are left out by whoever calls this.

    Args:
        halo_rows: of all ranks together.
        widths: for each layer the columns that it sends.
        has_grad: for each layer whether what it sends has a gradient, which comes back.
        element_size: bytes of a number.

    Returns:
        A number of bytes.

    Raises:
        ValueError: there are not as many ``widths`` as ``has_grad``.

    Source: none (every halo row once a layer, and its gradient once).

    Example:
        >>> full_graph_bytes(100, [602, 16], [False, True])
        253600
    """
    return element_size * halo_rows * sum(w * (1 + g) for w, g in zip(widths, has_grad, strict=True))


def gradient_bytes(num_ranks: int, num_parameters: int, element_size: int = 4) -> int:
    """What all ranks send while gradients of parameters are averaged around a ring.

    Args:
        num_ranks: the number of processes, from 1 up.
        num_parameters: numbers that the model learns, each with a gradient.
        element_size: bytes of a number.

    Returns:
        A number of bytes.

    Source: Patarasuk and Yuan 2009 (a ring sends 2 (P - 1) / P of the data a rank).

    Example:
        >>> gradient_bytes(4, 1000)
        24000
    """
    return 2 * (num_ranks - 1) * num_parameters * element_size


def sampled_bytes(
    remote: Sequence[int], drawn: Sequence[int], remote_inputs: int, row_bytes: int, *, edge_ids: bool = False
) -> int:
    """What one batch moves: for every hop the nodes that are asked of others and the edges that these drew.

    Args:
        remote: for every hop the nodes that others are asked for.
        drawn: for every hop the edges that these drew.
        remote_inputs: input nodes whose features come from others, those in the cache left out.
        row_bytes: bytes of one node's features.
        edge_ids: whether edges come with their ids.

    Returns:
        A number of bytes.

    Raises:
        ValueError: ``remote`` and ``drawn`` are not of as many hops.

    Source: none (ids asked for, degrees and sources answered, then ids and rows of features).

    Example:
        >>> sampled_bytes([10], [25], 30, 400)
        12560
    """
    edge_bytes = 2 * ID_BYTES if edge_ids else ID_BYTES
    asked = sum(n * (ID_BYTES + DEGREE_BYTES) + d * edge_bytes for n, d in zip(remote, drawn, strict=True))
    return asked + remote_inputs * (ID_BYTES + row_bytes)


def header_bytes(num_machines: int, num_requests: int) -> int:
    """What a process tells its peers before each round of ids: how many of each request, and the step.

    Rounds are those of hops and that of features; ``bulk`` batches share each.

    Args:
        num_machines: machines that exchange; one process of each is in a group.
        num_requests: edge types, or features' frames, of all batches of the round.

    Returns:
        A number of bytes.

    Source: none (a number a request, the epoch and the step, to each peer).

    Example:
        >>> header_bytes(4, 2)
        96
    """
    return (num_machines - 1) * (num_requests + 2) * ID_BYTES


def frontier_bounds(batch_size: int, fanouts: Sequence[int]) -> list[int]:
    """The most nodes that a batch reaches hop by hop, seeds first.

    Args:
        batch_size: the number of seeds.
        fanouts: for every hop the edges drawn for a node, from 0 up.

    Returns:
        A number of nodes for the seeds, and one for every hop.

    Source: Hamilton et al. 2017, section 3.1 (the product of sample sizes bounds a batch).

    Example:
        >>> frontier_bounds(1000, [15, 10, 5])
        [1000, 16000, 176000, 1056000]
    """
    sizes = [batch_size]
    for fanout in fanouts:
        sizes.append(sizes[-1] * (1 + fanout))
    return sizes


def hashed_halo_rows(num_nodes: int, num_edges: int, num_ranks: int) -> int:
    """Halo rows of all ranks together where nodes lie at random: at most so many, with all degrees equal.

    Args:
        num_nodes: the number of nodes, from 0 up.
        num_edges: the number of edges, from 0 up.
        num_ranks: the number of processes, from 1 up.

    Returns:
        A number of rows.

    Source: none (the expectation of distinct sources on other ranks).

    Example:
        >>> hashed_halo_rows(111_059_956, 2 * 1_615_685_872, 1024) // 1024
        3109685
    """
    if not num_nodes:
        return 0
    missed = (1 - 1 / num_ranks) ** (num_edges / num_nodes)
    return math.ceil(num_nodes * (num_ranks - 1) * (1 - missed))


@dataclass(frozen=True)
class GraphPlan:
    """What every rank would have of a graph: lists with a number a rank; made by ``plan_graph`` or ``plan_on_paper``.

    Attributes:
        nodes: own nodes.
        edges: edges that end there.
        halo_rows: nodes of other ranks that are read.
        peers: ranks of which some are read.
        is_bound: whether halo rows are at most so many; else they are exact.
        loads: what every rank has of "nodes", "edges" and whatever was balanced, by name.

    Source: Wan et al. 2022 (BNS-GCN), section 3.1: what a partition sends is its boundary nodes.

    Example:
        >>> import vgraph.distributed as vd
        >>> plan = vd.GraphPlan(nodes=[3, 1], edges=[4, 2], halo_rows=[1, 2], peers=[1, 1], is_bound=False)
        >>> plan.num_ranks, plan.memory(width=16)
        (2, [672, 384])
    """

    nodes: list[int]
    edges: list[int]
    halo_rows: list[int]
    peers: list[int]
    is_bound: bool
    loads: dict[str, list[int]] = field(default_factory=dict[str, list[int]])

    @property
    def num_ranks(self) -> int:
        """The number of processes."""
        return len(self.nodes)

    @property
    def unequal(self) -> dict[str, float]:
        """What the fullest rank has over the mean, by name, where that is worth a warning."""
        found = {word: max(column) * len(column) / max(1, sum(column)) for word, column in self.loads.items()}
        return {word: share for word, share in found.items() if share > UNEQUAL}

    def memory(self, width: int, element_size: int = 4) -> list[int]:
        """Bytes that every rank holds that are not mapped from files.

        Those are lists of edges, own rows, and once more own rows with halo rows behind them, as messages read them.

        Args:
            width: columns of a row.
            element_size: bytes of a number.

        Returns:
            A list with a number of bytes a rank, for one part a rank and fewer than 2^31 nodes each; several parts
            take 4 bytes an edge besides, for original ids, which else stay mapped.
        """
        row_bytes = width * element_size
        return [
            BYTES_OF_AN_EDGE * e + (BYTES_OF_A_NODE + 2 * row_bytes) * n + (BYTES_OF_A_HALO_NODE + row_bytes) * h
            for n, e, h in zip(self.nodes, self.edges, self.halo_rows, strict=True)
        ]

    def kept_bytes(self, width: int, element_size: int = 4) -> list[int]:
        """Bytes that every rank holds besides where inputs are kept: own rows and halo rows, as messages read them.

        Args:
            width: columns of the inputs that are kept.
            element_size: bytes of a number.

        Returns:
            A list with a number of bytes a rank.
        """
        return [width * element_size * (n + h) for n, h in zip(self.nodes, self.halo_rows, strict=True)]


@checked(num_ranks=POSITIVE, shares=FINITE.each().or_none())
def plan_graph(stored: PartitionedGraph, num_ranks: int, shares: Sequence[float] | None = None) -> GraphPlan:
    """What ranks would have of a partitioned graph; exact for one part a rank, else halo rows are an upper bound.

    Args:
        stored: the partitioned graph.
        num_ranks: the number of processes, from 1 up.
        shares: for each rank a number above 0, how much of the graph it gets; None: as much as any other.

    Returns:
        A GraphPlan.

    Raises:
        ArgumentError: there are no ranks; a share that is no positive number.
        GraphError: there are more ranks than parts, or not as many shares as ranks.
        DataError: the counts of halo rows are missing or damaged.

    Source: Wan et al. 2022 (BNS-GCN), section 3.1: what a partition sends is its boundary nodes.

    Example:
        >>> import tempfile, vgraph
        >>> import vgraph.distributed as vd
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     summary = vd.partition_graph(vgraph.graph(([0, 1], [1, 2])), folder, num_parts=3, method="hash")
        ...     plan = vd.plan_graph(vd.PartitionedGraph.open(folder), num_ranks=1)
        >>> plan.nodes, plan.halo_rows
        ([3], [0])
    """
    bounds = np.array(pack_parts(stored.manifest, num_ranks, shares))
    pairs = sum(stored.halo_rows(ntype).numpy() for ntype in stored.ntypes)
    between = np.add.reduceat(np.add.reduceat(pairs, bounds[:-1], 0), bounds[:-1], 1)
    np.fill_diagonal(between, 0)
    loads = {
        word: np.add.reduceat(np.array(column), bounds[:-1]).tolist() for word, column in stored.manifest.loads.items()
    }
    return GraphPlan(
        nodes=loads["nodes"],
        edges=loads["edges"],
        halo_rows=between.sum(1).tolist(),
        peers=(between > 0).sum(1).tolist(),
        is_bound=num_ranks < stored.num_parts,
        loads=loads,
    )


@checked(num_nodes=COUNT, num_edges=COUNT, num_ranks=POSITIVE)
def plan_on_paper(num_nodes: int, num_edges: int, num_ranks: int) -> GraphPlan:
    """The same of a graph that is only known by its size, its nodes at random.

    Args:
        num_nodes: the number of nodes, from 0 up.
        num_edges: the number of edges, from 0 up.
        num_ranks: the number of processes, from 1 up.

    Returns:
        A GraphPlan, whose halo rows are an upper bound where all degrees are equal.

    Raises:
        ArgumentError: a number is negative, or there are no ranks.

    Source: none (the expectation of distinct sources on other ranks, all degrees equal).

    Example:
        >>> import vgraph.distributed as vd
        >>> plan = vd.plan_on_paper(111_059_956, 2 * 1_615_685_872, 1024)
        >>> plan.nodes[0], plan.halo_rows[0]
        (108457, 3109686)
    """
    nodes, edges, halo = (
        _shared_out(total, num_ranks)
        for total in (num_nodes, num_edges, hashed_halo_rows(num_nodes, num_edges, num_ranks))
    )
    loads = {"nodes": nodes, "edges": edges}
    return GraphPlan(nodes, edges, halo, [num_ranks - 1] * num_ranks, True, loads)


def _shared_out(total: int, num_ranks: int) -> list[int]:
    each, left = divmod(total, num_ranks)
    return [each + (rank < left) for rank in range(num_ranks)]
