"""Bidirectional trees: name the kind of hidden vertices of syntax trees from what is below and above them.

    python examples/bidirectional_tree.py            functions of Python's standard library
    python examples/bidirectional_tree.py --smoke    a few steps on one package

One vertex function goes up the tree, another (``direction="reverse"``) down with what the first pushed;
a tenth of the tokens are hidden and have to be guessed. Source: Teng and Zhang 2017 (bidirectional
tree LSTMs); Xu et al. 2018 (Cavs), section 3.1 (functions composed by pull).
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
from vgraph.data import load_syntax
from vgraph.nn import ChildSumTreeLSTM

HIDDEN = 0.1  # part of the tokens


class Down(vgraph.VertexFunction):
    """A gated unit from parent to child; it pulls what the tree below a vertex is."""

    def __init__(self, size: int) -> None:
        super().__init__(direction="reverse")
        self.W, self.U = nn.Linear(2 * size, 2 * size), nn.Linear(size, 2 * size, bias=False)

    def forward(self, v: vgraph.Vertex) -> None:
        above = v.gather()["h"].sum()
        outside = torch.cat([v.pull("x"), v.pull("below")], -1)
        gate, new = (self.W(outside) + self.U(above)).chunk(2, -1)
        gate = torch.sigmoid(gate)
        h = gate * torch.tanh(new) + (1 - gate) * above
        v.scatter(h=h)
        v.push(h=h)


class Guesser(nn.Module):
    def __init__(self, num_tokens: int, size: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(num_tokens + 1, size)
        self.up, self.down = ChildSumTreeLSTM(size, size), Down(size)
        self.out = nn.Linear(2 * size, num_tokens)

    def forward(self, trees: vgraph.Graph, tokens: Tensor) -> Tensor:
        x = self.embedding(tokens)
        below = self.up(trees, x=x)["h"]
        return self.out(torch.cat([below, self.down(trees, x=x, below=below)["h"]], -1))


def train(folder: Path | None, size: int, epochs: int, most_batches: int | None) -> None:
    torch.manual_seed(0)
    data = load_syntax(folder=folder, num_classes=3).train
    model = Guesser(data.num_tokens, size)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    loader = vgraph.GraphLoader([sample.graph for sample in data], 32, shuffle=True, direction="both")
    for epoch in range(epochs):
        right = count = 0
        total = 0.0
        for number, trees in enumerate(tqdm(loader, desc=f"epoch {epoch + 1}", disable=None, leave=False)):
            if number == most_batches:
                break
            tokens = trees.ndata["token"]
            hidden = torch.rand(tokens.shape) < HIDDEN
            scores = model(trees, torch.where(hidden, data.num_tokens, tokens))[hidden]
            loss = F.cross_entropy(scores, tokens[hidden])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item() * scores.shape[0]
            right += int((scores.argmax(1) == tokens[hidden]).sum())
            count += scores.shape[0]
        print(f"epoch {epoch + 1}: loss {total / count:.3f}, {100 * right / count:.1f} % guessed", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])  # type: ignore[union-attr]
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--smoke", action="store_true")
    options = parser.parse_args()
    if options.smoke:
        train(Path(email.__file__).parent, 16, 1, 3)
    else:
        train(None, 96, options.epochs, None)


if __name__ == "__main__":
    main()
