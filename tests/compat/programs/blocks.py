"""Training on blocks: only what a few nodes need, layer by layer."""

import dgl
import torch
import torch.nn.functional as F
from dgl.nn import SAGEConv

torch.manual_seed(0)
generator = torch.Generator().manual_seed(4)
src, dst = torch.randint(0, 50, (2, 200), generator=generator)
g = dgl.to_simple(dgl.graph((src, dst), num_nodes=50))
g.ndata["feat"] = torch.randn(50, 6)
g.ndata["label"] = torch.randint(0, 3, (50,), generator=generator)
layers = torch.nn.ModuleList([SAGEConv(6, 8, "mean"), SAGEConv(8, 3, "mean")])
optimizer = torch.optim.Adam(layers.parameters(), lr=0.02)
seeds = torch.arange(50)
for epoch in range(4):
    total = 0.0
    for part in seeds.split(10):
        blocks, needed = [], part
        for _ in layers:
            block = dgl.to_block(dgl.in_subgraph(g, needed), needed)
            blocks.insert(0, block)
            needed = block.srcdata[dgl.NID]
        h = g.ndata["feat"][needed]
        for i, (layer, block) in enumerate(zip(layers, blocks)):
            h = layer(block, (h, h[: block.num_dst_nodes()]))
            h = F.relu(h) if i == 0 else h
        loss = F.cross_entropy(h, g.ndata["label"][part])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item()
    print(epoch, f"{total:.4f}", [b.num_src_nodes() for b in blocks])
with torch.no_grad():
    h = layers[1](g, F.relu(layers[0](g, g.ndata["feat"])))
print(f"{h.sum().item():.3f}", blocks[0].is_block, blocks[0].num_edges())
