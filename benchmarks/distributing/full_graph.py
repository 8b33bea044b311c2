"""Full-graph training: a GCN on a graph of communities in one process and on ranks, sides in turns.

Takes: a graph's size. Gives: medians by side. Runs for benchmarks/distributed.py.
"""

from __future__ import annotations

import statistics
import tempfile
from pathlib import Path
from typing import Any

import vgraph
import vgraph.distributed as vd
from distributing.start import result_of

STEPS = Path(__file__).with_name("steps.py")
SIDES = {  # ranks (0: one process with the graph in memory), threads of each
    "one process, two threads": (0, 2),
    "two ranks": (2, 1),
    "one process, one thread": (0, 1),
    "four ranks": (4, 1),
}


def compare(g: vgraph.Graph, steps: int, rounds: int, sides: list[str]) -> dict[str, list[dict[str, float]]]:
    """What every side tells, round by round."""
    found: dict[str, list[dict[str, float]]] = {side: [] for side in sides}
    with tempfile.TemporaryDirectory(prefix="vgraph-bench-") as name:
        folder = Path(name)
        vgraph.save_graphs(folder / "whole.bin", [g])
        for ranks in {SIDES[side][0] for side in sides} - {0}:
            vd.partition_graph(g, folder / f"parts-{ranks}", ranks, "ldg", "edges")
        for _ in range(rounds):
            for side in sides:
                ranks, threads = SIDES[side]
                given = (str(folder), str(steps), "parts" if ranks else "whole")
                found[side].append(result_of(STEPS, *given, ranks=ranks, threads=threads))
    return found


def tell(found: dict[str, list[dict[str, float]]]) -> None:
    """A table: time, bytes beside the formula, memory beyond that of a process without a graph."""

    def median(side: str, what: str) -> float:
        return statistics.median(one[what] for one in found[side])

    for side in found:
        told: dict[str, Any] = {what: median(side, what) for what in found[side][0]}
        print(
            f"GCN 128-64-16, {side:25s} {1e3 * told['seconds']:9.1f} ms a step, {told['halo_rows']:.0f} halo rows, "
            f"{told['bytes']:.0f} bytes a step (formula {told['model_bytes']:.0f}), anonymous memory of the largest: "
            f"{told['loaded'] / 2**20:.0f} MiB loaded ({told['loading'] / 2**20:.0f} at most meanwhile), "
            f"{told['anonymous'] / 2**20:.0f} MiB in training",
            flush=True,
        )
    for few, many in (("one process, two threads", "two ranks"), ("one process, one thread", "four ranks")):
        if few in found and many in found:
            speed = median(few, "seconds") / median(many, "seconds")
            memory = median(many, "anonymous") / max(median(few, "anonymous"), 1)
            print(f"{many}: {speed:.2f} times as fast as {few}, {memory:.2f} of its memory a rank")
