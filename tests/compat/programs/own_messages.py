"""Messages and reductions of one's own: an edge network, attention, several aggregators at once."""

import dgl
import dgl.function as fn
import torch
from torch import nn

torch.manual_seed(0)
generator = torch.Generator().manual_seed(3)
src, dst = torch.randint(0, 25, (2, 80), generator=generator)
g = dgl.graph((src, dst), num_nodes=25)
x, e = torch.randn(25, 5, requires_grad=True), torch.randn(80, 3, requires_grad=True)


class EdgeNetwork(nn.Module):
    def __init__(self):
        super().__init__()
        self.mlp = nn.Sequential(nn.Linear(13, 16), nn.ReLU(), nn.Linear(16, 4))
        self.score = nn.Linear(4, 1)
        self.update = nn.Linear(5 + 4 + 12, 5)

    def edge_mlp(self, edges):
        m = self.mlp(torch.cat([edges.src["h"], edges.dst["h"], edges.data["e"]], dim=-1))
        return {"m": m, "a": self.score(m)}

    def message(self, edges):
        return {"m": edges.data["m"], "a": edges.data["a"]}

    def reduce(self, nodes):
        alpha = torch.softmax(nodes.mailbox["a"], dim=1)
        return {"agg": torch.sum(alpha * nodes.mailbox["m"], dim=1)}

    def moments(self, nodes):
        m = nodes.mailbox["m"]
        mean = m.mean(1)
        std = torch.sqrt(torch.relu((m * m).mean(1) - mean * mean) + 1e-5)
        return {"moments": torch.cat([mean, m.max(1)[0], std], -1)}

    def forward(self, g, h, e):
        with g.local_scope():
            g.ndata["h"], g.edata["e"] = h, e
            g.apply_edges(self.edge_mlp)
            g.update_all(self.message, self.reduce)
            g.update_all(fn.copy_e("m", "m"), self.moments)
            return self.update(torch.cat([h, g.ndata["agg"], g.ndata["moments"]], -1))


net = EdgeNetwork()
out = net(g, net(g, x, e), e)
out.square().mean().backward()
print([f"{value:.4f}" for value in out.sum(0).tolist()])
print(f"{x.grad.norm().item():.4f} {e.grad.norm().item():.4f} {net.mlp[0].weight.grad.norm().item():.4f}")
g.ndata["h"] = x.detach()
g.update_all(lambda edges: {"m": edges.src["h"]}, lambda nodes: {"last": nodes.mailbox["m"][:, -1]})
print(f"{g.ndata['last'].sum().item():.4f}", int((g.in_degrees() == 0).sum()))
