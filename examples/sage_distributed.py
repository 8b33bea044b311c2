"""GraphSAGE on several processes: sampled minibatches of a graph in parts, then the whole graph to evaluate.

    torchrun --nproc-per-node 2 examples/sage_distributed.py tolokers.npz      who of a crowd was banned
    torchrun --nproc-per-node 2 examples/sage_distributed.py --nodes 50000     a synthetic graph of communities
    python examples/sage_distributed.py --smoke                                a tiny one, one process

On two machines torchrun is started on each, with ``--nnodes 2 --node-rank ... --master-addr ...``; both
need the folder of parts (--folder). Losses do not depend on the number of processes. Every epoch ends with a
checkpoint, from which a job goes on that is started again, on any number of processes.
Source: Hamilton et al. 2017, algorithm 2.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel
from tqdm import tqdm

import vgraph
import vgraph.distributed as vd
from vgraph.data import load_heterophilous
from vgraph.nn import SAGEConv
from vgraph.sampling import NeighborSampler


class GraphSAGE(nn.Module):
    """Layers of means of neighbours, on blocks or on the whole graph."""

    def __init__(self, sizes: list[int], dropout: float) -> None:
        super().__init__()
        self.layers = nn.ModuleList([SAGEConv(a, b, "mean") for a, b in pairwise(sizes)])
        self.dropout = nn.Dropout(dropout)

    def forward(self, graphs: list[vgraph.Graph], h: Tensor) -> Tensor:
        for i, (layer, graph) in enumerate(zip(self.layers, graphs, strict=True)):
            h = layer(graph, self.dropout(F.relu(h)) if i else h)
        return h


def communities(nodes: int) -> vgraph.Graph:
    """Ten groups; three edges of four stay within one; features are noise around a centre of the group."""
    draw = torch.Generator().manual_seed(0)
    label = torch.arange(nodes) * 10 // nodes
    dst = torch.randint(0, nodes, (nodes * 10,), generator=draw)
    near = (label[dst] * nodes + torch.randint(0, nodes, (nodes * 10,), generator=draw)) // 10
    is_near = torch.rand(nodes * 10, generator=draw) < 0.75
    src = torch.where(is_near, near, torch.randint(0, nodes, (nodes * 10,), generator=draw))
    g = vgraph.graph((src, dst), num_nodes=nodes)
    g.ndata["feat"] = torch.randn(nodes, 32, generator=draw) + torch.randn(10, 32, generator=draw)[label]
    lot = torch.rand(nodes, generator=draw)
    g.ndata["label"], g.ndata["train_mask"], g.ndata["test_mask"] = label, lot < 0.5, lot >= 0.75
    return g


def partitioned(options: argparse.Namespace, folder: Path) -> vd.DistGraph:
    """The parts in the folder, which the first process makes where there are none."""
    path = folder / "graph.vg"
    if vd.rank() == 0 and not path.exists():
        g = communities(options.nodes) if options.data is None else load_heterophilous(options.data).graph
        summary = vd.partition_graph(g, path, num_parts=options.parts, method=options.method, balance="train")
        print(f"{summary.num_parts} parts; {summary.cut:,} of {summary.num_edges:,} edges between parts")
    dist.barrier()
    return vd.DistGraph(path)


def train_epoch(model: nn.Module, loader: vd.DistDataLoader, optimizer: torch.optim.Optimizer) -> float:
    model.train()
    losses: list[float] = []
    with vd.lost_workers():  # if a process is lost, others say so, wherever they wait for it
        for _, _, blocks in tqdm(loader, desc="minibatches", disable=vd.rank() > 0 or None, leave=False):
            out = blocks[-1].dstdata
            rows = F.cross_entropy(model(blocks, blocks[0].srcdata["feat"]), out["label"], reduction="none")
            loss = vd.mean(rows, out["_WEIGHT"])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return sum(losses) / max(len(losses), 1)


@torch.no_grad()
def evaluate(model: GraphSAGE, g: vd.DistGraph) -> float:
    """In percent, of the test nodes of all ranks; every layer runs on the whole graph.

    How many are classified right; where there are two classes, how often the right one of two nodes scores higher.
    """
    model.eval()
    score = model([g] * len(model.layers), g.ndata["feat"])
    mask, label = g.ndata["test_mask"], g.ndata["label"]
    if score.shape[1] > 2:
        return 100 * float(vd.mean((score.argmax(1) == label).double(), mask))
    rows = vd.gather_rows(torch.stack([(score[:, 1] - score[:, 0]).double(), label.double()], 1)[mask])
    return 100 * area(*rows.unbind(1))


def area(score: Tensor, label: Tensor) -> float:
    """Under the ROC curve; ties count half."""
    _, group, sizes = score.unique(return_inverse=True, return_counts=True)
    places = (sizes.cumsum(0) - (sizes - 1) / 2)[group]
    ones = int(label.sum())
    return float((places[label == 1].sum() - ones * (ones + 1) / 2) / (ones * (len(label) - ones)))


def save(path: Path, model: nn.Module, optimizer: torch.optim.Optimizer, loader: vd.DistDataLoader) -> None:
    weights, state = get_state_dict(model, optimizer)
    dcp.save({"model": weights, "optimizer": state, "loader": loader}, checkpoint_id=path)


def resume(path: Path, model: nn.Module, optimizer: torch.optim.Optimizer, loader: vd.DistDataLoader) -> None:
    weights, state = get_state_dict(model, optimizer)
    whole: dict[str, Any] = {"model": weights, "optimizer": state, "loader": loader}
    dcp.load(whole, checkpoint_id=path)
    set_state_dict(model, optimizer, model_state_dict=weights, optim_state_dict=state)


def run(options: argparse.Namespace, folder: Path) -> None:
    g = partitioned(options, folder)
    torch.manual_seed(0)
    classes = 2 if options.data is not None else 10
    sizes = [g.ndata["feat"].shape[1], *[options.hidden] * (len(options.fanouts) - 1), classes]
    model = GraphSAGE(sizes, 0.2)
    parallel = DistributedDataParallel(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.003)
    sampler = NeighborSampler(options.fanouts, prefetch_node_feats=["feat"], prefetch_labels=["label"])
    loader = vd.DistDataLoader(
        g, vd.node_split(g.ndata["train_mask"], g), sampler, batch_size=options.batch, shuffle=True, cache_bytes=1 << 26
    )
    saved = sorted(path.parent for path in folder.glob("checkpoint-*/.metadata"))  # which is written last
    if saved:
        resume(saved[-1], parallel, optimizer, loader)
    while loader.epoch < options.epochs:
        start, epoch = time.perf_counter(), loader.epoch + 1
        loss = train_epoch(parallel, loader, optimizer)
        save(folder / f"checkpoint-{epoch:04}", parallel, optimizer, loader)
        if vd.rank() == 0:
            print(f"epoch {epoch}, loss {loss:.4f}, {time.perf_counter() - start:.2f} s", flush=True)
    found, what = evaluate(model, g), "accuracy" if classes > 2 else "ROC AUC"
    if vd.rank() == 0:
        print(f"{vd.num_ranks()} processes: test {what} {found:.1f} %")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, nargs="?", metavar="NPZ", help="tolokers.npz or minesweeper.npz")
    parser.add_argument("--nodes", type=int, default=20_000, help="of the synthetic graph")
    parser.add_argument("--folder", type=Path, help="where parts and checkpoints are; all machines need it")
    parser.add_argument("--parts", type=int, default=8)
    parser.add_argument("--method", default="hash", help="hash, or metis, which cuts fewer edges")
    parser.add_argument("--fanouts", type=int, nargs="*", default=[15, 10])
    parser.add_argument("--hidden", type=int, default=64)
    parser.add_argument("--batch", type=int, default=1000, help="nodes of a minibatch, of all processes together")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--smoke", action="store_true")
    options = parser.parse_args()
    if options.smoke:
        options.nodes, options.epochs, options.batch = 300, 2, 50
    vd.init(timeout=300)
    with tempfile.TemporaryDirectory() as own:
        shared = [str(options.folder or own)]
        dist.broadcast_object_list(shared)  # of the first process, as all need the same
        run(options, Path(shared[0]))
        dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
