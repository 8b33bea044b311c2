"""Rows that edges read whole, and from copies of some features at a time: seconds by turns in one process (ADR 0046).

usage: row_tiles.py [--vertices 100000] [--edges 5000000] [--widths 64 96 128 256] [--rounds 15] [--smoke]
"""

from __future__ import annotations

import argparse
import math
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager

import torch

import vgraph
import vgraph.function as fn
from vgraph.runtime.cpu import kernels


@contextmanager
def copied_from(num_bytes: float) -> Iterator[None]:
    """Rows are copied if they are as many bytes together."""
    before, kernels._MOST_WHOLE = kernels._MOST_WHOLE, num_bytes
    try:
        yield
    finally:
        kernels._MOST_WHOLE = before


def by_turns(graph: vgraph.Graph, message: fn.Message, rounds: int) -> tuple[float, float]:
    """Median seconds of a sum over in-edges: of whole rows, and in tiles."""
    times: dict[float, list[float]] = {math.inf: [], 0: []}
    for number in range(rounds + 2):
        for least, found in times.items():
            with copied_from(least):
                began = time.perf_counter()
                graph.update_all(message, fn.sum("m", "y"))
                if number >= 2:
                    found.append(time.perf_counter() - began)
    whole, tiles = (statistics.median(found) for found in times.values())
    return whole, tiles


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--vertices", type=int, default=100_000)
    add("--edges", type=int, default=5_000_000)
    add("--widths", type=int, nargs="+", default=[64, 96, 128, 256])
    add("--rounds", type=int, default=15)
    add("--smoke", action="store_true")
    options = parser.parse_args()
    if options.smoke:
        options.vertices, options.edges, options.widths, options.rounds = 100, 2000, [64], 1
    torch.manual_seed(0)
    ends = torch.randint(options.vertices, (2, options.edges))
    graph = vgraph.graph((ends[0], ends[1]), num_nodes=options.vertices)
    graph.edata["w"] = torch.rand(options.edges, 1)
    messages = {"sum": fn.copy_u("x", "m"), "weighted sum": fn.u_mul_e("x", "w", "m")}
    print("          what   width   whole ms   in tiles ms")
    for width in options.widths:
        graph.ndata["x"] = torch.randn(options.vertices, width)
        for name, message in messages.items():
            whole, tiles = by_turns(graph, message, options.rounds)
            print(f"{name:>14}  {width:6}  {1e3 * whole:9.2f}  {1e3 * tiles:12.2f}")


if __name__ == "__main__":
    main()
