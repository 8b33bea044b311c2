"""ListOps: evaluate nested lists such as [MAX 2 9 [MIN 4 7] 0] by a Tree-LSTM over their structure.

    python examples/listops.py                     expressions made here
    python examples/listops.py test_d20s.tsv       those of a file (answer, tab, expression)
    python examples/listops.py --smoke             a few steps

Source: Nangia and Bowman 2018.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from tqdm import trange

import vgraph
from vgraph.errors import DataError
from vgraph.nn import ChildSumTreeLSTM

OPERATORS = ("[MIN", "[MAX", "[MED", "[SM")
DIGITS = tuple(map(str, range(10)))
TOKENS = {name: i for i, name in enumerate((*OPERATORS, *DIGITS))}


def parse(expression: str, line: str | None = None) -> vgraph.Graph:
    """A tree with a vertex for every operator and digit; the root is vertex 0. DataError: it is no expression."""
    tokens, src, dst, open_ = list[int](), list[int](), list[int](), list[int]()
    for word in expression.split():
        if word == "]" and open_ and open_[-1] < len(tokens) - 1:
            open_.pop()
        elif word in TOKENS and (open_ or not tokens):
            if open_:
                src.append(len(tokens))
                dst.append(open_[-1])
            if word in OPERATORS:
                open_.append(len(tokens))
            tokens.append(TOKENS[word])
        elif word not in ("(", ")"):  # which group what the brackets group
            raise DataError(f"{word[:80]!r} does not belong there", line=line, cure="write [MAX 2 9 [MIN 4 7 ] 0 ]")
    if open_ or not tokens:
        raise DataError(f"the expression lacks {len(open_)} ']', or is empty", line=line, cure="close every bracket")
    g = vgraph.graph((src, dst), num_nodes=len(tokens))
    g.ndata["token"] = torch.tensor(tokens)
    return g


def read(path: Path) -> list[tuple[vgraph.Graph, int]]:
    """Trees and answers. DataError: a line is no answer, tab and expression."""
    samples: list[tuple[vgraph.Graph, int]] = []
    for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1):
        label, tab, expression = line.partition("\t")
        if line and not (tab and label in DIGITS):
            cure = "write a digit, a tab and the expression"
            raise DataError(f"{line[:80]!r} is no expression with its answer", line=f"{path}:{number}", cure=cure)
        if line:
            samples.append((parse(expression, f"{path}:{number}"), int(label)))
    return samples


def answer(g: vgraph.Graph) -> int:
    tokens = g.ndata["token"].tolist()
    below: list[list[int]] = [[] for _ in tokens]
    value = [0] * len(tokens)
    parents = dict(zip(*(end.tolist() for end in g.edges()), strict=True))
    for vertex in range(len(tokens) - 1, -1, -1):  # children have larger ids
        own = sorted(below[vertex])
        kind = tokens[vertex]
        results = (own[0], own[-1], (own[(len(own) - 1) // 2] + own[len(own) // 2]) // 2, sum(own) % 10) if own else ()
        value[vertex] = results[kind] if own else kind - len(OPERATORS)
        if vertex in parents:
            below[parents[vertex]].append(value[vertex])
    return value[0]


def made_here(draw: random.Random, depth: int = 4) -> str:
    if depth == 0 or (depth < 4 and draw.random() < 0.6):
        return str(draw.randrange(10))
    inside = " ".join(made_here(draw, depth - 1) for _ in range(draw.randint(2, 5)))
    return f"{draw.choice(OPERATORS)} {inside} ]"


class Evaluator(nn.Module):
    def __init__(self, size: int) -> None:
        super().__init__()
        self.embedding, self.cell = nn.Embedding(len(TOKENS), size), ChildSumTreeLSTM(size, size)
        self.out = nn.Linear(size, 10)

    def forward(self, trees: vgraph.Graph) -> Tensor:
        h = self.cell(trees, x=self.embedding(trees.ndata["token"]))["h"]
        sizes = trees.batch_num_nodes()
        return self.out(h[sizes.cumsum(0) - sizes])


def batches(samples: list[tuple[vgraph.Graph, int]], size: int) -> Iterator[tuple[vgraph.Graph, Tensor]]:
    while True:
        for ids in torch.randperm(len(samples)).split(size):
            graphs, labels = zip(*(samples[i] for i in ids.tolist()), strict=True)
            yield vgraph.batch(graphs), torch.tensor(labels)


def train(samples: list[tuple[vgraph.Graph, int]], size: int, steps: int) -> None:
    torch.manual_seed(0)
    model = Evaluator(size)
    optimizer, source = torch.optim.Adam(model.parameters(), lr=2e-3), batches(samples, 64)
    for step in trange(steps, disable=None, leave=False):
        trees, label = next(source)
        scores = model(trees)
        loss = F.cross_entropy(scores, label)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step in (0, steps - 1) or step % 200 == 199:
            right = (scores.argmax(1) == label).double().mean()
            print(f"step {step + 1}: loss {loss.item():.3f}, {100 * right:.0f} % right", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])  # type: ignore[union-attr]
    parser.add_argument("file", type=Path, nargs="?")
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--smoke", action="store_true")
    options = parser.parse_args()
    if options.file:
        samples = read(options.file)
        wrong = sum(answer(g) != label for g, label in samples)
        print(f"{len(samples)} expressions; {wrong} evaluate to something else than their label")
    else:
        draw = random.Random(0)
        trees = [parse(made_here(draw)) for _ in range(100 if options.smoke else 5000)]
        samples = [(g, answer(g)) for g in trees]
    train(samples, *((16, 3) if options.smoke else (96, options.steps)))


if __name__ == "__main__":
    main()
