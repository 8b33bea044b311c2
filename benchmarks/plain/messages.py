"""Messages of examples/ in torch alone: a row of memory for every edge, ``index_add`` at its end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

import vgraph

Pairs = tuple[Tensor, Tensor]


def attend(layer: Any, g: vgraph.Graph, h: Tensor, e: Tensor) -> Tensor:
    """EdgeAttention of examples/edge_attention.py."""
    src, dst = g.edges()
    score = layer.score(torch.tanh(layer.other(h)[src] + layer.own(h)[dst] + layer.edge(e)))
    peak = score.new_full((len(h), 1), -torch.inf).scatter_reduce(0, dst.unsqueeze(1), score.detach(), "amax")
    weight = torch.exp(score - peak[dst])
    total = weight.new_zeros(len(h), 1).index_add(0, dst, weight)
    return torch.zeros_like(h).index_add(0, dst, weight / total[dst] * layer.value(h)[src])


def convolved(layer: Any, g: vgraph.Graph, x: Tensor) -> Tensor:
    """vgraph.nn.GraphConv of examples/link_prediction.py."""
    src, dst = g.edges()
    sent = x @ layer.weight * torch.bincount(src, minlength=len(x)).clamp(min=1).rsqrt().unsqueeze(1)
    total = torch.zeros_like(sent).index_add(0, dst, sent[src])
    return total * torch.bincount(dst, minlength=len(x)).clamp(min=1).rsqrt().unsqueeze(1) + layer.bias


def unjoined(g: vgraph.Graph, count: int) -> Pairs:
    """Pairs of vertices that no edge joins, drawn anew."""
    number = g.num_nodes()
    src, dst = g.edges()
    drawn = torch.randint(number * number, (2 * count,))
    drawn = drawn[~torch.isin(drawn, src * number + dst)][:count]
    return drawn // number, drawn % number


def loss_of_links(model: Any, g: vgraph.Graph, x: Tensor, joined: Pairs, others: Pairs) -> Tensor:
    """That of examples/link_prediction.py, with pairs that are drawn before."""
    code = convolved(model.second, g, torch.relu(convolved(model.first, g, x)))
    found = [(code[src] * code[dst]).sum(1) for src, dst in (joined, others)]
    return sum(F.binary_cross_entropy_with_logits(s, torch.full_like(s, 1.0 - i)) for i, s in enumerate(found)) / 2


def joined(edges: Sequence[Tensor], sizes: Sequence[int]) -> tuple[Tensor, Tensor, Tensor]:
    """Ends of the edges of all graphs, whose vertices are numbered through; which graph each vertex is of."""
    starts = torch.tensor([0, *sizes]).cumsum(0)
    src, dst = torch.cat([ends + start for ends, start in zip(edges, starts[:-1], strict=True)], 1)
    return src, dst, torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes))


def energy(model: Any, centres: Tensor, ids: tuple[Tensor, Tensor, Tensor], z: Tensor, r: Tensor) -> Tensor:
    """Energy of examples/forces.py, with the ids that ``joined`` gives."""
    src, dst, graph_ids = ids
    distance = (r[src] - r[dst]).square().sum(-1, keepdim=True).sqrt()
    h, weights = model.embed(z), model.filter(torch.exp(-10 * (distance - centres).square()))
    for update in model.updates:
        h = h + update(torch.zeros_like(h).index_add(0, dst, h[src] * weights))
    return h.new_zeros(int(graph_ids[-1]) + 1, 1).index_add(0, graph_ids, model.out(h))
