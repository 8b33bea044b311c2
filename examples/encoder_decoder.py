"""Encoder and decoder: two vertex functions, joined by ordinary tensors, learn to turn words round.

    python examples/encoder_decoder.py            words of the standard library's sources
    python examples/encoder_decoder.py --smoke    a few steps

A word is a chain of letters, its vertices run one after the other; words of all lengths run side by
side. The encoder pushes its state at the last letter; every vertex of the decoder's chain pulls it,
gathers the state of the letter before, and names the next letter. Gradients flow back through both.
Source: Sutskever et al. 2014; Xu et al. 2018 (Cavs), section 3.1 (functions composed).
"""

from __future__ import annotations

import argparse
import email
import re
import sysconfig
from functools import cache
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from tqdm import tqdm

import vgraph

START, LETTERS = 0, "abcdefghijklmnopqrstuvwxyz"
NUM_TOKENS = 1 + len(LETTERS)


class Encoder(vgraph.VertexFunction):
    """An LSTM along the letters."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.W, self.U = nn.Linear(size, 4 * size), nn.Linear(size, 4 * size, bias=False)

    def forward(self, v: vgraph.Vertex) -> None:
        before = v.gather()
        gates = self.W(v.pull("letter")) + self.U(before["h"].sum())
        step(v, gates, before["c"].sum())


class Decoder(vgraph.VertexFunction):
    """An LSTM along the letters to be written, which at every letter looks at the whole word."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.W, self.U = nn.Linear(2 * size, 4 * size), nn.Linear(size, 4 * size, bias=False)

    def forward(self, v: vgraph.Vertex) -> None:
        before = v.gather()
        outside = torch.cat([v.pull("letter"), v.pull("thought")], -1)
        gates = self.W(outside) + self.U(before["h"].sum())
        step(v, gates, before["c"].sum())


def step(v: vgraph.Vertex, gates: Tensor, before: Tensor) -> None:
    i, f, o, u = gates.chunk(4, -1)
    c = torch.sigmoid(i) * torch.tanh(u) + torch.sigmoid(f + 1) * before
    h = torch.sigmoid(o) * torch.tanh(c)
    v.scatter(h=h, c=c)
    v.push(h=h)


class Reverser(nn.Module):
    def __init__(self, size: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(NUM_TOKENS, size)
        self.encoder, self.decoder = Encoder(size), Decoder(size)
        self.out = nn.Linear(size, NUM_TOKENS)

    def forward(self, words: list[str]) -> tuple[Tensor, Tensor]:
        """Logits of every letter to be written, and the letters."""
        chains = vgraph.batch(chain(len(word)) for word in words)
        sizes = chains.batch_num_nodes()
        read = tokens(words)
        h = self.encoder(chains, letter=self.embedding(read))["h"]
        thought = h[sizes.cumsum(0) - 1].repeat_interleave(sizes, 0)  # of each word's last letter
        wanted = tokens([word[::-1] for word in words])
        shown = wanted.roll(1)  # while training, the decoder is shown the right letter before
        shown[sizes.cumsum(0) - sizes] = START
        h = self.decoder(chains, letter=self.embedding(shown), thought=thought)["h"]
        return self.out(h), wanted


@cache
def chain(length: int) -> vgraph.Graph:
    return vgraph.graph((range(length - 1), range(1, length)), num_nodes=length)


def tokens(words: list[str]) -> Tensor:
    return torch.tensor([1 + LETTERS.index(letter) for letter in "".join(words)])


def load_words(folder: Path) -> list[str]:
    """The words of 3 to 12 letters in a folder's Python sources, each once."""
    found: set[str] = set()
    for path in folder.glob("*.py"):
        found.update(re.findall(r"[a-z]{3,12}", path.read_text("utf-8", "replace").lower()))
    return sorted(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])  # type: ignore[union-attr]
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--smoke", action="store_true", help="a few steps on one package's words")
    arguments = parser.parse_args()
    torch.manual_seed(0)
    stdlib = Path(sysconfig.get_paths()["stdlib"])
    words = load_words(Path(email.__file__).parent if arguments.smoke else stdlib)
    steps, size = (40, 32) if arguments.smoke else (arguments.steps, 128)
    model = Reverser(size)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    print(f"{len(words)} words, such as {words[len(words) // 2]}")
    total, right = 0.0, 0.0
    for count in tqdm(range(1, steps + 1), unit="step", disable=None, leave=False):
        drawn = [words[i] for i in torch.randint(len(words), (64,)).tolist()]
        logits, wanted = model(drawn)
        loss = F.cross_entropy(logits, wanted)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item()
        right += 100 * float((logits.argmax(1) == wanted).double().mean())
        if count % (every := steps // 10) == 0:
            curve = "#" * round(20 * total / every)
            tqdm.write(f"step {count:5}  letters right {right / every:5.1f} %  loss {total / every:.3f} {curve}")
            total, right = 0.0, 0.0


if __name__ == "__main__":
    main()
