"""How a step divides into graph construction, memory operations and computation: Cavs' figure 9, tables 1 and 2.

Tree-FC (complete trees, batch 16) by the number of leaves and the child-sum Tree-LSTM by the batch size, training
steps and inference. vgraph's construction is batching, levels, row order, schedule and memory plan; its memory
operations are the moves of rows that no kernel took in (permutations, gathers, sums that run in the library).
Within a loop a gather is a load of the kernel, so its time is computation. Of DyNet, construction is the
building of its graph of expressions; of DGL, batching and the order of its frontiers.

usage: division.py [--leaves 32 128 256 1024] [--batches 1 16 64 256] [--hidden 150] [--rounds 3] [--threads N]
                   [--json FILE] [--plot FILE] [--smoke]
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
from recursion.division import PARTS, REST, divide, divide_peer
from recursion.tree_fc import tree_fc
from recursion.trees import tree_lstm_workload
from recursion.workload import AS_IT_IS, Workload

PEERS = ("DGL", "DyNet")
COLUMNS = (*PARTS, REST)


def measure(make: Callable[[], Workload], rounds: int) -> dict[str, dict[str, float]]:
    """Seconds of each part, by side."""
    sides = make().sides
    found = {"vgraph": divide(sides["vgraph"], rounds)}
    for name, step in sides.items():
        if name.startswith(PEERS):
            found[name] = divide_peer(step, rounds)
    return found


def workloads(options: argparse.Namespace, *, trains: bool) -> Iterator[tuple[str, str, int, Callable[[], Workload]]]:
    """Name, what is varied, how large it is, and how the workload is made."""
    batch = 2 if options.smoke else 16
    for n in options.leaves:
        yield "Tree-FC", "leaves", n, partial(tree_fc, n, options.hidden, batch, trains=trains, backend=AS_IT_IS)
    for n in options.batches:
        yield "Tree-LSTM", "batch", n, partial(tree_lstm_workload, n, options.hidden, trains=trains, backend=AS_IT_IS)


def show(name: str, found: dict[str, dict[str, float]]) -> None:
    for side, parts in found.items():
        total = sum(parts.values())
        shares = "".join(f"{100 * parts[c] / total:12.1f} %" if c in parts else f"{'':14s}" for c in COLUMNS)
        print(f"{name:34s} {side:10s} {1e3 * total:9.2f} ms {shares}", flush=True)


def draw(path: Path, rows: list[dict[str, Any]]) -> None:
    """Stacked milliseconds of vgraph's parts, one panel a workload and mode."""
    from matplotlib import pyplot as plt  # noqa: PLC0415  (an optional dependency)

    groups = list(dict.fromkeys((row["workload"], row["mode"]) for row in rows))
    figure, panels = plt.subplots(1, len(groups), figsize=(3.6 * len(groups), 3.4), squeeze=False)
    for axes, group in zip(panels[0], groups, strict=True):
        mine = [row for row in rows if (row["workload"], row["mode"]) == group]
        labels, bottom = [str(row["size"]) for row in mine], [0.0] * len(mine)
        for part in COLUMNS:
            total = [sum(row["seconds"]["vgraph"].values()) for row in mine]
            shares = [100 * row["seconds"]["vgraph"][part] / all_ for row, all_ in zip(mine, total, strict=True)]
            axes.bar(labels, shares, bottom=bottom, label=part)
            bottom = [a + b for a, b in zip(bottom, shares, strict=True)]
        axes.set(title=", ".join(group), xlabel=mine[0]["of"], ylabel="% of the step")
    panels[0][-1].legend(fontsize=7)
    figure.tight_layout()
    figure.savefig(path)
    plt.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--leaves", type=int, nargs="*", default=[32, 128, 256, 1024])
    parser.add_argument("--batches", type=int, nargs="*", default=[1, 16, 64, 256])
    parser.add_argument("--hidden", type=int, default=150)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--json", type=Path)
    parser.add_argument("--plot", type=Path)
    parser.add_argument("--smoke", action="store_true")
    options = parser.parse_args()
    if options.smoke:
        options.leaves, options.batches, options.hidden, options.rounds = [4], [2], 8, 1
    torch.set_num_threads(options.threads)
    print(f"{'':60s}" + "".join(f"{c.split()[0]:>14s}" for c in COLUMNS))
    rows = list[dict[str, Any]]()
    for mode in ("training", "inference"):
        for workload, of, size, make in workloads(options, trains=mode == "training"):
            found = measure(make, options.rounds)
            show(f"{workload} {mode}, {of} {size}", found)
            rows.append({"workload": workload, "mode": mode, "of": of, "size": size, "seconds": found})
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + "\n")
    if options.plot:
        draw(options.plot, rows)


if __name__ == "__main__":
    main()
