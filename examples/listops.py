"""ListOps: evaluate nested lists such as [MAX 2 9 [MIN 4 7] 0] by a Tree-LSTM over their structure.

    python examples/listops.py                     expressions made here
    python examples/listops.py test_d20s.tsv       those of a file (answer, tab, expression)
    python examples/listops.py --smoke             a few steps

Source: Nangia and Bowman 2018.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from tqdm import trange

import vgraph
from vgraph.data import TreeDataset, TreeSample, load_listops, parse_listops
from vgraph.nn import ChildSumTreeLSTM

OPERATIONS: dict[str, Callable[[list[int]], int]] = {
    "[MIN": min,
    "[MAX": max,
    "[MED": lambda own: (sorted(own)[(len(own) - 1) // 2] + sorted(own)[len(own) // 2]) // 2,
    "[SM": lambda own: sum(own) % 10,
}


def made_here(draw: random.Random, depth: int = 4) -> tuple[str, int]:
    """An expression and its value."""
    if depth == 0 or (depth < 4 and draw.random() < 0.6):
        digit = draw.randrange(10)
        return str(digit), digit
    inside = [made_here(draw, depth - 1) for _ in range(draw.randint(2, 5))]
    name = draw.choice(list(OPERATIONS))
    return f"{name} {' '.join(text for text, _ in inside)} ]", OPERATIONS[name]([value for _, value in inside])


def answer(sample: TreeSample, tokens: tuple[str, ...]) -> int:
    words = [tokens[i] for i in sample.graph.ndata["token"].tolist()]
    below: list[list[int]] = [[] for _ in words]
    value = [0] * len(words)
    parents = dict(zip(*(end.tolist() for end in sample.graph.edges()), strict=True))
    for vertex in range(len(words) - 1, -1, -1):  # children have larger ids
        word, own = words[vertex], below[vertex]
        value[vertex] = OPERATIONS[word](own[::-1]) if own else int(word)
        if vertex in parents:
            below[parents[vertex]].append(value[vertex])
    return value[0]


class Evaluator(nn.Module):
    def __init__(self, num_tokens: int, size: int) -> None:
        super().__init__()
        self.embedding, self.cell = nn.Embedding(num_tokens, size), ChildSumTreeLSTM(size, size)
        self.out = nn.Linear(size, 10)

    def forward(self, trees: vgraph.Graph) -> Tensor:
        h = self.cell(trees, x=self.embedding(trees.ndata["token"]))["h"]
        sizes = trees.batch_num_nodes()
        return self.out(h[sizes.cumsum(0) - sizes])


def batches(samples: TreeDataset, size: int) -> Iterator[tuple[vgraph.Graph, Tensor]]:
    while True:
        for ids in torch.randperm(len(samples)).split(size):
            some = [samples[i] for i in ids.tolist()]
            yield vgraph.batch(sample.graph for sample in some), torch.tensor([sample.label for sample in some])


def train(samples: TreeDataset, size: int, steps: int) -> None:
    torch.manual_seed(0)
    model = Evaluator(samples.num_tokens, size)
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
        samples = load_listops(options.file)
        wrong = sum(answer(sample, samples.tokens) != sample.label for sample in samples)
        print(f"{len(samples)} expressions; {wrong} evaluate to something else than their label")
    else:
        draw = random.Random(0)
        made = [made_here(draw) for _ in range(100 if options.smoke else 5000)]
        samples = TreeDataset(parse_listops("".join(f"{value}\t{text}\n" for text, value in made)))
    train(samples, *((16, 3) if options.smoke else (96, options.steps)))


if __name__ == "__main__":
    main()
