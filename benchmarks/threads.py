"""What many threads can gain: of a training step, how much lies in loops that are divided and how much does not.

Every parallel loop, vgraph's and torch's, is played by one thread, share by share, and its processor time is counted:
so a machine of two cores tells what 64 have to do. What is left is serial: Python, calls, sorts, small kernels. By
Amdahl's law (1967) a step takes that and the longest share of every loop; memory that threads share is not in it.
The steps: GCN and GAT on a graph of edges between any vertices, Tree-LSTM and Tree-FC; and the order of a new graph's
edges. With --oversubscribe steps run on 2 and on 16 threads instead: the same bits, and how long they take by turns.

usage: threads.py [--threads 64] [--rounds 5] [--rows NAME ...] [--scale 1.0] [--oversubscribe] [--json FILE] [--smoke]
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from importlib import import_module
from pathlib import Path
from typing import Any

from counted.team import Count, Team, is_there, run_with_team

MOST_SHARE = 0.05  # of a step on all threads, that a serial part should stay under
FEW, MANY = 2, 16
POOLS = ("runtime.cpu.kernels", "runtime.cpu.native", "runtime.cpu.frontier_loop", "runtime.reductions.reduction")
Step = Callable[[], object]


# ------------------------------------------------------------------ steps
def on_graph(kind: str, scale: float) -> Step:
    from sides import by_vgraph, workloads  # noqa: PLC0415  (torch must not load before the team)

    heads = 8 if kind == "gat" else 1
    sizes = tuple(max(2, int(size * min(1.0, 4 * scale))) for size in (128, 64, 16))
    work = workloads.Workload(kind, int(100_000 * scale), int(5_000_000 * scale), sizes, heads, law="even")
    with tempfile.TemporaryDirectory() as folder:
        workloads.write_graph(work, Path(folder))
        return by_vgraph.build(workloads.Data(replace(work, folder=folder)))


def tree_lstm(scale: float) -> Step:
    from recursion import trees  # noqa: PLC0415

    return trees.tree_lstm_workload(max(2, int(256 * scale)), max(8, int(150 * scale)), backend="").sides["vgraph"]


def tree_fc(scale: float) -> Step:
    from recursion import tree_fc as made  # noqa: PLC0415

    return made.tree_fc(256 if scale == 1 else 4, max(8, int(256 * scale)), max(2, int(16 * scale))).sides["vgraph"]


def order_of_edges(scale: float) -> Step:
    import torch  # noqa: PLC0415

    from vgraph import native_part  # noqa: PLC0415
    from vgraph.ir.topology import Topology  # noqa: PLC0415

    nodes, edges, native = int(100_000 * scale), int(5_000_000 * scale), native_part.load_native()
    src, dst = torch.randint(nodes, (2, edges))
    return lambda: native and native.order_edges(Topology(src, dst, nodes, nodes))


ROWS: dict[str, Callable[[float], Step]] = {
    "gcn": lambda scale: on_graph("gcn", scale),
    "gat": lambda scale: on_graph("gat", scale),
    "tree-lstm": tree_lstm,
    "tree-fc": tree_fc,
    "order-of-edges": order_of_edges,
}


# ------------------------------------------------------------------ counted
def count(name: str, step: Step, team: Team, options: argparse.Namespace) -> dict[str, Any]:
    for _ in range(2):
        step()
    found = team.count(step, options.rounds)
    shares = team.serial_parts(step, options.rounds)
    tell(name, found, shares, options.threads)
    return {"row": name, "threads": options.threads, **asdict(found), "serial_parts": shares}


def tell(name: str, found: Count, shares: dict[str, float], threads: int) -> None:
    print(f"\n{name}: {1e3 * found.whole:.2f} ms of processor time a step", flush=True)
    print(
        f"  {found.loops:4d} divided loops {1e3 * found.divided:28.2f} ms; "
        f"their longest shares {1e3 * found.longest:.2f}"
    )
    print(f"  serial parts {1e3 * found.serial:34.2f} ms, {100 * found.serial / found.whole:.2f} % on one thread")
    gain = found.whole / found.on_team
    print(f"  on {threads} threads by Amdahl's law {1e3 * found.on_team:17.2f} ms, {gain:.1f} times as fast, of which:")
    for kind, share in shares.items():
        spent = share * found.serial
        part = spent / found.on_team
        if part >= 0.01:
            print(f"    {kind:48s} {1e3 * spent:6.2f} ms {100 * part:5.1f} %{' *' if part > MOST_SHARE else ''}")


def count_all(options: argparse.Namespace) -> list[dict[str, Any]]:
    team = Team(options.threads)
    for name in POOLS:
        vars(import_module(f"vgraph.{name}"))["pool_address"] = lambda: team.pool
    print(
        f"a team of {options.threads} threads; "
        f"*: a serial part above {100 * MOST_SHARE:.0f} % of the step on all of them"
    )
    return [count(name, ROWS[name](options.scale), team, options) for name in options.rows]


# ------------------------------------------------------------------ oversubscribed
def oversubscribe(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Steps on few and on many threads by turns, in one process."""
    os.environ["VGRAPH_PRODUCTS"] = "1"  # the library's differ with the number of threads
    import torch  # noqa: PLC0415

    found = list[dict[str, Any]]()
    for name in options.rows:
        spent, results = {FEW: [0.0] * 0, MANY: [0.0] * 0}, list[list[Any]]()
        for threads in (FEW, MANY):  # from the same beginning: parameters change from step to step
            torch.set_num_threads(threads)
            torch.manual_seed(0)
            step = ROWS[name](options.scale)
            results.append([numbers_of(step()) for _ in range(3)])
        for _ in range(options.rounds):
            for threads, times in spent.items():
                torch.set_num_threads(threads)
                step()
                begun = time.perf_counter()
                step()
                times.append(time.perf_counter() - begun)
        best = {threads: min(times) for threads, times in spent.items()}
        same = "the same bits" if results[0] == results[1] else "OTHER BITS"
        print(
            f"{name:16s} {same}; {1e3 * best[FEW]:.2f} ms on {FEW} threads, "
            f"{best[MANY] / best[FEW]:.2f} times that on {MANY}"
        )
        found.append({"row": name, "equal": results[0] == results[1], "seconds": best})
    return found


def numbers_of(result: Any) -> Any:
    """What a step gives, as numbers that are compared; a graph's order as its tensors."""
    if isinstance(result, tuple):
        return [numbers_of(one) for one in result]
    if hasattr(result, "out_dst"):
        return [result.src_rows.tolist(), result.out_dst.tolist()]
    return result.tolist() if hasattr(result, "tolist") else result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--rows", nargs="*", choices=ROWS, default=list(ROWS))
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--oversubscribe", action="store_true")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--smoke", action="store_true")
    options = parser.parse_args()
    if options.smoke:
        options.rows, options.rounds, options.scale = ["gcn"], 1, 0.001
        os.environ["VGRAPH_KERNELS"] = "0"  # a compiler would take longer than all else
    if not (options.oversubscribe or is_there()):
        with tempfile.TemporaryDirectory(prefix="vgraph-bench-") as folder:
            sys.exit(run_with_team(__file__, sys.argv[1:], Path(folder)))
    found = oversubscribe(options) if options.oversubscribe else count_all(options)
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
