"""Memory that ranks hold of a graph, beside what is planned and while it is loaded; by torchrun: ``FOLDER WIDTH``."""

from __future__ import annotations

import gc
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread

import torch

import vgraph
import vgraph.distributed as vd
from vgraph import function as fn
from vgraph.runtime.distributed.ranks import current_ranks


def anonymous_bytes() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith("RssAnon"))


@contextmanager
def peak() -> Generator[list[int]]:
    """The most bytes that this process holds meanwhile, in a list."""
    most, over = [anonymous_bytes()], Event()

    def look() -> None:
        while not over.wait(1e-4):
            most[0] = max(most[0], anonymous_bytes())

    thread = Thread(target=look)
    thread.start()
    try:
        yield most
    finally:
        over.set()
        thread.join()


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
    with peak() as most:
        g = vd.DistGraph(folder)
    loaded = 1000 * (most[0] - before) // (anonymous_bytes() - before)
    train(g, torch.ones(g.num_own_nodes(), int(width)))
    gc.collect()
    vgraph.release_memory()
    held = anonymous_bytes() - before
    planned = vd.plan_graph(vd.PartitionedGraph.open(folder), vd.num_ranks()).memory(int(width))[vd.rank()]
    told = current_ranks().gather(1000 * held // planned, "test")
    if vd.rank() == 0:
        print(f"of what is planned they hold {told} in a thousand", flush=True)
    meanwhile = current_ranks().gather(loaded, "test")
    if vd.rank() == 0:
        print(f"of what they hold once it is loaded they held {meanwhile} in a thousand meanwhile", flush=True)
    vd.barrier()


if __name__ == "__main__":
    main(*sys.argv[1:])
