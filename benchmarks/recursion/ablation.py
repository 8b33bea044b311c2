"""What each idea is worth: the same steps in processes that have one idea more each (Cavs, figure 10)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import torch
import tree_lstm

import vgraph

_OFF = "KERNELS LAZY EAGER LEAVES NATIVE PRODUCTS".split()
# Ideas are added from left to right; "base" batches vertices and has nothing else, as Cavs' own.
IDEAS: dict[str, str] = {
    "base": "", "+fusion": "KERNELS", "+lazy": "LAZY", "+eager": "EAGER", "+leaf": "LEAVES",
    "+native loop": "NATIVE", "+own products": "PRODUCTS", "+streaming": "STREAMING",
}  # fmt: skip
Point = tuple[int, int]  # batch, hidden
SECONDS = 0.8  # that a point takes at least


def switches(idea: str) -> dict[str, str]:
    """Variables of the environment that leave out what comes after an idea."""
    names = list(IDEAS)
    on = {IDEAS[name] for name in names[: names.index(idea) + 1]}
    return {f"VGRAPH_{name}": str(int(name in on)) for name in (*_OFF, "STREAMING")}


def ablate(idea: str, points: list[Point], rounds: int, threads: int) -> list[float]:
    """Seconds a training step of the Tree-LSTM at every point, in a process of its own."""
    folder = Path(__file__).resolve().parents[1]
    environment = os.environ | switches(idea)
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH", "")]))
    request = json.dumps([points, rounds, threads, idea == "+streaming"])
    command = [sys.executable, "-m", "recursion.ablation", request]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if done.returncode:
        raise SystemExit(done.stderr)
    return json.loads(done.stdout.splitlines()[-1])


def step_seconds(point: Point, rounds: int, *, streams: bool) -> float:
    """The mean over a few batches of each one's best step; every step batches and schedules anew.

    If it ``streams``, the next batch is prepared by a thread meanwhile. Fast steps are repeated more often.
    """
    batch, hidden = point
    count = 2 if batch >= 64 else 4
    task = tree_lstm.Task(tree_lstm.make_trees(batch * count), hidden)
    loader = vgraph.GraphLoader(task.graphs, batch, prefetch=2 if streams else 0)
    best, begin, number = [float("inf")] * count, time.perf_counter(), 0
    while number <= rounds or (rounds and time.perf_counter() - begin < SECONDS):
        start = time.perf_counter()
        for index, graph in enumerate(loader):
            task.optimizer.zero_grad()
            tree_lstm.loss_of(task, graph).backward()
            task.optimizer.step()
            now = time.perf_counter()
            best[index] = min(best[index], now - start) if number or not rounds else best[index]
            start = now
        number += 1
    return sum(best) / count


if __name__ == "__main__":
    given, asked_rounds, asked_threads, does_stream = json.loads(sys.argv[1])
    torch.set_num_threads(asked_threads)
    print(json.dumps([step_seconds(tuple(point), asked_rounds, streams=does_stream) for point in given]))
