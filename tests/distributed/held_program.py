"""Memory that ranks hold of a graph, beside what is planned; started by torchrun: ``FOLDER WIDTH``."""

from __future__ import annotations

import gc
import sys
from pathlib import Path

import torch

import vgraph
import vgraph.distributed as vd
from vgraph import function as fn
from vgraph.runtime.distributed.ranks import current_ranks


def anonymous_bytes() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith("RssAnon"))


def train(g: vgraph.Graph, x: torch.Tensor) -> None:
    """Steps on features that stay, of which others' rows are kept, and on a number that is learnt."""
    g.ndata["x"], learnt = x, torch.ones(len(x), 1, requires_grad=True)
    for _ in range(3):
        g.update_all(fn.copy_u("x", "m"), fn.max("m", "y"))
        del g.ndata["y"]
        g.ndata["h"] = learnt
        g.update_all(fn.copy_u("h", "m"), fn.max("m", "y"))
        g.ndata.pop("y").sum().backward()
        del g.ndata["h"]


def main(folder: str, width: str) -> None:
    vd.init(timeout=60)
    train(vgraph.rand_graph(50, 200), torch.ones(50, int(width)))  # what is captured and compiled is no graph's
    before = anonymous_bytes()
    g = vd.DistGraph(folder)
    train(g, torch.ones(g.num_own_nodes(), int(width)))
    gc.collect()
    vgraph.release_memory()
    held = anonymous_bytes() - before
    planned = vd.plan_graph(vd.PartitionedGraph.open(folder), vd.num_ranks()).memory(int(width))[vd.rank()]
    told = current_ranks().gather(1000 * held // planned, "test")
    if vd.rank() == 0:
        print(f"of what is planned they hold {told} in a thousand", flush=True)
    vd.barrier()


if __name__ == "__main__":
    main(*sys.argv[1:])
