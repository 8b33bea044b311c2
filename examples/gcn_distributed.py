"""GCN on a graph that is divided among processes: every one trains its own nodes, and halos travel.

    torchrun --nproc-per-node 2 examples/gcn_distributed.py tolokers.npz     who is banned (ROC AUC)
    torchrun --nproc-per-node 4 examples/gcn_distributed.py cora.npz --seeds 10     topics of papers (accuracy)
    torchrun --nproc-per-node 2 examples/gcn_distributed.py --smoke          a drawn graph of communities
    python examples/gcn_distributed.py --smoke                               the same in one process

Rank 0 divides the graph once and writes the parts to a folder that all ranks read (``--parts``). The same script runs
on two machines: docs/guides/processes.md. Source: Kipf and Welling 2017 (the layer, and the model for citations);
Platonov et al. 2023 (residual blocks for graphs whose neighbours differ).
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

import vgraph
import vgraph.distributed as vd
from vgraph.data import load_heterophilous, load_planetoid
from vgraph.nn import GraphConv


class GCN(nn.Module):
    """Residual blocks of a convolution and two maps; norms and maps work row by row, so they know nothing of ranks."""

    def __init__(self, in_size: int, hidden: int, num_classes: int, num_layers: int, dropout: float) -> None:
        super().__init__()
        self.enter, self.leave = nn.Linear(in_size, hidden), nn.Linear(hidden, num_classes)
        self.norms = nn.ModuleList(nn.LayerNorm(hidden) for _ in range(num_layers))
        self.convolutions = nn.ModuleList(GraphConv(hidden, hidden) for _ in range(num_layers))
        self.dropout = dropout

    def forward(self, g: vgraph.Graph, x: Tensor) -> Tensor:
        h = F.dropout(torch.relu(self.enter(x)), self.dropout, self.training)
        for norm, convolution in zip(self.norms, self.convolutions, strict=True):
            h = h + F.dropout(torch.relu(convolution(g, norm(h))), self.dropout, self.training)
        return self.leave(h)


class CitationGCN(nn.Module):
    """Two convolutions, dropout before each; the settings are those of Kipf and Welling."""

    def __init__(self, in_size: int, hidden: int, num_classes: int) -> None:
        super().__init__()
        self.first, self.second = GraphConv(in_size, hidden), GraphConv(hidden, num_classes)

    def forward(self, g: vgraph.Graph, x: Tensor) -> Tensor:
        h = torch.relu(self.first(g, F.dropout(x, 0.5, self.training)))
        return self.second(g, F.dropout(h, 0.5, self.training))


def model_for(options: argparse.Namespace, in_size: int, num_classes: int) -> tuple[nn.Module, torch.optim.Optimizer]:
    """What learns a graph of this kind, and how."""
    if options.data is not None and "tolokers" not in options.data.name:
        citations = CitationGCN(in_size, 16, num_classes)
        decayed = {"params": citations.first.parameters(), "weight_decay": 5e-4}
        return citations, torch.optim.Adam([decayed, {"params": citations.second.parameters()}], lr=0.01)
    model = GCN(in_size, options.hidden, num_classes, options.layers, dropout=0.2)
    return model, torch.optim.Adam(model.parameters(), lr=3e-3)


def drawn_graph(num_nodes: int = 400, num_classes: int = 4) -> vgraph.Graph:
    """Communities whose members mostly know one another, with noisy features."""
    draw = torch.Generator().manual_seed(0)
    label = torch.randint(0, num_classes, (num_nodes,), generator=draw)
    pairs = torch.randint(0, num_nodes, (2, 40 * num_nodes), generator=draw)
    is_near = label[pairs[0]] == label[pairs[1]]
    src, dst = pairs[:, is_near | (torch.rand(pairs.shape[1], generator=draw) < 0.05)]
    g = vgraph.graph((torch.cat([src, dst]), torch.cat([dst, src])), num_nodes=num_nodes)
    g.ndata["feat"] = F.one_hot(label).float() + 2 * torch.randn(num_nodes, num_classes, generator=draw)
    g.ndata["label"] = label
    place = torch.rand(num_nodes, generator=draw)
    g.ndata["train_mask"], g.ndata["val_mask"], g.ndata["test_mask"] = (
        place < 0.2,
        (place >= 0.2) & (place < 0.5),
        place >= 0.5,
    )
    return g


def load(path: Path | None) -> vgraph.Graph:
    """With a self-loop at every node, as the convolution is defined."""
    if path is None:
        g = drawn_graph()
    else:
        g = (load_heterophilous(path) if "tolokers" in path.name else load_planetoid(path)).graph
    return vgraph.add_self_loop(g)


def divide(path: Path | None, folder: str, num_parts: int, method: str) -> None:
    """Rank 0 writes the parts; the others wait for the graph to be there."""
    if vd.rank() == 0:
        print(vd.partition_graph(load(path), folder, num_parts=num_parts, method=method), flush=True)
    vd.barrier()


def score(g: vd.DistGraph, logits: Tensor, name: str) -> float:
    """Accuracy, or ROC AUC where there are two classes; of the nodes of all ranks."""
    mask, label = g.ndata[f"{name}_mask"], g.ndata["label"]
    if logits.shape[1] != 2:
        return vd.mean((logits.argmax(1) == label).double(), mask).item()
    margin = torch.where(mask, logits[:, 1] - logits[:, 0], torch.nan)
    every = vd.gather_rows(torch.stack([margin.double(), label.double()], 1))
    every = every[~every[:, 0].isnan()].numpy()
    return roc_auc(every[:, 0], every[:, 1] > 0)


def roc_auc(margin: np.ndarray, is_positive: np.ndarray) -> float:
    """The chance that a positive is ranked above a negative; ties count half."""
    _, places, counts = np.unique(margin, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[places]
    positives, negatives = is_positive.sum(), (~is_positive).sum()
    return float((ranks[is_positive].sum() - positives * (positives + 1) / 2) / (positives * negatives))


def train(g: vd.DistGraph, options: argparse.Namespace, seed: int) -> tuple[float, float]:
    """The score on test nodes at the best epoch for validation nodes (of equals that of least loss), and the latter."""
    torch.manual_seed(seed)  # equal parameters on all ranks
    x, label = g.ndata["feat"], g.ndata["label"]
    num_classes = int(vgraph.readout_nodes(g, "label", op="max")) + 1
    model, optimizer = model_for(options, x.shape[1], num_classes)
    parallel = DistributedDataParallel(model)
    torch.manual_seed(1000 * (seed + 1) + vd.rank())  # and other numbers for dropout on each
    best, test = (0.0, 0.0), 0.0
    for epoch in range(1, options.epochs + 1):
        model.train()
        loss = vd.mean(F.cross_entropy(parallel(g, x), label, reduction="none"), g.ndata["train_mask"])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if epoch % options.every and epoch != options.epochs:
            continue
        model.eval()
        with torch.no_grad():
            logits = model(g, x)
            val_loss = vd.mean(F.cross_entropy(logits, label, reduction="none"), g.ndata["val_mask"]).item()
        found = (score(g, logits, "val"), -val_loss)
        if found > best:
            best, test = found, score(g, logits, "test")
        if vd.rank() == 0 and options.seeds == 1:
            print(f"epoch {epoch}: loss {loss.item():.4f}, best val {best[0]:.3f}, test {test:.3f}", flush=True)
    return test, best[0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])  # type: ignore[union-attr]
    parser.add_argument("data", type=Path, nargs="?", help="tolokers.npz, cora.npz or citeseer.npz")
    parser.add_argument("--parts", help="the folder of the parts, which all machines see (a temporary one)")
    parser.add_argument("--method", default="metis", help="how the graph is divided")
    parser.add_argument("--epochs", type=int, help="100; 200 for citations")
    parser.add_argument("--seeds", type=int, default=1, help="how often to train; then a table")
    parser.add_argument("--hidden", type=int, default=64)
    parser.add_argument("--layers", type=int, default=3)
    parser.add_argument("--smoke", action="store_true", help="ten epochs")
    options = parser.parse_args()
    is_citations = options.data is not None and "tolokers" not in options.data.name
    options.every = 1 if is_citations else 10  # epochs between evaluations
    options.epochs = 10 if options.smoke else options.epochs or (200 if is_citations else 100)
    vd.init(timeout=300)
    folder = options.parts or str(Path(tempfile.gettempdir()) / f"vgraph-parts-{vd.agreed_seed():x}")
    divide(options.data, folder, 2 * vd.num_ranks(), options.method)
    g = vd.DistGraph(folder)
    vd.barrier()
    if vd.rank() == 0:
        print(g, flush=True)
        if options.parts is None:  # all have mapped what they need
            shutil.rmtree(folder)
    tests: list[float] = []
    for seed in range(options.seeds):
        test, best = train(g, options, seed)
        tests.append(100 * test)
        if vd.rank() == 0:
            print(f"seed {seed}: test {100 * test:.1f} %, best val {100 * best:.1f} %", flush=True)
    if vd.rank() == 0 and options.seeds > 1:
        spread = torch.tensor(tests).std().item()
        print(f"{vd.num_ranks()} processes, {options.seeds} seeds: {sum(tests) / len(tests):.1f} % +- {spread:.1f}")


if __name__ == "__main__":
    main()
