"""A store with users, things and tags: messages by type, and a network of relations."""

import dgl
import dgl.function as fn
import dgl.nn.pytorch as dglnn
import torch
from torch import nn
import torch.nn.functional as F

torch.manual_seed(0)
generator = torch.Generator().manual_seed(5)
draw = lambda n, m, k: (torch.randint(0, n, (k,), generator=generator), torch.randint(0, m, (k,), generator=generator))
buys = draw(20, 12, 60)
g = dgl.heterograph(
    {
        ("user", "buys", "thing"): buys,
        ("thing", "bought-by", "user"): buys[::-1],
        ("user", "knows", "user"): draw(20, 20, 40),
        ("tag", "marks", "thing"): draw(5, 12, 20),
    },
    {"user": 20, "thing": 12, "tag": 5},
)
print(g.ntypes, g.etypes, g.num_edges("buys"), g.num_nodes())
for ntype in g.ntypes:
    g.nodes[ntype].data["h"] = torch.randn(g.num_nodes(ntype), 6)
funcs = {etype: (fn.copy_u("h", "m"), fn.mean("m", "s")) for etype in g.canonical_etypes}
for reducer in ("sum", "max", "stack"):
    g.multi_update_all(funcs, reducer)
    print(reducer, tuple(g.nodes["user"].data["s"].shape), f"{g.nodes['thing'].data['s'].sum().item():.4f}")


class RGCN(nn.Module):
    def __init__(self, rel_names):
        super().__init__()
        make = lambda a, b: dglnn.HeteroGraphConv(
            {rel: dglnn.GraphConv(a, b, norm="right", allow_zero_in_degree=True) for rel in rel_names}, aggregate="sum"
        )
        self.conv1, self.conv2 = make(6, 8), make(8, 3)

    def forward(self, graph, inputs):
        h = {k: F.relu(v) for k, v in self.conv1(graph, inputs).items()}
        h["tag"] = torch.zeros(graph.num_nodes("tag"), 8)
        return self.conv2(graph, h)


labels = torch.randint(0, 3, (20,), generator=generator)
model = RGCN(g.etypes)
for parameter in model.parameters():
    with torch.no_grad():
        parameter.copy_(torch.rand(parameter.shape, generator=generator) - 0.5)
optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
for epoch in range(20):
    loss = F.cross_entropy(model(g, {t: g.nodes[t].data["h"] for t in g.ntypes})["user"], labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if epoch % 5 == 0:
        print(epoch, f"{loss.item():.4f}")
whole = dgl.to_homogeneous(g)
print(whole.num_nodes(), whole.ndata[dgl.NTYPE].bincount().tolist(), whole.edata[dgl.ETYPE].bincount().tolist())
friends = dgl.metapath_reachable_graph(g, ["buys", "bought-by"])
print(friends.num_edges(), g["knows"].in_degrees().sum().item())
