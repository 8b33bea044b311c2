"""Loss, every gradient and every updated parameter of divided steps, against one process in double precision."""

from __future__ import annotations

import argparse
import copy
import os
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.distributed as dist
from models.lstm import StackedLSTM
from models.resnet import WideResNet
from models.transformer import Llama
from torch import Tensor, nn
from tqdm import tqdm

import vgraph
from vgraph.runtime.distributed.in_process import whole_like
from vgraph.runtime.distributed.shards import take

from .processes import results

# eps: gradients that are zero but for rounding would be divided by themselves
OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "sgd momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
    "adam": lambda p: torch.optim.Adam(p, lr=0.01),
    "adagrad": lambda p: torch.optim.Adagrad(p, lr=0.1, eps=1e-6),
}
MODELS = ("wresnet", "lstm", "transformer")
STEPS = 2
CHOSEN = "VGRAPH_BENCHMARK_MODELS"


def small(name: str) -> tuple[nn.Module, tuple[Tensor, ...]]:
    """A model of the benchmark's own kind, narrow and short, in double precision."""
    torch.manual_seed(0)
    if name == "lstm":
        return StackedLSTM(2, 32).double(), (torch.randn(4, 16, 32).double(), torch.randn(4, 16, 32).double())
    if name == "transformer":
        return Llama(64, 32, 8, 4, 64, 2).double(), (torch.randint(0, 64, (8, 8)), torch.randint(0, 64, (8, 8)))
    images = torch.randn(8, 3, 32, 32).double()
    return WideResNet(50, 1, 8, (1, 1)).double(), (images, torch.randint(0, 8, (8,)))


def alone(model: nn.Module, batch: tuple[Tensor, ...], make: Any) -> tuple[list[Tensor], nn.Module]:
    model = copy.deepcopy(model)
    optimizer, losses = make(model.parameters()), []
    for _ in range(STEPS):
        model.zero_grad()
        losses.append(model(*batch))
        losses[-1].backward()
        optimizer.step()
    return [loss.detach() for loss in losses], model


def off(found: Tensor, wanted: Tensor) -> float:
    """The largest difference, of an element or of what is larger than 1 relative to it."""
    return float(((found - wanted).abs() / wanted.abs().clamp(min=1.0)).max()) if wanted.numel() else 0.0


def cases(smoke: bool) -> Iterator[tuple[str, str]]:
    chosen = os.environ.get(CHOSEN, " ".join(MODELS)).split()  # started processes are told in the same way
    yield from [("lstm", "adam")] if smoke else ((m, o) for m in MODELS if m in chosen for o in OPTIMIZERS)


def section(options: argparse.Namespace) -> list[dict[str, Any]]:
    rows = []
    if options.models:
        os.environ[CHOSEN] = " ".join(options.models)
    for name, optimizer in tqdm(list(cases(options.smoke)), desc="in process", disable=None):
        model, batch = small(name)
        losses, whole = alone(model, batch, OPTIMIZERS[optimizer])
        for workers in (2,) if options.smoke else (2, 4, 8):
            plan = vgraph.parallelize(model, batch, workers, optimizer=OPTIMIZERS[optimizer])
            found = plan.run_in_process(*batch)
            worst = off(found.loss, losses[0])
            found = plan.run_in_process(*batch, state=found.state)
            pairs = [(found.loss, losses[1]), *zip(found.parameters, whole.parameters(), strict=True)]
            pairs += [(g, p.grad) for g, p in zip(found.grads, whole.parameters(), strict=True) if g is not None]
            worst = max(worst, *(off(a, b.detach()) for a, b in pairs))
            rows.append({"model": name, "optimizer": optimizer, "workers": workers, "executor": "in process",
                         "largest difference": worst, "bytes planned": plan.communicated_bytes})  # fmt: skip
    for count in (2,) if options.smoke else (2, 4):
        rows += results("equality", count, options.smoke)[0]
    assert all(row["largest difference"] < 1e-9 for row in rows)
    assert all(row.get("bytes sent", row["bytes planned"]) == row["bytes planned"] for row in rows)
    return rows


def worker(smoke: bool) -> list[dict[str, Any]]:
    """One process: its shards against the same parts of one process's tensors."""
    return [_case(name, optimizer, int(os.environ["WORLD_SIZE"])) for name, optimizer in cases(smoke)]


def _case(name: str, optimizer: str, count: int) -> dict[str, Any]:
    model, batch = small(name)
    losses, whole = alone(model, batch, OPTIMIZERS[optimizer])
    plan = vgraph.parallelize(model, batch, count, optimizer=OPTIMIZERS[optimizer])
    mine = plan.launch()
    worst = 0.0
    for wanted in losses:
        mine.zero_grad()
        worst = max(worst, off(mine(*batch), wanted))
    reference = dict(whole.named_parameters())
    for key, parameter in mine.named_parameters():
        region, tensor = mine.layout(key).regions[mine.rank], reference[key]
        if region is None:
            continue
        for held, full in ((parameter, tensor), (parameter.grad, tensor.grad)):
            assert held is not None and full is not None
            worst = max(worst, off(held.detach(), take(full.detach(), whole_like(full), region)))
    most, sent = torch.tensor(worst, dtype=torch.float64), torch.tensor(mine.sent_bytes)
    dist.all_reduce(most, dist.ReduceOp.MAX)
    dist.all_reduce(sent)
    return {
        "model": name, "optimizer": optimizer, "workers": count, "executor": "gloo",
        "largest difference": float(most), "bytes planned": plan.communicated_bytes, "bytes sent": int(sent) // STEPS,
    }  # fmt: skip
