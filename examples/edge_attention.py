"""Edge attention: which neighbour a point listens to depends on where it lies, which only the edge knows.

    python examples/edge_attention.py [--smoke]

Points lie in the plane, each of one of a few kinds, and are joined to those that are nearest. What is asked of a point
is the kind of its neighbour that lies furthest to the right. So attention has to look at the edge, which has the way
from the point to the neighbour; ``--blind`` leaves that out. Ends, softmax and weighted sum are calls of
``vgraph.ops``; ``vgraph.nn.EdgeGATConv`` and ``EGATConv`` are ready-made layers of the kind. Source: Velickovic et al.
2018, equations 1 to 4; Brody et al. 2022, equation 7; with rows of edges.
"""

from __future__ import annotations

import argparse

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from tqdm import trange

import vgraph
from vgraph import ops

KINDS, NEIGHBOURS = 6, 8


class EdgeAttention(nn.Module):
    """Scores of both ends' rows and the edge's; the mean of neighbours' values by their softmax."""

    def __init__(self, size: int, edge_size: int) -> None:
        super().__init__()
        self.own, self.other = nn.Linear(size, size), nn.Linear(size, size, bias=False)
        self.edge, self.score = nn.Linear(edge_size, size, bias=False), nn.Linear(size, 1, bias=False)
        self.value = nn.Linear(size, size)

    def forward(self, g: vgraph.Graph, h: Tensor, e: Tensor) -> Tensor:
        """(points, size) from rows of points ``h`` and of edges ``e``."""
        ends = ops.u_add_v(g, self.other(h), self.own(h))
        weight = ops.edge_softmax(g, self.score(torch.tanh(ends + self.edge(e))))
        return ops.u_mul_e_sum(g, self.value(h), weight)


class Listener(nn.Module):
    def __init__(self, size: int) -> None:
        super().__init__()
        self.kinds, self.attention = nn.Embedding(KINDS, size), EdgeAttention(size, 2)
        self.out = nn.Sequential(nn.Tanh(), nn.Linear(size, KINDS))

    def forward(self, g: vgraph.Graph, kind: Tensor, way: Tensor) -> Tensor:
        return self.out(self.attention(g, self.kinds(kind), way))


def points(count: int) -> tuple[vgraph.Graph, Tensor, Tensor, Tensor]:
    """A graph, kinds (points,), ways (edges, 2) and answers (points,)."""
    place, kind = torch.rand(count, 2), torch.randint(KINDS, (count,))
    g = vgraph.knn_graph(place, NEIGHBOURS)
    src, dst = g.edges()
    way = (place[src] - place[dst]) * count**0.5  # neighbours are about 1 away
    rightmost = way[:, 0].view(count, -1).argmax(1)  # in-edges of a point stand together
    return g, kind, way, kind[src.view(count, -1)[torch.arange(count), rightmost]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])  # type: ignore[union-attr]
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--blind", action="store_true", help="without the edges' rows")
    parser.add_argument("--smoke", action="store_true")
    options = parser.parse_args()
    torch.manual_seed(0)
    count, size, steps = (40, 8, 3) if options.smoke else (2000, 32, options.steps)
    (g, kind, way, answer), test = points(count), points(count)
    seen = 0.0 if options.blind else 1.0
    model = Listener(size)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in trange(steps, disable=None, leave=False):
        loss = F.cross_entropy(model(g, kind, seen * way), answer)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    found = model(test[0], test[1], seen * test[2]).argmax(1)
    print(f"{100 * (found == test[3]).float().mean():.1f} % of {count} other points hear the right neighbour")


if __name__ == "__main__":
    main()
