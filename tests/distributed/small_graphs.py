"""Graphs on which distributed training is compared with that in one process: with all that may go wrong at edges."""

from __future__ import annotations

import torch

import vgraph


def homogeneous(num_nodes: int = 48, num_edges: int = 170) -> vgraph.Graph:
    """With nodes without in-edges, without out-edges and without any; double edges; features, labels, a mask."""
    draw = torch.Generator().manual_seed(3)
    src = torch.randint(0, num_nodes - 6, (num_edges,), generator=draw)
    dst = torch.randint(2, num_nodes - 3, (num_edges,), generator=draw)
    src[:4], dst[:4] = src[4], dst[4]
    g = vgraph.graph((src, dst), num_nodes=num_nodes)
    g.ndata["x"] = torch.randn(num_nodes, 7, generator=draw, dtype=torch.float64)
    g.ndata["y"] = torch.randint(0, 3, (num_nodes,), generator=draw)
    g.ndata["train"] = torch.rand(num_nodes, generator=draw) < 0.3
    g.edata["w"] = torch.rand(num_edges, generator=draw, dtype=torch.float64) + 0.5
    g.edata["kind"] = torch.randint(0, 3, (num_edges,), generator=draw)
    return g


def heterogeneous() -> vgraph.Graph:
    """Three types of nodes, four of edges, of which two have the same ends, and one has a type at both ends."""
    draw = torch.Generator().manual_seed(5)
    counts = {"author": 23, "paper": 31, "venue": 4}

    def edges(src: str, dst: str, number: int) -> tuple[torch.Tensor, torch.Tensor]:
        return tuple(torch.randint(0, counts[t], (number,), generator=draw) for t in (src, dst))  # type: ignore[return-value]

    g = vgraph.heterograph(
        {
            ("author", "writes", "paper"): edges("author", "paper", 60),
            ("author", "reviews", "paper"): edges("author", "paper", 30),
            ("paper", "cites", "paper"): edges("paper", "paper", 80),
            ("paper", "in", "venue"): edges("paper", "venue", 31),
        },
        num_nodes_dict=counts,
    )
    for ntype, count in counts.items():
        g.nodes[ntype].data["x"] = torch.randn(count, 5, generator=draw, dtype=torch.float64)
    g.nodes["paper"].data["y"] = torch.randint(0, 3, (31,), generator=draw)
    return g
