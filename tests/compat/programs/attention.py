"""A graph attention network, its softmax over edges, and features at both ends."""

import dgl
import dgl.function as fn
import torch
import torch.nn.functional as F
from dgl.nn.functional import edge_softmax
from dgl.nn.pytorch import GATConv

torch.manual_seed(0)
generator = torch.Generator().manual_seed(2)
src, dst = torch.randint(0, 30, (2, 120), generator=generator)
g = dgl.add_self_loop(dgl.remove_self_loop(dgl.graph((src, dst), num_nodes=30)))
x = torch.randn(30, 7)
labels = torch.randint(0, 3, (30,), generator=generator)
first, last = GATConv(7, 4, num_heads=3, activation=F.elu), GATConv(12, 3, num_heads=1, residual=True)
for parameter in [*first.parameters(), *last.parameters()]:
    with torch.no_grad():
        parameter.copy_(torch.rand(parameter.shape, generator=generator) - 0.5)
optimizer = torch.optim.Adam([*first.parameters(), *last.parameters()], lr=0.02)
for epoch in range(20):
    logits = last(g, first(g, x).flatten(1)).mean(1)
    loss = F.cross_entropy(logits, labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if epoch % 5 == 0:
        print(epoch, f"{loss.item():.4f}")
_, weights = first(g, x, get_attention=True)
print(tuple(weights.shape), f"{weights.sum().item():.3f}")
g.ndata["h"] = x
g.apply_edges(fn.u_dot_v("h", "h", "s"))
g.edata["a"] = edge_softmax(g, g.edata["s"] / 7**0.5)
g.update_all(fn.u_mul_e("h", "a", "m"), fn.sum("m", "out"))
print([f"{value:.4f}" for value in g.ndata["out"].sum(0).tolist()])
