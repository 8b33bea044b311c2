"""Training on forces: gradients of gradients through message passing, and a gradient that a loss is made of."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import vgraph
import vgraph.function as fn
from vgraph.runtime import autograd


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


def test_derivatives_that_nobody_reads_are_not_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forces are a gradient by positions alone, and what trains them one by parameters alone."""
    g, _, r = molecules()
    weight = torch.full((3,), 0.5, dtype=torch.float64, requires_grad=True)
    steps: list[tuple[int, tuple[str, ...]]] = []
    whole = autograd.run

    def noted(call: autograd.Call, tensors: tuple[Tensor, ...]) -> list[Tensor | None]:
        if call.derivation:
            steps.append((len(call.derivation), call.derivation[-1].wrt))
        return whole(call, tensors)

    def energy(r: Tensor) -> Tensor:
        with g.local_scope():
            g.ndata["r"] = r
            g.update_all(
                lambda e: {"m": (weight * (e.src["r"] - e.dst["r"])).sin()}, lambda n: {"o": n.mailbox["m"].sum(1)}
            )
            return g.ndata["o"].square().sum()

    monkeypatch.setattr(autograd, "run", noted)
    (force,) = torch.autograd.grad(energy(r), r, create_graph=True)
    ((level, of_positions),) = steps
    assert level == 1 and sorted(of_positions) == ["dst:r", "src:r"]
    (found,) = torch.autograd.grad(force.square().sum(), weight)
    second = [wrt for level, wrt in steps if level == 2]
    assert second and all("dst:r" not in wrt for wrt in second)

    i, j = (end.long() for end in g.edges())
    x = r.detach().requires_grad_()
    plain = torch.zeros_like(x).index_add(0, j, (weight * (x[i] - x[j])).sin()).square().sum()
    (force,) = torch.autograd.grad(plain, x, create_graph=True)
    (wanted,) = torch.autograd.grad(force.square().sum(), weight)
    torch.testing.assert_close(found, wanted)


def test_a_gradient_is_there_for_whoever_asks_later() -> None:
    """Of one graph, kept, first the gradient of one input is taken, then those of all."""
    g, z, r = molecules()
    model = Energy().double()
    total = model(g, z, r).sum()
    (force,) = torch.autograd.grad(total, r, create_graph=True)
    named = [r, *model.parameters()]
    found = torch.autograd.grad(total, named, create_graph=True, materialize_grads=True)
    torch.testing.assert_close(found[0], force)
    again = torch.autograd.grad(total, named, materialize_grads=True)
    torch.testing.assert_close(found, again)
    assert all(t.abs().sum() > 0 for t in found)
