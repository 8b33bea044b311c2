"""What one process of a test of windows does: trains with little room for rows of others, and compares.

Started by torchrun with a folder of partitions.
"""

from __future__ import annotations

import gc
import sys
import weakref
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import vgraph
import vgraph.distributed as vd
from tests.distributed.full_graph import close
from tests.distributed.full_graph_models import MODELS
from vgraph.distributed import windows
from vgraph.errors import ArgumentError, GraphError
from vgraph.runtime.distributed.halo_exchange import Route

NAMES = ("gcn", "gat", "sage", "pna", "lambda", "narrowing", "dropout", "ids", "copy")
most = [0]


def watched(route: Route, columns: Sequence[Tensor], what: str) -> list[Tensor]:
    """Notes how many bytes one window has fetched."""
    found = fetch(route, columns, what)
    most[0] = max(most[0], sum(rows.numel() * rows.element_size() for rows in found))
    return found


fetch = windows.fetch


def step(name: str, folder: str, room: int | None) -> list[Tensor]:
    """A loss, and the gradients of parameters and rows."""
    torch.manual_seed(7)
    model, g = MODELS[name]().double(), vd.DistGraph(folder, halo_bytes=room)
    g.edata["w1"] = g.edata["w"].unsqueeze(1)
    x = g.ndata["x"].clone().requires_grad_()
    torch.manual_seed(11)
    loss = vd.mean(F.cross_entropy(model(g, x), g.ndata["y"], reduction="none"), g.ndata["train"])
    loss.backward()
    vd.all_reduce_gradients(model)
    assert x.grad is not None
    return [loss.detach(), x.grad, *(one.grad for one in model.parameters() if one.grad is not None)]


def refused(folder: str) -> None:
    """What windows cannot do is said, on every rank."""
    g = vd.DistGraph(folder, halo_bytes=600)
    g.ndata["h"] = g.ndata["x"].clone().requires_grad_()
    g.update_all(lambda edges: {"m": edges.src["h"].sin()}, lambda nodes: {"s": nodes.mailbox["m"].sum(1)})
    with pytest.raises(GraphError, match="make DistGraph without halo_bytes"):
        torch.autograd.grad(g.ndata["s"].sum(), g.ndata["h"], create_graph=True)
    with pytest.raises(GraphError, match="give cache_bytes or halo_bytes"):
        vd.DistGraph(folder, halo_bytes=600, cache_bytes=600)
    with pytest.raises(ArgumentError, match="halo_bytes=-1"):
        vd.DistGraph(folder, halo_bytes=-1)
    small = vd.DistGraph(folder, halo_bytes=60)
    with pytest.raises(GraphError, match=r"rows of other ranks, \d+ bytes, and halo_bytes is 60"):
        small.update_all(lambda edges: {"m": edges.src["x"].sin()}, lambda nodes: {"s": nodes.mailbox["m"].sum(1)})


def complex_rows(folder: str, room: int | None) -> Tensor:
    """The gradient of rows of complex numbers."""
    g = vd.DistGraph(folder, halo_bytes=room)
    x = torch.complex(g.ndata["x"], g.ndata["x"].flip(1)).requires_grad_()
    g.ndata["h"] = x
    g.update_all(lambda edges: {"m": edges.src["h"] * 2j}, lambda nodes: {"s": nodes.mailbox["m"].sum(1)})
    g.ndata["s"].abs().square().sum().backward()
    assert x.grad is not None
    return x.grad


class Owner:
    """Its messages read it, and it keeps what is made of their sums."""

    def __init__(self, folder: str) -> None:
        g, self.scale = vd.DistGraph(folder, halo_bytes=600), 2.0
        g.ndata["h"] = g.ndata["x"].clone().requires_grad_()
        g.update_all(self.message, lambda nodes: {"s": nodes.mailbox["m"].sum(1)})
        self.kept = g.ndata["s"] * 2
        self.kept.sum().backward()

    def message(self, edges: vgraph.EdgeBatch) -> dict[str, Tensor]:
        return {"m": edges.src["h"].sin() * self.scale}


def main(folder: str) -> None:
    vd.init(timeout=60)
    windows.fetch = watched
    for path in sorted(Path(folder).iterdir()):
        for name in NAMES:
            wanted = step(name, str(path), None)
            for room in (1000, 2**20):
                most[0] = 0
                for found, one in zip(step(name, str(path), room), wanted, strict=True):
                    close(found, one, 1e-10, f"{name} in {room} bytes")
                assert 0 < most[0] <= room, (name, room, most[0])
        close(complex_rows(str(path), 1000), complex_rows(str(path), None), 1e-10, "complex rows")
        refused(str(path))
        owner = weakref.ref(Owner(str(path)))
        gc.collect()
        assert owner() is None
    print("all windows are right")


if __name__ == "__main__":
    main(*sys.argv[1:])
