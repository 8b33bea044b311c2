"""Recursive workloads beside torch's own ways, DGL and DyNet, which take turns in one run.

torch's own ways are its fused LSTM (also in bfloat16, where the processor has oneDNN's), and loops over levels or steps
by hand, each as it is and with what a level computes under torch.compile.

Every side does the same whole step (inference: forward alone), a few in a row when its turn comes; figures are the
best of several rounds, since other work on the machine only ever slows a step down. The floor is the time of the
matrix products alone at the rate that torch.mm reaches here. What is not installed is left out (DGL 1.1.3 and DyNet
have wheels for Python 3.11). ``--sst`` adds rows on the Stanford Sentiment Treebank, ``--circuit`` a row on a
circuit and one on its last frontiers, beside DGL. ``--policies``: the Fixed-LSTM batched and one vertex at a time;
``--memory``: growth of resident memory in a step; ``--serving``: how long graphs wait that come one by one;
``--lines``: lines of code a model; ``--pictures``: widths of frontiers, a timeline, a plan of memory. What each
idea is worth: ablation.py; where the time of a step goes: division.py.

usage: recursive.py [--rows NAME ...] [--rounds 5] [--threads N] [--sst FOLDER] [--circuit hyp.aig] [--policies]
                    [--memory] [--serving] [--lines] [--pictures FOLDER] [--json FILE] [--smoke]
A JSON file that exists is added to, so that rows can be measured in several runs.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from recursion.circuits import circuit
from recursion.growth import growths
from recursion.lines import counted
from recursion.pictures import draw
from recursion.sequences import ALONE, CAVS_SERIAL, fixed_length, variable_lengths
from recursion.serving import latencies
from recursion.tree_fc import tree_fc
from recursion.trees import tree_lstm_workload
from recursion.workload import AS_IT_IS, Workload, product_rate, take_turns
from roofline import this_machine

Rows = dict[str, Callable[[], Workload]]


def all_rows(path: Path | None, sst: Path | None) -> Rows:
    on_sst: Rows = {
        "sst-256": lambda: tree_lstm_workload(256, 150, sst=sst),
        "sst-25": lambda: tree_lstm_workload(25, 150, sst=sst),
    }
    on_circuit: Rows = {
        "circuit": lambda: circuit(path, 64),
        "circuit-last": lambda: circuit(path, 64, last=400),
    }
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
        **(on_sst if sst else {}),
        **(on_circuit if path else {}),
    }


def small_rows() -> Rows:
    return {
        "tree-lstm": lambda: tree_lstm_workload(3, 8, backend=AS_IT_IS),
        "tree-fc": lambda: tree_fc(4, 8, 2, backend=AS_IT_IS),
        "var-lstm": lambda: variable_lengths(2, 8, AS_IT_IS),
        "fixed-lstm": lambda: fixed_length(2, 8, 3, serial=True, backend=AS_IT_IS),
        "braid": lambda: circuit(None, 8, 5),
    }


def measure(row: str, workload: Workload, rounds: int, rate: float) -> dict[str, Any]:
    torch.compiler.reset()  # else versions of rows before count against the limit of versions of this row's loops
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


def policies(batches: list[int], hidden: int, steps: int, rounds: int) -> dict[str, dict[str, float]]:
    """Seconds of a Fixed-LSTM step, batched and one vertex at a time, by batch size.

    One vertex at a time with all else on (the native loop, kernels, eager and lazy phases), which is what batching
    alone is worth here; and with all else off, which is what Cavs calls serial.
    """
    print(f"Fixed-LSTM of {steps} steps, hidden {hidden}: batched; {ALONE}; {CAVS_SERIAL}")
    found = dict[str, dict[str, float]]()
    for batch in batches:
        workload = fixed_length(batch, hidden, steps, serial=True, backend=AS_IT_IS)
        own = {name: step for name, step in workload.sides.items() if name.startswith("vgraph")}
        seconds = take_turns(replace(workload, sides=own), rounds)
        together, *alone = seconds.values()
        shown = "".join(f"{1e3 * one:10.2f} ms {one / together:6.1f} times" for one in alone)
        print(f"    batch {batch:4d} {1e3 * together:9.2f} ms {shown}", flush=True)
        found[str(batch)] = seconds
    return found


def memory(batch: int, hidden: int, threads: int) -> dict[str, dict[str, int]]:
    found = dict[str, dict[str, int]]()
    for mode in ("training", "inference"):
        found[mode] = growths(batch, hidden, threads, trains=mode == "training")
        print(f"Growth of resident memory in a step, Tree-LSTM batch {batch}, {mode}:")
        for name, count in found[mode].items():
            print(f"    {name:28s} {count / 2**20:9.1f} MiB", flush=True)
    return found


def lines() -> dict[str, dict[str, int]]:
    found = counted()
    for model, sides in found.items():
        print(f"Lines of code, {model}: " + ", ".join(f"{side} {count}" for side, count in sides.items()))
    return found


def serving(smoke: bool) -> dict[str, float]:
    found = latencies(*((8, 2, 4, 0.2) if smoke else (150, 64, 640, 0.8)))
    print(f"Serving, {found['rate']:.0f} trees a second arriving, mean time to the result:")
    for name in ("whole, between runs", "between frontiers", "full batches"):
        print(f"    {name:28s} {1e3 * found[name]:9.2f} ms", flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", nargs="+", default=["*"], metavar="NAME")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--circuit", type=Path)
    parser.add_argument("--sst", type=Path)
    for option in ("--policies", "--memory", "--serving", "--lines", "--smoke"):
        parser.add_argument(option, action="store_true")
    parser.add_argument("--pictures", type=Path)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    smoke = options.smoke
    rate, rounds = product_rate(64 if smoke else 1024), 0 if smoke else options.rounds
    rows = small_rows() if smoke else all_rows(options.circuit, options.sst)
    chosen = {name: make for name, make in rows.items() if any(fnmatch.fnmatch(name, p) for p in options.rows)}
    batch, hidden = (3, 8) if smoke else (256, 150)
    found: dict[str, Any] = {"rows": []}
    if options.json and options.json.exists():
        found = json.loads(options.json.read_text())
    found |= {"machine": this_machine(), "threads": options.threads, "product rate": rate}
    measured = [measure(name, make(), rounds, rate) for name, make in chosen.items()]
    found["rows"] = [row for row in found["rows"] if row["row"] not in chosen] + measured
    if options.policies or smoke:
        found["policies"] = policies(*(([1, 2], 4, 3) if smoke else ([2**n for n in range(9)], 64, 64)), rounds)
    if options.memory:
        found["memory"] = memory(batch, hidden, options.threads)
    if options.lines or smoke:
        found["lines"] = lines()
    if options.serving or smoke:
        found["serving"] = serving(smoke)
    if options.pictures:
        draw(options.pictures, batch, hidden)
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
