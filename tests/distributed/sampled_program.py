"""What one process of a sampled test does: makes minibatches, trains, resumes; writes what it found into a folder.

Started by torchrun: ``python -m tests.distributed.sampled_program FOLDER WHAT...``.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.nn.parallel import DistributedDataParallel as DDP

import vgraph
import vgraph.distributed as vd
from tests.distributed.sampled_edges import edges_of, outputs_of, rows_of
from tests.distributed.sampled_graphs import SAMPLERS, seeds_for
from vgraph.errors import WorkerError
from vgraph.nn import SAGEConv
from vgraph.sampling import NeighborSampler


class GraphSAGE(nn.Module):
    def __init__(self, sizes: list[int]) -> None:
        super().__init__()
        self.layers = nn.ModuleList([SAGEConv(a, b, "mean") for a, b in pairwise(sizes)])

    def forward(self, blocks: list[vgraph.Graph], h: Tensor) -> Tensor:
        for i, (layer, block) in enumerate(zip(self.layers, blocks, strict=True)):
            h = layer(block, F.relu(h) if i else h)
        return h


def place_of(name: str) -> str:
    return "heterogeneous" if name == "by type" else "homogeneous"


def sampled(folder: Path, name: str) -> None:
    """Two epochs of minibatches, by original ids."""
    g = vd.DistGraph(folder / place_of(name))
    seeds = seeds_for(name)
    if isinstance(seeds, dict):
        ids: Any = {kind: g.new_ids(some, kind) for kind, some in seeds.items()}
    else:
        ids = vd.node_split(g.new_ids(seeds), g)
    loader = vd.DistDataLoader(
        g,
        ids,
        SAMPLERS[name](),
        batch_size=13,
        shuffle=True,
        seed=4,
        bulk=3,
        cache_bytes=500 if name == "uniform" else 0,
    )
    orig = {t: torch.argsort(g.whole.stored.new_ids(t)) for t in g.ntypes}
    edge_ids = {
        e: torch.cat([g.whole.stored.part(p).eid(e).long() for p in range(g.whole.stored.num_parts)])
        for e in g.canonical_etypes
    }

    def node(kind: str, some: Tensor) -> Tensor:
        return orig[kind][some]

    def edge(kind: Any, some: Tensor) -> Tensor:
        return edge_ids[kind][some]

    found = [
        [(outputs_of(made, node), edges_of(made, node, edge), rows_of(made, node, edge)) for made in loader]
        for _ in range(2)
    ]
    put(folder, name, (found, [[loader.key_of(e, s) for s in range(len(loader))] for e in range(2)], loader.statistics))


def put(folder: Path, name: str, what: Any) -> None:
    torch.save(what, folder / f"{name}-{vd.num_ranks()}-{vd.rank()}.pt")


def training(folder: Path, **options: Any) -> tuple[vd.DistDataLoader, nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(3)
    g = vd.DistGraph(folder / "homogeneous")
    sampler = NeighborSampler([4, 3], prefetch_node_feats=["feat"], prefetch_labels=["label"])
    loader = vd.DistDataLoader(g, g.ndata["train"], sampler, batch_size=9, shuffle=True, seed=1, bulk=2, **options)
    # buckets that are never rebuilt: rebuilt ones would add up in another order from the second step on
    model = DDP(GraphSAGE([6, 8, 3]).double(), find_unused_parameters=True)
    return loader, model, torch.optim.Adam(model.parameters(), lr=0.02)


def step(model: nn.Module, optimizer: torch.optim.Optimizer, blocks: list[vgraph.Graph]) -> float:
    out = blocks[-1].dstdata
    rows = F.cross_entropy(model(blocks, blocks[0].srcdata["feat"]), out["label"], reduction="none")
    loss = vd.mean(rows, out["_WEIGHT"])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()


def train(folder: Path, name: str, resume: str, stop: int) -> None:
    """Steps of training up to number ``stop``, from a checkpoint if there is one to resume; a checkpoint at step 4."""
    loader, model, optimizer = training(folder)
    losses: list[float] = []
    if resume != "-":
        weights, state = get_state_dict(model, optimizer)
        whole = {"model": weights, "optimizer": state, "loader": loader}
        dcp.load(whole, checkpoint_id=folder / resume)
        set_state_dict(model, optimizer, model_state_dict=weights, optim_state_dict=state)
    begun = loader.epoch * len(loader) + loader.steps
    while begun + len(losses) < stop:
        for _, _, blocks in loader:
            losses.append(step(model, optimizer, blocks))
            if begun + len(losses) == 4:
                weights, state = get_state_dict(model, optimizer)
                whole = {"model": weights, "optimizer": state, "loader": loader}
                dcp.save(whole, checkpoint_id=folder / f"{name}-4")
            if begun + len(losses) == stop:
                break
    put(folder, name, (losses, [p.detach().clone() for p in model.parameters()]))


def killed(folder: Path) -> None:
    """The last rank ends at the third step; others say how they learned of it, and when."""
    loader, model, optimizer = training(folder)
    start, steps = time.monotonic(), 0
    try:
        while True:
            for _, _, blocks in loader:
                with vd.lost_workers():  # also within DistributedDataParallel
                    step(model, optimizer, blocks)
                steps += 1
                if steps == 3 and vd.rank() == vd.num_ranks() - 1:
                    os.kill(os.getpid(), signal.SIGKILL)
                start = time.monotonic()
    except WorkerError as error:
        (folder / f"lost-{vd.rank()}").write_text(f"{type(error).__name__}|{time.monotonic() - start}|{error}")
        raise


def out_of_step(folder: Path) -> None:
    """Rank 0 leaves an epoch two steps later than others."""
    loader, _, _ = training(folder, prefetch=0)
    for number, _ in enumerate(loader):
        if number == (2 if vd.rank() else 4):
            break
    try:
        list(loader)
    except WorkerError as error:
        (folder / f"step-{vd.rank()}").write_text(str(error))
        raise


def main() -> None:
    folder, what, *rest = sys.argv[1:]
    vd.init(timeout=20)
    if what == "blocks":
        for name in SAMPLERS:
            sampled(Path(folder), name)
    elif what == "train":
        train(Path(folder), rest[0], rest[1], int(rest[2]))
    elif what == "killed":
        killed(Path(folder))
    else:
        out_of_step(Path(folder))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
