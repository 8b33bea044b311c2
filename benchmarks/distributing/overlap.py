"""Steps that wait for others' rows, and steps that compute meanwhile, on two machines of one core and a slow link.

Takes: a graph's size, the link's rate. Gives: medians by model, of both kinds of steps in turns. Runs for
benchmarks/distributed.py, once more in namespaces of its own (``overlap.py FOLDER STEPS``), and there as two ranks
(``overlap.py FOLDER STEPS rank``). Exchanging takes about as long as computing where sizes are as they are by default.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

import torch
from torch import Tensor, nn

import vgraph
import vgraph.distributed as vd
from distributing import machines
from distributing.start import MARK, results, settings
from vgraph.nn import GATConv, GraphConv
from vgraph.runtime.distributed.ranks import current_ranks

RATE = "200mbit"
BYTES_A_SECOND = 200e6 / 8
WIDTH, CLASSES = 64, 16
KINDS = {"waiting": False, "overlapping": True}


class OnEdges(nn.Module):
    """Messages that are dear on edges: a product, two functions and a norm of both ends' rows."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, CLASSES)

    def forward(self, g: vgraph.Graph, x: Tensor) -> Tensor:
        with g.local_scope():
            g.ndata["h"] = self.first(x)
            g.update_all(_dear, vgraph.function.mean("m", "s"))
            return self.last(g.ndata["s"])


def _dear(edges: Any) -> dict[str, Tensor]:
    both = torch.tanh(edges.src["h"] + edges.dst["h"])
    return {"m": both * torch.sigmoid((both * edges.src["h"]).sum(-1, keepdim=True))}


class Two(nn.Module):
    """Two layers."""

    def __init__(self, first: nn.Module, second: nn.Module) -> None:
        super().__init__()
        self.first, self.second = first, second

    def forward(self, g: vgraph.Graph, x: Tensor) -> Tensor:
        return self.second(g, torch.relu(self.first(g, x).flatten(1))).flatten(1)


def models() -> dict[str, nn.Module]:
    def gat(given: int, made: int) -> nn.Module:
        return GATConv(given, made // 4, 4, allow_zero_in_degree=True)

    def gcn(given: int, made: int) -> nn.Module:
        return GraphConv(given, made, allow_zero_in_degree=True)

    return {
        "GCN": Two(gcn(WIDTH, WIDTH), gcn(WIDTH, CLASSES)),
        "GAT": Two(gat(WIDTH, WIDTH), gat(WIDTH, CLASSES)),
        "messages dear on edges": OnEdges(),
    }


def compare(nodes: int, edges: int, cut: int, steps: int) -> dict[str, Any]:
    """By model. ``cut``: how many edges join the two halves."""
    with tempfile.TemporaryDirectory(prefix="vgraph-bench-") as folder:
        vd.partition_graph(_halves(nodes, edges, cut), Path(folder) / "parts", 2, "metis")
        command = [*machines.OWN, sys.executable, __file__, f"{folder}/parts", str(steps)]
        done = subprocess.run(command, env=settings(), stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise SystemExit("overlap failed")
    return results(done.stdout)[0]


def _halves(nodes: int, edges: int, cut: int) -> vgraph.Graph:
    """Two random graphs; what joins them ends in a tenth of the nodes, so that the others read own rows alone."""
    draw, half = torch.Generator().manual_seed(0), nodes // 2
    side = torch.randint(0, 2, (edges,), generator=draw) * half
    src, dst = (side + torch.randint(0, half, (edges,), generator=draw) for _ in range(2))
    src[:cut] = (src[:cut] + half) % nodes
    dst[:cut] = side[:cut] + dst[:cut] % max(half // 10, 1)
    return vgraph.graph((src, dst), num_nodes=nodes)


def tell(found: dict[str, Any]) -> None:
    """A line a model."""
    for model, told in found.items():
        waiting, overlapping = (told[kind]["seconds"] for kind in KINDS)
        print(
            f"{model}, two machines of one core, {RATE}: {told['bytes'] / 2**20:.2f} MiB a step and rank "
            f"({1e3 * told['bytes'] / BYTES_A_SECOND:.0f} ms), {1e3 * waiting:.0f} ms waiting "
            f"({1e3 * told['waiting']['cpu']:.0f} of the processor), {1e3 * overlapping:.0f} ms overlapping "
            f"({1e3 * told['overlapping']['cpu']:.0f}): {overlapping / waiting:.2f} times",
            flush=True,
        )


# ---------------------------------------------------------------- inside
def machines_of_one_core(folder: str, steps: str) -> None:
    cores = sorted(os.sched_getaffinity(0))
    with machines.second_machine(RATE) as places:
        ranks: list[subprocess.Popen[bytes]] = []
        for rank, place in enumerate(places):
            told = {"RANK": rank, "LOCAL_RANK": 0, "GROUP_RANK": rank, "WORLD_SIZE": 2, "LOCAL_WORLD_SIZE": 1}
            told |= {"MASTER_ADDR": machines.ADDRESSES[0], "MASTER_PORT": 29513}
            told |= {"GLOO_SOCKET_IFNAME": machines.LINKS[rank]}
            env = settings() | {name: str(value) for name, value in told.items()}
            pinned = [*place, "taskset", "--cpu-list", str(cores[rank % len(cores)])]
            ranks.append(subprocess.Popen([*pinned, sys.executable, __file__, folder, steps, "rank"], env=env))
        ended = [rank.wait() for rank in ranks]
    if any(ended):
        raise SystemExit("a rank failed")


# ---------------------------------------------------------------- a rank
def measured(model: nn.Module, graphs: dict[str, vd.DistGraph], steps: int) -> dict[str, Any]:
    """Steps of both kinds in turns."""
    ranks, times = current_ranks(), {kind: list[tuple[float, float]]() for kind in KINDS}
    x = nn.Parameter(torch.randn(graphs["waiting"].num_own_nodes(), WIDTH))
    sent = 0
    for number in range(steps + 2):
        for kind, g in graphs.items():
            ranks.barrier("a step begins")
            before, start, cpu = ranks.sent_bytes, perf_counter(), process_time()
            vd.mean(model(g, x).square().sum(1)).backward()
            vd.all_reduce_gradients(model)
            if number >= 2:
                times[kind].append((perf_counter() - start, process_time() - cpu))
            sent = ranks.sent_bytes - before
    medians = {kind: [statistics.median(column) for column in zip(*runs, strict=True)] for kind, runs in times.items()}
    return {"bytes": sent} | {kind: {"seconds": a, "cpu": b} for kind, (a, b) in medians.items()}


def rank(folder: str, steps: int) -> None:
    torch.manual_seed(0)
    vd.init(timeout=300)
    graphs = {kind: vd.DistGraph(folder, overlap=overlap) for kind, overlap in KINDS.items()}
    found = {name: measured(model, graphs, steps) for name, model in models().items()}
    if vd.rank() == 0:
        print(MARK + json.dumps(found), flush=True)
    vd.barrier()


if __name__ == "__main__":
    if sys.argv[3:]:
        rank(sys.argv[1], int(sys.argv[2]))
    else:
        machines_of_one_core(*sys.argv[1:])
