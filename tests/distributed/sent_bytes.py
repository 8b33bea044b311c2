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


def sent_by(step: Callable[[], Tensor]) -> int:
    """What all ranks send while one of them takes a step, forward and backward."""
    ranks = current_ranks()
    before = ranks.sent_bytes
    out = step()
    if out.requires_grad:
        out.sum().backward()
    return sum(ranks.gather(ranks.sent_bytes - before, "sent"))


def check_steps(g: vgraph.Graph, halo: int) -> None:
    """Of features that are others at every step."""
    for name, (step, widths, grads) in steps().items():
        for asks in (True, False):
            x = torch.randn(g.num_own_nodes(), WIDE, dtype=torch.float64)
            with torch.set_grad_enabled(asks):
                sent = sent_by(lambda step=step, x=x: step(g, x))
            wanted = full_graph_bytes(halo, widths, [asks and one for one in grads], 8)
            assert sent == wanted, f"{name}: {sent} bytes, of which the formula knows {wanted}"


def check_kept(folder: str, halo: int) -> None:
    """Of features that stay: what is sent as it is comes once, what is made of them if that is asked for."""
    g = vd.DistGraph(folder)
    g.edata["w"] = g.edata["w"].unsqueeze(1)
    x = torch.randn(g.num_own_nodes(), WIDE, dtype=torch.float64)
    column, linear, conv = (steps()[name][0] for name in ("column", "linear", "GraphConv"))
    wide, narrow = (full_graph_bytes(halo, [width], [grad], 8) for width, grad in ((WIDE, False), (NARROW, True)))
    assert [sent_by(lambda: column(g, x)) for _ in range(3)] == [wide, 0, 0]
    with torch.no_grad():
        assert sent_by(lambda: column(g, x)) == 0
        assert sent_by(lambda: column(g, x.clone())) == wide  # is not kept
    if vd.rank() == vd.num_ranks() - 1:
        x.mul_(2)  # one rank alone: all exchange again
    assert [sent_by(lambda: column(g, x)) for _ in range(2)] == [wide, 0]
    for ask in (linear, conv):
        y = x.clone()
        assert [sent_by(lambda ask=ask, y=y: ask(g, y)) for _ in range(2)] == [narrow, narrow]
    restless = [sent_by(lambda: column(g, x.clone())) for _ in range(4)]
    assert restless == [wide] * 4
    assert sent_by(lambda: column(g, x)) == wide  # has changed too often
    for room, wanted in ((2**30, [wide, 0, 0]), (8 * WIDE, [narrow] * 3), (0, [narrow] * 3)):
        roomy = vd.DistGraph(folder, cache_bytes=room)
        roomy.edata["w"] = roomy.edata["w"].unsqueeze(1)
        assert [sent_by(lambda g=roomy: linear(g, x)) for _ in range(3)] == wanted, room


def main(folder: str) -> None:
    vd.init(timeout=60)
    torch.manual_seed(0)
    g = vd.DistGraph(folder)
    g.edata["w"] = g.edata["w"].unsqueeze(1)
    plan = vd.plan_graph(vd.PartitionedGraph.open(folder), vd.num_ranks())
    assert not plan.is_bound
    check_steps(g, sum(plan.halo_rows))
    check_kept(folder, sum(plan.halo_rows))
    print("all bytes as planned")


if __name__ == "__main__":
    main(*sys.argv[1:])
