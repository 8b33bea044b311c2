"""Graphs on several processes: partitioning out of core, cuts of every method, full-graph steps beside one process.

Rows: a community graph (three edges of four within a community, ids in no order) of --edges edges is written as two
.npy files and partitioned by LDG within --memory GiB, in a process of its own that is watched; cuts of LDG, Fennel,
METIS and hashing on a smaller one, ids in no order and in the order of communities; steps of a GCN on one of
--step-edges edges in one process and on ranks, sides in turns: time, bytes beside the cost model's, anonymous memory;
memory of a GAT on four hashed parts, with all rows of others and window by window; steps that wait for others' rows and
steps that compute meanwhile, on two machines (network namespaces) of one core each and a link of 200 Mbit/s.
Sampled minibatches are measured by distributed_sampling.py.

usage: distributed.py [--rows out-of-core cut full-graph windows overlap] [--rounds 3] [--steps 5]
                      [--step-edges 4000000] [--within 0.75] [--nodes 10000000] [--edges 200000000] [--parts 64]
                      [--memory 1] [--folder FOLDER] [--json FILE] [--smoke]
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from distributing import full_graph, machines, overlap, windows
from distributing.memory import anonymous_bytes
from tqdm import tqdm

import vgraph
import vgraph.distributed as vd
from vgraph.distributed.partition.streaming import PASSES

COMMUNITIES, INSIDE = 100, 0.75
CUT_NODES, CUT_EDGES, CUT_PARTS = 50_000, 1_000_000, (4, 16, 64)
AT_ONCE = 1 << 22
WINDOW_SIZES = (100_000, 1_000_000)
OVERLAP_SIZES = (100_000, 2_000_000, 15_000)
ROWS = ("out-of-core", "cut", "full-graph", "windows", "overlap")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", nargs="*", choices=ROWS, default=ROWS)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--step-edges", type=int, default=4_000_000)
    parser.add_argument("--within", type=float, default=INSIDE, help="edges of --rows full-graph within communities")
    parser.add_argument("--nodes", type=int, default=10_000_000)
    parser.add_argument("--edges", type=int, default=200_000_000)
    parser.add_argument("--parts", type=int, default=64)
    parser.add_argument("--memory", type=float, default=1.0, help="GiB")
    parser.add_argument("--folder", type=Path, help="where files are made; twice what the edges take is needed")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--smoke", action="store_true")
    parser.add_argument("--inside", nargs=2, metavar=("SOURCE", "PATH"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.inside:
        print(json.dumps(partition(*options.inside, options.parts, options.memory)))
        return
    nodes, edges, num_parts, sides = CUT_NODES, CUT_EDGES, CUT_PARTS, list(full_graph.SIDES)
    if options.smoke:
        options.rounds, options.steps, options.step_edges, sides = 1, 1, 4000, sides[:2]
        options.nodes, options.edges, options.parts = 1000, 20_000, 4
        nodes, edges, num_parts = 500, 5000, (4,)
    found: dict[str, Any] = {}
    if "out-of-core" in options.rows:
        with tempfile.TemporaryDirectory(prefix="vgraph-bench-", dir=options.folder) as folder:
            found["out-of-core"] = watched(options, Path(folder))
        tell_out_of_core(found["out-of-core"])
    if "cut" in options.rows:
        found["cut"] = [one for parts in num_parts for one in cuts(nodes, edges, parts)]
    if "full-graph" in options.rows:
        drawn = (np.random.default_rng(2), options.step_edges // 20, options.step_edges, True, options.within)
        ends = draw_ends(*drawn)
        g = vgraph.graph(tuple(map(torch.from_numpy, ends)), num_nodes=options.step_edges // 20)
        found["full-graph"] = full_graph.compare(g, options.steps, options.rounds, sides)
        full_graph.tell(found["full-graph"])
    if "windows" in options.rows:
        sizes, ranks = ((400, 4000), 0) if options.smoke else (WINDOW_SIZES, windows.RANKS)
        found["windows"] = windows.compare(*sizes, options.steps, options.rounds, ranks)
        windows.tell(found["windows"])
    if "overlap" in options.rows:
        reason = "a smoke run needs none" if options.smoke else machines.why_not()
        if reason is not None:
            print(f"without two machines and a link between them: {reason}", flush=True)
        else:
            found["overlap"] = overlap.compare(*OVERLAP_SIZES, options.rounds * options.steps)
            overlap.tell(found["overlap"])
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n")


# ---------------------------------------------------------------- a graph with communities
def draw_ends(
    draw: np.random.Generator, nodes: int, count: int, is_mixed: bool, inside: float = INSIDE
) -> tuple[Any, Any]:
    """Sources and destinations; mixed ids are a permutation without a table. ``inside``: edges within communities."""
    size = -(-nodes // COMMUNITIES)
    src, far = draw.integers(0, nodes, count), draw.integers(0, nodes, count)
    near = np.minimum(src // size * size + draw.integers(0, size, count), nodes - 1)
    dst = np.where(draw.random(count) < inside, near, far)
    if not is_mixed:
        return src, dst
    factor = int(nodes * 0.6180339887)
    while np.gcd(factor, nodes) > 1:
        factor += 1
    return src * factor % nodes, dst * factor % nodes


def write_edges(folder: Path, nodes: int, edges: int) -> int:
    """src.npy and dst.npy; how many bytes they have."""
    folder.mkdir()
    draw = np.random.default_rng(0)
    arrays = [np.lib.format.open_memmap(folder / f"{name}.npy", "w+", np.int32, (edges,)) for name in ("src", "dst")]
    for first in tqdm(range(0, edges, AT_ONCE), desc="drawing edges", disable=None, leave=False):
        last = min(edges, first + AT_ONCE)
        for array, ends in zip(arrays, draw_ends(draw, nodes, last - first, True), strict=True):
            array[first:last] = ends
    for array in arrays:
        array.flush()
    return sum(array.nbytes for array in arrays)


# ---------------------------------------------------------------- out of core
def partition(source: str, path: str, parts: int, memory: float) -> dict[str, Any]:
    """Seconds of every stage, by the clock and of the processor."""
    stages: dict[str, list[tuple[float, float]]] = {}
    last = (time.perf_counter(), time.process_time())
    start = last

    def progress(what: str, done: int, total: int) -> None:
        nonlocal last
        if what not in stages:
            stages[what] = [last, last]
        last = (time.perf_counter(), time.process_time())
        stages[what][1] = last

    summary = vd.partition_files(source, path, parts, "ldg", memory=memory, progress=progress)
    return {
        "seconds": time.perf_counter() - start[0],
        "cpu_seconds": time.process_time() - start[1],
        "stages": {what: [b - a for a, b in zip(*ends, strict=True)] for what, ends in stages.items()},
        "cut": summary.cut,
        "halo_rows": summary.halo_rows,
    }


def watched(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Partitions in another process; its most anonymous memory, and the most that lay on the disk."""
    source, path = folder / "edges", folder / "parts"
    num_bytes = write_edges(source, options.nodes, options.edges)
    path.mkdir()
    command = [sys.executable, __file__, "--inside", str(source), str(path / "g.vg")]
    command += ["--parts", str(options.parts), "--memory", str(options.memory)]
    anonymous = disk = 0
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            while process.poll() is None:
                anonymous = max(anonymous, anonymous_bytes(process.pid))
                disk = max(disk, bytes_below(path))
                time.sleep(0.2)
            inside = process.stdout.read()
        finally:
            process.kill()
    if process.returncode:
        raise SystemExit(process.returncode)
    return {
        "nodes": options.nodes,
        "edges": options.edges,
        "parts": options.parts,
        "memory": options.memory,
        "anonymous_bytes": anonymous,
        "disk_over_input": (disk + num_bytes) / num_bytes,
        **json.loads(inside),
    }


def bytes_below(folder: Path) -> int:
    """Bytes that lie on the disk below a folder which another process writes.

    Files and folders that go away meanwhile count nothing (``Path.rglob`` raises for such a folder).
    """
    total = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                total += 512 * os.stat(os.path.join(parent, name)).st_blocks
    return total


def tell_out_of_core(found: dict[str, Any]) -> None:
    edges = found["edges"]
    by_clock, of_processor = (PASSES * edges / max(s, 1e-9) / 1e6 for s in found["stages"]["pass over the lists"])
    print(
        f"{edges / 1e6:.4g} M edges, {found['nodes'] / 1e6:.4g} M nodes, {found['parts']} parts by LDG within "
        f"{found['memory']:g} GiB: {found['seconds']:.1f} s ({found['cpu_seconds']:.1f} s of the processor), "
        f"{found['anonymous_bytes'] / 2**30:.2f} GiB anonymous, disk {found['disk_over_input']:.2f} times the input, "
        f"{by_clock:.1f} M edges/s a pass ({of_processor:.1f} by the processor's clock), {found['cut'] / edges:.1%} cut"
    )
    for stage, (seconds, of_cpu) in found["stages"].items():
        print(f"    {stage:22s} {seconds:8.1f} s {of_cpu:8.1f} s of the processor", flush=True)


# ---------------------------------------------------------------- cuts
def cuts(nodes: int, edges: int, parts: int) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for is_mixed in (True, False):
        src, dst = draw_ends(np.random.default_rng(1), nodes, edges, is_mixed)
        g = vgraph.graph((torch.from_numpy(src), torch.from_numpy(dst)), num_nodes=nodes)
        found: dict[str, float] = {}
        for method in ("hash", "metis", "ldg", "fennel"):
            with tempfile.TemporaryDirectory(prefix="vgraph-bench-") as folder:
                found[method] = vd.partition_graph(g, folder, parts, method).cut / edges
        order = "mixed ids" if is_mixed else "ids in order of communities"
        shown = ", ".join(f"{method} {share:.3f}" for method, share in found.items())
        beside = f"LDG {found['ldg'] / found['hash']:.2f} times hash, {found['ldg'] / found['metis']:.2f} times METIS"
        print(f"cut into {parts} parts, {order}: {shown}; {beside}", flush=True)
        rows.append({"nodes": nodes, "edges": edges, "parts": parts, "mixed": is_mixed, "cut": found})
    return rows


if __name__ == "__main__":
    main()
