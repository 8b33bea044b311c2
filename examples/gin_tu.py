"""GIN: what kind of thing a graph is, from its shape and its vertices' labels.

    python examples/gin_tu.py MUTAG.txt PROTEINS.txt      10 folds of each file of the TU collection
    python examples/gin_tu.py --smoke                     two folds of made-up graphs

The protocol is Xu et al.'s: stratified folds, five layers with the input, 64 hidden units, Adam whose rate is
halved every 50 epochs, and no validation set: reported is the epoch whose mean over the folds' test parts is
best. An epoch here is one pass over the training part. Source: Xu et al. 2019, sections 4.2 and 7.
"""

from __future__ import annotations

import argparse
import json
import random
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from tqdm import tqdm

import vgraph
from vgraph.data import LabelledGraphs, load_tu
from vgraph.nn import GINConv, SumPooling


class GIN(nn.Module):
    """Sums of neighbours through two-layer networks; every layer's sum over vertices votes."""

    def __init__(self, in_size: int, hidden: int, num_classes: int, num_layers: int, dropout: float) -> None:
        super().__init__()
        sizes = [in_size] + [hidden] * (num_layers - 1)
        self.layers, self.norms = nn.ModuleList(), nn.ModuleList()
        for rows in sizes[:-1]:
            inner = (nn.Linear(rows, hidden, bias=False), nn.BatchNorm1d(hidden), nn.ReLU())
            self.layers.append(GINConv(nn.Sequential(*inner, nn.Linear(hidden, hidden, bias=False)), "sum"))
            self.norms.append(nn.BatchNorm1d(hidden))
        self.votes = nn.ModuleList([nn.Linear(size, num_classes) for size in sizes])
        self.pool, self.dropout = SumPooling(), nn.Dropout(dropout)

    def forward(self, g: vgraph.Graph, h: Tensor) -> Tensor:
        score = self.dropout(self.votes[0](self.pool(g, h)))
        for layer, norm, vote in zip(self.layers, self.norms, self.votes[1:], strict=True):
            h = F.relu(norm(layer(g, h)))
            score = score + self.dropout(vote(self.pool(g, h)))
        return score


def folds_of(labels: Tensor, count: int, seed: int) -> list[Tensor]:
    """The graphs of every fold: each label's graphs, shuffled, are dealt out in turn."""
    draw = torch.Generator().manual_seed(seed)
    shuffled = torch.randperm(len(labels), generator=draw)
    dealt = shuffled[labels[shuffled].argsort(stable=True)]
    return [dealt[i::count] for i in range(count)]


Batch = tuple[vgraph.Graph, Tensor, Tensor]


class Fold:
    """Training and test parts: graphs, one-hot rows of their vertices' tags, labels."""

    def __init__(self, data: LabelledGraphs, test: Tensor, batch_size: int, orders: int) -> None:
        self.data, self.batch_size = data, batch_size
        self.orders: list[list[Batch]] = [[] for _ in range(orders)]
        is_test = torch.zeros(len(data.labels), dtype=torch.bool)
        is_test[test] = True
        self.train = (~is_test).nonzero().squeeze(1)
        self.test = self.batch_of(test)

    def batch_of(self, ids: Tensor) -> Batch:
        g = vgraph.batch([self.data.graphs[i] for i in ids.tolist()])
        return g, F.one_hot(g.ndata["tag"], self.data.num_tags).float(), self.data.labels[ids]

    def minibatches(self, epoch: int) -> list[Batch]:
        """One pass; a few orders are drawn, kept and taken in turn, with all that is derived from their graphs."""
        kept = self.orders[epoch % len(self.orders)]
        if not kept:
            order = self.train[torch.randperm(len(self.train))]
            parts = order.tensor_split(max(1, len(order) // self.batch_size))
            kept += map(self.batch_of, parts)
        return kept


def train(fold: Fold, seed: int, settings: argparse.Namespace) -> list[float]:
    """The accuracy on the fold's test part after every epoch."""
    torch.manual_seed(seed)
    data = fold.data
    model = GIN(data.num_tags, settings.hidden, data.num_classes, settings.layers, settings.dropout)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, fused=True)
    rate = torch.optim.lr_scheduler.StepLR(optimizer, 50, 0.5)
    found: list[float] = []
    for epoch in tqdm(range(settings.epochs), desc=f"fold {seed}", unit="epoch", disable=None, leave=False):
        model.train()
        for g, x, label in fold.minibatches(epoch):
            loss = F.cross_entropy(model(g, x), label)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        rate.step()
        model.eval()
        with torch.no_grad():
            g, x, label = fold.test
            found.append(100 * float((model(g, x).argmax(1) == label).double().mean()))
    return found


PROTOCOL = (
    "epochs",
    "folds",
    "layers",
    "hidden",
    "batch",
    "orders",
    "dropout",
    "seed",
)  # what a fold's curve depends on


def kept_curves(name: str, settings: argparse.Namespace) -> dict[int, list[float]]:
    """The folds that an earlier run with the same settings finished: the accuracies of each by epoch."""
    if settings.curves is None or not settings.curves.exists():
        return {}
    lines = map(json.loads, settings.curves.read_text().splitlines())
    key = [name, *(getattr(settings, setting) for setting in PROTOCOL)]
    return {line["fold"]: line["accuracies"] for line in lines if line["settings"] == key}


def keep_curve(name: str, fold: int, curve: list[float], settings: argparse.Namespace) -> None:
    if settings.curves is not None:
        key = [name, *(getattr(settings, setting) for setting in PROTOCOL)]
        line = {"settings": key, "fold": fold, "accuracies": [round(x, 4) for x in curve]}
        with settings.curves.open("a") as file:
            file.write(json.dumps(line) + "\n")


def report(name: str, data: LabelledGraphs, settings: argparse.Namespace) -> dict[str, Any]:
    curves: list[list[float]] = []
    kept = kept_curves(name, settings)
    for i, test in enumerate(folds_of(data.labels, settings.folds, settings.seed)):
        if i not in kept:
            kept[i] = train(Fold(data, test, settings.batch, settings.orders), settings.seed + i, settings)
            keep_curve(name, i, kept[i], settings)
        curves.append(kept[i])
        tqdm.write(f"{name}, fold {i}: best {max(curves[-1]):.1f} %, last {curves[-1][-1]:.1f} %")
    at = torch.tensor(curves, dtype=torch.float64)  # (folds, epochs)
    epoch = int(at.mean(0).argmax())
    mean, spread = float(at.mean(0)[epoch]), float(at[:, epoch].std())
    commonest = 100 * float((data.labels == data.labels.mode().values).double().mean())
    print(f"{name}: {mean:.1f} % +- {spread:.1f} at epoch {epoch + 1} (commonest label: {commonest:.1f} %)", flush=True)
    return {
        "graphs": len(data.graphs), "accuracy": round(mean, 2), "deviation": round(spread, 2), "epoch": epoch + 1,
        "at the last epoch": round(float(at.mean(0)[-1]), 2), "by fold": [round(x, 1) for x in at[:, epoch].tolist()],
    }  # fmt: skip


def made_up(count: int = 40) -> LabelledGraphs:
    """Rings (label 0) and stars (label 1) of several sizes, with two tags by chance."""
    draw, graphs = random.Random(0), list[vgraph.Graph]()
    for i in range(count):
        size = draw.randrange(5, 9)
        ends = list(range(size)), [0] * size if i % 2 else [(j + 1) % size for j in range(size)]
        g = vgraph.to_bidirected(vgraph.remove_self_loop(vgraph.graph(ends, num_nodes=size)))
        g.ndata["tag"] = torch.tensor([draw.randrange(2) for _ in range(size)])
        graphs.append(g)
    return LabelledGraphs(graphs, torch.arange(count) % 2, 2, 2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])  # type: ignore[union-attr]
    parser.add_argument("data", type=Path, nargs="*", help="files like MUTAG.txt")
    parser.add_argument("--epochs", type=int, default=350)
    parser.add_argument("--folds", type=int, default=10)
    parser.add_argument("--layers", type=int, default=5)
    parser.add_argument("--hidden", type=int, default=64)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--orders", type=int, default=5, help="orders of a fold's graphs that epochs take in turn")
    parser.add_argument("--dropout", type=float, default=0.5)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, help="where results are written")
    parser.add_argument(
        "--curves", type=Path, help="where each fold's accuracies are kept; folds found there are not run"
    )
    parser.add_argument("--smoke", action="store_true")
    settings = parser.parse_args()
    if settings.smoke:
        settings.epochs, settings.folds, settings.batch = 3, 2, 8
    found: dict[str, Any] = {}
    for name, data in [(path.stem, load_tu(path)) for path in settings.data] or [("rings and stars", made_up())]:
        found[name] = report(name, data, settings)
        if settings.json:
            settings.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
