"""What small graphs cost: features, scopes, counts, batches and messages, beside DGL and PyG.

    python benchmarks/overhead.py [--write FILE.json] [--smoke]

Prints microseconds of the processor a call (one thread), the least of several rounds.
``VGRAPH_DGL_PYTHON`` names a Python that has DGL or PyG; the same script then runs there, too, and its
column is printed beside ours.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

NUM_NODES, NUM_EDGES, WIDTH = 30, 60, 16
PROJECT = Path(__file__).resolve().parent.parent


def least(function: Callable[[], Any], calls: int, rounds: int) -> float:
    """Microseconds of the processor a call: other programs on the machine do not count."""
    best = float("inf")
    for _ in range(rounds):
        begin = time.process_time()
        for _ in range(calls):
            function()
        best = min(best, (time.process_time() - begin) / calls)
    return best * 1e6


def dgl_like(dgl: Any, smoke: bool) -> dict[str, float]:
    """Every row for a library with DGL's names."""
    fn = importlib.import_module(f"{dgl.__name__}.function")
    calls, rounds = (3, 1) if smoke else (300, 5)

    def make() -> Any:
        g = dgl.graph((torch.randint(0, NUM_NODES, (NUM_EDGES,)), torch.randint(0, NUM_NODES, (NUM_EDGES,))),
                      num_nodes=NUM_NODES)  # fmt: skip
        g.ndata["h"], g.edata["w"] = torch.randn(NUM_NODES, WIDTH), torch.rand(NUM_EDGES, 1)
        return g

    g, many = make(), [make() for _ in range(10 if smoke else 1000)]
    x = torch.randn(NUM_NODES, WIDTH, requires_grad=True)

    def feature() -> None:
        g.ndata["h"] = x

    def scope() -> None:
        with g.local_scope():
            pass

    def copy_sum() -> None:
        g.update_all(fn.copy_u("h", "m"), fn.sum("m", "s"))

    def mul_sum() -> None:
        g.update_all(fn.u_mul_e("h", "w", "m"), fn.sum("m", "s"))

    def both_ways() -> None:
        copy_sum()
        g.ndata["s"].sum().backward()

    feature()
    found = {
        "set a feature": least(feature, calls * 10, rounds),
        "local_scope": least(scope, calls * 10, rounds),
        "num_nodes": least(g.num_nodes, calls * 10, rounds),
        "update_all copy_u, sum": least(copy_sum, calls, rounds),
        "update_all u_mul_e, sum": least(mul_sum, calls, rounds),
        "the first, and backward": least(both_ways, calls, rounds),
        f"batch of {len(many)}": least(lambda: dgl.batch(many), 3, rounds),
    }
    return found


def by_pyg(smoke: bool) -> dict[str, float]:
    """What PyG has of it: its Data, its Batch, and one sum over neighbours."""
    data = importlib.import_module("torch_geometric.data")
    conv = importlib.import_module("torch_geometric.nn").SimpleConv("add")
    calls, rounds = (3, 1) if smoke else (300, 5)
    index = torch.randint(0, NUM_NODES, (2, NUM_EDGES))
    x = torch.randn(NUM_NODES, WIDTH, requires_grad=True)
    one = data.Data(x=x, edge_index=index)
    many = [data.Data(x=x.detach(), edge_index=index) for _ in range(10 if smoke else 1000)]

    def feature() -> None:
        one.x = x

    return {
        "set a feature": least(feature, calls * 10, rounds),
        "num_nodes": least(lambda: one.num_nodes, calls * 10, rounds),
        "update_all copy_u, sum": least(lambda: conv(x, index), calls, rounds),
        "the first, and backward": least(lambda: conv(x, index).sum().backward(), calls, rounds),
        f"batch of {len(many)}": least(lambda: data.Batch.from_data_list(many), 3, rounds),
    }


def columns(smoke: bool) -> dict[str, dict[str, float]]:
    """Columns of the libraries that this Python has; vgraph alone, where it is there."""
    if importlib.util.find_spec("vgraph") is not None and os.environ.get("VGRAPH_OVERHEAD_OF") is None:
        return {"vgraph": dgl_like(importlib.import_module("vgraph"), smoke)}
    found: dict[str, dict[str, float]] = {}
    if importlib.util.find_spec("dgl") is not None:
        found["DGL"] = dgl_like(importlib.import_module("dgl"), smoke)
    if importlib.util.find_spec("torch_geometric") is not None:
        found["PyG"] = by_pyg(smoke)
    return found


def elsewhere(python: str, smoke: bool) -> dict[str, dict[str, float]]:
    command = [python, "-W", "ignore", __file__, "--json", *(["--smoke"] if smoke else [])]
    environment = {**os.environ, "VGRAPH_OVERHEAD_OF": "others", "DGLBACKEND": "pytorch"}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    """Prints the table, or JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--smoke", action="store_true", help="a few calls")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--write", type=Path, help="a file for all columns, as JSON")
    given = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    found = columns(given.smoke)
    if given.json:
        print(json.dumps(found))
        return
    python = os.environ.get("VGRAPH_DGL_PYTHON")
    found |= elsewhere(python, given.smoke) if python else {}
    if given.write is not None:
        rounded = {name: {row: round(value, 2) for row, value in column.items()} for name, column in found.items()}
        given.write.write_text(json.dumps(rounded, indent=1) + "\n")
    print(f"{'microseconds a call':28s}" + "".join(f"{name:>12s}" for name in found))
    for row in next(iter(found.values())):
        cells = (f"{column[row]:12.2f}" if row in column else f"{'-':>12s}" for column in found.values())
        print(f"{row:28s}" + "".join(cells))


if __name__ == "__main__":
    main()
