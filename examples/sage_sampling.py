"""GraphSAGE by sampled neighbours: minibatches of blocks, prepared by workers while the last one is trained on.

    python examples/sage_sampling.py tolokers.npz         who of a crowd was banned, from who worked with whom
    python examples/sage_sampling.py --scale 1            a synthetic graph of Reddit's size
    python examples/sage_sampling.py --smoke              a tiny one of that kind

The synthetic graph's features lie in a file that is mapped into memory: only rows that a minibatch asks for are
read. What is drawn depends on the seed alone, not on the workers. Source: Hamilton et al. 2017, algorithm 2.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from tqdm import tqdm

import vgraph
from vgraph.data import load_heterophilous
from vgraph.nn import SAGEConv
from vgraph.sampling import DataLoader, NeighborSampler, open_features

POSTS, EDGES, FEATURES, COMMUNITIES = 232_965, 114_615_892, 602, 41


@dataclass(frozen=True)
class Data:
    name: str
    graph: vgraph.Graph
    feat: Tensor
    label: Tensor
    masks: dict[str, Tensor]


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


def load(path: Path) -> Data:
    g = load_heterophilous(path).graph
    masks = {part: g.ndata[f"{part}_mask"] for part in ("train", "val", "test")}
    return Data(path.stem, g, g.ndata["feat"], g.ndata["label"], masks)


def draw(scale: float, folder: Path) -> Data:
    """Posts of 41 communities; three edges of four stay within one; features in a file, a part at a time."""
    rng = np.random.default_rng(0)
    posts, edges = max(200, int(POSTS * scale)), int(EDGES * scale)
    label = np.sort(rng.integers(0, COMMUNITIES, posts))
    begin = np.searchsorted(label, np.arange(COMMUNITIES + 1))
    ends = np.empty((2, edges), np.int32)
    for low in tqdm(range(0, edges, 1 << 22), desc="drawing edges", disable=None, leave=False):
        part = slice(low, min(low + (1 << 22), edges))
        src, far = rng.integers(0, posts, (2, part.stop - low))
        home, lot = label[src], rng.random(part.stop - low)
        near = begin[home] + (lot * (begin[home + 1] - begin[home])).astype(np.int64)
        ends[:, part] = src, np.where(rng.random(part.stop - low) < 0.75, near, far)
    path, centres = folder / "features.npy", rng.standard_normal((COMMUNITIES, FEATURES), np.float32)
    mapped = np.lib.format.open_memmap(path, "w+", np.float32, (posts, FEATURES))
    for low in range(0, posts, 1 << 14):
        rows = slice(low, min(low + (1 << 14), posts))
        mapped[rows] = rng.standard_normal((rows.stop - low, FEATURES), np.float32) + 0.1 * centres[label[rows]]
    mapped.flush()
    lot = torch.from_numpy(rng.random(posts))
    masks = {"train": lot < 0.66, "val": (lot >= 0.66) & (lot < 0.76), "test": lot >= 0.76}
    g = vgraph.graph((torch.from_numpy(ends[0]), torch.from_numpy(ends[1])), num_nodes=posts)
    size = "Reddit's size" if scale == 1 else f"{scale:g} of Reddit's size"
    return Data(f"synthetic graph of {size}", g, open_features(path), torch.from_numpy(label), masks)


def train_epoch(model: GraphSAGE, data: Data, loader: DataLoader, optimizer: torch.optim.Optimizer) -> float:
    model.train()
    losses: list[float] = []
    for given, output, blocks in tqdm(loader, desc="minibatches", disable=None, leave=False):
        loss = F.cross_entropy(model(blocks, data.feat[given]), data.label[output])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return sum(losses) / len(losses)


@torch.no_grad()
def evaluate(model: GraphSAGE, data: Data) -> str:
    """Accuracy; where there are two classes, how often the right one of two vertices scores higher (ROC AUC)."""
    model.eval()
    found: dict[str, float] = {}
    score = model([data.graph] * len(model.layers), data.feat)
    for part, mask in data.masks.items():
        if score.shape[1] == 2:
            found[part] = 100 * area((score[:, 1] - score[:, 0])[mask], data.label[mask])
        else:
            found[part] = 100 * float((score.argmax(1) == data.label)[mask].double().mean())
    what = "ROC AUC" if score.shape[1] == 2 else "accuracy"
    return f"{what} " + ", ".join(f"{part} {value:.1f} %" for part, value in found.items())


def area(score: Tensor, label: Tensor) -> float:
    """Under the ROC curve; ties count half."""
    _, group, sizes = score.double().unique(return_inverse=True, return_counts=True)
    rank = (sizes.cumsum(0) - (sizes - 1) / 2)[group]
    ones = int(label.sum())
    return float((rank[label == 1].sum() - ones * (ones + 1) / 2) / (ones * (len(label) - ones)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, nargs="?", metavar="NPZ", help="tolokers.npz or minesweeper.npz")
    parser.add_argument("--scale", type=float, default=0.01, help="size of the synthetic graph, 1 is Reddit's")
    parser.add_argument("--fanouts", type=int, nargs="*", default=[15, 10])
    parser.add_argument("--hidden", type=int, default=64)
    parser.add_argument("--batch", type=int, default=1000)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--smoke", action="store_true")
    options = parser.parse_args()
    if options.smoke:
        options.scale, options.epochs, options.batch = 0.0005, 2, 50
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        data = draw(options.scale, Path(folder)) if options.data is None else load(options.data)
        print(f"{data.name}: {data.graph.num_nodes():,} vertices, {data.graph.num_edges():,} edges")
        sizes = [data.feat.shape[1], *[options.hidden] * (len(options.fanouts) - 1), int(data.label.max()) + 1]
        model = GraphSAGE(sizes, 0.2)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.003)
        ids, sampler = data.masks["train"].nonzero().squeeze(1), NeighborSampler(options.fanouts)
        loader = DataLoader(
            data.graph, ids, sampler, batch_size=options.batch, shuffle=True, num_workers=options.workers
        )
        for epoch in range(1, options.epochs + 1):
            start = time.perf_counter()
            loss = train_epoch(model, data, loader, optimizer)
            tqdm.write(f"{data.name}: epoch {epoch}, loss {loss:.4f}, {time.perf_counter() - start:.2f} s")
        print(f"{data.name}: {evaluate(model, data)}")


if __name__ == "__main__":
    main()
