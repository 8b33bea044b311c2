"""Circuits: predict how often each gate of a circuit is true, by a network along its wires.

    python examples/circuits.py adder.aig bar.aig ...    binary AIGER files, such as EPFL's benchmarks
    python examples/circuits.py                          adders and comparators made here
    python examples/circuits.py --smoke                  a few steps

Inputs and AND gates are vertices of two types with a function each (``ByType``); an edge says whether its
wire is inverted. The truth comes from simulating random inputs. Source: Li et al. 2022 (DeepGate, the
task); Biere 2007 (AIGER).
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from tqdm import trange

import vgraph
from vgraph.data import load_aiger

INPUT, GATE = 0, 1
PATTERNS = 1024


class Input(vgraph.VertexFunction):
    """Inputs are true half of the time, the constant never."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.embedding = nn.Linear(1, size)

    def forward(self, v: vgraph.Vertex) -> None:
        h = torch.tanh(self.embedding(v.pull("prior")))
        v.scatter(h=h)
        v.push(h=h)


class Gate(vgraph.VertexFunction):
    """The product of two wires, each turned by a map of its own where it is inverted."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.straight, self.turned = nn.Linear(size, size), nn.Linear(size, size)
        self.join, self.out = nn.Linear(size, size), nn.Linear(size, size)

    def forward(self, v: vgraph.Vertex) -> None:
        wire, inverted = v.gather()["h"], v.pull_edge("inverted")
        seen = torch.tanh(torch.where(inverted, self.turned(wire), self.straight(wire)))
        h = torch.tanh(self.join(seen.prod()) + self.out(seen.sum()))
        v.scatter(h=h)
        v.push(h=h)


class Estimator(nn.Module):
    def __init__(self, size: int) -> None:
        super().__init__()
        self.cells = vgraph.ByType({INPUT: Input(size), GATE: Gate(size)}, key="type")
        self.out = nn.Sequential(nn.Linear(size, size), nn.ReLU(), nn.Linear(size, 1), nn.Sigmoid())

    def forward(self, circuit: vgraph.Graph) -> Tensor:
        return self.out(self.cells(circuit)["h"]).squeeze(-1)


def prepare(src: np.ndarray, dst: np.ndarray, inverted: np.ndarray, num_inputs: int, num_gates: int) -> vgraph.Graph:
    """Vertex 0 is the constant false, then come the inputs and the gates, fanins first."""
    count = 1 + num_inputs + num_gates
    g = vgraph.graph((src, dst), num_nodes=count)
    draw = np.random.default_rng(0)
    value = np.zeros((count, PATTERNS), bool)
    value[1 : 1 + num_inputs] = draw.random((num_inputs, PATTERNS)) < 0.5
    for gate, (a, b), (x, y) in zip(dst[::2], src.reshape(-1, 2), inverted.reshape(-1, 2), strict=True):
        value[gate] = (value[a] ^ x) & (value[b] ^ y)
    g.ndata["truth"] = torch.from_numpy(value.mean(1, dtype=np.float32))
    g.ndata["type"] = (torch.arange(count) > num_inputs).long()
    g.ndata["prior"] = torch.tensor([[0.0]] + [[0.5]] * (count - 1))
    g.edata["inverted"] = torch.from_numpy(inverted).unsqueeze(-1)
    return g


def made_here(width: int) -> vgraph.Graph:
    """An adder of two numbers whose carries also say which is larger."""
    literals: list[tuple[int, int]] = []  # fanins of every gate: twice the vertex, odd where inverted
    first = 1 + 2 * width

    def both(a: int, b: int) -> int:
        literals.append((a, b))
        return 2 * (first + len(literals) - 1)

    def differ(a: int, b: int) -> int:
        return both(both(a, b) ^ 1, both(a ^ 1, b ^ 1) ^ 1)

    carry = 0
    for bit in range(width):
        a, b = 2 * (1 + bit), 2 * (1 + width + bit)
        half = differ(a, b)
        differ(half, carry)
        carry = both(both(a, b) ^ 1, both(half, carry) ^ 1) ^ 1
    ends = np.array(literals).reshape(-1)
    dst = np.repeat(np.arange(first, first + len(literals)), 2)
    return prepare(ends >> 1, dst, (ends & 1).astype(bool), 2 * width, len(literals))


def read(path: Path) -> vgraph.Graph:
    aig = load_aiger(path).aig
    return prepare(aig.src, aig.dst, aig.inverted, aig.num_inputs + aig.num_latches, aig.num_ands)


def train(circuits: list[vgraph.Graph], size: int, steps: int) -> None:
    torch.manual_seed(0)
    whole, model = vgraph.batch(circuits), Estimator(size)
    gates = (whole.ndata["type"] == GATE).nonzero().squeeze(1)
    truth = whole.ndata["truth"][gates]
    spread = (truth - truth.mean()).abs().mean()
    print(f"{len(circuits)} circuits, {gates.shape[0]} gates; the mean alone errs by {spread:.3f}")
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    for step in trange(steps, disable=None, leave=False):
        error = (model(whole)[gates] - truth).abs().mean()
        optimizer.zero_grad()
        error.backward()
        optimizer.step()
        if step in (0, steps - 1) or step % 50 == 49:
            print(f"step {step + 1}: mean error {error.item():.3f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])  # type: ignore[union-attr]
    parser.add_argument("files", type=Path, nargs="*", help="binary AIGER")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--smoke", action="store_true")
    options = parser.parse_args()
    circuits = [read(path) for path in options.files] or [
        made_here(w) for w in ((4, 6) if options.smoke else (8, 16, 32))
    ]
    train(circuits, *((8, 3) if options.smoke else (48, options.steps)))


if __name__ == "__main__":
    main()
