"""Tree-LSTM: name the functions of Python's standard library by their syntax trees, or tell sentiments.

    python examples/tree_lstm.py                    child-sum: any number of children
    python examples/tree_lstm.py --cell binary      two children: more are folded into pairs
    python examples/tree_lstm.py --sst FOLDER       the sentiment of sentences (train.txt, dev.txt, test.txt)
    python examples/tree_lstm.py --smoke            a few steps of both, on one package

A vertex function says what one vertex does: gather what the children scattered, pull what is from
outside, scatter to the parents, push to the outside. Whole batches of trees of any shape run through
it, level by level. Source: Tai, Socher and Manning 2015; Xu et al. 2018 (Cavs), figure 4.
"""

from __future__ import annotations

import argparse
import email
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from tqdm import tqdm

import vgraph
from vgraph.data import TreeDataset, TreeSample, TreeSplits, load_sst, load_syntax


class ChildSum(vgraph.VertexFunction):
    def __init__(self, size: int) -> None:
        super().__init__()
        self.W, self.U = nn.Linear(size, 3 * size), nn.Linear(size, 3 * size, bias=False)
        self.Wf, self.Uf = nn.Linear(size, size), nn.Linear(size, size, bias=False)

    def forward(self, v: vgraph.Vertex) -> None:
        child = v.gather()  # h and c of every child, however many
        x = v.pull("x")
        i, o, u = (self.W(x) + self.U(child["h"].sum())).chunk(3, -1)
        f = torch.sigmoid(self.Wf(x) + self.Uf(child["h"]))  # one gate a child
        c = torch.sigmoid(i) * torch.tanh(u) + (f * child["c"]).sum()
        h = torch.sigmoid(o) * torch.tanh(c)
        v.scatter(h=h, c=c)
        v.push(h=h)


class Binary(vgraph.VertexFunction):
    def __init__(self, size: int) -> None:
        super().__init__(states={"h": size, "c": size})
        self.W, self.U = nn.Linear(size, 5 * size), nn.Linear(2 * size, 5 * size, bias=False)

    def forward(self, v: vgraph.Vertex) -> None:
        left, right = v.gather(0), v.gather(1, default=0.0)
        x = v.pull("x")
        gates = self.W(x) + self.U(torch.cat([left["h"], right["h"]], -1))
        i, o, u, f, g = gates.chunk(5, -1)
        c = torch.sigmoid(i) * torch.tanh(u)
        c = c + torch.sigmoid(f) * left["c"] + torch.sigmoid(g) * right["c"]
        h = torch.sigmoid(o) * torch.tanh(c)
        v.scatter(h=h, c=c)
        v.push(h=h)


class Namer(nn.Module):
    """Tokens are embedded, the cell reads the tree, its root names the function."""

    def __init__(self, cell: vgraph.VertexFunction, size: int, data: TreeDataset) -> None:
        super().__init__()
        self.embedding, self.cell = nn.Embedding(data.num_tokens, size), cell
        self.dropout, self.out = nn.Dropout(0.3), nn.Linear(size, data.num_classes)

    def forward(self, trees: vgraph.Graph) -> Tensor:
        h = self.cell(trees, x=self.dropout(self.embedding(trees.ndata["token"])))["h"]
        sizes = trees.batch_num_nodes()
        roots = sizes.cumsum(0) - sizes  # the first vertex of every tree
        return self.out(self.dropout(h[roots]))


def fold(tree: vgraph.Graph) -> vgraph.Graph:
    """At most two children a vertex: (a b c d) becomes (a (b (c d))), new vertices hold token 0."""
    children: list[list[int]] = [[] for _ in range(tree.num_nodes())]
    for child, parent in zip(*(end.tolist() for end in tree.edges()), strict=True):
        children[parent].append(child)
    vertex = 0
    while vertex < len(children):
        if len(children[vertex]) > 2:
            children.append(children[vertex][1:])
            children[vertex] = [children[vertex][0], len(children) - 1]
        vertex += 1
    ends = [(child, parent) for parent, own in enumerate(children) for child in own]
    src, dst = torch.tensor(ends, dtype=torch.int64).reshape(-1, 2).unbind(1)
    folded = vgraph.graph((src, dst), num_nodes=len(children))
    folded.ndata["token"] = F.pad(tree.ndata["token"], (0, len(children) - tree.num_nodes()))
    return folded


Labelled = list[tuple[vgraph.Graph, int]]


def prepare(part: TreeDataset | list[TreeSample], cell: str) -> Labelled:
    return [(fold(s.graph) if cell == "binary" else s.graph, s.label) for s in part]


def batch_of(samples: Labelled) -> tuple[vgraph.Graph, Tensor]:
    graphs, labels = zip(*samples, strict=True)
    return vgraph.batch(graphs), torch.tensor(labels)


@torch.no_grad()
def accuracy(model: Namer, samples: Labelled) -> float:
    model.eval()
    trees, label = batch_of(samples)
    return 100 * float((model(trees).argmax(1) == label).double().mean())


def load(sst: Path | None, smoke: bool) -> TreeSplits:
    if sst is None:
        package = Path(email.__file__).parent if smoke else None  # None: the whole standard library
        return load_syntax(folder=package, num_classes=3 if smoke else 12)
    splits = load_sst(sst)
    for sample in (sample for part in splits for sample in part):
        sample.graph.ndata["token"] = sample.graph.ndata["word"].clamp(min=0)  # 0 where there is no word
    return splits


def train(cell: str, epochs: int, smoke: bool, sst: Path | None) -> None:
    torch.manual_seed(0)
    splits = load(sst, smoke)
    size = 16 if smoke else 128
    model = Namer(Binary(size) if cell == "binary" else ChildSum(size), size, splits.train)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    some = slice(96 if smoke else None)
    samples, val = prepare(splits.train[some], cell), prepare(splits.val[some], cell)
    for epoch in range(epochs):
        model.train()
        order = torch.randperm(len(samples)).split(32)
        total = 0.0
        for ids in tqdm(order, desc=f"epoch {epoch + 1}", disable=None, leave=False):
            trees, label = batch_of([samples[i] for i in ids.tolist()])
            loss = F.cross_entropy(model(trees), label)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        shown = f"val {accuracy(model, val):.1f} %" if val else "no val"
        print(f"{cell}: epoch {epoch + 1}, loss {total / len(order):.3f}, {shown}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])  # type: ignore[union-attr]
    parser.add_argument("--cell", choices=("child-sum", "binary"), default="child-sum")
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--sst", type=Path, metavar="FOLDER")
    parser.add_argument("--smoke", action="store_true", help="a few steps of both cells")
    arguments = parser.parse_args()
    if arguments.smoke:
        for cell in ("child-sum", "binary"):
            train(cell, 2, smoke=True, sst=arguments.sst)
    else:
        train(arguments.cell, arguments.epochs, smoke=False, sst=arguments.sst)


if __name__ == "__main__":
    main()
