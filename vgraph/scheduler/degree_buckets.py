"""Degree buckets: the vertices of one in-degree, with their in-edges, as a topology of their own.

Takes: a Topology. Gives: DegreeBuckets. Runs once per topology.
Source: DGL section 3 (degree bucketing, where a reduce function is no segment reduction).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from vgraph.ir.topology import Topology
from vgraph.ir.upload import upload


@dataclass(frozen=True, eq=False)
class DegreeBucket:
    """Some vertices of a graph and all their in-edges, numbered anew; source ids stay.

    ``vertex_ids`` ascend; ``edge_ids`` are ordered by vertex, then by edge id; ``topology`` has its
    edges in that order. ``degree`` is the in-degree that all have, or None.
    """

    degree: int | None
    vertex_ids: Tensor
    edge_ids: Tensor
    topology: Topology


def degree_buckets(topology: Topology) -> tuple[DegreeBucket, ...]:
    """One bucket for each in-degree but 0, in ascending order; kept.

    Of a part of a graph that several processes have, one for each in-degree of the whole: some may be empty.
    """
    return topology.keep("degree_buckets", lambda: _make_buckets(topology))


def active_part(topology: Topology) -> DegreeBucket | None:
    """All vertices that have an in-edge; None if every vertex has; kept."""
    return topology.keep("active_part", lambda: _make_active_part(topology))


def _sent(bucket: DegreeBucket, topology: Topology) -> DegreeBucket:
    """Made on the CPU, where nobody waits for a GPU, and sent in one copy to where the topology lies."""
    part = bucket.topology
    given = (bucket.vertex_ids, bucket.edge_ids, part.src, part.dst)
    vertex_ids, edge_ids, src, dst = upload(given, topology.device)
    ids = _original(topology, vertex_ids, edge_ids)
    there = replace(part, src=src, dst=dst, original_ids=ids, host=part)
    return DegreeBucket(bucket.degree, vertex_ids, edge_ids, there)


def _make_buckets(topology: Topology) -> tuple[DegreeBucket, ...]:
    if topology.device.type != "cpu":
        return tuple(_sent(bucket, topology) for bucket in degree_buckets(topology.on_host))
    degrees, vertex_ids = torch.sort(topology.in_degrees, stable=True)
    found, counts = torch.unique_consecutive(degrees, return_counts=True)
    groups = dict(zip(found.tolist(), vertex_ids.split(counts.tolist()), strict=True))
    if topology.halo is not None:
        groups = {degree: groups.get(degree, vertex_ids[:0]) for degree in topology.halo.degrees}
    return tuple(_bucket(topology, degree, ids) for degree, ids in groups.items() if degree)


def _bucket(topology: Topology, degree: int, vertex_ids: Tensor) -> DegreeBucket:
    slots = torch.arange(degree, device=vertex_ids.device)
    places = (topology.csc.ptr.index_select(0, vertex_ids)[:, None] + slots).flatten()
    edge_ids = topology.csc.edge_ids
    edge_ids = places if edge_ids is None else edge_ids.index_select(0, places)
    src = topology.csc.other.index_select(0, places)
    return _part(topology, degree, vertex_ids, edge_ids, src)


def _make_active_part(topology: Topology) -> DegreeBucket | None:
    if topology.device.type != "cpu":
        on_host = active_part(topology.on_host)
        return on_host and _sent(on_host, topology)
    vertex_ids = topology.in_degrees.nonzero().squeeze(1)
    if vertex_ids.shape[0] == topology.num_dst:
        return None
    edge_ids = topology.csc.edge_ids
    if edge_ids is None:
        edge_ids = torch.arange(topology.num_edges, device=vertex_ids.device)
    return _part(topology, None, vertex_ids, edge_ids, topology.csc.other)


def _part(topology: Topology, degree: int | None, vertex_ids: Tensor, edge_ids: Tensor, src: Tensor) -> DegreeBucket:
    num_vertices = vertex_ids.shape[0]
    numbers = torch.arange(num_vertices, device=vertex_ids.device)
    counts = topology.in_degrees.index_select(0, vertex_ids)
    dst = torch.repeat_interleave(numbers, counts, output_size=edge_ids.shape[0])
    sizes = _graph_sizes(topology, vertex_ids)
    ids = _original(topology, vertex_ids, edge_ids)
    part = Topology(src, dst, topology.num_src, num_vertices, sizes, original_ids=ids, halo=topology.halo)
    return DegreeBucket(degree, vertex_ids, edge_ids, part)


def _original(topology: Topology, vertex_ids: Tensor, edge_ids: Tensor) -> dict[str, Tensor]:
    """By kind, the user's ids of what a part has."""
    known = topology.original_ids
    ids = {
        kind: known[kind].index_select(0, own) if kind in known else own
        for kind, own in (("vertex", vertex_ids), ("edge", edge_ids))
    }
    return ids | {"src": known["src"]} if "src" in known else ids  # sources are never numbered anew


def _graph_sizes(topology: Topology, vertex_ids: Tensor) -> tuple[int, ...] | None:
    """How many of the vertices each graph of a batch has; a part has the same graphs."""
    if topology.graph_sizes is None:
        return None
    graphs = topology.graph_ids.index_select(0, vertex_ids)
    return tuple(torch.bincount(graphs, minlength=len(topology.graph_sizes)).tolist())
