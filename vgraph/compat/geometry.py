"""``dgl.geometry``: points far from one another, and nodes matched with neighbours.

Takes: points, graphs. Gives: ids. Runs at every call.
Source: Eldar et al. 1997 (farthest points), Karypis and Kumar 1998 (matching by the heaviest edge).
"""

from __future__ import annotations

import torch
from torch import Tensor

import vgraph
from vgraph.errors import GraphError

__all__ = ["farthest_point_sampler", "neighbor_matching"]


def farthest_point_sampler(pos: Tensor, npoints: int, start_idx: int | None = None) -> Tensor:
    """In each cloud of (clouds, points, dims): points, each the farthest from those before it; (clouds, npoints).

    The first is ``start_idx``, else a random one; of points equally far the first counts.

    Raises:
        GraphError: there is no such point, or there are fewer.
    """
    clouds, count, _ = pos.shape
    if not 0 <= npoints <= count or not (start_idx is None or 0 <= start_idx < count):
        fact = f"{npoints} points from {start_idx}, of clouds of {count}"
        raise GraphError(fact, cure="ask for points that there are")
    if start_idx is None:
        latest = torch.randint(max(count, 1), (clouds,), device="cpu").to(pos.device)
    else:
        latest = torch.full((clouds,), start_idx, device=pos.device)
    each = torch.arange(clouds, device=pos.device)
    found, nearest = list[Tensor](), pos.new_full((clouds, count), torch.inf)
    for _ in range(npoints):
        found.append(latest)
        nearest = torch.minimum(nearest, (pos - pos[each, latest][:, None]).square().sum(2))
        latest = nearest.max(1).indices
    return torch.stack(found, 1) if found else latest.new_empty(clouds, 0)


def neighbor_matching(graph: vgraph.Graph, e_weights: Tensor | None = None, relabel_idx: bool = True) -> Tensor:
    """A label for every node that it shares with at most one neighbour: (nodes,).

    Nodes are visited in random order; each that is alone takes the neighbour, alone as well, that the heaviest edge
    leads to, or a random one. Labels are 0, 1, ..., or else the smaller id of the two.

    Raises:
        GraphError: the graph has several types, a weight is below 0, or there is not one for each edge.
    """
    if not graph.is_homogeneous:
        raise GraphError("a graph of several types", cure="pass dgl.to_homogeneous(graph)")
    if e_weights is not None and (e_weights.shape[:1] != (graph.num_edges(),) or bool((e_weights < 0).any())):
        fact = f"weights of shape {tuple(e_weights.shape)} for {graph.num_edges()} edges, or some below 0"
        raise GraphError(fact, cure="give one a edge, 0 or more")
    src, dst = (side.cpu().long() for side in graph.edges())
    if e_weights is None:
        order = torch.randperm(len(src), device="cpu")
    else:
        order = e_weights.reshape(-1).cpu().argsort(descending=True)
    order = order[src[order].argsort(stable=True)]
    neighbours, first = dst[order].tolist(), [0, *torch.bincount(src, minlength=graph.num_nodes()).cumsum(0).tolist()]
    label = [-1] * graph.num_nodes()
    for node in torch.randperm(len(label), device="cpu").tolist():
        if label[node] < 0:
            alone = (v for v in neighbours[first[node] : first[node + 1]] if v != node and label[v] < 0)
            other = next(alone, node)
            label[node] = label[other] = min(node, other)
    made = torch.tensor(label, dtype=graph.idtype, device=graph.device)
    return made.unique(return_inverse=True)[1] if relabel_idx else made
