"""A graph convolutional network tells two groups of friends apart."""

import dgl
import torch
import torch.nn.functional as F
from dgl.nn import GraphConv

torch.manual_seed(0)
generator = torch.Generator().manual_seed(1)
group = (torch.arange(40) >= 20).long()
chance = torch.where(group[:, None] == group[None], 0.3, 0.03)
src, dst = (torch.rand(40, 40, generator=generator) < chance).nonzero(as_tuple=True)
g = dgl.add_self_loop(dgl.to_bidirected(dgl.remove_self_loop(dgl.graph((src, dst), num_nodes=40))))
g.ndata["feat"] = torch.eye(40)


class GCN(torch.nn.Module):
    def __init__(self, in_feats, h_feats, num_classes):
        super().__init__()
        self.conv1 = GraphConv(in_feats, h_feats)
        self.conv2 = GraphConv(h_feats, num_classes)

    def forward(self, g, in_feat):
        h = F.relu(self.conv1(g, in_feat))
        return self.conv2(g, h)


model = GCN(40, 8, 2)
optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
known = torch.tensor([0, 1, 38, 39])
for epoch in range(30):
    logits = model(g, g.ndata["feat"])
    loss = F.cross_entropy(logits[known], group[known])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if epoch % 5 == 0:
        print(epoch, f"{loss.item():.4f}")
print(f"{(logits.argmax(1) == group).float().mean().item():.3f}")
