"""Sums over in-edges of rows that are mapped by their edges' types, without a row an edge.

Takes: a topology, rows of sources, a matrix a type, types of edges. Gives: one row a destination. Runs at every call.
Source: Schlichtkrull et al. 2018, equation 2. A map is linear, so it is applied where rows are fewest: to what leaves
a source by edges of one type, or to the sum of what arrives at a destination by edges of one type.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor

from vgraph.api.messages.batches import EdgeBatch, NodeBatch
from vgraph.api.messages.grouped_matmul import TILE, Tiles, check_types
from vgraph.api.messages.propagate import evaluate_edges, propagate
from vgraph.compiled_calls import compiled_calls
from vgraph.errors import FeatureError
from vgraph.graphs.graph_data import GraphData
from vgraph.ir.topology import Topology, lasting

P = TypeVar("P")


@dataclass(frozen=True, eq=False)
class TilePlan:
    """Edges by way of places: rows of tiles, of which each holds pairs of one type and a vertex.

    ``entries`` and ``exits`` lead from sources to places and on to destinations. ``entry_edges`` and ``exit_edges``
    are the graph's edges whose factor applies there; the number of all edges where none does.
    """

    tile_types: Tensor
    entries: Topology
    exits: Topology
    entry_edges: Tensor
    exit_edges: Tensor


@dataclass(frozen=True, eq=False)
class PairPlan:
    """Every pair of a source and a type of its edges, as an edge; and where what it gives goes."""

    pairs: Topology
    exits: Topology


def typed_sum(g: GraphData, x: Tensor, w: Tensor, etypes: Tensor, norm: Tensor | None = None) -> Tensor:
    """The sum over a node's in-edges of ``norm * x[source] @ w[etype]``.

    All types are one batched product, of as many rows as there are pairs of a source and a type, or of a
    destination and a type, whichever are fewer for the type.

    Args:
        g: a graph with one type of edges, like ``vgraph.to_homogeneous`` gives.
        x: (sources, in); or (sources, bases, out), of which types take sums.
        w: (types, in, out); or blocks of block-diagonal matrices, (types, blocks, in / blocks, out / blocks);
            for bases their coefficients, (types, bases).
        etypes: (edges,), whole numbers below ``types``.
        norm: (edges,) or (edges, 1), a factor an edge; None: 1.

    Returns:
        (destinations, out), 0 without in-edges.

    Raises:
        FeatureError: rows, types or factors do not fit the graph or one another.

    Source: Schlichtkrull et al. 2018, equation 2.

    Example:
        >>> import torch, vgraph
        >>> g = vgraph.graph(([0, 1], [2, 2]))
        >>> w = torch.stack([torch.eye(2), 10 * torch.eye(2)])
        >>> vgraph.ops.typed_sum(g, torch.ones(3, 2), w, torch.tensor([0, 1]))[2]
        tensor([11., 11.])
    """
    if torch.compiler.is_dynamo_compiling():
        return compiled_calls.outside(typed_sum, g, x, w, etypes, norm)
    topology, blocks = g.topology, w.unsqueeze(1) if w.ndim == 3 else w
    _check(topology, x, blocks, norm)
    types = check_types(etypes, topology.num_edges, w.shape[0])
    x = x if topology.halo is None else topology.halo.rows({"x": x})["x"]
    width = x.shape[2] if x.ndim == 3 else blocks.shape[1] * blocks.shape[3]
    if not topology.num_edges:
        return x.new_zeros((topology.num_dst, width)) + 0 * (x.sum() + w.sum())
    if x.ndim == 3:
        return _sum_of_bases(topology, x, w, types, norm)
    plan = _kept(topology, types, w.shape[0], _plan_tiles)
    stacked = _weighted_sum(plan.entries, x, norm, plan.entry_edges).view(-1, TILE, *blocks.shape[1:3])
    if blocks.shape[1] == 1:
        mapped = torch.bmm(stacked.squeeze(2), blocks.squeeze(1).index_select(0, plan.tile_types))
    else:
        mapped = torch.einsum("trbi,tbio->trbo", stacked, blocks.index_select(0, plan.tile_types))
    return _weighted_sum(plan.exits, mapped.reshape(-1, width), norm, plan.exit_edges)


def _sum_of_bases(topology: Topology, x: Tensor, coefficients: Tensor, types: Tensor, norm: Tensor | None) -> Tensor:
    plan = _kept(topology, types, coefficients.shape[0], _plan_pairs)
    frames = {"src": {"x": x}, "dst": {"a": coefficients}, "edge": {}}
    rows = evaluate_edges(plan.pairs, frames, _combine)["x"]
    return _weighted_sum(plan.exits, rows, norm, None)


def _combine(edges: EdgeBatch) -> dict[str, Tensor]:
    return {"x": (edges.src["x"] * edges.dst["a"].unsqueeze(-1)).sum(1)}


def _check(topology: Topology, x: Tensor, w: Tensor, norm: Tensor | None) -> None:
    wide = {2: w.shape[1:2], 4: (w.shape[1] * w.shape[2:3].numel(),)}.get(w.ndim)
    if x.ndim != (3 if w.ndim == 2 else 2) or x.shape[0] != topology.num_own_sources or x.shape[1:2] != wide:
        fact = f"x is {tuple(x.shape)} for {topology.num_own_sources} sources, and w is {tuple(w.shape)}"
        cure = "give (sources, in) and (types, in, out), or (sources, bases, out) and (types, bases)"
        raise FeatureError(fact, cure=cure)
    if norm is not None and norm.shape not in ((topology.num_edges,), (topology.num_edges, 1)):
        fact = f"norm is {tuple(norm.shape)} for {topology.num_edges} edges"
        raise FeatureError(fact, cure="give one number an edge")


def _weighted_sum(topology: Topology, rows: Tensor, norm: Tensor | None, edges: Tensor | None) -> Tensor:
    """Sums at the topology's ends; ``edges``: whose factor applies, None: its own edge's, in order."""
    frames: dict[str, dict[str, Tensor]] = {"src": {"x": rows}, "dst": {}, "edge": {}}
    if norm is None:
        return propagate(topology, frames, _send, _sum)["x"]
    if edges is not None:
        norm = torch.cat([norm.reshape(-1), norm.new_ones(1)]).index_select(0, edges)
    frames["edge"]["norm"] = norm.reshape(-1, 1)
    return propagate(topology, frames, _send_scaled, _sum)["x"]


def _send(edges: EdgeBatch) -> dict[str, Tensor]:
    return {"m": edges.src["x"]}


def _send_scaled(edges: EdgeBatch) -> dict[str, Tensor]:
    return {"m": edges.src["x"] * edges.data["norm"]}


def _sum(nodes: NodeBatch) -> dict[str, Tensor]:
    return {"x": nodes.mailbox["m"].sum(1)}


vars(_sum)["is_total"] = True  # gives 0 for no rows by itself


def _kept(topology: Topology, types: Tensor, num_types: int, make: Callable[[Topology, Tensor, int], P]) -> P:
    """The plan for these types, which is kept until others are given."""
    key = (make, num_types)
    known: tuple[Tensor, P] | None = topology.kept.get(key)
    if known is None or not torch.equal(known[0], types):
        with lasting():
            known = topology.kept[key] = (types.clone(), make(topology, types, num_types))
    return known[1]


def _plan_pairs(topology: Topology, types: Tensor, num_types: int) -> PairPlan:
    keys, pair_of = torch.unique(types * topology.num_src + topology.src.long(), return_inverse=True)
    pairs = Topology(keys % topology.num_src, keys // topology.num_src, topology.num_src, num_types)
    return PairPlan(pairs, Topology(pair_of, topology.dst.long(), len(keys), topology.num_dst))


def _plan_tiles(topology: Topology, types: Tensor, num_types: int) -> TilePlan:
    edges = torch.arange(types.shape[0], device=types.device)
    src, dst = topology.src.long(), topology.dst.long()
    limit = max(topology.num_src, topology.num_dst)
    leaves = [torch.unique(types * limit + end) // limit for end in (src, dst)]
    is_early = torch.bincount(leaves[0], minlength=num_types) <= torch.bincount(leaves[1], minlength=num_types)
    early = is_early.index_select(0, types)  # mapped before messages are summed
    pairs, pair_of = torch.unique(types * limit + torch.where(early, src, dst), return_inverse=True)
    pair_types, vertices = pairs // limit, pairs % limit
    tiles = Tiles(pair_types, num_types, None)
    places, place_of = tiles.places, tiles.places.index_select(0, pair_of)
    pairs_early = is_early.index_select(0, pair_types)
    none = torch.full_like(pairs, types.shape[0])

    def joined(at: Tensor, pairs_at: Tensor, columns: tuple[tuple[Tensor, Tensor], ...]) -> list[Tensor]:
        """Each column's entries of edges at ``at``, then of pairs at ``pairs_at``."""
        return [torch.cat([of_edges[at], of_pairs[pairs_at]]) for of_edges, of_pairs in columns]

    in_src, in_place, in_edge = joined(~early, pairs_early, ((src, vertices), (place_of, places), (edges, none)))
    out_place, out_dst, out_edge = joined(early, ~pairs_early, ((place_of, places), (dst, vertices), (edges, none)))
    count = tiles.count * TILE
    entries = Topology(in_src, in_place, topology.num_src, count)
    return TilePlan(tiles.types, entries, Topology(out_place, out_dst, count, topology.num_dst), in_edge, out_edge)
