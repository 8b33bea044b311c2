"""Tree-LSTM training steps beside a level loop written by hand, and beside DGL where it is installed.

Binary trees whose sizes are those of sentences (2 to 52 words, 19 on average), words at the leaves, a
label at every vertex; one step is forward, backward and Adagrad. All sides take turns in one run, and
the figures are trees a second at the median epoch. DGL is the last release that imports under the
installed torch (1.1.3); it is left out where it cannot be imported.

usage: tree_lstm.py [--batch-size 25 256] [--hidden 150] [--trees 256] [--epochs 5] [--json FILE] [--smoke]
"""

from __future__ import annotations

import argparse
import importlib
import json
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import vgraph

INPUTS, WORDS, CLASSES = 300, 2000, 5
Level = Callable[..., tuple[Tensor, Tensor]]


class TreeLSTM(vgraph.VertexFunction):
    """Child-sum Tree-LSTM without input at inner vertices (Tai et al. 2015, equations 2 to 8)."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.W = nn.Linear(INPUTS, 3 * hidden, bias=False)
        self.U, self.Uf = nn.Linear(hidden, 3 * hidden), nn.Linear(hidden, hidden)

    def forward(self, v: vgraph.Vertex) -> None:
        child = v.gather()
        i, o, u = (self.W(v.pull("x")) + self.U(child["h"].sum())).chunk(3, -1)
        f = torch.sigmoid(self.Uf(child["h"]))
        c = torch.sigmoid(i) * torch.tanh(u) + (f * child["c"]).sum()
        h = torch.sigmoid(o) * torch.tanh(c)
        v.scatter(h=h, c=c)
        v.push(h=h)


def make_trees(count: int) -> list[list[tuple[int, int] | None]]:
    """Children of every vertex (None: a leaf), children first: neighbours are joined at random."""
    draw = np.random.default_rng(0)
    trees = []
    for size in np.clip(np.round(draw.gamma(4.3, 4.45, count)), 2, 52).astype(int):
        tree: list[tuple[int, int] | None] = [None] * int(size)
        open_ = list(range(int(size)))
        while len(open_) > 1:
            at = int(draw.integers(0, len(open_) - 1))
            tree.append((open_[at], open_[at + 1]))
            open_[at : at + 2] = [len(tree) - 1]
        trees.append(tree)
    return trees


class Task:
    """The same trees, words, labels and parameters for every side; words and labels at random, or given.

    ``sparse``: the embedding's gradient has rows for the words that occur alone, as in DyNet.
    """

    def __init__(
        self, trees: list, hidden: int, words: list[Tensor] | None = None, labels: list[Tensor] | None = None,
        num_words: int = WORDS, *, sparse: bool = False,
    ) -> None:  # fmt: skip
        torch.manual_seed(0)
        self.trees, self.hidden, self.num_words = trees, hidden, num_words
        self.words = words or [torch.randint(0, num_words, (len(tree),)) for tree in trees]
        self.labels = labels or [torch.randint(0, CLASSES, (len(tree),)) for tree in trees]
        self.embed, self.cell = nn.Embedding(num_words, INPUTS, sparse=sparse), TreeLSTM(hidden)
        self.out = nn.Linear(hidden, CLASSES)
        self.graphs = vgraph.unbatch(vgraph.batch([self._graph(i) for i in range(len(trees))]))  # slices of one whole
        self.modules = nn.ModuleList([self.embed, self.cell, self.out])
        self.optimizer = torch.optim.Adagrad(self.modules.parameters(), lr=0.05)

    def edges(self, number: int) -> tuple[list[int], list[int]]:
        pairs = [(kid, v) for v, kids in enumerate(self.trees[number]) if kids for kid in kids]
        return [a for a, _ in pairs], [b for _, b in pairs]

    def _graph(self, number: int) -> vgraph.Graph:
        g = vgraph.graph(self.edges(number), num_nodes=len(self.trees[number]))
        is_leaf = torch.tensor([kids is None for kids in self.trees[number]])
        g.ndata["word"] = torch.where(is_leaf, self.words[number], -1)
        g.ndata["label"] = self.labels[number]
        return g

    def loss(self, h: Tensor, labels: Tensor) -> Tensor:
        return F.cross_entropy(self.out(h), labels, reduction="sum")


def vgraph_step(task: Task, batch: range) -> Tensor:
    return loss_of(task, vgraph.batch([task.graphs[i] for i in batch]))


def loss_of(task: Task, g: vgraph.Graph) -> Tensor:
    leaves = (g.ndata["word"] >= 0).nonzero().squeeze(1)
    h = task.cell(g, x=vgraph.at(task.embed(g.ndata["word"][leaves]), leaves))["h"]
    return task.loss(h, g.ndata["label"])


def _leaves(cell: TreeLSTM, x: Tensor) -> tuple[Tensor, Tensor]:
    """h and c of vertices without children."""
    return _gated(cell.W(x) + cell.U.bias, 0)


def _parents(cell: TreeLSTM, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
    """h and c of vertices of those of their children, (vertices, 2, hidden)."""
    return _gated(cell.U(h.sum(1)), (torch.sigmoid(cell.Uf(h)) * c).sum(1))


def _gated(iou: Tensor, carried: Tensor | int) -> tuple[Tensor, Tensor]:
    i, o, u = iou.chunk(3, 1)
    c = torch.sigmoid(i) * torch.tanh(u) + carried
    return torch.sigmoid(o) * torch.tanh(c), c


LEVELS = (_leaves, _parents, _gated)  # what the loop by hand calls


def compiled_step(backend: str = "inductor") -> Callable[[Task, range], Tensor]:
    """The loop by hand with what a level computes under torch.compile, for any number of vertices."""
    if not backend:  # as it is, where speed means nothing
        return by_hand_step
    leaves, parents = (torch.compile(each, dynamic=True, backend=backend) for each in (_leaves, _parents))
    return lambda task, batch: by_hand_step(task, batch, leaves, parents)


def by_hand_step(task: Task, batch: range, leaves: Level = _leaves, parents: Level = _parents) -> Tensor:
    """Levels over the whole batch, as one writes them for binary trees without a framework."""
    kids, words, labels, levels = [], [], [], []
    for i in batch:
        offset = len(kids)
        for pair in task.trees[i]:
            kids.append(pair and (pair[0] + offset, pair[1] + offset))
            levels.append(1 + max(levels[kids[-1][0]], levels[kids[-1][1]]) if pair else 0)
        words.append(task.words[i])
        labels.append(task.labels[i])
    order = sorted(range(len(kids)), key=levels.__getitem__)
    place = {v: row for row, v in enumerate(order)}
    bounds = np.searchsorted([levels[v] for v in order], range(max(levels) + 2))
    cell, all_words = task.cell, torch.cat(words)
    h = c = torch.zeros(0, task.hidden)
    for level in range(len(bounds) - 1):
        here = order[bounds[level] : bounds[level + 1]]
        if level == 0:
            new_h, new_c = leaves(cell, task.embed(all_words[here]))
        else:
            below = torch.tensor([[place[k] for k in kids[v]] for v in here])
            new_h, new_c = parents(cell, h[below], c[below])
        h, c = torch.cat([h, new_h]), torch.cat([c, new_c])
    return task.loss(h, torch.cat(labels)[order])


def dgl_step(task: Task, dgl: Any) -> Callable[[Task, range], Tensor]:
    graphs = []
    for number, tree in enumerate(task.trees):
        g = dgl.graph(tuple(torch.tensor(end) for end in task.edges(number)), num_nodes=len(tree))
        g.ndata["word"], g.ndata["label"] = task.words[number], task.labels[number]
        g.ndata["leaf"] = torch.tensor([[float(kids is None)] for kids in tree])
        graphs.append(g)
    cell, construction = task.cell, [0.0]

    def reduce(nodes: Any) -> dict[str, Tensor]:
        h = nodes.mailbox["h"]
        return {"iou": cell.U(h.sum(1)), "c": (torch.sigmoid(cell.Uf(h)) * nodes.mailbox["c"]).sum(1)}

    def apply(nodes: Any) -> dict[str, Tensor]:
        i, o, u = nodes.data["iou"].chunk(3, 1)
        c = torch.sigmoid(i) * torch.tanh(u) + nodes.data["c"]
        return {"h": torch.sigmoid(o) * torch.tanh(c), "c": c}

    def step(task: Task, batch: range) -> Tensor:
        start = time.perf_counter()
        g = dgl.batch([graphs[i] for i in batch])
        frontiers = dgl.topological_nodes_generator(g)
        construction[0] += time.perf_counter() - start
        zeros = torch.zeros(g.num_nodes(), task.hidden)
        g.ndata["h"], g.ndata["c"] = zeros, zeros
        g.ndata["iou"] = cell.W(task.embed(g.ndata["word"]) * g.ndata["leaf"]) + cell.U.bias
        message = lambda edges: {"h": edges.src["h"], "c": edges.src["c"]}  # noqa: E731
        g.prop_nodes(frontiers, message, reduce, apply)  # what dgl.prop_nodes_topo does
        return task.loss(g.ndata["h"], g.ndata["label"])

    step.construction = construction  # type: ignore[attr-defined]
    return step


def sides_for(task: Task) -> dict[str, Callable[[Task, range], Tensor]]:
    sides = {"vgraph": vgraph_step, "level loop by hand": by_hand_step}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            dgl = importlib.import_module("dgl")
    except Exception:  # any failure of a foreign binary means that it is not there
        return sides
    return {**sides, f"DGL {dgl.__version__}": dgl_step(task, dgl)}


def epoch(task: Task, step: Callable[[Task, range], Tensor], batch_size: int) -> float:
    start = time.perf_counter()
    for first in range(0, len(task.trees), batch_size):
        task.optimizer.zero_grad()
        step(task, range(first, min(first + batch_size, len(task.trees)))).backward()
        task.optimizer.step()
    return time.perf_counter() - start


def check_losses(task: Task, sides: dict[str, Callable[[Task, range], Tensor]]) -> None:
    losses = {name: step(task, range(min(8, len(task.trees)))).item() for name, step in sides.items()}
    first = losses["vgraph"]
    if any(abs(loss - first) > 1e-3 * abs(first) for loss in losses.values()):
        raise SystemExit(f"the sides do not compute the same: {losses}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch-size", type=int, nargs="+", default=[25, 256])
    parser.add_argument("--hidden", type=int, default=150)
    parser.add_argument("--trees", type=int, default=256)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--json")
    parser.add_argument("--smoke", action="store_true")
    options = parser.parse_args()
    if options.smoke:
        options.batch_size, options.hidden, options.trees, options.epochs = [4], 8, 8, 1
    task = Task(make_trees(options.trees), options.hidden)
    sides = sides_for(task)
    check_losses(task, sides)
    rows = []
    for batch_size in options.batch_size:
        times: dict[str, list[float]] = {name: [] for name in sides}
        for number in range(options.epochs + 1):
            for name, step in sides.items():
                seconds = epoch(task, step, batch_size)
                if number:
                    times[name].append(seconds)
        rates = {name: options.trees / sorted(all_)[len(all_) // 2] for name, all_ in times.items()}
        rows.append({"batch": batch_size, "hidden": options.hidden, "trees a second": rates})
        for name, rate in rates.items():
            ratio = rates["vgraph"] / rate
            print(f"batch {batch_size:4d}  {name:20s} {rate:8.0f} trees/s   vgraph is {ratio:.2f} times as fast")
    if options.json:
        Path(options.json).write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
