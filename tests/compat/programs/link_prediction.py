"""GraphSAGE predicts which pairs are joined, from dot products at the ends of edges."""

import dgl
import dgl.function as fn
import torch
import torch.nn.functional as F
from dgl.nn import SAGEConv

torch.manual_seed(0)
ring = torch.arange(30)
g = dgl.to_bidirected(dgl.graph((ring, (ring + 1) % 30)))
other = dgl.graph((ring, (ring * 7 + 11) % 30), num_nodes=30)
g.ndata["feat"] = torch.randn(30, 6)


class GraphSAGE(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = SAGEConv(6, 16, "mean")
        self.conv2 = SAGEConv(16, 16, "mean")

    def forward(self, g, x):
        return self.conv2(g, F.relu(self.conv1(g, x)))


class DotPredictor(torch.nn.Module):
    def forward(self, g, h):
        with g.local_scope():
            g.ndata["h"] = h
            g.apply_edges(fn.u_dot_v("h", "h", "score"))
            return g.edata["score"][:, 0]


model, predict = GraphSAGE(), DotPredictor()
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
for epoch in range(25):
    h = model(g, g.ndata["feat"])
    pos, neg = predict(g, h), predict(other, h)
    scores = torch.cat([pos, neg])
    labels = torch.cat([torch.ones_like(pos), torch.zeros_like(neg)])
    loss = F.binary_cross_entropy_with_logits(scores, labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if epoch % 6 == 0:
        print(epoch, f"{loss.item():.4f}")
print("score" in g.edata, sorted(g.ndata))
