"""GCN, GraphSAGE and GAT on the whole of Reddit at once: 232,965 posts, 114.6 million edges.

    python examples/reddit.py FOLDER --model gat      with Reddit's reddit_data.npz and reddit_graph.npz
    python examples/reddit.py --model gcn             on a synthetic graph of its size
    python examples/reddit.py --scale 0.01            a hundredth of that, for a quick look
    python examples/reddit.py --smoke                 less still

Every step goes over all edges, and no message is stored. Without the files the graph is drawn at random:
communities of posts with a heavy tail of degrees. What is learned on it says nothing about Reddit, and every
line of output calls it synthetic. Source: Hamilton et al. 2017 (the data set), Wang et al. 2019.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import scipy.sparse
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from tqdm import tqdm

import vgraph
from vgraph.nn import GATConv, GraphConv, SAGEConv

POSTS, EDGES, FEATURES, COMMUNITIES = 232_965, 114_615_892, 602, 41
PARTS = ("train", "val", "test")


@dataclass(frozen=True)
class Data:
    name: str
    graph: vgraph.Graph
    feat: Tensor
    label: Tensor
    masks: dict[str, Tensor]


class Model(nn.Module):
    """Two layers of one kind."""

    def __init__(self, kind: str, in_size: int, num_classes: int) -> None:
        super().__init__()
        if kind == "gat":  # eight heads of eight
            first, second = GATConv(in_size, 8, 8, activation=F.elu), GATConv(64, num_classes, 1)
        elif kind == "sage":
            first, second = SAGEConv(in_size, 16, "mean", activation=F.relu), SAGEConv(16, num_classes, "mean")
        else:
            first, second = GraphConv(in_size, 16, activation=F.relu), GraphConv(16, num_classes)
        self.first, self.second, self.dropout = first, second, nn.Dropout(0.5)

    def forward(self, g: vgraph.Graph, x: Tensor) -> Tensor:
        h = self.first(g, x).flatten(1)
        return self.second(g, self.dropout(h)).flatten(1)


def load_reddit(folder: Path) -> Data:
    """Reddit's files, as GraphSAGE's authors and DGL spread them."""
    columns = np.load(folder / "reddit_data.npz")
    adjacency = scipy.sparse.load_npz(folder / "reddit_graph.npz").tocoo()
    part = torch.from_numpy(columns["node_types"])
    label = torch.from_numpy(columns["label"]).long()
    g = with_loops(adjacency.row, adjacency.col, len(label))
    feat = torch.from_numpy(columns["feature"]).float()
    return Data("Reddit", g, feat, label, {name: part == i + 1 for i, name in enumerate(PARTS)})


def draw_reddit(scale: float) -> Data:
    """Three edges of four stay within a community; the popularity of posts has a heavy tail."""
    draw = np.random.default_rng(0)
    posts, edges = max(100, int(POSTS * scale)), int(EDGES * scale)
    label = np.sort(draw.integers(0, COMMUNITIES, posts))
    begin = np.searchsorted(label, np.arange(COMMUNITIES + 1))
    popularity = np.cumsum(draw.permutation(np.arange(1, posts + 1) ** -0.7))
    ends = np.empty((2, edges), np.int32)
    for low in tqdm(range(0, edges, 1 << 22), desc="drawing edges", disable=None, leave=False):
        part = slice(low, min(low + (1 << 22), edges))
        count = part.stop - low
        src, far = (np.searchsorted(popularity, draw.random(count) * popularity[-1]) for _ in range(2))
        home = label[src]
        near = begin[home] + (draw.random(count) * (begin[home + 1] - begin[home])).astype(np.int64)
        ends[:, part] = src, np.where(draw.random(count) < 0.75, near, far)
    ends = np.minimum(ends, posts - 1)
    centres = draw.standard_normal((COMMUNITIES, FEATURES), np.float32)
    feat = draw.standard_normal((posts, FEATURES), np.float32)
    feat += 0.15 * centres[label]
    lot = torch.from_numpy(draw.random(posts))
    masks = {"train": lot < 0.66, "val": (lot >= 0.66) & (lot < 0.76), "test": lot >= 0.76}
    size = "of Reddit's size" if scale == 1 else f"of {scale:g} of Reddit's size"
    g = with_loops(ends[0], ends[1], posts)
    return Data(f"synthetic graph {size}", g, torch.from_numpy(feat), torch.from_numpy(label), masks)


def with_loops(src: np.ndarray, dst: np.ndarray, count: int) -> vgraph.Graph:
    """int32 ids, which halve what the edges take; every post also hears itself."""
    own = np.arange(count, dtype=np.int32)
    ends = (torch.from_numpy(np.concatenate([end.astype(np.int32, copy=False), own])) for end in (src, dst))
    return vgraph.graph(tuple(ends), num_nodes=count)


def train_epoch(model: Model, data: Data, optimizer: torch.optim.Optimizer) -> float:
    model.train()
    mask = data.masks["train"]
    loss = F.cross_entropy(model(data.graph, data.feat)[mask], data.label[mask])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()


@torch.no_grad()
def accuracy(model: Model, data: Data) -> dict[str, float]:
    model.eval()
    is_right = (model(data.graph, data.feat).argmax(1) == data.label).double() * 100
    return {name: float(is_right[mask].mean()) for name, mask in data.masks.items()}


def peak_gib() -> float:
    """Of resident memory; ru_maxrss counts KiB on Linux and bytes on macOS; other systems do not say (nan)."""
    try:
        import resource  # noqa: PLC0415 - Windows has none
    except ImportError:
        return float("nan")
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (2**30 if sys.platform == "darwin" else 2**20)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, nargs="?", metavar="FOLDER", help="with Reddit's two files")
    parser.add_argument("--model", choices=("gcn", "sage", "gat"), default="gcn")
    parser.add_argument("--scale", type=float, default=1.0, help="size of the synthetic graph, 1 is Reddit's")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--lr", type=float, default=0.01)
    parser.add_argument("--smoke", action="store_true")
    options = parser.parse_args()
    if options.smoke:
        options.scale, options.epochs = 0.0005, 2
    if options.data is None and not 0 < options.scale <= 1:
        parser.error("--scale is above 0 and at most 1")
    torch.manual_seed(0)
    data = draw_reddit(options.scale) if options.data is None else load_reddit(options.data)
    print(f"{data.name}: {data.graph.num_nodes():,} posts, {data.graph.num_edges():,} edges, {options.model}")
    model = Model(options.model, data.feat.shape[1], int(data.label.max()) + 1)
    optimizer = torch.optim.Adam(model.parameters(), lr=options.lr)
    for epoch in tqdm(range(1, options.epochs + 1), unit="epoch", disable=None, leave=False):
        start = time.perf_counter()
        loss = train_epoch(model, data, optimizer)
        tqdm.write(f"{data.name}: epoch {epoch}, loss {loss:.4f}, {time.perf_counter() - start:.2f} s")
    shown = ", ".join(f"{name} {value:.2f} %" for name, value in accuracy(model, data).items())
    print(f"{data.name}: {shown}; {peak_gib():.2f} GiB resident at the most")


if __name__ == "__main__":
    main()
