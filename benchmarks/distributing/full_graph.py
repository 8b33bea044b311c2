"""Full-graph training: a GCN on a graph of communities in one process and on ranks, sides in turns.

Takes: a graph's size. Gives: medians by side. Runs for benchmarks/distributed.py.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import vgraph
import vgraph.distributed as vd

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
                found[side].append(run(folder, steps, *SIDES[side]))
    return found


def run(folder: Path, steps: int, ranks: int, threads: int) -> dict[str, float]:
    """One side, in processes of its own."""
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
    given = [str(STEPS), str(folder), str(steps), "parts" if ranks else "whole"]
    env = os.environ | {"OMP_NUM_THREADS": str(threads)}
    command = [sys.executable, *(torchrun if ranks else []), *given]
    done = subprocess.run(command, env=env, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed")
    return json.loads(done.stdout.partition("RESULT ")[2].splitlines()[0])


def tell(found: dict[str, list[dict[str, float]]]) -> None:
    """A table: time, bytes beside the formula, memory beyond that of a process without a graph."""

    def median(side: str, what: str) -> float:
        return statistics.median(one[what] for one in found[side])

    for side in found:
        told: dict[str, Any] = {what: median(side, what) for what in found[side][0]}
        print(
            f"GCN 128-64-16, {side:25s} {1e3 * told['seconds']:9.1f} ms a step, {told['halo_rows']:.0f} halo rows, "
            f"{told['bytes']:.0f} bytes a step (formula {told['model_bytes']:.0f}), anonymous memory of the largest: "
            f"{told['loaded'] / 2**20:.0f} MiB loaded, {told['anonymous'] / 2**20:.0f} MiB in training",
            flush=True,
        )
    for few, many in (("one process, two threads", "two ranks"), ("one process, one thread", "four ranks")):
        if few in found and many in found:
            speed = median(few, "seconds") / median(many, "seconds")
            memory = median(many, "anonymous") / max(median(few, "anonymous"), 1)
            print(f"{many}: {speed:.2f} times as fast as {few}, {memory:.2f} of its memory a rank")
