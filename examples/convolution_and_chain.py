"""Convolution and chain: a convolutional network reads columns of a picture, a recurrent one spells them.

    python examples/convolution_and_chain.py            words of the standard library, drawn
    python examples/convolution_and_chain.py --smoke    a few steps

The static part is ordinary PyTorch outside of the vertex function; ``pull`` joins the two, and the
gradient goes through. Each picture has as many columns as its word needs. Source: Xu et al. 2018 (Cavs),
section 3.1 (external static parts); Shi et al. 2015 (the architecture).
"""

from __future__ import annotations

import argparse
import keyword

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from tqdm import trange

import vgraph

LETTERS = "_abcdefghijklmnopqrstuvwxyz"
HEIGHT, WIDTH = 8, 6  # of a letter


class Reader(vgraph.VertexFunction):
    """A gated unit from letter to letter."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.W, self.U = nn.Linear(size, 3 * size), nn.Linear(size, 3 * size)

    def forward(self, v: vgraph.Vertex) -> None:
        before = v.gather()["h"].sum()
        own, past = self.W(v.pull("seen")).chunk(3, -1), self.U(before).chunk(3, -1)
        update, reset = torch.sigmoid(own[0] + past[0]), torch.sigmoid(own[1] + past[1])
        h = (1 - update) * torch.tanh(own[2] + reset * past[2]) + update * before
        v.scatter(h=h)
        v.push(h=h)


class Speller(nn.Module):
    def __init__(self, size: int) -> None:
        super().__init__()
        self.eye = nn.Sequential(
            nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
            nn.Flatten(), nn.Linear(8 * (HEIGHT // 2) * (WIDTH // 2), size), nn.ReLU(),
        )  # fmt: skip
        self.reader, self.out = Reader(size), nn.Linear(size, len(LETTERS))

    def forward(self, words: vgraph.Graph, pictures: Tensor) -> Tensor:
        return self.out(self.reader(words, seen=self.eye(pictures.unsqueeze(1)))["h"])


def words() -> list[str]:
    names = {name.lower() for name in (*keyword.kwlist, *dir(str), *dir(dict))}
    return sorted(name for name in names if len(name) > 1 and set(name) <= set(LETTERS))


def chain(word: str) -> vgraph.Graph:
    g = vgraph.graph((range(len(word) - 1), range(1, len(word))), num_nodes=len(word))
    g.ndata["letter"] = torch.tensor([LETTERS.index(letter) for letter in word])
    return g


def train(size: int, steps: int, batch: int) -> None:
    torch.manual_seed(0)
    glyphs = torch.randn(len(LETTERS), HEIGHT, WIDTH)  # what each letter looks like
    chains, model = [chain(word) for word in words()], Speller(size)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for step in trange(steps, disable=None, leave=False):
        chosen = vgraph.batch([chains[i] for i in torch.randint(0, len(chains), (batch,)).tolist()])
        letters = chosen.ndata["letter"]
        scores = model(chosen, glyphs[letters] + 2 * torch.randn(letters.shape[0], HEIGHT, WIDTH))
        loss = F.cross_entropy(scores, letters)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step in (0, steps - 1) or step % 100 == 99:
            right = (scores.argmax(1) == letters).double().mean()
            print(f"step {step + 1}: loss {loss.item():.3f}, {100 * right:.0f} % of the letters", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])  # type: ignore[union-attr]
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--smoke", action="store_true")
    options = parser.parse_args()
    train(*((16, 3, 4) if options.smoke else (64, options.steps, 64)))


if __name__ == "__main__":
    main()
