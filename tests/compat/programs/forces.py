"""Training on forces: the energy of a molecule, and a loss on its gradient."""

import dgl
import dgl.function as fn
import torch
from torch import nn

torch.manual_seed(0)


class Energy(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.embed = nn.Embedding(3, width)
        self.filter = nn.Sequential(nn.Linear(4, width), nn.Tanh(), nn.Linear(width, width))
        self.update = nn.Linear(width, width)
        self.out = nn.Linear(width, 1)

    def rbf(self, edges):
        d = (edges.src["r"] - edges.dst["r"]).norm(dim=-1, keepdim=True)
        return {"w": self.filter(torch.exp(-((d - torch.linspace(0.5, 2.0, 4)) ** 2)))}

    def forward(self, g, z, r):
        with g.local_scope():
            g.ndata["h"], g.ndata["r"] = self.embed(z), r
            g.apply_edges(self.rbf)
            for _ in range(2):
                g.update_all(fn.u_mul_e("h", "w", "m"), fn.sum("m", "a"))
                g.ndata["h"] = g.ndata["h"] + torch.tanh(self.update(g.ndata["a"]))
            g.ndata["e"] = self.out(g.ndata["h"])
            return dgl.sum_nodes(g, "e")


def molecule(n):
    src, dst = zip(*[(i, j) for i in range(n) for j in range(n) if i != j])
    return dgl.graph((torch.tensor(src), torch.tensor(dst)), num_nodes=n)


g = dgl.batch([molecule(n) for n in (3, 4, 5)])
z, r = torch.arange(12) % 3, torch.rand(12, 3, requires_grad=True)
energy, force = torch.randn(3, 1), torch.randn(12, 3)
model = Energy()
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
for step in range(12):
    e = model(g, z, r)
    (grad,) = torch.autograd.grad(e.sum(), r, create_graph=True)
    loss = (e - energy).square().mean() + (-grad - force).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 3 == 0:
        print(step, f"{loss.item():.4f} {grad.norm().item():.4f}")
