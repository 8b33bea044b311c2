"""How a GCN's and a GAT's training step grow with the graph's size, its density and the layers' width.

Erdos-Renyi graphs; two layers, Adam; beside DGL and PyTorch Geometric. Every side has the machine to
itself, twice, may take --memory GiB, and is drawn with a cross where that was not enough. A side that needed more
than --limit seconds for a step is not asked for larger ones.

usage: scaling.py [--curves gcn-size gat-width ...] [--points X ...] [--threads N] [--peer-python PATH] [--memory GIB]
                  [--limit SECONDS] [--json FILE] [--plot FILE.png] [--smoke]
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from sides.alternate import NAMES, Settings, alternate, machine_memory
from sides.floors import Floor
from sides.workloads import Workload, write_graph
from tqdm import tqdm

SIDES = ("vgraph", "dgl", "pyg")
LABELS = {"size": "vertices (mean degree 20, width 64)", "density": "mean degree (10,000 vertices, width 64)"}
LABELS["width"] = "width (10,000 vertices, mean degree 100)"


@dataclass(frozen=True)
class Curve:
    """Points by what grows: (x, workload)."""

    name: str
    label: str
    points: tuple[tuple[int, Workload], ...]


def curves(smoke: bool) -> Iterator[Curve]:
    """GCN and GAT over size, density and width."""
    for kind, heads in (("gcn", 1), ("gat", 8)):
        base = Workload(kind, 10_000, 0, (64, 64, 16), heads, law="even")
        ways = {
            "size": [(n, replace(base, nodes=n, edges=20 * n)) for n in powers(1 << 10, 1 << 20, 4, smoke)],
            "density": [(d, replace(base, edges=d * base.nodes)) for d in powers(4, 4096, 4, smoke)],
            "width": [(w, replace(base, edges=100 * base.nodes, sizes=(w, w, 16))) for w in powers(16, 1024, 2, smoke)],
        }
        for way, points in ways.items():
            made = [(x, replace(work, nodes=50, edges=200) if smoke else work) for x, work in points]
            yield Curve(f"{kind}-{way}", LABELS[way], tuple(made))


def powers(low: int, high: int, factor: int, smoke: bool) -> list[int]:
    found = [low]
    while found[-1] < high and not smoke:
        found.append(found[-1] * factor)
    return found


def run_curve(curve: Curve, settings: Settings, budget: float, sides: Sequence[str]) -> Iterator[dict[str, Any]]:
    """The curve so far, after every point."""
    points: list[dict[str, Any]] = []
    asked = list(sides)
    for x, workload in tqdm(curve.points, desc=curve.name, disable=None, leave=False):
        with tempfile.TemporaryDirectory(prefix="vgraph-bench-") as name:
            work = replace(workload, folder=name)
            write_graph(work, Path(name))
            floor = Floor(work, settings.threads, budget)
            found = alternate(work, asked, settings, floor)
        point = {
            "x": x,
            "edges": work.edges,
            "floor": floor.median,
            "sides": {s: one.as_json() for s, one in found.items()},
        }
        points.append(point)
        tell(curve, point)
        asked = [side for side in asked if (found[side].median or settings.limit) < settings.limit]
        yield {"curve": curve.name, "label": curve.label, "points": points}


def tell(curve: Curve, point: Mapping[str, Any]) -> None:
    shown = [f"{curve.name:12s} {point['x']:8d}"]
    for side, one in point["sides"].items():
        took = one.get("problem") or f"{1000 * one['median']:.1f} ms, {one['growth_gib']:.2f} GiB"
        share = (
            "" if side != "vgraph" or "problem" in one else f" ({100 * point['floor'] / one['median']:.0f} % of floor)"
        )
        shown.append(f"{NAMES[side]} {took}{share}")
    print("   ".join(shown), flush=True)


def draw(path: Path, results: Sequence[Mapping[str, Any]]) -> None:
    """One panel a curve, seconds over what grows; a cross where memory was not enough."""
    import matplotlib.pyplot as plt  # noqa: PLC0415  # wanted for pictures alone

    columns = min(3, len(results))
    lines = -(-len(results) // columns)
    figure, axes = plt.subplots(lines, columns, figsize=(4.6 * columns, 3.4 * lines), squeeze=False)
    for axis, result in zip(axes.flat, results, strict=False):
        for number, side in enumerate(SIDES):
            at = [(p["x"], p["sides"][side]) for p in result["points"] if side in p["sides"]]
            good = [(x, one["median"]) for x, one in at if "problem" not in one]
            axis.plot([x for x, _ in good], [y for _, y in good], "o-", ms=3, color=f"C{number}", label=NAMES[side])
            full = [x for x, one in at if one.get("problem") == "out of memory"]
            top = [good[-1][1] if good else 1.0] * len(full)
            axis.plot(full, top, "x", ms=9, color=f"C{number}", label=f"{NAMES[side]}: out of memory" if full else None)
        axis.set(xscale="log", yscale="log", xlabel=result["label"], title=result["curve"], ylabel="seconds a step")
        axis.legend(fontsize=7)
    figure.tight_layout()
    figure.savefig(path, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--curves", nargs="*", default=[], help="like gcn-size; by default all six")
    parser.add_argument("--points", type=int, nargs="*", help="these alone of what grows, like 4096")
    parser.add_argument("--sides", nargs="*", choices=SIDES, default=list(SIDES))
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--peer-python", default=sys.executable, help="an interpreter that has DGL and PyG")
    parser.add_argument("--memory", type=float, default=0.8 * machine_memory(), help="GiB for each side")
    parser.add_argument("--limit", type=float, default=20.0)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--plot", type=Path)
    parser.add_argument("--smoke", action="store_true")
    options = parser.parse_args()
    todo = [curve for curve in curves(options.smoke) if not options.curves or curve.name in options.curves]
    if options.smoke:
        todo, options.sides = todo[:1], ["vgraph"]
    settings = Settings(
        options.threads, options.steps, memory=options.memory, peer_memory=options.memory,
        limit=options.limit, peer_python=options.peer_python, rounds=2,
    )  # fmt: skip
    budget, found = 0.01 if options.smoke else 0.1, dict[str, dict[str, Any]]()
    for curve in todo:
        wanted = replace(curve, points=tuple(p for p in curve.points if not options.points or p[0] in options.points))
        for found[curve.name] in run_curve(wanted, settings, budget, options.sides):
            results = list(found.values())
            if options.json:
                options.json.write_text(json.dumps({"memory_gib": options.memory, "curves": results}, indent=1) + "\n")
            if options.plot:
                draw(options.plot, results)


if __name__ == "__main__":
    main()
