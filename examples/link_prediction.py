"""Link prediction: which pairs of vertices are joined, where a part of the edges is hidden.

    python examples/link_prediction.py cora.npz       citations between papers (planetoid .npz)
    python examples/link_prediction.py [--smoke]      a graph of communities, made here

Two convolutions see the edges that are known, and give each vertex a code; the dot product of two codes says whether
they are joined. In each step the known edges stand against as many drawn pairs that no edge joins. What is reported is
the chance that a hidden edge scores higher than a pair without one (ROC AUC). Source: Kipf and Welling 2016 (the graph
autoencoder).
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from tqdm import trange

import vgraph
from vgraph import ops
from vgraph.data import load_planetoid
from vgraph.nn import GraphConv
from vgraph.sampling import global_uniform_negative_sampling

Pairs = tuple[Tensor, Tensor]


class Encoder(nn.Module):
    """Codes of vertices from two convolutions."""

    def __init__(self, in_size: int, hidden: int, code: int) -> None:
        super().__init__()
        self.first, self.second = GraphConv(in_size, hidden), GraphConv(hidden, code)

    def forward(self, g: vgraph.Graph, x: Tensor) -> Tensor:
        return self.second(g, torch.relu(self.first(g, x)))


def scores(code: Tensor, pairs: Pairs) -> Tensor:
    """(pairs,): the dot products of codes."""
    return ops.u_dot_v(vgraph.graph(pairs, num_nodes=len(code)), code, code).squeeze(1)


def loss_of(model: Encoder, g: vgraph.Graph, x: Tensor, joined: Pairs) -> Tensor:
    """Of known edges, and of as many pairs that are drawn anew."""
    code = model(g, x)
    found = scores(code, joined), scores(code, global_uniform_negative_sampling(g, len(joined[0])))
    return sum(F.binary_cross_entropy_with_logits(s, torch.full_like(s, 1.0 - i)) for i, s in enumerate(found)) / 2


def divided(g: vgraph.Graph, hidden: float) -> tuple[vgraph.Graph, Pairs, Pairs]:
    """The graph without hidden edges, with self-loops; its pairs, each once; the hidden ones."""
    src, dst = g.edges()
    src, dst = src[src < dst], dst[src < dst]
    order = torch.randperm(len(src))
    test, train = order[: int(hidden * len(order))], order[int(hidden * len(order)) :]
    known = vgraph.to_bidirected(vgraph.graph((src[train], dst[train]), num_nodes=g.num_nodes()))
    return vgraph.add_self_loop(known), (src[train], dst[train]), (src[test], dst[test])


def communities(count: int, size: int) -> vgraph.Graph:
    """Communities whose members are joined by a chance of 0.3, and to others by one of 1 / vertices."""
    member = torch.arange(count * size) // size
    chance = torch.where(member.unsqueeze(1) == member, 0.3, 1 / size / count)
    src, dst = (torch.rand(chance.shape) < chance).triu(1).nonzero().T
    g = vgraph.to_bidirected(vgraph.graph((src, dst), num_nodes=count * size))
    g.ndata["feat"] = torch.eye(count * size)
    return g


def area(positive: Tensor, negative: Tensor) -> float:
    """The chance that one of the first is larger than one of the second."""
    rank = torch.cat([negative, positive]).argsort().argsort()[len(negative) :].double()
    return float((rank.sum() - len(positive) * (len(positive) - 1) / 2) / (len(positive) * len(negative)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])  # type: ignore[union-attr]
    parser.add_argument("data", type=Path, nargs="?", help="cora.npz or citeseer.npz")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--smoke", action="store_true")
    options = parser.parse_args()
    torch.manual_seed(0)
    made = (3, 10) if options.smoke else (20, 30)
    whole = communities(*made) if options.data is None else load_planetoid(options.data).graph
    (g, known, hidden), x = divided(whole, 0.1), whole.ndata["feat"]
    model = Encoder(x.shape[1], 8 if options.smoke else 32, 8 if options.smoke else 16)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in trange(3 if options.smoke else options.steps, disable=None, leave=False):
        loss = loss_of(model, g, x, known)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        code = model(g, x)
        others = global_uniform_negative_sampling(whole, len(hidden[0]))
        found = area(scores(code, hidden), scores(code, others))
    print(f"{len(known[0])} known edges, {len(hidden[0])} hidden: ROC AUC {100 * found:.1f} %")


if __name__ == "__main__":
    main()
