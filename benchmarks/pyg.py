"""PyG's layers, and a user's, on vgraph's kernels beside PyG as it is and PyG under torch.compile.

Each side is a process of its own with the same graph, features and parameters; results and gradients must agree. A
step is forward and backward by a layer's input and parameters, self-loops and normalization included, or, on the
graph of Cora and batches of 128 molecules, forward, backward and Adam of a model; figures are medians. Memory is by
how much the resident part grew, at its peak, beyond what stood before the first step. On large graphs sides live one
after another, in rounds, for PyG takes nearly all memory there is. What fails or is not installed says so.

With --programs, PyG's own example programs run as they are, each side a process (sides/programs.py): seconds an epoch,
and how far apart the numbers of the last one are. PyG's sources have the folder, examples/.

usage: pyg.py [--programs FOLDER [--epochs 20]] [--rows NAME ...] [--sides NAME ...] [--steps 3] [--rounds 2]
              [--limit 180] [--patience SECONDS] [--threads N] [--scale X] [--data FOLDER] [--json FILE]
              [--list] [--smoke]

Rows and sides that FILE has from an earlier run, and that are not run now, stay in it.
"""

from __future__ import annotations

import argparse
import fnmatch
import importlib.util
import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from roofline import this_machine
from sides.alternate import Found, Settings, alternate, machine_memory
from sides.programs import PROGRAMS, Conditions, Run, difference, run_in_turns
from sides.workloads import Workload, write_graph

from vgraph.data import load_planetoid

SIDES = {"pyg_accelerated": "accelerated", "pyg_eager": "PyG", "pyg_compiled": "torch.compile"}
LAYERS = (
    "GCNConv", "SAGEConv mean", "SAGEConv max", "GATConv", "GATv2Conv", "TransformerConv", "GINEConv", "PNAConv",
    "RGCNConv", "EdgeConv", "NNConv", "CGConv",
)  # fmt: skip
BY_HAND = ("gated by hand", "attention by hand", "distance by hand")
LARGE = Workload("pyg", 100_000, 5_000_000, (64, 64), width=64)
MEMORY_AIM = 0.2  # of PyG's growth


@dataclass(frozen=True)
class Row:
    """``aims``: how many times as fast as a side it is to be; ``arrays``: the graph, where it is not drawn."""

    workload: Workload
    aims: Mapping[str, float]
    is_large: bool = False
    arrays: Mapping[str, np.ndarray] | None = None

    @property
    def name(self) -> str:
        return self.workload.options["layer"]


def rows(data: Path | None) -> Iterator[Row]:
    """The whole table."""
    for name in (*LAYERS, *BY_HAND):
        work = replace(LARGE, options={"layer": name, "edge_width": 8})
        aims = {"pyg_eager": 10.0 if name in BY_HAND else 20.0, "pyg_compiled": 10.0}
        yield Row(work, aims, is_large=True)
    arrays = cora(data)
    sizes = (arrays["x"].shape[1] if arrays else 1433, 16, 7)
    for name in ("GCN", "GAT"):
        work = Workload("pyg", 2708, 10556, sizes, options={"layer": name})
        yield Row(work, {"pyg_eager": 1.0}, arrays=arrays)
    options = {"layer": "molecules", "edge_width": 8}
    yield Row(Workload("pyg", 128 * 25, 128 * 54, (64, 2), law="even", options=options), {"pyg_eager": 1.0})


def cora(folder: Path | None) -> dict[str, np.ndarray] | None:
    """The citation graph where it is found; None: one of its size is drawn."""
    found = None if folder is None else next(iter(folder.rglob("cora.npz")), None)
    if found is None:
        return None
    graph = load_planetoid(found).graph
    src, dst = graph.edges()
    arrays = {"src": src, "dst": dst, "x": graph.ndata["feat"], "y": graph.ndata["label"]}
    return {name: tensor.numpy() for name, tensor in arrays.items()}


def scaled(row: Row, scale: float) -> Row:
    """A part of a large graph, for a quick look."""
    work = row.workload
    counts = {"nodes": max(10, int(work.nodes * scale)), "edges": max(10, int(work.edges * scale))}
    return replace(row, workload=replace(work, **counts)) if row.is_large else row


def smaller(row: Row) -> Row:
    """So small that it only shows that it runs."""
    work = row.workload
    tiny = replace(work, nodes=50, edges=200, sizes=(8, 8, *work.sizes[-1:]), width=8)
    return replace(row, workload=tiny, is_large=False, arrays=None)


# ---------------------------------------------------------------- running and telling
def run_row(row: Row, sides: Sequence[str], settings: Settings) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="vgraph-bench-") as name:
        work = replace(row.workload, folder=name)
        if row.arrays is None:
            write_graph(work, Path(name))
        for key, array in (row.arrays or {}).items():
            np.save(f"{name}/{key}.npy", array)
        memory = 0.9 * machine_memory() if row.is_large else 0.0
        own = replace(settings, peer_memory=memory, rounds=settings.rounds if row.is_large else 0)
        found = alternate(work, sides, own)
    return summary(row, found)


def summary(row: Row, found: Mapping[str, Found]) -> dict[str, Any]:
    work = row.workload
    result: dict[str, Any] = {"row": row.name, "nodes": work.nodes, "edges": work.edges, "width": work.width}
    result["sides"] = {SIDES[side]: one.as_json() for side, one in found.items()}
    mine = found["pyg_accelerated"]
    others = {side: one for side, one in found.items() if one is not mine and one.median is not None}
    if mine.median is not None:
        result["times_as_fast_as"] = {SIDES[side]: (one.median or 0) / mine.median for side, one in others.items()}
        result["memory_over"] = {SIDES[side]: mine.growth / one.growth for side, one in others.items() if one.growth}
        result["aims"] = {SIDES[side]: aim for side, aim in row.aims.items()}
    return result


def write(path: Path, results: Sequence[Mapping[str, Any]], threads: int) -> None:
    """All that was measured now, in the place of what the file has of the same rows and sides."""
    known: dict[str, Any] = json.loads(path.read_text()) if path.is_file() else {"machine": {}, "rows": []}
    all_rows = {name_of(row): row for row in known["rows"]}
    for result in results:
        before = all_rows.get(name_of(result), {})
        parts = {key: {**before.get(key, {}), **part} for key, part in result.items() if isinstance(part, dict)}
        all_rows[name_of(result)] = {**before, **result, **parts}
    machine = known["machine"] | this_machine() | {"threads": threads, "memory_gib": machine_memory()}
    path.write_text(json.dumps({"machine": machine, "rows": list(all_rows.values())}, indent=1) + "\n")


def name_of(result: Mapping[str, Any]) -> str:
    return result.get("row") or result["program"]


def tell(result: Mapping[str, Any]) -> None:
    """One row of the table, as lines."""
    print(f"\n{result['row']}: {result['nodes']:,} vertices, {result['edges']:,} edges")
    for side, one in result["sides"].items():
        if "problem" in one:
            print(f"  {side:14s} {one['problem']}")
            continue
        shown = f"{1000 * one['median']:10.2f} ms  {one['growth_gib']:7.3f} GiB"
        if side in result.get("times_as_fast_as", {}):
            aim = result["aims"].get(side)
            shown += f"  accelerated {result['times_as_fast_as'][side]:6.2f} times as fast"
            shown += f" (aim {aim:g})" if aim else ""
        if side in result.get("memory_over", {}):
            shown += f", {result['memory_over'][side]:.2f} of the memory (aim {MEMORY_AIM:g})"
        print(f"  {side:14s} {shown}", flush=True)


# ---------------------------------------------------------------- PyG's example programs
def program_rows(names: Sequence[str], sides: Sequence[str], conditions: Conditions) -> Iterator[dict[str, Any]]:
    """Programs of the folder one after the other; those that are not in it are left out."""
    for name in names:
        if not (conditions.folder / f"{name}.py").is_file():
            print(f"\n{name}.py is not in {conditions.folder}")
            continue
        found = run_in_turns(name, sides, conditions)
        yield program_summary(name, found)


def program_summary(name: str, found: Mapping[str, Run]) -> dict[str, Any]:
    result: dict[str, Any] = {"program": name, "sides": {SIDES[side]: run.as_json() for side, run in found.items()}}
    mine = found["pyg_accelerated"]
    others = {side: run for side, run in found.items() if run is not mine and run.median is not None}
    if mine.median is not None:
        result["times_as_fast_as"] = {SIDES[side]: (run.median or 0) / mine.median for side, run in others.items()}
        most = PROGRAMS[name]
        result["apart"] = {SIDES[side]: difference(mine, run) for side, run in others.items()}
        result["equal"] = None if most is None else all(apart <= most for apart in result["apart"].values())
    return result


def tell_program(result: Mapping[str, Any]) -> None:
    says = {True: "the same numbers", False: "OTHER NUMBERS", None: "random numbers drawn in another order"}
    print(f"\n{result['program']}.py: {says[result.get('equal')]}")
    for side, one in result["sides"].items():
        shown = one.get("problem") or f"{1000 * one['median']:10.2f} ms an epoch"
        if side in result.get("times_as_fast_as", {}):
            shown += f"  accelerated {result['times_as_fast_as'][side]:6.2f} times as fast"
            shown += f", {result['apart'][side]:.4f} apart"
        print(f"  {side:14s} {shown}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", nargs="*", default=[], help="names or patterns, as --list prints them")
    parser.add_argument("--sides", nargs="*", choices=[*SIDES], help="only these, and pyg_accelerated")
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=2, help="how often each side lives, on large graphs")
    parser.add_argument("--limit", type=float, default=180.0, help="seconds, then a slow side is not asked again")
    parser.add_argument("--patience", type=float, help="seconds in which a side builds or steps, compilation included")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--scale", type=float, default=1.0, help="part of the vertices and edges of large graphs")
    parser.add_argument("--data", type=Path, help="folder with cora.npz; else a graph of its size is drawn")
    parser.add_argument("--programs", type=Path, help="PyG's examples/: run these programs instead of layers")
    parser.add_argument("--epochs", type=int, default=20, help="of a program")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--smoke", action="store_true")
    options = parser.parse_args()
    wanted = options.rows or (["GCNConv"] if options.smoke else ["*"])
    todo = [row for row in rows(options.data) if any(fnmatch.fnmatch(row.name, one) for one in wanted)]
    if options.list or not (todo or options.programs):
        print("\n".join(row.name for row in (todo or rows(None))))
        raise SystemExit(None if todo else f"no row is called {' '.join(wanted)}")
    if importlib.util.find_spec("torch_geometric") is None:
        print("torch_geometric is not installed (pip install 'vgraph[bench]')")
        return
    sides = [side for side in SIDES if not options.sides or side in ("pyg_accelerated", *options.sides)]
    limits = {"limit": options.limit, "patience": options.patience}
    settings = Settings(options.threads, options.steps, rounds=options.rounds, **limits)
    if options.smoke:
        todo, sides = [smaller(row) for row in todo], ["pyg_accelerated", "pyg_eager"]
        settings = replace(settings, steps=1)
    results: list[dict[str, Any]] = []
    if options.programs:
        given = (options.programs, options.data, options.epochs, options.rounds, options.threads, options.limit)
        names = [name for name in PROGRAMS if any(fnmatch.fnmatch(name, one) for one in options.rows or ["*"])]
        made = ((row, tell_program) for row in program_rows(names, sides, Conditions(*given)))
    else:
        made = ((run_row(scaled(row, options.scale), sides, settings), tell) for row in todo)
    for result, say in made:
        results.append(result)
        say(result)
        if options.json:  # after every row: what was measured is kept if a later row cannot be
            write(options.json, results, options.threads)


if __name__ == "__main__":
    main()
