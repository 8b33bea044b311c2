"""Recursive workloads beside torch's own ways, DGL and DyNet, which take turns in one run.

Every side does the same whole step (inference: forward alone); figures are the best of several rounds, since
other work on the machine only ever slows a step down. The floor is the time of the matrix products alone at
the rate that torch.mm reaches here. What is not installed is left out (DGL 1.1.3 and DyNet have wheels for
Python 3.11). ``--ablation`` adds one idea after the other, ``--division`` says where the time of a step goes,
``--serving`` how long graphs wait that come one by one, ``--pictures`` draws widths of frontiers and a plan
of memory.

usage: recursive.py [--rows NAME ...] [--rounds 5] [--threads N] [--circuit hyp.aig] [--ablation] [--division]
                    [--serving] [--pictures FOLDER] [--json FILE] [--smoke]
"""

from __future__ import annotations

import argparse
import fnmatch
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from recursion.ablation import ablate
from recursion.circuits import circuit
from recursion.division import divide
from recursion.pictures import draw
from recursion.sequences import fixed_length, variable_lengths
from recursion.serving import latencies
from recursion.tree_fc import tree_fc
from recursion.trees import tree_lstm_workload
from recursion.workload import Workload, product_rate, take_turns

Rows = dict[str, Callable[[], Workload]]


def all_rows(path: Path | None) -> Rows:
    return {
        "tree-lstm-25": lambda: tree_lstm_workload(25, 150),
        "tree-lstm-256": lambda: tree_lstm_workload(256, 150),
        "tree-lstm-256-inference": lambda: tree_lstm_workload(256, 150, trains=False),
        "tree-fc-512": lambda: tree_fc(256, 512, 64),
        "tree-fc-128": lambda: tree_fc(256, 128, 64),
        "var-lstm-256": lambda: variable_lengths(256, 256),
        "var-lstm-64": lambda: variable_lengths(64, 256),
        "fixed-lstm": lambda: fixed_length(64, 512),
        "serial-policy": lambda: fixed_length(128, 64, serial=True),
        "braid": lambda: circuit(None, 64, 1000),
        **({} if path is None else {"circuit": lambda: circuit(path, 64)}),
    }


def small_rows() -> Rows:
    return {
        "tree-lstm": lambda: tree_lstm_workload(3, 8),
        "tree-fc": lambda: tree_fc(4, 8, 2),
        "var-lstm": lambda: variable_lengths(2, 8),
        "fixed-lstm": lambda: fixed_length(2, 8, 3, serial=True),
        "braid": lambda: circuit(None, 8, 5),
    }


def measure(row: str, workload: Workload, rounds: int, rate: float) -> dict[str, Any]:
    seconds = take_turns(workload, rounds)
    own = seconds["vgraph"]
    floor = workload.flops / rate / own
    print(f"{workload.name}: {workload.frontiers} frontiers, {1e6 * own / workload.frontiers:.1f} us each,"
          f" {100 * floor:.0f} % of the products' floor")  # fmt: skip
    for name, one in seconds.items():
        print(f"    {name:28s} {1e3 * one:9.2f} ms   {one / own:6.2f} times vgraph's", flush=True)
    return {
        "row": row, "name": workload.name, "seconds": seconds, "part of the floor": floor,
        "frontiers": workload.frontiers,
    }  # fmt: skip


def show(title: str, seconds: dict[str, float]) -> dict[str, float]:
    print(title)
    for name, one in seconds.items():
        print(f"    {name:28s} {1e3 * one:9.2f} ms", flush=True)
    return seconds


def serving(smoke: bool) -> dict[str, float]:
    found = latencies(*((8, 2, 4, 0.2) if smoke else (150, 64, 640, 0.8)))
    print(f"Serving, {found['rate']:.0f} trees a second arriving, mean time to the result:")
    for name in ("joining frontiers", "full batches"):
        print(f"    {name:28s} {1e3 * found[name]:9.2f} ms", flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", nargs="+", default=["*"], metavar="NAME")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--circuit", type=Path)
    for option in ("--ablation", "--division", "--serving", "--smoke"):
        parser.add_argument(option, action="store_true")
    parser.add_argument("--pictures", type=Path)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    smoke = options.smoke
    rate, rounds = product_rate(64 if smoke else 1024), 0 if smoke else options.rounds
    rows = small_rows() if smoke else all_rows(options.circuit)
    chosen = {name: make for name, make in rows.items() if any(fnmatch.fnmatch(name, p) for p in options.rows)}
    batch, hidden = (3, 8) if smoke else (256, 150)
    found: dict[str, Any] = {"threads": options.threads, "product rate": rate}
    found["rows"] = [measure(name, make(), rounds, rate) for name, make in chosen.items()]
    if options.division or smoke:
        own = tree_lstm_workload(batch, hidden).sides["vgraph"]
        found["division"] = show("A Tree-LSTM step divided:", divide(own, max(rounds, 1)))
    if options.ablation:
        found["ablation"] = show("One idea after the other:", ablate(batch, hidden, max(rounds, 1), options.threads))
    if options.serving or smoke:
        found["serving"] = serving(smoke)
    if options.pictures:
        draw(options.pictures, batch, hidden)
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
