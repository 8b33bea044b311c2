"""Language models: the next word of the docstrings of Python's standard library, by LSTMs over chains.

    python examples/language_model.py              sentences as long as they are (Var-LSTM)
    python examples/language_model.py --fixed 64   the text cut into pieces of 64 words (Fixed-LSTM)
    python examples/language_model.py --smoke      a few steps of both, on one package

A sentence is a chain of vertices; a batch holds chains of every length without padding. Source:
Zaremba et al. 2014 (the task), Xu et al. 2018 (Cavs), section 5.1 (the two workloads).
"""

from __future__ import annotations

import argparse
import ast
import email
import math
import re
import sysconfig
import warnings
from collections import Counter
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from tqdm import tqdm

import vgraph

UNKNOWN, START = 0, 1


class LSTM(vgraph.VertexFunction):
    """One word after the other: a vertex has one child, the word before."""

    def __init__(self, size: int) -> None:
        super().__init__(states={"h": size, "c": size})
        self.W, self.U = nn.Linear(size, 4 * size), nn.Linear(size, 4 * size, bias=False)

    def forward(self, v: vgraph.Vertex) -> None:
        before = v.gather(0, default=0.0)
        i, f, o, u = (self.W(v.pull("x")) + self.U(before["h"])).chunk(4, -1)
        c = torch.sigmoid(f) * before["c"] + torch.sigmoid(i) * torch.tanh(u)
        h = torch.sigmoid(o) * torch.tanh(c)
        v.scatter(h=h, c=c)
        v.push(h=h)


class Model(nn.Module):
    def __init__(self, num_words: int, size: int) -> None:
        super().__init__()
        self.words, self.lstm, self.out = nn.Embedding(num_words, size), LSTM(size), nn.Linear(size, num_words)

    def loss(self, chains: vgraph.Graph) -> Tensor:
        h = self.lstm(chains, x=self.words(chains.ndata["word"]))["h"]
        return F.cross_entropy(self.out(h), chains.ndata["next"])


def docstrings(folder: Path) -> list[str]:
    found: list[str] = []
    for path in sorted(folder.rglob("*.py")):
        if "site-packages" in path.parts or "test" in path.parts:
            continue
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # the library's own invalid escapes
                module = ast.parse(path.read_bytes())
        except (SyntaxError, ValueError):
            continue
        documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
        found += [ast.get_docstring(n) or "" for n in ast.walk(module) if isinstance(n, documented)]
    return found


def sentences(folder: Path) -> list[list[str]]:
    text = "\n".join(docstrings(folder)).lower()
    cut = (re.findall(r"[a-z]+|[0-9]+|[^\w\s]", part) for part in re.split(r"(?<=[.!?])\s+|\n\s*\n", text))
    return [words for words in cut if 3 <= len(words) <= 83]


def chain(ids: list[int]) -> vgraph.Graph:
    g = vgraph.graph((range(len(ids) - 1), range(1, len(ids))), num_nodes=len(ids))
    g.ndata["word"], g.ndata["next"] = torch.tensor([START, *ids[:-1]]), torch.tensor(ids)
    return g


def prepare(folder: Path, fixed: int, most_words: int) -> tuple[list[vgraph.Graph], int]:
    found = sentences(folder)
    known = [word for word, _ in Counter(word for words in found for word in words).most_common(most_words)]
    number = {word: i + 2 for i, word in enumerate(known)}
    ids = [[number.get(word, UNKNOWN) for word in words] for words in found]
    if fixed:
        text = [i for sentence in ids for i in sentence]
        ids = [text[at : at + fixed] for at in range(0, len(text) - fixed + 1, fixed)]
    return [chain(i) for i in ids], len(known) + 2


def train(fixed: int, steps: int, size: int, folder: Path, most_words: int) -> None:
    torch.manual_seed(0)
    chains, num_words = prepare(folder, fixed, most_words)
    model = Model(num_words, size)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    loader, done, shown = vgraph.GraphLoader(chains, 64, shuffle=True, by_height=not fixed), 0, 0.0
    bar = tqdm(total=steps, disable=None, leave=False)
    while done < steps:
        for batch in loader:
            loss = model.loss(batch)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            shown = loss.item() if not done else 0.95 * shown + 0.05 * loss.item()
            done += 1
            bar.update()
            if done in (1, steps) or done % 200 == 0:
                kind = "fixed" if fixed else "variable"
                print(f"{kind} lengths: step {done}, perplexity {math.exp(shown):.1f}", flush=True)
            if done == steps:
                break
    bar.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])  # type: ignore[union-attr]
    parser.add_argument("--fixed", type=int, default=0, metavar="WORDS")
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--size", type=int, default=128)
    parser.add_argument("--smoke", action="store_true")
    options = parser.parse_args()
    if options.smoke:
        for fixed in (0, 16):
            train(fixed, 3, 16, Path(email.__file__).parent, 200)
        return
    train(options.fixed, options.steps, options.size, Path(sysconfig.get_path("stdlib")), 10_000)


if __name__ == "__main__":
    main()
