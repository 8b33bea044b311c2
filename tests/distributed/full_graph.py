"""What one process of a full-graph test does: trains models on its part, and compares with training on the whole.

Started with a folder of partitions beside what training on the whole gives, methods of partitioning with commas between
them, and the names of models: none for all.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel as DDP

import vgraph
import vgraph.distributed as vd
from tests.distributed.full_graph_models import MODELS
from tests.distributed.small_graphs import homogeneous
from vgraph.runtime.distributed.ranks import current_ranks


def close(found: Tensor, wanted: Tensor, limit: float, what: str) -> None:
    """To ``limit`` of the largest number; what is 0 but for rounding is compared as if that were 0.001."""
    error = float((found - wanted).abs().max()) if found.numel() else 0.0
    scale = float(wanted.abs().max()) if wanted.numel() else 1.0
    assert error <= limit * max(scale, 1e-3), f"{what}: {error:.3g} of {scale:.3g}"


def whole_mean(rows: Tensor, weight: Tensor | None = None) -> Tensor:
    """What one process computes in place of ``vd.mean``."""
    return rows.mean() if weight is None else (rows * weight).sum() / weight.sum()


def train(model: nn.Module, g: vgraph.Graph, x: Tensor, mean: Any) -> list[Tensor]:
    """Five steps of Adam: losses. A gradient that is 0 but for rounding, as of a bias before a batch norm, stays so."""
    optimizer, losses = torch.optim.Adam(model.parameters(), lr=0.01, eps=1e-6), []
    for _ in range(5):
        optimizer.zero_grad()
        loss = mean(F.cross_entropy(model(g, x), g.ndata["y"], reduction="none"), g.ndata["train"])
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return losses


def penalise(model: nn.Module, g: vgraph.Graph, x: Tensor, mean: Any) -> Tensor:
    """A loss with a penalty on the gradient of outputs with regard to inputs, and its backward; gives x's gradient."""
    x = x.clone().requires_grad_(True)
    out = model(g, x)
    (slope,) = torch.autograd.grad(out.square().sum(), x, create_graph=True)
    (mean(out.square().sum(1)) + mean(slope.square().sum(1))).backward()
    assert x.grad is not None
    return x.grad


def made(name: str) -> nn.Module:
    """The model, which is the same each time."""
    torch.manual_seed(7)
    return MODELS[name]().double()


def with_weights(g: vgraph.Graph) -> vgraph.Graph:
    """The graph with weights of edges as rows of one column, too."""
    g.edata["w1"] = g.edata["w"].unsqueeze(1)
    return g


def reference(name: str) -> dict[str, Any]:
    """What one process that has the whole graph computes: losses, state, gradients of inputs and parameters."""
    model, whole = made(name), with_weights(homogeneous())
    torch.manual_seed(11)
    losses = train(model, whole, whole.ndata["x"], whole_mean)
    state = {key: tensor.clone() for key, tensor in model.state_dict().items()}
    model.zero_grad()
    torch.manual_seed(13)
    slope = penalise(model, whole, whole.ndata["x"], whole_mean)
    return {"losses": losses, "state": state, "slope": slope, "grads": [p.grad for p in model.parameters()]}


def compare(name: str, folder: str, wanted: dict[str, Any]) -> None:
    mine, own = vd.convert_batch_norm(made(name)), vd.DistGraph(folder, overlap=folder.endswith(("ldg", "hash")))
    with_weights(own)
    size = vd.num_ranks()
    torch.manual_seed(11)
    found = train(DDP(mine, find_unused_parameters=name == "copy"), own, own.ndata["x"], vd.mean)
    for step, (a, b) in enumerate(zip(found, wanted["losses"], strict=True)):
        close(a, b, 1e-10, f"{name}: loss {step}")
    for (key, a), b in zip(mine.state_dict().items(), wanted["state"].values(), strict=True):
        close(a.double(), b.double(), 1e-10, f"{name}: {key} after training")
    mine.zero_grad()
    torch.manual_seed(13)
    own_slope = penalise(mine, own, own.ndata["x"], vd.mean)
    vd.all_reduce_gradients(mine)
    close(own_slope / size, wanted["slope"][own.orig_ids()], 1e-9, f"{name}: gradient of the input")
    for (key, a), b in zip(mine.named_parameters(), wanted["grads"], strict=True):
        assert (a.grad is None) == (b is None), key
        if a.grad is not None and b is not None:
            close(a.grad, b, 1e-9, f"{name}: gradient of {key}")


def main(folder: str, methods: str, *names: str) -> None:
    vd.init(timeout=60)
    wanted = torch.load(Path(folder) / "wanted.pt", weights_only=True)
    for path in (Path(folder) / "parts" / method for method in methods.split(",")):
        for name in names or MODELS:
            before = current_ranks().sent_bytes
            compare(name, str(path), wanted[name])
            sent = current_ranks().sent_bytes - before
            sys.stdout.write(f"{vd.rank()} {path.name} {name} {sent}\n")  # at once: ranks share the pipe


if __name__ == "__main__":
    main(*sys.argv[1:])
