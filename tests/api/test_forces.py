"""Training on forces: gradients of gradients through message passing, and a gradient that a loss is made of."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import vgraph
import vgraph.function as fn


class Energy(nn.Module):
    """A small SchNet: filters of distances, two rounds of messages, a sum over every molecule."""

    def __init__(self, width: int = 4) -> None:
        super().__init__()
        self.embed = nn.Embedding(3, width)
        self.filter = nn.Sequential(nn.Linear(4, width), nn.Tanh(), nn.Linear(width, width))
        self.update, self.out = nn.Linear(width, width), nn.Linear(width, 1)

    def weigh(self, edges: Any) -> dict[str, Tensor]:
        d = (edges.src["r"] - edges.dst["r"]).square().sum(-1, keepdim=True).sqrt()
        return {"w": self.filter(torch.exp(-((d - torch.linspace(0.5, 2.0, 4, dtype=d.dtype)) ** 2)))}

    def forward(self, g: vgraph.Graph, z: Tensor, r: Tensor) -> Tensor:
        with g.local_scope():
            g.ndata["h"], g.ndata["r"] = self.embed(z), r
            g.apply_edges(self.weigh)
            for _ in range(2):
                g.update_all(fn.u_mul_e("h", "w", "m"), fn.sum("m", "a"))
                g.ndata["h"] = g.ndata["h"] + torch.tanh(self.update(g.ndata["a"]))
            g.ndata["e"] = self.out(g.ndata["h"])
            return vgraph.sum_nodes(g, "e")


def molecules() -> tuple[vgraph.Graph, Tensor, Tensor]:
    graphs: list[vgraph.Graph] = []
    for n in (2, 3):
        pairs = [(i, j) for i in range(n) for j in range(n) if i != j]
        graphs.append(vgraph.graph(pairs))
    g = vgraph.batch(graphs)
    r = torch.rand(5, 3, dtype=torch.float64)
    return g, torch.arange(5) % 3, (r + torch.arange(5).unsqueeze(1)).requires_grad_()


def test_forces_are_the_slope_of_the_energy() -> None:
    g, z, r = molecules()
    model = Energy().double()
    assert torch.autograd.gradcheck(lambda r: model(g, z, r), r)
    assert torch.autograd.gradgradcheck(lambda r: model(g, z, r), r)


@pytest.mark.parametrize("idtype", [torch.int64, torch.int32])
def test_a_loss_on_forces_has_the_gradient_that_plain_torch_gives(idtype: torch.dtype) -> None:
    g, z, r = molecules()
    g, model = g.astype(idtype), Energy().double()

    def dense(r: Tensor) -> Tensor:
        src, dst = (end.long() for end in g.edges())
        d = (r[src] - r[dst]).square().sum(-1, keepdim=True).sqrt()
        w = model.filter(torch.exp(-((d - torch.linspace(0.5, 2.0, 4, dtype=d.dtype)) ** 2)))
        h = model.embed(z)
        for _ in range(2):
            h = h + torch.tanh(model.update(torch.zeros_like(h).index_add(0, dst, h[src] * w)))
        return model.out(h).split([2, 3])[0].sum() + model.out(h).split([2, 3])[1].sum()

    found: list[tuple[Tensor, ...]] = []
    for energy in (lambda r: model(g, z, r).sum(), dense):
        (force,) = torch.autograd.grad(energy(r), r, create_graph=True)
        loss = (force - 1).square().mean()
        found.append(torch.autograd.grad(loss, [*model.parameters()], materialize_grads=True))
    for ours, wanted in zip(*found, strict=True):
        torch.testing.assert_close(ours, wanted)
