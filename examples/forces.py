"""Forces: a molecular energy learnt from its slope, through message passing and back again.

    python examples/forces.py [--smoke]

Small clusters of atoms attract and repel one another by a known law (Morse). The model sees atoms and distances
along edges, gives an energy for each cluster, and its force is the gradient at the atoms' places. The loss is on
forces, so that training differentiates that gradient once more. Source: Schuett et al. 2018 (SchNet), section II.
"""

from __future__ import annotations

import argparse
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from tqdm import tqdm

import vgraph
from vgraph import ops

CENTRES = torch.linspace(0.6, 2.6, 16)


class Energy(nn.Module):
    """Continuous filters: neighbours' rows times a function of the distance, added up in two rounds."""

    def __init__(self, num_elements: int, width: int = 32) -> None:
        super().__init__()
        self.embed = nn.Embedding(num_elements, width)
        self.filter = nn.Sequential(nn.Linear(len(CENTRES), width), nn.Tanh(), nn.Linear(width, width))
        self.updates = nn.ModuleList([nn.Sequential(nn.Linear(width, width), nn.Tanh()) for _ in range(2)])
        self.out = nn.Sequential(nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 1))

    def forward(self, g: vgraph.Graph, z: Tensor, r: Tensor) -> Tensor:
        """One number a cluster from elements ``z`` (atoms,) and places ``r`` (atoms, 3)."""
        distance = ops.u_sub_v(g, r, r).square().sum(-1, keepdim=True).sqrt()
        h, weight = self.embed(z), self.filter(torch.exp(-10 * (distance - CENTRES).square()))
        for update in self.updates:
            h = h + update(ops.u_mul_e_sum(g, h, weight))
        return ops.segment_reduce(g.batch_num_nodes(), self.out(h))


def force_of(energy: Any, g: vgraph.Graph, z: Tensor, r: Tensor) -> Tensor:
    """(atoms, 3), and differentiable itself."""
    r = r.detach().requires_grad_()
    (slope,) = torch.autograd.grad(energy(g, z, r).sum(), r, create_graph=True)
    return -slope


def morse(g: vgraph.Graph, z: Tensor, r: Tensor) -> Tensor:
    """The true energy: each pair has a well whose depth and width hang on its elements."""
    src, dst = g.edges()
    distance = (r[src] - r[dst]).square().sum(-1).sqrt()
    kinds = (z[src] + z[dst]).float()
    pairs = (1 + 0.5 * kinds) * ((1 - torch.exp(-1.5 * (distance - 1.2))).square() - 1) / 2
    return torch.zeros(g.batch_size).index_add(0, g.topology.graph_ids[dst], pairs)


def clusters(count: int) -> tuple[vgraph.Graph, Tensor, Tensor]:
    """Clusters of 3 to 6 atoms of two elements, all pairs joined, near a grid with some disorder."""
    graphs: list[vgraph.Graph] = []
    places: list[Tensor] = []
    grid = torch.cartesian_prod(*[torch.arange(2.0)] * 3) * 1.2
    for i in range(count):
        size = 3 + i % 4
        graphs.append(vgraph.graph([(a, b) for a in range(size) for b in range(size) if a != b], num_nodes=size))
        places.append(grid[torch.randperm(8)[:size]] + 0.15 * torch.randn(size, 3))
    r = torch.cat(places)
    return vgraph.batch(graphs), torch.randint(2, (len(r),)), r


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])  # type: ignore[union-attr]
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--smoke", action="store_true")
    options = parser.parse_args()
    steps = 5 if options.smoke else options.steps
    torch.manual_seed(0)
    batches = [(*one, force_of(morse, *one).detach()) for one in (clusters(32) for _ in range(20))]
    test = clusters(200)
    wanted = force_of(morse, *test).detach()
    model = Energy(2)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.003)
    for step in tqdm(range(steps), unit="step", disable=None, leave=False):
        g, z, r, force = batches[step % len(batches)]
        loss = F.mse_loss(force_of(model, g, z, r), force)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step == 0 or (step + 1) % max(1, steps // 5) == 0:
            tqdm.write(f"step {step + 1}: loss {loss.item():.4f}")
    error = (force_of(model, *test) - wanted).detach().abs().mean()
    print(f"error of forces on 200 other clusters {error:.3f}; of no force at all {wanted.abs().mean():.3f}")


if __name__ == "__main__":
    main()
