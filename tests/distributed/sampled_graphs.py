"""Graphs and samplers for tests of sampled training; the same in every process."""

from __future__ import annotations

from typing import Any

import torch

import vgraph
from vgraph.sampling import MultiLayerFullNeighborSampler, NeighborSampler, ShaDowKHopSampler


def homogeneous() -> vgraph.Graph:
    """Some nodes without in-edges, some of many; double edges."""
    draw = torch.Generator().manual_seed(11)
    src, dst = torch.randint(0, 120, (900,), generator=draw), (torch.rand(900, generator=draw) ** 2 * 110).long()
    g = vgraph.graph((src, dst), num_nodes=120)
    g.ndata["feat"] = torch.randn(120, 6, generator=draw, dtype=torch.float64)
    g.ndata["half"] = torch.randn(120, 3, generator=draw).half()
    g.ndata["label"] = torch.randint(0, 3, (120,), generator=draw)
    g.ndata["train"] = torch.rand(120, generator=draw) < 0.4
    g.edata["w"] = torch.rand(900, generator=draw)
    return g


def heterogeneous() -> vgraph.Graph:
    draw = torch.Generator().manual_seed(12)
    sizes = {"paper": 70, "author": 30}

    def ends(src: str, dst: str, count: int) -> tuple[Any, Any]:
        return tuple(torch.randint(0, sizes[t], (count,), generator=draw) for t in (src, dst))  # type: ignore[return-value]

    g = vgraph.heterograph(
        {
            ("author", "writes", "paper"): ends("author", "paper", 200),
            ("paper", "cites", "paper"): ends("paper", "paper", 300),
            ("paper", "by", "author"): ends("paper", "author", 150),
        },
        num_nodes_dict=sizes,
    )
    for t, count in sizes.items():
        g.nodes[t].data["feat"] = torch.randn(count, 4, generator=draw)
    g.nodes["paper"].data["label"] = torch.randint(0, 3, (70,), generator=draw)
    return g


SAMPLERS: dict[str, Any] = {
    "uniform": lambda: NeighborSampler(
        [4, 3], prefetch_node_feats=["feat", "half"], prefetch_labels=["label"], prefetch_edge_feats=["w"]
    ),
    "replaced": lambda: NeighborSampler([3, 5], replace=True),
    "weighted": lambda: NeighborSampler([3, 3], prob="w"),
    "full": lambda: MultiLayerFullNeighborSampler(2),
    "subgraphs": lambda: ShaDowKHopSampler([3, 2], prefetch_node_feats=["feat"]),
    "by type": lambda: NeighborSampler(
        [{"writes": 2, "cites": 3, "by": 1}, 2],
        prefetch_node_feats={"paper": ["feat"], "author": ["feat"]},
        prefetch_labels={"paper": ["label"]},
    ),
}


def graph_for(name: str) -> vgraph.Graph:
    return heterogeneous() if name == "by type" else homogeneous()


def seeds_for(name: str) -> Any:
    """Original ids."""
    if name == "by type":
        return {"paper": torch.arange(0, 70, 2), "author": torch.arange(0, 30, 3)}
    return homogeneous().ndata["train"].nonzero().squeeze(1)
