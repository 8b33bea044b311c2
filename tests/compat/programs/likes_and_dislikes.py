"""Relations between people and things: nodes classified, edges scored, pairs that are none told apart."""

from itertools import pairwise

import dgl
import dgl.function as fn
import dgl.nn.pytorch as dglnn
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

rng = np.random.default_rng(0)


def drawn(count, first, second):
    return torch.from_numpy(rng.integers(0, first, count)), torch.from_numpy(rng.integers(0, second, count))


follows, clicks, dislikes = drawn(300, 100, 100), drawn(500, 100, 50), drawn(50, 100, 50)
hg = dgl.heterograph(
    {
        ("user", "follow", "user"): follows,
        ("user", "followed-by", "user"): follows[::-1],
        ("user", "click", "item"): clicks,
        ("item", "clicked-by", "user"): clicks[::-1],
        ("user", "dislike", "item"): dislikes,
        ("item", "disliked-by", "user"): dislikes[::-1],
    },
    num_nodes_dict={"user": 100, "item": 50},
)
torch.manual_seed(0)
hg.nodes["user"].data["feature"], hg.nodes["item"].data["feature"] = torch.randn(100, 10), torch.randn(50, 10)
hg.nodes["user"].data["label"] = torch.arange(100) % 5
hg.edges["click"].data["rated"] = (torch.arange(500) % 2).float()
is_train = torch.arange(100) % 3 > 0


class RGCN(nn.Module):
    def __init__(self, sizes):
        super().__init__()
        self.layers = nn.ModuleList()
        for a, b in pairwise(sizes):
            convs = {rel: dglnn.GraphConv(a, b, allow_zero_in_degree=True) for rel in hg.etypes}
            self.layers.append(dglnn.HeteroGraphConv(convs, aggregate="sum"))

    def forward(self, g, h):
        for i, layer in enumerate(self.layers):
            h = layer(g, h if i == 0 else {name: F.relu(rows) for name, rows in h.items()})
        return h


class Dot(nn.Module):
    def forward(self, g, h, etype):
        with g.local_scope():
            g.ndata["h"] = h
            g.apply_edges(fn.u_dot_v("h", "h", "score"), etype=etype)
            return g.edges[etype].data["score"]


class Concat(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.W = nn.Linear(2 * size, 1)

    def apply_edges(self, edges):
        return {"score": self.W(torch.cat([edges.src["h"], edges.dst["h"]], 1))}

    def forward(self, g, h, etype):
        with g.local_scope():
            g.ndata["h"] = h
            g.apply_edges(self.apply_edges, etype=etype)
            return g.edges[etype].data["score"]


def other_pairs(g, k, etype):
    src, dst = g.edges(etype=etype)
    ends = src.repeat_interleave(k), (dst.repeat(k) * 7 + torch.arange(len(dst) * k)) % g.num_nodes(etype[2])
    return dgl.heterograph({etype: ends}, num_nodes_dict={ntype: g.num_nodes(ntype) for ntype in g.ntypes})


def begin(model):
    for i, parameter in enumerate(model.parameters()):
        parameter.data = torch.linspace(-0.3, 0.3, parameter.numel()).roll(i).view(parameter.shape)
    return model


def step(loss, optimizer):
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return round(loss.item(), 3)


feats = {ntype: hg.nodes[ntype].data["feature"] for ntype in hg.ntypes}
model = begin(RGCN([10, 20, 5]))
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
for _ in range(5):
    logits = model(hg, feats)["user"]
    print("nodes", step(F.cross_entropy(logits[is_train], hg.nodes["user"].data["label"][is_train]), optimizer))

model, score = begin(RGCN([10, 20, 5])), begin(Concat(5))
optimizer = torch.optim.Adam([*model.parameters(), *score.parameters()], lr=0.01)
for _ in range(3):
    found = score(hg, model(hg, feats), "click").squeeze(1)
    print("edges", step(F.mse_loss(found, hg.edges["click"].data["rated"]), optimizer))

model, kind = begin(RGCN([10, 20, 5])), ("user", "click", "item")
optimizer, pairs = torch.optim.Adam(model.parameters(), lr=0.01), other_pairs(hg, 3, kind)
print(pairs.canonical_etypes, pairs.num_edges(), pairs.num_nodes("item"))
for _ in range(3):
    h = model(hg, feats)
    there, none = Dot()(hg, h, kind), Dot()(pairs, h, kind)
    print("pairs", step((1 - there.unsqueeze(1) + none.view(there.shape[0], -1)).clamp(min=0).mean(), optimizer))
