"""A gated graph network whose message function updates the features of edges as it goes."""

import dgl
import torch
from torch import nn


class GatedLayer(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.own, self.sent, self.edge, self.near, self.far = (nn.Linear(size, size) for _ in range(5))
        self.norm_h, self.norm_e = nn.BatchNorm1d(size), nn.BatchNorm1d(size)

    def message_func(self, edges):
        e = edges.data["Ce"] + edges.src["Dh"] + edges.dst["Eh"]
        edges.data["e"] = e
        return {"Bh": edges.src["Bh"], "e": e}

    def reduce_func(self, nodes):
        gate = torch.sigmoid(nodes.mailbox["e"])
        mixed = (gate * nodes.mailbox["Bh"]).sum(1) / (gate.sum(1) + 1e-6)
        return {"h": nodes.data["Ah"] + mixed}

    def forward(self, g, h, e):
        g.ndata["h"], g.edata["e"] = h, e
        g.ndata["Ah"], g.ndata["Bh"] = self.own(h), self.sent(h)
        g.ndata["Dh"], g.ndata["Eh"], g.edata["Ce"] = self.near(h), self.far(h), self.edge(e)
        g.update_all(self.message_func, self.reduce_func)
        return h + torch.relu(self.norm_h(g.ndata["h"])), e + torch.relu(self.norm_e(g.edata["e"]))


def main():
    torch.manual_seed(0)
    ends = torch.arange(60) % 20, (torch.arange(60) * 7 + 2) % 20
    g = dgl.graph(ends)
    layers = nn.ModuleList([GatedLayer(4), GatedLayer(4)])
    score = nn.Linear(8, 1)
    for i, parameter in enumerate([*layers.parameters(), *score.parameters()]):
        if parameter.dim() > 1:
            parameter.data = torch.linspace(-0.5, 0.7, parameter.numel()).roll(i).view(parameter.shape)
    h, e = torch.randn(20, 4), torch.randn(60, 4)
    wanted = (ends[0] > ends[1]).float()
    optimizer = torch.optim.Adam([*layers.parameters(), *score.parameters()], lr=0.01)
    for epoch in range(8):
        x, y = h, e
        for layer in layers:
            x, y = layer(g, x, y)
        g.ndata["x"] = x
        g.apply_edges(lambda edges: {"s": score(torch.cat([edges.src["x"], edges.dst["x"]], 1)).squeeze(1)})
        loss = nn.functional.binary_cross_entropy_with_logits(g.edata["s"], wanted)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"epoch {epoch}, loss {loss.item():.4f}")
    print(sorted(g.edata.keys()), tuple(g.edata["e"].shape))


main()
