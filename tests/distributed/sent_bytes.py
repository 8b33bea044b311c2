"""What one process of a test of bytes does: takes steps of several models, and counts what was sent.

Started by torchrun with a folder of as many parts as ranks.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

import vgraph
import vgraph.distributed as vd
import vgraph.function as fn
from vgraph.distributed.plan import full_graph_bytes
from vgraph.nn import GATConv, GraphConv, SAGEConv
from vgraph.runtime.distributed.ranks import current_ranks

WIDE, NARROW = 602, 16
Step = Callable[[vgraph.Graph, Tensor], Tensor]


def message_of(function: Callable[[Any], Tensor]) -> Step:
    def step(g: vgraph.Graph, x: Tensor) -> Tensor:
        with g.local_scope():
            g.ndata["h"] = x
            g.update_all(lambda edges: {"m": function(edges)}, fn.sum("m", "out"))
            return g.ndata["out"]

    return step


def steps() -> dict[str, tuple[Step, list[int], list[bool]]]:
    """By name a forward, the widths of what it sends, and whether those have gradients."""
    inner, gate = nn.Linear(WIDE, NARROW).double(), nn.Linear(WIDE, 1).double()
    return {
        "column": (message_of(lambda e: e.src["h"] * e.data["w"]), [WIDE], [False]),
        "linear": (message_of(lambda e: inner(e.src["h"]) * e.data["w"]), [NARROW], [True]),
        "gated": (message_of(lambda e: inner(e.src["h"]) * torch.sigmoid(gate(e.src["h"]) + gate(e.dst["h"]))),
                  [NARROW + 1], [True]),
        "both": (message_of(lambda e: inner(e.src["h"]) * (e.src["h"] * e.dst["h"]).sum(1, True)), [WIDE], [False]),
        "without gradient": (message_of(lambda e: inner(e.src["h"]).detach() * e.data["w"]), [NARROW], [False]),
        "GraphConv": (GraphConv(WIDE, NARROW, allow_zero_in_degree=True).double(), [NARROW], [True]),
        "GATConv": (GATConv(WIDE, 4, 4, allow_zero_in_degree=True).double(), [NARROW + 4], [True]),
        "SAGEConv": (SAGEConv(WIDE, NARROW, "mean").double(), [NARROW], [True]),
    }  # fmt: skip


def main(folder: str) -> None:
    vd.init(timeout=60)
    torch.manual_seed(0)
    g = vd.DistGraph(folder)
    g.edata["w"] = g.edata["w"].unsqueeze(1)
    ranks = current_ranks()
    plan = vd.plan_graph(vd.PartitionedGraph.open(folder), ranks.size)
    assert not plan.is_bound
    for name, (step, widths, grads) in steps().items():
        x = torch.randn(g.num_own_nodes(), WIDE, dtype=torch.float64)
        for asks in (True, False):
            before = ranks.sent_bytes
            with torch.set_grad_enabled(asks):
                out = step(g, x)
            if out.requires_grad:
                out.sum().backward()
            sent = sum(ranks.gather(ranks.sent_bytes - before, "sent"))
            wanted = full_graph_bytes(sum(plan.halo_rows), widths, [asks and one for one in grads], 8)
            assert sent == wanted, f"{name}: {sent} bytes, of which the formula knows {wanted}"
    print("all bytes as planned")


if __name__ == "__main__":
    main(*sys.argv[1:])
