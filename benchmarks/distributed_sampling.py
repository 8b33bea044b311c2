"""Sampled minibatches on two ranks: of one machine, and of two that exchange; beside one process on two threads.

Sides take turns, each in processes of its own that torchrun starts; figures are seeds a second, of all ranks together.
"machines": each rank is a machine of its own and has half of the parts, so that ids, neighbours and features of 128
numbers travel over loopback. DistDGL has two machines with half of the nodes each, too, a server and a trainer of one
thread on either, and samples what vgraph samples, where --dgl-python has DGL 1.1 and there may be namespaces.

usage: distributed_sampling.py [--nodes 200000] [--degree 20] [--batch 1000] [--rounds 3] [--only-machines]
                               [--dgl-python PYTHON] [--json FILE] [--smoke]
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
from distributing import dist_dgl

import vgraph
import vgraph.distributed as vd
from vgraph.sampling import DataLoader, NeighborSampler

FANOUTS = [15, 10, 5]
SIDES = {  # machines, ranks of each, threads of a rank
    "one process, two threads": (0, 1, 2),
    "two ranks of one machine": (1, 2, 1),
    "two machines": (2, 1, 1),
    "one process, two threads, features": (0, 1, 2),
    "two ranks of one machine, features": (1, 2, 1),
    "two machines, features": (2, 1, 1),
}
DGL = "DistDGL, two machines, features"


def draw(nodes: int, degree: int, folder: Path) -> vgraph.Graph:
    """A graph whose edges mostly stay near, so that parts of it are worth having."""
    random = torch.Generator().manual_seed(0)
    dst = torch.randint(0, nodes, (nodes * degree,), generator=random)
    far = torch.randint(0, nodes, (nodes * degree,), generator=random)
    near = (dst + torch.randint(-500, 501, dst.shape, generator=random)) % nodes
    src = torch.where(torch.rand(dst.shape, generator=random) < 0.9, near, far)
    g = vgraph.graph((src, dst), num_nodes=nodes)
    g.ndata["feat"] = torch.randn(nodes, 128, generator=random)
    vgraph.save_graphs(folder / "whole.bin", [g])
    vd.partition_graph(g, folder / "parts", num_parts=4, method="metis")
    return g


def measure(folder: Path, side: str, batch: int) -> None:
    """Two epochs over a fifth of the nodes, of which the second is timed; rank 0 prints seeds a second."""
    names = ["feat"] if side.endswith("features") else []
    sampler = NeighborSampler(FANOUTS, prefetch_node_feats=names)
    if SIDES[side][0]:
        vd.init(timeout=300)
        g = vd.DistGraph(folder / "parts")
        ids = g.own_ids()
        loader: Any = vd.DistDataLoader(g, ids[::5], sampler, batch_size=batch, shuffle=True, bulk=4)
        count = loader.count
    else:
        whole = vgraph.load_graphs(folder / "whole.bin")[0][0]
        ids = torch.arange(0, whole.num_nodes(), 5)
        loader, count = DataLoader(whole, ids, sampler, batch_size=batch, shuffle=True), len(ids)
    times: list[float] = []
    for _ in range(2):
        start = perf_counter()
        for _ in loader:
            pass
        times.append(perf_counter() - start)
    if not SIDES[side][0] or vd.rank() == 0:
        sent = loader.statistics["sent_bytes"] if SIDES[side][0] else 0
        print("RESULT", json.dumps({"rate": count / times[1], "sent_bytes": sent / 2}), flush=True)


def run_side(folder: Path, side: str, batch: int) -> dict[str, float]:
    machines, ranks, threads = SIDES[side]
    given = [__file__, "--measure", side, "--folder", str(folder), "--batch", str(batch)]
    env = os.environ | {"OMP_NUM_THREADS": str(threads)}
    if not machines:
        commands = [[sys.executable, *given]]
    else:
        with socket.socket() as found:
            found.bind(("127.0.0.1", 0))
            place = ["--master-addr", "127.0.0.1", "--master-port", str(found.getsockname()[1])]
        torchrun = [sys.executable, "-m", "torch.distributed.run", "--nnodes", str(machines), *place]
        commands = [
            [*torchrun, "--nproc-per-node", str(ranks), "--node-rank", str(machine), *given]
            for machine in range(machines)
        ]
    agents = [subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True) for command in commands]
    said = "".join(agent.communicate()[0] for agent in agents)
    if any(agent.returncode for agent in agents):
        raise SystemExit(f"{side} failed")
    return json.loads(said.partition("RESULT ")[2].splitlines()[0])


def compare(options: argparse.Namespace, sides: list[str]) -> dict[str, list[dict[str, float]]]:
    """What every side tells, round by round; DistDGL's turn comes after vgraph's of two machines."""
    reason = "a smoke run needs none" if options.smoke else dist_dgl.why_not(options.dgl_python)
    if reason is not None:
        print(f"without DistDGL: {reason}", flush=True)
    sides = sides if reason is not None else [*sides, DGL]
    found: dict[str, list[dict[str, float]]] = {side: [] for side in sides}
    with tempfile.TemporaryDirectory(prefix="vgraph-bench-") as name:
        folder = Path(name)
        g = draw(options.nodes, options.degree, folder)
        if reason is None:
            (src, dst), feat = g.edges(), g.ndata["feat"]
            arrays = {"src": src.numpy(), "dst": dst.numpy(), "feat": feat.numpy()}
            dist_dgl.prepare(options.dgl_python, folder, arrays)
        for _ in range(options.rounds):
            for side in sides:
                if side == DGL:
                    found[side].append(dist_dgl.run(options.dgl_python, folder, options.batch, FANOUTS))
                else:
                    found[side].append(run_side(folder, side, options.batch))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=200_000)
    parser.add_argument("--degree", type=int, default=20)
    parser.add_argument("--batch", type=int, default=1000, help="seeds of a batch, of all ranks together")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only-machines", action="store_true", help="features, on two machines alone")
    parser.add_argument("--dgl-python", default=sys.executable, help="a Python that has DGL 1.1")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--smoke", action="store_true")
    parser.add_argument("--measure", choices=SIDES, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        measure(options.folder, options.measure, options.batch)
        return
    if options.smoke:
        options.nodes, options.degree, options.rounds = 400, 5, 1
    sides = list(SIDES)[:2] if options.smoke else list(SIDES)[-1:] if options.only_machines else list(SIDES)
    found = compare(options, sides)
    rates = {side: statistics.median(run["rate"] for run in runs) for side, runs in found.items()}
    for side, runs in found.items():
        sent = statistics.median(run["sent_bytes"] for run in runs)
        travelled = "" if side == DGL else f"{sent / 2**20:8.1f} MiB sent an epoch by rank 0"
        print(f"{side:38s} {rates[side]:10.0f} seeds/s  {travelled}")
    if DGL in rates:
        print(f"two machines, features: {rates['two machines, features'] / rates[DGL]:.2f} times as many as DistDGL")
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
