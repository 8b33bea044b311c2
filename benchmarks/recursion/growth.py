"""By how much a step lets resident memory grow, each side in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import torch
import tree_lstm
from sides.worker import forget_peak, peak

from recursion.trees import workload_of


def growths(batch: int, hidden: int, threads: int, *, trains: bool) -> dict[str, int]:
    """Bytes by side: the peak of the first step on ``batch`` trees beyond what was resident before it.

    A step on two trees goes before, so that gradients, the optimizer's state, libraries and compiled
    code are there already.
    """
    folder = Path(__file__).resolve().parents[1]
    path = os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH", "")]))
    found = dict[str, int]()
    for side in ("vgraph", "level loop by hand", "DGL", "DyNet"):
        command = [sys.executable, "-m", "recursion.growth", json.dumps([side, batch, hidden, threads, trains])]
        environment = os.environ | {"PYTHONPATH": path}
        done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
        if done.returncode:
            raise SystemExit(done.stderr)
        number = int(done.stdout.splitlines()[-1])
        if number >= 0:
            found[side] = number
    return found


def growth(side: str, batch: int, hidden: int, *, trains: bool) -> int:
    """-1 where the side is not installed."""
    trees = tree_lstm.make_trees(batch)
    few, all_ = tree_lstm.Task(trees[:2], hidden), tree_lstm.Task(trees, hidden)
    for name in ("modules", "embed", "cell", "out", "optimizer"):  # the same parameters and optimizer
        setattr(all_, name, getattr(few, name))
    warm, whole = (workload_of(task, len(task.trees), trains=trains).sides for task in (few, all_))
    name = next((name for name in whole if name.startswith(side)), None)
    if name is None:
        return -1
    warm[name]()
    before = forget_peak()
    whole[name]()
    return max(0, peak() - before)


if __name__ == "__main__":
    asked, asked_batch, asked_hidden, asked_threads, does_train = json.loads(sys.argv[1])
    torch.set_num_threads(asked_threads)
    print(growth(asked, asked_batch, asked_hidden, trains=does_train))
