"""The first call of a new Python function: what capture, generation and compilation add to the run itself.

In a fresh process, one other function is captured first (its time is reported apart: it loads what every
capture needs). Then a new one is called twice; the difference is what the first call costs. Once with an
empty disk cache (cold) and once, in another process, with the one that was left behind (warm).

usage: first_call.py [--rounds 5] [--json FILE] [--smoke]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

PROJECT = Path(__file__).resolve().parents[1]
AIMS = {"cold": 0.25, "warm": 0.03}
CHILD = """
import json, time, torch, vgraph
import vgraph.function as fn
begun = time.perf_counter()
torch.manual_seed(0)
ends = torch.randint(2000, (2, 20000))
g = vgraph.graph((ends[0], ends[1]), num_nodes=2000)
x = {k: torch.randn(2000, 32, requires_grad=True) for k in "hab"}

def call(message, reduce):
    for name, rows in x.items():
        g.ndata[name] = rows
    begun = time.perf_counter()
    g.update_all(message, reduce)
    g.ndata["o"].sum().backward()
    return time.perf_counter() - begun

g.in_degrees(), g.out_degrees()
process = call(fn.copy_u("h", "m"), fn.sum("m", "o"))
pair = (
    lambda e: {"m": e.src["h"] * torch.tanh(e.dst["b"]), "s": (e.src["a"] * e.dst["b"]).sum(-1, keepdim=True)},
    lambda v: {"o": (torch.softmax(v.mailbox["s"], 1) * v.mailbox["m"]).sum(1)},
)
first = call(*pair)
again = min(call(*pair) for _ in range(5))
print(json.dumps({"process": process, "beyond": first - again, "again": again}))
"""


def run_child(cache: str) -> dict[str, float]:
    search = [str(PROJECT), str(PROJECT / "kernels"), os.environ.get("PYTHONPATH", "")]
    place = {"VGRAPH_CACHE_DIR": cache, "PYTHONPATH": os.pathsep.join(filter(None, search))}
    done = subprocess.run(
        [sys.executable, "-c", CHILD], env=os.environ | place, capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout)


def measure_and_tell(rounds: int = 5, *, smoke: bool = False) -> dict[str, Any]:
    """Medians over pairs of processes; prints them."""
    found: dict[str, list[dict[str, float]]] = {"cold": [], "warm": []}
    for _ in range(1 if smoke else rounds):
        with tempfile.TemporaryDirectory(prefix="vgraph-bench-") as cache:
            for runs in found.values():  # the second finds what the first left behind
                runs.append(run_child(cache))
    result: dict[str, Any] = {"row": "first-call", "aims": AIMS}
    print("\nfirst call of a new function, beyond the run itself")
    for name, runs in found.items():
        median = {key: sorted(run[key] for run in runs)[len(runs) // 2] for key in runs[0]}
        result[name] = median
        print(
            f"  {name} disk cache: {1000 * median['beyond']:7.1f} ms (aim {1000 * AIMS[name]:.0f} ms); "
            f"the process's first capture {median['process']:.2f} s; a later call {1000 * median['again']:.2f} ms"
        )
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--smoke", action="store_true")
    options = parser.parse_args()
    result = measure_and_tell(options.rounds, smoke=options.smoke)
    if options.json:
        options.json.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
