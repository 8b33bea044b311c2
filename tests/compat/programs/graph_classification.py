"""A graph isomorphism network tells rings from paths, in batches."""

import dgl
import torch
import torch.nn.functional as F
from dgl.nn.pytorch import GINConv
from dgl.nn.pytorch.glob import AvgPooling, SumPooling

torch.manual_seed(0)
graphs, labels = [], []
for size in range(4, 16):
    path = dgl.to_bidirected(dgl.graph((torch.arange(size - 1), torch.arange(1, size))))
    ring = dgl.to_bidirected(dgl.graph((torch.arange(size), (torch.arange(size) + 1) % size)))
    for g, label in ((path, 0), (ring, 1)):
        g.ndata["attr"] = g.in_degrees().float().unsqueeze(1)
        graphs.append(g)
        labels.append(label)


class GIN(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.convs = torch.nn.ModuleList()
        for width in (1, 8):
            mlp = torch.nn.Sequential(torch.nn.Linear(width, 8), torch.nn.ReLU(), torch.nn.Linear(8, 8))
            self.convs.append(GINConv(mlp, "sum", learn_eps=True))
        self.out = torch.nn.Linear(16, 2)
        self.pools = SumPooling(), AvgPooling()

    def forward(self, g, h):
        for conv in self.convs:
            h = F.relu(conv(g, h))
        return self.out(torch.cat([pool(g, h) for pool in self.pools], 1))


model = GIN()
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
batch, wanted = dgl.batch(graphs), torch.tensor(labels)
print(batch.batch_size, batch.batch_num_nodes().tolist(), batch.batch_num_edges().tolist())
for epoch in range(40):
    loss = F.cross_entropy(model(batch, batch.ndata["attr"]), wanted)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if epoch % 10 == 0:
        print(epoch, f"{loss.item():.3f}")
alone = torch.cat([model(g, g.ndata["attr"]) for g in dgl.unbatch(batch)])
print(torch.allclose(alone, model(batch, batch.ndata["attr"]), atol=1e-4))
batch.ndata["h"] = batch.ndata["attr"]
print(dgl.sum_nodes(batch, "h")[:4].tolist(), dgl.max_nodes(batch, "h")[:4].tolist())
