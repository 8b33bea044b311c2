"""What inference keeps: how long slices of frontiers are alive, and what windows save.

A frontier's slice of a carried state can be used again when no later frontier reads it: the first table gives the
most rows alive at once, of all rows, where whole slices are let go and where single rows are. What runs ahead of the
loops is made for some frontiers at a time instead of all: the second table gives the growth of resident memory in a
call without gradient, with that and without (VGRAPH_WINDOWS=0), each in a process of its own.

usage: inference_memory.py [--circuits FILE.aig ...] [--json FILE] [--smoke]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import torch
import tree_lstm
from recursion.sequences import ChainLSTM, chain, lengths
from sides.worker import forget_peak, peak
from torch import nn

import vgraph
from vgraph import compiler
from vgraph.data import load_aiger
from vgraph.nn import ChildSumTreeLSTM


def graphs(smoke: bool) -> dict[str, vgraph.Graph]:
    batch, length = (4, 50) if smoke else (256, 50_000)
    trees = tree_lstm.Task(tree_lstm.make_trees(batch), 8)
    return {
        "trees": vgraph.batch(trees.graphs),
        "sequences": vgraph.batch([chain(int(n)) for n in lengths(batch)]),
        "chain": chain(length),
    }


def alive(g: vgraph.Graph) -> dict[str, float]:
    """Of all rows, the most that are alive at once: by slices of whole frontiers, and one by one."""
    topology, level = g.topology, compiler.levels(g.topology)
    last = level.copy()
    np.maximum.at(last, topology.src.numpy(), level[topology.dst.numpy()])
    by_slice = np.zeros(int(level.max()) + 1, last.dtype)
    np.maximum.at(by_slice, level, last)
    return {"by slices": _most(level, by_slice[level]) / len(level), "by rows": _most(level, last) / len(level)}


def _most(first: np.ndarray, last: np.ndarray) -> int:
    changes = np.zeros(int(last.max()) + 2, np.int64)
    np.add.at(changes, first, 1)
    np.add.at(changes, last + 1, -1)
    return int(changes.cumsum().max())


def growth(name: str, smoke: bool) -> int:
    """Bytes that a call without gradient adds to what was resident after a small one."""
    width = 8 if smoke else 64 if name == "chain" else 256 if name == "sequences" else 150
    g, small = graphs(smoke)[name], chain(3)
    model = ChildSumTreeLSTM(width, width) if name == "trees" else ChainLSTM(nn.LSTMCell(width, width))
    x = torch.randn(g.num_nodes(), width)
    with torch.no_grad():
        model(small, x=torch.randn(3, width))
        before = forget_peak()
        model(g, x=x)
    return max(0, peak() - before)


def growths(name: str, smoke: bool) -> dict[str, int]:
    path = os.pathsep.join(filter(None, [str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]))
    found = dict[str, int]()
    for way, switch in (("windows", "1"), ("all at once", "0")):
        environment = os.environ | {"PYTHONPATH": path, "VGRAPH_WINDOWS": switch}
        command = [sys.executable, __file__, "--alone", name, *(["--smoke"] if smoke else [])]
        done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
        if done.returncode:
            raise SystemExit(done.stderr)
        found[way] = int(done.stdout.splitlines()[-1])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--circuits", type=Path, nargs="*", default=[])
    parser.add_argument("--json", type=Path)
    parser.add_argument("--alone", help=argparse.SUPPRESS)
    parser.add_argument("--smoke", action="store_true")
    options = parser.parse_args()
    if options.alone:
        print(growth(options.alone, options.smoke))
        return
    every = graphs(options.smoke)
    rows = {name: alive(g) for name, g in every.items()}
    rows |= {path.stem: alive(load_aiger(path).graph) for path in options.circuits}
    for name, found in rows.items():
        shown = ", ".join(f"{way} {100 * part:.1f} %" for way, part in found.items())
        print(f"{name:12s} rows alive at once: {shown}")
    measured = ["trees"] if options.smoke else [*every]  # two processes each
    grown = {name: growths(name, options.smoke) for name in measured}
    for name, bytes_by_way in grown.items():
        print(f"{name:12s} growth: " + ", ".join(f"{way} {n / 2**20:.1f} MiB" for way, n in bytes_by_way.items()))
    if options.json:
        options.json.write_text(json.dumps({"alive": rows, "growth": grown}, indent=1) + "\n")


if __name__ == "__main__":
    main()
