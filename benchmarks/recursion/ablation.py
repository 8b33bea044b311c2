"""What each idea is worth: the same step in processes that have one idea more each (Cavs, figure 10)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

# Ideas are added from left to right; "serial" is Cavs' baseline of one vertex at a time.
IDEAS: dict[str, dict[str, str]] = {
    "base": {"VGRAPH_KERNELS": "0", "VGRAPH_LEAVES": "0", "VGRAPH_NATIVE": "0"},
    "+leaf": {"VGRAPH_KERNELS": "0", "VGRAPH_NATIVE": "0"},
    "+fusion": {"VGRAPH_KERNELS": "1", "VGRAPH_NATIVE": "0"},
    "+native loop": {"VGRAPH_KERNELS": "1", "VGRAPH_PRODUCTS": "0"},
    "+own products": {"VGRAPH_KERNELS": "1", "VGRAPH_PRODUCTS": "1"},
}

_WORKER = """
import json, sys
import torch
torch.set_num_threads(int(sys.argv[4]))
from recursion.trees import tree_lstm_workload
from recursion.workload import take_turns
workload = tree_lstm_workload(int(sys.argv[1]), int(sys.argv[2]))
only = {"vgraph": workload.sides["vgraph"]}
workload.sides.clear()
workload.sides.update(only)
print(json.dumps(take_turns(workload, int(sys.argv[3]))["vgraph"]))
"""


def ablate(batch: int, hidden: int, rounds: int, threads: int) -> dict[str, float]:
    """Seconds a training step of the Tree-LSTM, by the last idea that was added."""
    folder = Path(__file__).resolve().parents[1]
    found: dict[str, float] = {}
    for name, switches in IDEAS.items():
        environment = os.environ | switches
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH", "")]))
        command = [sys.executable, "-c", _WORKER, *map(str, (batch, hidden, rounds, threads))]
        done = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
        found[name] = float(json.loads(done.stdout.splitlines()[-1]))
    return found
