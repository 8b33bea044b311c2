"""Functions that switch autocast inside: what runs is what was recorded, whatever is on around the call."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import vgraph
import vgraph.function as fn
from vgraph.capture.capture import forget

SRC, DST = torch.randint(0, 50, (2, 200), generator=torch.Generator().manual_seed(1))
W = torch.linspace(-1, 1, 64).view(8, 8).requires_grad_()


@pytest.fixture(params=["1", "0"], ids=["own products", "torch's products"], autouse=True)
def products(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VGRAPH_PRODUCTS", request.param)
    forget()


def message(edges: Any) -> dict[str, Tensor]:
    with torch.autocast("cpu", enabled=False):
        return {"m": torch.tanh(edges.src["h"] @ W)}


class Off(vgraph.VertexFunction):
    def forward(self, v: Any) -> None:
        with torch.autocast("cpu", enabled=False):
            h = torch.tanh(v.pull("h") @ W + v.gather()["h"].sum() @ W)
        v.scatter(h=h)
        v.push(h=h)


class On(vgraph.VertexFunction):
    def forward(self, v: Any) -> None:
        with torch.autocast("cpu", torch.bfloat16):
            h = torch.tanh(v.pull("h") @ W + v.gather()["h"].sum() @ W)
        v.scatter(h=h.float())
        v.push(h=h)


def by_message(h: Tensor) -> Tensor:
    g = vgraph.graph((SRC, DST), num_nodes=50)
    g.ndata["h"] = h
    g.update_all(message, fn.sum("m", "o"))
    return g.ndata["o"]


def by_degree(h: Tensor) -> Tensor:
    g = vgraph.graph((SRC, DST), num_nodes=50)
    g.ndata["h"] = h

    def mean(nodes: Any) -> dict[str, Tensor]:
        with torch.autocast("cpu", enabled=False):
            return {"o": nodes.mailbox["m"].sum(1) @ W / nodes.mailbox["m"].shape[1] ** 0.5}

    g.update_all(message, mean)
    return g.ndata["o"]


def on_chains(function: Any) -> Any:
    chains = vgraph.graph((torch.arange(49), torch.arange(1, 50)))
    return lambda h: function()(chains, h=h)["h"]


@pytest.mark.parametrize(
    "function", [by_message, by_degree, on_chains(Off), on_chains(On)], ids=["message", "degrees", "off", "on"]
)
@pytest.mark.parametrize("grads", [False, True])
@pytest.mark.parametrize("backward_inside", [False, True])
def test_around_and_inside(function: Any, grads: bool, backward_inside: bool) -> None:
    h = torch.linspace(-1, 1, 400).view(50, 8).requires_grad_(grads)
    with torch.set_grad_enabled(grads):
        wanted = function(h)
        with torch.autocast("cpu", torch.bfloat16):
            found = function(h)
            if grads and backward_inside:
                (slope,) = torch.autograd.grad(found.float().square().sum(), h, create_graph=True)
                torch.autograd.grad(slope.sum(), W)
    assert found.dtype == wanted.dtype
    torch.testing.assert_close(found, wanted)
    if grads:
        (other,) = torch.autograd.grad(wanted.float().square().sum(), h)
        again = slope if backward_inside else torch.autograd.grad(found.float().square().sum(), h)[0]
        torch.testing.assert_close(again, other, rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("short", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", ["sum", "mean", "prod", "amax", "logsumexp", "softmax", "log_softmax", "var", "std"])
def test_reductions_over_slots_have_torchs_dtype(name: str, short: torch.dtype) -> None:
    """``prod`` computes with 32 bits under autocast, and gives them."""
    torch.manual_seed(0)
    g = vgraph.graph((torch.randint(5, (20,)), torch.arange(20) % 5))
    g.ndata["x"] = torch.randn(5, 3).to(short)
    with torch.autocast("cpu", short):
        box = g.ndata["x"][g.in_edges(torch.arange(5))[0]].reshape(5, 4, 3)
        wanted = getattr(torch, name)(box, 1)
        g.update_all(vgraph.function.copy_u("x", "m"), lambda nodes: {"y": getattr(nodes.mailbox["m"], name)(1)})
    mine = g.ndata["y"] if name not in ("softmax", "log_softmax") else g.ndata["y"].reshape(wanted.shape)
    assert mine.dtype == wanted.dtype
    torch.testing.assert_close(mine.float(), wanted.float(), atol=0.05, rtol=0.05)
