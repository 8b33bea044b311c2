"""Message passing beside DGL, PyTorch Geometric, torch.sparse and torch by hand, all taking turns in one run.

Each side is a process of its own with the same graph, features and parameters; their first results must
agree. PyG runs by itself and under torch.compile, torch.sparse by itself, which transposes in every backward,
and with both directions built beforehand. A step is forward, backward and Adam (models), forward and backward
(functions) or forward alone (aggregation); figures are medians. Memory is by how much the resident part grew,
at its peak, beyond what stood before the first step. The floor is what bytes, gathered rows and arithmetic need at this
machine's rates (roofline.py). What is not installed is left out and says so; --peer-python names an
interpreter that has DGL and PyG, if this one has not (pip install 'vgraph[bench]').

usage: message_passing.py [--rows NAME ...] [--steps 5] [--threads N] [--peer-python PATH]
                          [--data FOLDER] [--scale X] [--json FILE] [--list] [--smoke]
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import first_call
import numpy as np
import torch
from roofline import Machine, measure, this_machine
from sides.alternate import NAMES, Found, Settings, alternate, machine_memory
from sides.floors import Floor
from sides.workloads import Workload, write_graph
from tqdm import tqdm

from vgraph.data import load_planetoid

ALL = ("vgraph", "dgl", "pyg", "pyg_messages_compiled", "sparse", "sparse_both", "torch")
ONE_WAY = tuple(side for side in ALL if side != "sparse_both")  # what has no derivative needs no transpose
FUNCTIONS = ("gated", "linear_message", "softmax_reduce", "std_reduce")


@dataclass(frozen=True)
class Row:
    """``aims``: how many times as fast as a side vgraph wants to be; ``memory_aims``: growth over a side's."""

    name: str
    workload: Workload
    sides: tuple[str, ...]
    aims: Mapping[str, float]
    memory_aims: Mapping[str, float] | None = None
    floor_aim: float | None = None
    rounds: int = 0
    steps: int | None = None
    memory: float = 0.0  # GiB that vgraph may take; the others may take nearly all there is


def rows() -> Iterator[Row]:
    """The whole table."""
    zipf = Workload("gcn", 100_000, 5_000_000, (128, 64, 16))
    yield Row("gcn", zipf, ALL, {"dgl": 1.2, "sparse": 15, "pyg": 50})
    for width in (16, 32, 64, 128, 256):
        work = replace(zipf, kind="aggregate", width=width)
        yield Row(f"aggregate-{width}", work, ONE_WAY, {"dgl": 1}, floor_aim=0.7)
    attention = ("vgraph", "dgl", "pyg", "pyg_messages_compiled", "torch")
    yield Row("gat", replace(zipf, kind="gat", heads=8), attention, {"dgl": 10, "pyg": 25}, {"dgl": 1 / 3})
    yield Row("gatv2", replace(zipf, kind="gatv2", heads=8), attention, {"pyg": 15})
    yield Row("dot-attention", replace(zipf, kind="dot", heads=8), attention, {"pyg": 15})
    smaller = Workload("", 50_000, 1_000_000, (), width=64)
    for kind in FUNCTIONS:
        work = replace(smaller, kind=kind)
        yield Row(f"udf-{kind}", work, attention, {"dgl": 200, "torch": 10}, steps=3)
    mlp = replace(smaller, kind="edge_mlp", options={"edge_width": 16})
    yield Row("edge-mlp", mlp, ("vgraph", "dgl", "torch"), {"torch": 3}, {"torch": 0.25})
    yield from untuned_rows()
    yield from large_rows()


def untuned_rows() -> Iterator[Row]:
    """Sizes and widths for which nothing was tuned: the lead must not hang on those of the rows above."""
    for nodes, edges in ((80_000, 3_000_000), (30_000, 1_500_000)):
        gcn = Workload("gcn", nodes, edges, (96, 48, 10))
        yield Row(f"gcn-{nodes}", gcn, ALL, {"dgl": 1.6})
        gat = replace(gcn, kind="gat", sizes=(96, 64, 10), heads=4)
        yield Row(f"gat-{nodes}", gat, ("vgraph", "dgl", "pyg"), {"dgl": 10})
    for kind in ("gated", "softmax_reduce"):
        work = Workload(kind, 30_000, 1_500_000, (), width=40)
        yield Row(f"udf-{kind}-30000", work, ("vgraph", "dgl", "torch"), {"torch": 15}, steps=3)


def large_rows() -> Iterator[Row]:
    """Graphs of Reddit's size, and a thinner one; each side alone in memory."""
    sizes = {"reddit": 114_615_892, "reddit-s": 23_213_838}
    for name, edges in sizes.items():
        gcn = Workload("gcn", 232_965, edges, (602, 16, 41), options={"ids": "int32"})
        aims = {"dgl": 1.0}
        yield Row(f"{name}-gcn", gcn, ("vgraph", "dgl"), aims, rounds=2, steps=5, memory=12)
        gat = replace(gcn, kind="gat", sizes=(602, 64, 41), heads=8)
        yield Row(f"{name}-gat", gat, ("vgraph", "dgl"), {}, rounds=1, steps=1, memory=12)


def cora_row(folder: Path | None) -> tuple[Row, dict[str, np.ndarray]]:
    """The citation graph where it is found, else one of its size, which is then called so."""
    found = None if folder is None else next(iter(folder.rglob("cora.npz")), None)
    if found is None:
        return Row("cora-size-gcn", Workload("gcn", 2708, 13264, (1433, 16, 7)), ALL, {"dgl": 1, "pyg": 1}), {}
    loaded = load_planetoid(found)
    src, dst = (end.numpy() for end in loaded.graph.edges())
    loops = np.arange(loaded.graph.num_nodes())
    columns = loaded.graph.ndata
    arrays = {
        "src": np.concatenate([src, loops]), "dst": np.concatenate([dst, loops]),
        "x": columns["feat"].numpy(), "y": columns["label"].numpy(),
    }  # fmt: skip
    sizes = (arrays["x"].shape[1], 16, loaded.num_classes)
    work = Workload("gcn", len(loops), len(arrays["src"]), sizes)
    return Row("cora-gcn", work, ALL, {"dgl": 1, "pyg": 1}, steps=50), arrays


def smaller(row: Row) -> Row:
    """So small that it only shows that it runs."""
    work = row.workload
    sizes = tuple(min(size, 16) for size in work.sizes[:-1]) + work.sizes[-1:]
    heads = min(work.heads, 2)
    tiny = replace(work, nodes=60, edges=400, sizes=sizes, heads=heads, width=min(work.width, 16))
    return replace(row, workload=tiny, steps=1, rounds=0, memory=0)


def scaled(row: Row, scale: float) -> Row:
    """A part of the graph, for a quick look; its name says so."""
    work = row.workload
    counts = {"nodes": max(10, int(work.nodes * scale)), "edges": max(10, int(work.edges * scale))}
    return replace(row, name=f"{row.name} at scale {scale:g}", workload=replace(work, **counts))


# ---------------------------------------------------------------- running and telling
def run_row(row: Row, arrays: Mapping[str, np.ndarray], settings: Settings, budget: float) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="vgraph-bench-") as name:
        folder = Path(name)
        work = replace(row.workload, folder=name)
        if arrays:
            for key, array in arrays.items():
                np.save(folder / f"{key}.npy", array)
        else:
            write_graph(work, folder)
        steps = row.steps if row.steps is not None and row.steps < settings.steps else settings.steps
        limits = {"memory": row.memory, "peer_memory": 0.9 * machine_memory() if row.memory else 0.0}
        own = replace(settings, steps=steps, rounds=row.rounds, **limits)
        floor = Floor(work, settings.threads, budget)
        found = alternate(work, row.sides, own, floor)
    return summary(row, found, floor.median)


def summary(row: Row, found: Mapping[str, Found], floor: float) -> dict[str, Any]:
    mine = found["vgraph"]
    result: dict[str, Any] = {
        "row": row.name, "nodes": row.workload.nodes, "edges": row.workload.edges,
        "sides": {side: one.as_json() for side, one in found.items()}, "floor": floor,
    }  # fmt: skip
    if mine.median is not None:
        result["of_floor"] = floor / mine.median
        medians = {side: one.median for side, one in found.items() if side != "vgraph" and one.median is not None}
        result["times_as_fast_as"] = {side: median / mine.median for side, median in medians.items()}
        result["aims"] = dict(row.aims)
        if row.memory_aims:
            theirs = {side: found[side].growth for side in row.memory_aims if side in found and found[side].growth}
            result["memory_over"] = {side: mine.growth / growth for side, growth in theirs.items()}
            result["memory_aims"] = dict(row.memory_aims)
        if row.floor_aim:
            result["floor_aim"] = row.floor_aim
    return result


def tell(result: Mapping[str, Any]) -> None:
    """One row of the table, as lines."""
    print(f"\n{result['row']}: {result['nodes']:,} vertices, {result['edges']:,} edges")
    for side, one in result["sides"].items():
        if "problem" in one:
            print(f"  {NAMES[side]:18s} {one['problem']}")
            continue
        ratio = result.get("times_as_fast_as", {}).get(side)
        shown = f"{1000 * one['median']:10.2f} ms  {one['growth_gib']:7.3f} GiB"
        if ratio is not None:
            aim = result["aims"].get(side)
            shown += f"  vgraph {ratio:7.2f} times as fast" + (f" (aim {aim:g})" if aim else "")
        elif "of_floor" in result:
            shown += f"  {100 * result['of_floor']:.0f} % of the floor"
            shown += f" (aim {100 * result['floor_aim']:.0f} %)" if "floor_aim" in result else ""
        print(f"  {NAMES[side]:18s} {shown}")
    for side, share in result.get("memory_over", {}).items():
        print(f"  memory: {share:.2f} of {NAMES[side]}'s growth (aim {result['memory_aims'][side]:.2f})")


def chosen(patterns: Sequence[str], data: Path | None) -> list[tuple[Row, dict[str, np.ndarray]]]:
    cora, arrays = cora_row(data)
    everything: list[tuple[Row, dict[str, np.ndarray]]] = [*((row, {}) for row in rows()), (cora, arrays)]
    found = [one for one in everything if not patterns or any(fnmatch.fnmatch(one[0].name, p) for p in patterns)]
    if not found and "first-call" not in patterns:
        names = ", ".join(row.name for row, _ in everything)
        raise SystemExit(f"no row is called {' '.join(patterns)}; there are {names}, first-call")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", nargs="*", default=[], help="names or patterns, as --list prints them")
    parser.add_argument("--sides", nargs="*", choices=ALL, help="only these, and vgraph")
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--limit", type=float, default=120.0, help="seconds, then a slow side is not asked again")
    parser.add_argument("--peer-python", default=sys.executable, help="an interpreter that has DGL and PyG")
    parser.add_argument("--scale", type=float, default=1.0, help="part of the vertices and edges of drawn graphs")
    parser.add_argument("--data", type=Path, help="folder with cora.npz; else a graph of its size is drawn")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--smoke", action="store_true")
    options = parser.parse_args()
    todo = chosen(options.rows or (["gat"] if options.smoke else []), options.data)
    if options.list:
        print("\n".join([*(row.name for row, _ in todo), "first-call"]))
        return
    if options.scale != 1:
        todo = [(row if arrays else scaled(row, options.scale), arrays) for row, arrays in todo]
    if options.smoke:
        todo, options.sides = [(smaller(row), {}) for row, _ in todo], ["vgraph", "torch"]
    settings = Settings(options.threads, options.steps, limit=options.limit, peer_python=options.peer_python)
    budget = 0.01 if options.smoke else 0.1
    machine, results = measure(options.threads, 3 * budget), []
    for row, arrays in tqdm(todo, disable=None):
        sides = tuple(side for side in row.sides if not options.sides or side in ("vgraph", *options.sides))
        results.append(run_row(replace(row, sides=sides), arrays, settings, budget))
        tell(results[-1])
        write(options.json, settings, machine, results)
    if "first-call" in options.rows or not (options.rows or options.smoke):
        results.append(first_call.measure_and_tell())
        write(options.json, settings, machine, results)


def write(path: Path | None, settings: Settings, machine: Machine, results: list[dict[str, Any]]) -> None:
    """After every row: what was measured is kept if a later row cannot be."""
    if path is not None:
        rates = {"copy": machine.copy, "gemm": machine.gemm, "threads": settings.threads}
        path.write_text(json.dumps({"machine": this_machine() | rates, "rows": results}, indent=1) + "\n")


if __name__ == "__main__":
    main()
