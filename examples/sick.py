"""SICK: how related two sentences are, from 1 to 5, by a Tree-LSTM over the dependency tree of each.

    python examples/sick.py FOLDER          SICK: train, dev and test with a.toks, a.parents, b.toks, b.parents, sim.txt
    python examples/sick.py                 pairs that are made here, written to such files and read from them
    python examples/sick.py --smoke         a few steps on few of them

A sentence that is made here has a verb, two nouns and adjectives; the second of a pair says it with other words, or
gives the adjectives to the other noun. How related they are is the part of the pairs (word, head) that both have. So
the words alone do not tell: "young dog sees old cat" and "old dog sees young cat" have the same. Source: Marelli et al.
2014 (SICK); Tai, Socher and Manning 2015, section 4.2 (the model).
"""

from __future__ import annotations

import argparse
import random
import tempfile
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from tqdm import trange

import vgraph
from vgraph.data import PairDataset, PairSplits, load_sick
from vgraph.nn import ChildSumTreeLSTM

VERBS, NOUNS = ("sees", "hears", "likes", "meets"), ("dog", "cat", "girl", "man", "horse", "bird")
ADJECTIVES = ("old", "young", "small", "tall", "loud", "calm")
Sentence = list[tuple[str, int]]  # words, each with the number of its head, from 1; 0: it is the root


class Relatedness(nn.Module):
    """One cell reads both trees; product and distance of the roots' states say which of 1 to 5 is likely."""

    levels: Tensor

    def __init__(self, num_tokens: int, size: int) -> None:
        super().__init__()
        self.embedding, self.cell = nn.Embedding(num_tokens, size), ChildSumTreeLSTM(size, size)
        self.compare = nn.Sequential(nn.Linear(2 * size, size), nn.Sigmoid(), nn.Linear(size, 5))
        self.register_buffer("levels", torch.arange(1, 6.0))

    def forward(self, left: vgraph.Graph, right: vgraph.Graph) -> Tensor:
        """(pairs, 5): logits of the levels."""
        trees = vgraph.batch([left, right])
        h = self.cell(trees, x=self.embedding(trees.ndata["word"]))["h"]
        one, other = vgraph.rows_at(h, roots_of(trees)).chunk(2)
        return self.compare(torch.cat([one * other, (one - other).abs()], 1))

    def loss(self, found: Tensor, similarity: Tensor) -> Tensor:
        """A number between two levels is a distribution on both: equations 15 and 16."""
        likely = (1 - (similarity.unsqueeze(1) - self.levels).abs()).clamp(min=0)
        return F.kl_div(F.log_softmax(found, 1), likely, reduction="batchmean")

    def similarity(self, found: Tensor) -> Tensor:
        return torch.softmax(found, 1) @ self.levels


def roots_of(trees: vgraph.Graph) -> Tensor:
    """The first vertex of every tree."""
    sizes = trees.batch_num_nodes()
    return sizes.cumsum(0) - sizes


def said(draw: random.Random, verb: str, nouns: list[str], adjectives: list[list[str]]) -> Sentence:
    """Words and heads: the verb, each noun behind it, its adjectives behind that in any order."""
    words: Sentence = [(verb, 0)]
    for noun, some in zip(nouns, adjectives, strict=True):
        words.append((noun, 1))
        head = len(words)
        words += [(word, head) for word in draw.sample(some, len(some))]
    return words


def made_pair(draw: random.Random) -> tuple[Sentence, Sentence, float]:
    """Two sentences, and how related they are."""
    verb, nouns = draw.choice(VERBS), draw.sample(NOUNS, 2)
    adjectives = [draw.sample(ADJECTIVES, draw.randint(1, 3)) for _ in nouns]
    one = said(draw, verb, nouns, adjectives)
    if draw.random() < 0.3:
        verb = draw.choice(VERBS)
    if draw.random() < 0.3:
        nouns[draw.randrange(2)] = draw.choice(NOUNS)
    if draw.random() < 0.5:
        adjectives.reverse()
    elif draw.random() < 0.7:
        adjectives[draw.randrange(2)] = draw.sample(ADJECTIVES, draw.randint(1, 3))
    other = said(draw, verb, nouns, adjectives)
    first, second = ({(word, words[head - 1][0] if head else "") for word, head in words} for words in (one, other))
    return one, other, 1 + 4 * len(first & second) / len(first | second)


def write_pairs(folder: Path, draw: random.Random, count: int) -> None:
    """One part of the data set in SICK's files."""
    folder.mkdir()
    pairs = [made_pair(draw) for _ in range(count)]
    for side, name in enumerate("ab"):
        for kind, at in (("toks", 0), ("parents", 1)):
            lines = (" ".join(str(word[at]) for word in pair[side]) for pair in pairs)
            (folder / f"{name}.{kind}").write_text("\n".join(lines) + "\n")
    (folder / "sim.txt").write_text("".join(f"{similarity:.4f}\n" for _, _, similarity in pairs))


def made_here(count: int) -> PairSplits:
    with tempfile.TemporaryDirectory() as folder:
        draw = random.Random(0)
        for part, size in (("train", count), ("dev", count // 5), ("test", count // 5)):
            write_pairs(Path(folder) / part, draw, size)
        return load_sick(folder)


def pearson(found: Tensor, true: Tensor) -> float:
    return torch.corrcoef(torch.stack([found, true]))[0, 1].item()


def shared_words(pairs: PairDataset) -> Tensor:
    """The part of the words that both sentences have."""
    sets = [[set(tree.ndata["word"].tolist()) for tree in (pair.left, pair.right)] for pair in pairs]
    return torch.tensor([len(one & other) / len(one | other) for one, other in sets])


@torch.no_grad()
def measured(model: Relatedness, pairs: PairDataset) -> float:
    found = [model.similarity(model(left, right)) for left, right, _ in vgraph.GraphLoader(pairs, 256)]
    return pearson(torch.cat(found), pairs.similarity)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])  # type: ignore[union-attr]
    parser.add_argument("data", type=Path, nargs="?", metavar="FOLDER")
    parser.add_argument("--epochs", type=int, default=15)
    parser.add_argument("--smoke", action="store_true")
    options = parser.parse_args()
    torch.manual_seed(0)
    splits = made_here(40 if options.smoke else 4000) if options.data is None else load_sick(options.data)
    model = Relatedness(len(splits.train.tokens), 8 if options.smoke else 64)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    loader = vgraph.GraphLoader(splits.train, 25, shuffle=True)
    for _ in trange(1 if options.smoke else options.epochs, unit="epoch", disable=None, leave=False):
        for left, right, similarity in loader:
            loss = model.loss(model(left, right), similarity)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    print(f"{len(splits.train)} pairs: Pearson's r {measured(model, splits.test):.3f} on {len(splits.test)} others")
    print(f"by the words that both have: {pearson(shared_words(splits.test), splits.test.similarity):.3f}")


if __name__ == "__main__":
    main()
