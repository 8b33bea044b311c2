"""Junction trees: messages towards the root and back, so that every clique hears from all others.

    python examples/junction_trees.py [--smoke]

A sample is a distribution over some variables that are true or false, given by tables over cliques of three of
them; the cliques form a tree in which neighbours share two variables. How often is each variable true? The junction
tree algorithm finds that by sending tables along the tree, inward and outward; here the messages are learnt. One vertex
function goes inward, another (``direction="reverse"``) outward: a clique is told what its parent has heard from
everybody but itself. Source: Lauritzen and Spiegelhalter 1988 (the algorithm); Jin et al. 2018 (JT-VAE: learnt
messages along a molecule's junction tree, in both directions).
"""

from __future__ import annotations

import argparse
import random

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from tqdm import trange

import vgraph

SHARED = ((0, 1), (0, 2), (1, 2))  # the places of a parent's variables that a clique begins with
WAYS = ("none", "inward", "both")


def perceptron(inputs: int, size: int) -> nn.Module:
    return nn.Sequential(nn.Linear(inputs, size), nn.Tanh(), nn.Linear(size, size))


class Inward(vgraph.VertexFunction):
    """From the leaves to the root: what a clique and all below it say of the variables that its parent shares."""

    def __init__(self, size: int) -> None:
        super().__init__(states={"message": size})
        self.read, self.say = perceptron(8, size), perceptron(size + len(SHARED), size)

    def forward(self, v: vgraph.Vertex) -> None:
        heard = self.read(v.pull("table")) + v.gather()["message"].sum()
        message = self.say(torch.cat([heard, v.pull("shares")], -1))
        v.scatter(message=message)
        v.push(message=message, heard=heard)


class Outward(vgraph.VertexFunction):
    """From the root to the leaves: a clique hears what its parent knows without it."""

    def __init__(self, size: int) -> None:
        super().__init__(direction="reverse", states={"known": size})
        self.say = perceptron(size + len(SHARED), size)

    def forward(self, v: vgraph.Vertex) -> None:
        others = v.gather()["known"].sum() - v.pull("message")  # there is one parent, which had that message
        told = self.say(torch.cat([others, v.pull("shares")], -1))
        has_parent = v.pull("shares").sum(-1, keepdim=True)  # a root hears nobody
        known = v.pull("heard") + has_parent * told
        v.scatter(known=known)
        v.push(known=known)


class Marginals(nn.Module):
    """How often each of a clique's three variables is true, as logits."""

    def __init__(self, size: int, ways: str) -> None:
        super().__init__()
        self.inward = Inward(size)
        self.outward = Outward(size) if ways == "both" else None
        self.alone = ways == "none"
        self.out = nn.Sequential(nn.Tanh(), nn.Linear(size, size), nn.Tanh(), nn.Linear(size, 3))

    def forward(self, g: vgraph.Graph) -> Tensor:
        if self.alone:
            return self.out(self.inward.read(g.ndata["table"]))
        found = self.inward(g)
        if self.outward is None:
            return self.out(found["heard"])
        return self.out(self.outward(g, message=found["message"], heard=found["heard"])["known"])


def sample(draw: random.Random, count: int) -> vgraph.Graph:
    """A tree of cliques with random tables, and the truth by going through all assignments."""
    cliques, parents, shares = [(0, 1, 2)], [0], [len(SHARED)]
    for new in range(3, count + 2):
        parent, pair = draw.randrange(len(cliques)), draw.randrange(len(SHARED))
        a, b = (cliques[parent][place] for place in SHARED[pair])
        cliques.append((a, b, new))
        parents.append(parent)
        shares.append(pair)
    g = vgraph.graph((torch.arange(1, count), torch.tensor(parents[1:], dtype=torch.int64)), num_nodes=count)
    g.ndata["table"] = table = 1.5 * torch.randn(count, 8)
    g.ndata["shares"] = F.one_hot(torch.tensor(shares), len(SHARED) + 1)[:, :-1].float()
    g.ndata["true"] = marginals(torch.tensor(cliques), table)
    return g


def marginals(cliques: Tensor, table: Tensor) -> Tensor:
    """(cliques, 3): the chance of each variable of each clique to be true."""
    count = int(cliques.max()) + 1
    bits = (torch.arange(2**count).unsqueeze(1) >> torch.arange(count)) & 1  # one assignment a row
    entries = (bits[:, cliques] * torch.tensor([1, 2, 4])).sum(-1)  # of each clique's table
    chance = torch.softmax(table[torch.arange(len(cliques)), entries].sum(1), 0)
    return (chance @ bits.float())[cliques]


def train(ways: str, size: int, steps: int, num_trees: int) -> float:
    """The mean error of marginals on trees that were not seen, larger ones among them."""
    torch.manual_seed(0)
    draw = random.Random(0)
    trees = [sample(draw, draw.randint(2, 7)) for _ in range(num_trees)]
    test = vgraph.batch([sample(draw, 2 + i % 8) for i in range(num_trees // 10)])
    model = Marginals(size, ways)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    trees = vgraph.unbatch(vgraph.batch(trees))
    for _ in trange(steps, desc=ways, disable=None, leave=False):
        g = vgraph.batch(draw.sample(trees, min(64, num_trees)))
        loss = F.binary_cross_entropy_with_logits(model(g), g.ndata["true"])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return (model(test).sigmoid() - test.ndata["true"]).abs().mean().item()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])  # type: ignore[union-attr]
    parser.add_argument("--steps", type=int, default=3000)
    parser.add_argument("--smoke", action="store_true")
    options = parser.parse_args()
    size, steps, num_trees = (8, 3, 20) if options.smoke else (64, options.steps, 4000)
    for ways in WAYS:
        error = train(ways, size, steps, num_trees)
        print(f"messages {ways}: mean error {error:.3f} of a variable's chance", flush=True)


if __name__ == "__main__":
    main()
