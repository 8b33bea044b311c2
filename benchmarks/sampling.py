"""Neighbour sampling beside DGL: minibatches of blocks from a graph of Reddit's kind, and a training epoch.

Blocks of fanouts 15, 10, 5 for 1,000 seeds each, made by the loader; the same with 100 features of their inputs and a
label of their outputs, which the samplers fetch; then GraphSAGE on these. Sides take turns in processes of their own;
figures are seeds a second. Before its first step a side holds what its library makes of a list of edges: DGL has its
three formats already, vgraph puts edges in order within its first step. The file of results has the seconds and
memory of both: ``built`` and ``held_gib`` before the first step, ``first`` and ``growth_gib`` with it. DGL needs to
be installed, in this interpreter or the one that --peer-python names.

usage: sampling.py [--nodes 232965] [--edges 23213838] [--workers 0 2] [--what sampling features training] [--threads N]
                   [--peer-python PATH] [--folder FOLDER] [--json FILE] [--smoke]
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from sides.alternate import NAMES, Settings, alternate
from sides.workloads import Workload, write_graph

SEEDS, BATCH, FANOUTS = 20_000, 1000, [15, 10, 5]
NAMED = {"sampling": "sampling", "features": "sampling with features", "training": "sampling and training"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=232_965)
    parser.add_argument("--edges", type=int, default=23_213_838)
    parser.add_argument("--workers", type=int, nargs="*", default=[0, 2])
    parser.add_argument("--what", nargs="*", choices=tuple(NAMED), default=tuple(NAMED))
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--peer-python", default=sys.executable, help="an interpreter that has DGL")
    parser.add_argument("--folder", type=Path, help="where the drawn edges are kept, for another run")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--smoke", action="store_true")
    options = parser.parse_args()
    seeds, sides = SEEDS, ["vgraph", "dgl"]
    if options.smoke:
        options.nodes, options.edges, options.workers, options.steps, seeds, sides = 200, 2000, [1], 1, 50, ["vgraph"]
    settings = Settings(options.threads, options.steps, peer_python=options.peer_python)
    results: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="vgraph-bench-") as made:
        folder = str(options.folder or made)
        base = Workload("sampling", options.nodes, options.edges, (100, 64, 64, 41), folder=folder)
        if not (Path(folder) / "dst.npy").exists():
            write_graph(base, Path(folder))
        for workers in options.workers:
            for what in ("training",) if options.smoke else options.what:
                given = {"workers": workers, "what": what, "seeds": seeds, "batch": BATCH, "fanouts": FANOUTS}
                work = Workload(**{**base.as_json(), "options": given})
                found = alternate(work, sides, settings)
                result = {side: one.as_json() for side, one in found.items()}
                results.append({"workers": workers, "what": what, "seeds": seeds, "sides": result})
                tell(results[-1])
                if options.json:
                    options.json.write_text(json.dumps(results, indent=1) + "\n")


def tell(result: dict[str, Any]) -> None:
    for side, one in result["sides"].items():
        shown = one.get("problem") or f"{result['seeds'] / one['median']:10.0f} seeds/s  {one['growth_gib']:.2f} GiB"
        print(f"{NAMED[result['what']]}, {result['workers']} workers: {NAMES[side]:8s} {shown}", flush=True)


if __name__ == "__main__":
    main()
