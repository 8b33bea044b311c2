"""Lattices: where do words end in names that are written without underscores?

    python examples/lattice.py              names of Python's standard library
    python examples/lattice.py --smoke      a few steps on the names of one package

A vertex is a place between two letters. An arc leads over a letter, or over a whole word that is known from other
names; so every name is a graph of its own, with several arcs into one place. An LSTM goes along the arcs, once from
the left and once from the right: each arc has a state, and the place takes their mean, by weights that the arcs
bring. With ``--letters`` there are no arcs over words, and the same model is an LSTM over letters. Source: Zhang and
Yang 2018 (lattice LSTM); Ladhak et al. 2016 (LatticeRNN).
"""

from __future__ import annotations

import argparse
import email
import random
import re
import sysconfig
from collections import Counter
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from tqdm import trange

import vgraph

LETTERS = "abcdefghijklmnopqrstuvwxyz"
LONGEST = 12


class Arcs(vgraph.VertexFunction):
    """An LSTM along arcs; where several meet, each feature weighs them on its own."""

    def __init__(self, inputs: int, size: int, direction: str) -> None:
        super().__init__(direction=direction, states={"h": size, "c": size})
        self.W, self.U = nn.Linear(inputs, 5 * size), nn.Linear(size, 5 * size, bias=False)

    def forward(self, v: vgraph.Vertex) -> None:
        before = v.gather()  # the states at the arcs' other ends, one row an arc
        i, f, o, u, score = (self.W(v.pull_edge("token")) + self.U(before["h"])).chunk(5, -1)
        c = torch.sigmoid(f) * before["c"] + torch.sigmoid(i) * torch.tanh(u)
        weight = score.softmax()  # over the arcs that end here
        h = (weight * torch.sigmoid(o) * torch.tanh(c)).sum()
        v.scatter(h=h, c=(weight * c).sum())
        v.push(h=h)


class Segmenter(nn.Module):
    """For each place a number that is positive where a word ends."""

    def __init__(self, num_tokens: int, size: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(num_tokens, size)
        self.there, self.back = Arcs(size, size, "forward"), Arcs(size, size, "reverse")
        self.out = nn.Linear(2 * size, 1)

    def forward(self, g: vgraph.Graph) -> Tensor:
        token = self.tokens(g.edata["token"])
        return self.out(torch.cat([cell(g, token=token)["h"] for cell in (self.there, self.back)], 1)).squeeze(1)


def names(folder: Path) -> list[list[str]]:
    """Names of several words that stand in the modules of a folder, as lists of words."""
    text = "\n".join(path.read_text(encoding="utf-8", errors="ignore") for path in sorted(folder.glob("*.py")))
    found = sorted(set(re.findall(r"\b[a-z]{2,}(?:_[a-z]{2,})+\b", text)))
    return [name.split("_") for name in found]


def lattice(words: list[str], known: dict[str, int]) -> vgraph.Graph:
    """Arcs over letters, and over words of two letters and more that are known."""
    text = "".join(words)
    arcs = [(i, i + 1, LETTERS.index(letter)) for i, letter in enumerate(text)]
    for i in range(len(text)):
        for j in range(i + 2, min(i + LONGEST, len(text)) + 1):
            if text[i:j] in known:
                arcs.append((i, j, len(LETTERS) + known[text[i:j]]))
    src, dst, token = (torch.tensor(column) for column in zip(*arcs, strict=True))
    g = vgraph.graph((src, dst), num_nodes=len(text) + 1)
    g.edata["token"] = token
    g.ndata["ends"] = torch.zeros(len(text) + 1)
    g.ndata["ends"][torch.tensor([len(word) for word in words]).cumsum(0)] = 1.0
    return g


def all_right(scores: Tensor, g: vgraph.Graph) -> float:
    """The part of the names of which every place is right."""
    wrong = ((scores > 0) != (g.ndata["ends"] > 0)).float()
    graph_ids = torch.repeat_interleave(torch.arange(g.batch_size), g.batch_num_nodes())
    return (torch.zeros(g.batch_size).index_add(0, graph_ids, wrong) == 0).float().mean().item()


def by_longest_match(words: list[str], known: dict[str, int]) -> bool:
    """Whether the longest known word, again and again from the left, finds the words."""
    text, found = "".join(words), list[str]()
    while text:
        length = next((n for n in range(LONGEST, 1, -1) if text[:n] in known), 1)
        found.append(text[:length])
        text = text[length:]
    return found == words


def data(folder: Path, least: int, *, with_words: bool) -> tuple[list[vgraph.Graph], list[vgraph.Graph], int, float]:
    """Lattices to train and to test on, the number of tokens, and what longest match gets right."""
    found = names(folder)
    random.Random(0).shuffle(found)
    cut = len(found) // 5
    test, train = found[:cut], found[cut:]
    count = Counter(word for words in train for word in words)
    known = {word: i for i, (word, times) in enumerate(sorted(count.items())) if times >= least}
    matched = sum(by_longest_match(words, known) for words in test) / len(test)
    used = known if with_words else {}
    graphs = [[lattice(words, used) for words in part] for part in (train, test)]
    return graphs[0], graphs[1], len(LETTERS) + len(count), matched


def train(folder: Path, size: int, steps: int, least: int, *, with_words: bool) -> None:
    torch.manual_seed(0)
    graphs, test, num_tokens, matched = data(folder, least, with_words=with_words)
    model, whole = Segmenter(num_tokens, size), vgraph.batch(test)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    loader = vgraph.GraphLoader(graphs, 64, shuffle=True, direction="both")
    batches = iter(loader)
    for _ in trange(steps, disable=None, leave=False):
        batch = next(batches, None)
        if batch is None:
            batches = iter(loader)
            batch = next(batches)
        loss = F.binary_cross_entropy_with_logits(model(batch), batch.ndata["ends"])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    right = 100 * all_right(model(whole).detach(), whole)
    arcs = whole.num_edges() / whole.num_nodes()
    print(f"{len(graphs)} names, {arcs:.1f} arcs a place: {right:.1f} % of {len(test)} other names are right")
    print(f"longest match: {100 * matched:.1f} %")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])  # type: ignore[union-attr]
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--size", type=int, default=64)
    parser.add_argument("--letters", action="store_true", help="no arcs over words")
    parser.add_argument("--smoke", action="store_true")
    options = parser.parse_args()
    if options.smoke:
        train(Path(email.__file__).parent, 8, 3, 2, with_words=True)
    else:
        train(Path(sysconfig.get_path("stdlib")), options.size, options.steps, 2, with_words=not options.letters)


if __name__ == "__main__":
    main()
