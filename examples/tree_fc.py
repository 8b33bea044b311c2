"""Tree-FC: one fully connected cell over complete binary trees learns the parity of its leaves' signs.

    python examples/tree_fc.py            trees of 256 leaves
    python examples/tree_fc.py --smoke    a few steps on small trees

The cell is the smallest one there is, so the workload shows what batching alone is worth. Source: Looks
et al. 2017, section 3.5; Xu et al. 2018 (Cavs), section 5.1.
"""

from __future__ import annotations

import argparse

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from tqdm import trange

import vgraph


class TreeFC(vgraph.VertexFunction):
    def __init__(self, size: int) -> None:
        super().__init__(states={"h": size})
        self.W = nn.Linear(2 * size, size)

    def forward(self, v: vgraph.Vertex) -> None:
        both = torch.cat([v.gather(k, default=0.0)["h"] for k in range(2)], -1)
        is_leaf = (v.in_degree == 0).unsqueeze(-1)
        h = torch.where(is_leaf, v.pull("x"), torch.tanh(self.W(both)))
        v.scatter(h=h)
        v.push(h=h)


def complete_tree(num_leaves: int) -> vgraph.Graph:
    """Vertices level by level; the root is the last."""
    src, dst, first, width = list[int](), list[int](), 0, num_leaves
    while width > 1:
        for pair in range(width // 2):
            src += [first + 2 * pair, first + 2 * pair + 1]
            dst += [first + width + pair] * 2
        first, width = first + width, width // 2
    return vgraph.graph((src, dst), num_nodes=first + 1)


class Parity(nn.Module):
    """Is the number of negative leaves among the first ones odd?"""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.lift, self.cell, self.out = nn.Linear(1, size), TreeFC(size), nn.Linear(size, 2)

    def forward(self, trees: vgraph.Graph, values: Tensor) -> Tensor:
        sizes = trees.batch_num_nodes()
        roots = sizes.cumsum(0) - 1
        leaves = (trees.in_degrees() == 0).nonzero().squeeze(1)
        h = self.cell(trees, x=vgraph.at(self.lift(values.reshape(-1, 1)), leaves))["h"]
        return self.out(h[roots])


def train(num_leaves: int, size: int, batch: int, steps: int) -> None:
    torch.manual_seed(0)
    trees, model = vgraph.batch([complete_tree(num_leaves)] * batch), Parity(size)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    for step in trange(steps, disable=None, leave=False):
        values = torch.zeros(batch, num_leaves)
        values[:, :2] = torch.randn(batch, 2).sign()
        label = (values[:, :2] < 0).sum(1) % 2
        scores = model(trees, values)
        loss = F.cross_entropy(scores, label)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step in (0, steps - 1) or step % 50 == 49:
            right = (scores.argmax(1) == label).double().mean()
            print(f"step {step + 1}: loss {loss.item():.3f}, {100 * right:.0f} % right", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])  # type: ignore[union-attr]
    parser.add_argument("--leaves", type=int, default=256)
    parser.add_argument("--smoke", action="store_true")
    options = parser.parse_args()
    train(*((8, 16, 4, 3) if options.smoke else (options.leaves, 64, 64, 200)))


if __name__ == "__main__":
    main()
