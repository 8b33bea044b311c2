"""Memory of a GAT on ranks whose parts are drawn at random: with all rows of others, and window by window.

Takes: a graph's size. Gives: bytes by side, beyond what own rows take. Runs for benchmarks/distributed.py; a rank is
``windows.py FOLDER SIDE STEPS``, started by torchrun. "own rows": as many edges, each from a node of the same rank.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from torch import nn

import vgraph
import vgraph.distributed as vd
from distributing.memory import Peak, anonymous_bytes
from distributing.start import MARK, result_of
from vgraph.nn import GATConv
from vgraph.runtime.distributed.ranks import current_ranks

RANKS, WIDTH, HEADS = 4, 128, 8
HALO_BYTES = 1 << 21
SIDES: dict[str, dict[str, int]] = {"own rows": {}, "all rows": {}, "windows": {"halo_bytes": HALO_BYTES}}


def compare(nodes: int, edges: int, steps: int, rounds: int, ranks: int) -> dict[str, list[dict[str, float]]]:
    """What every side tells, round by round; without ranks windows alone, in one process that reads nobody's rows."""
    found: dict[str, list[dict[str, float]]] = {side: [] for side in (SIDES if ranks else ["windows"])}
    with tempfile.TemporaryDirectory(prefix="vgraph-bench-") as folder:
        torch.manual_seed(0)
        vd.partition_graph(vgraph.rand_graph(nodes, edges), Path(folder) / "parts", RANKS, "hash")
        for _ in range(rounds):
            for side, runs in found.items():
                runs.append(result_of(Path(__file__), f"{folder}/parts", side, str(steps), ranks=ranks))
    return found


def tell(found: dict[str, list[dict[str, float]]]) -> None:
    """A line a side, and what is left of others' rows."""
    most = {side: max(one["peak"] for one in runs) for side, runs in found.items()}
    for side, peak in most.items():
        print(f"GAT, hashed parts, {side:10s} {peak / 2**20:8.1f} MiB at most", flush=True)
    if len(most) == len(SIDES):
        windows, every = (most[side] - most["own rows"] for side in ("windows", "all rows"))
        halo = found["all rows"][0]["halo_rows"] * WIDTH * 4 / 2**20
        print(
            f"windows of {HALO_BYTES / 2**20:g} MiB, of {halo:.1f} MiB in all: "
            f"{windows / 2**20:.1f} MiB beyond own rows, {windows / max(1, every):.2f} times the "
            f"{every / 2**20:.1f} MiB of all rows"
        )


# ---------------------------------------------------------------- a rank
def graph_of(folder: str, side: str) -> vgraph.Graph:
    if side != "own rows":
        return vd.DistGraph(folder, **SIDES[side])
    part = vd.PartitionedGraph.open(folder).part(vd.rank())
    return vgraph.rand_graph(part.num_nodes("_N"), part.num_edges(("_N", "_E", "_N")))


def train(g: vgraph.Graph, layer: GATConv, steps: int) -> None:
    own = g.num_own_nodes() if isinstance(g, vd.DistGraph) else g.num_nodes()
    x = nn.Parameter(torch.randn(own, WIDTH))
    for _ in range(steps):
        layer(g, x).square().sum().backward()
        x.grad = None
        layer.zero_grad()


def main(folder: str, side: str, steps: str) -> None:
    torch.manual_seed(0)
    vd.init(timeout=300)
    layer = GATConv(WIDTH, WIDTH // HEADS, HEADS, allow_zero_in_degree=True)
    train(vgraph.rand_graph(50, 200), layer, 2)  # what is captured and compiled is no memory of the graph
    before = anonymous_bytes()
    g: Any = graph_of(folder, side)
    with Peak() as peak:
        train(g, layer, int(steps))
    ranks = current_ranks()
    halo = sum(sum(route.received) for route in g.whole.routes.values()) if isinstance(g, vd.DistGraph) else 0
    told = {
        "peak": max(ranks.gather(peak.bytes - before, "peak")),
        "halo_rows": max(ranks.gather(halo, "halo")),
    }
    if ranks.rank == 0:
        print(MARK + json.dumps(told), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
