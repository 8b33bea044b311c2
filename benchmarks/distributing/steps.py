"""Steps of a GCN on one side: one process with the whole graph, or ranks with a part each; prints a line of JSON.

Started by ``full_graph.py``: ``steps.py FOLDER STEPS whole|parts``, by torchrun where there are ranks.
"""

from __future__ import annotations

import json
import statistics
import sys
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
from torch import Tensor, nn

import vgraph
import vgraph.distributed as vd
from distributing.memory import Peak, anonymous_bytes
from distributing.start import MARK
from vgraph.distributed.plan import full_graph_bytes
from vgraph.nn import GraphConv
from vgraph.runtime.distributed.ranks import current_ranks

SIZES = (128, 64, 16)


class GCN(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = GraphConv(*SIZES[:2], allow_zero_in_degree=True)
        self.second = GraphConv(*SIZES[1:], allow_zero_in_degree=True)

    def forward(self, g: vgraph.Graph, x: Tensor) -> Tensor:
        return self.second(g, torch.relu(self.first(g, x)))


def train(g: vgraph.Graph, model: GCN, steps: int) -> list[float]:
    """Seconds of each step; features and labels are drawn, as they do not matter to time."""
    own = g.num_own_nodes() if isinstance(g, vd.DistGraph) else g.num_nodes()
    x, y = torch.randn(own, SIZES[0]), torch.randint(0, SIZES[-1], (own,))
    optimizer = torch.optim.Adam(model.parameters())
    times: list[float] = []
    for _ in range(steps):
        start = perf_counter()
        loss = vd.mean(nn.functional.cross_entropy(model(g, x), y, reduction="none"))
        optimizer.zero_grad()
        loss.backward()
        vd.all_reduce_gradients(model)
        optimizer.step()
        times.append(perf_counter() - start)
    return times


def halo_of(g: vd.DistGraph) -> int:
    """Rows of other ranks that this one reads."""
    return sum(sum(route.received) for route in g.whole.routes.values())


def main(folder: str, steps: str, side: str) -> None:
    torch.manual_seed(0)
    vd.init(timeout=300)
    model, ranks = GCN(), current_ranks()
    train(vgraph.rand_graph(50, 200), GCN(), 2)  # what is captured and compiled is no memory of the graph
    before = anonymous_bytes()
    with Peak() as loading:
        if side == "parts":
            g: Any = vd.DistGraph(Path(folder) / f"parts-{ranks.size}")
        else:
            g = vgraph.load_graphs(Path(folder) / "whole.bin")[0][0]
    held = anonymous_bytes() - before
    halo = sum(ranks.gather(halo_of(g) if side == "parts" else 0, "halo"))
    train(g, model, 2)
    sent = ranks.sent_bytes
    times = train(g, model, int(steps))
    moved = sum(ranks.gather(ranks.sent_bytes - sent, "sent")) / int(steps)
    told = {
        "seconds": statistics.median(times),
        "bytes": moved,
        "model_bytes": full_graph_bytes(halo, SIZES[1:], [True, True]),
        "halo_rows": halo,
        "loading": max(ranks.gather(loading.bytes - before, "loading")),
        "loaded": max(ranks.gather(held, "loaded")),
        "anonymous": max(ranks.gather(anonymous_bytes() - before, "anonymous")),
    }
    if ranks.rank == 0:
        print(MARK + json.dumps(told), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
