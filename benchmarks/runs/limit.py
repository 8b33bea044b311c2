"""A model whose training does not fit the memory that a process may have: one is refused, four train it."""

from __future__ import annotations

import argparse
import os
import resource
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

import vgraph

from .processes import start

MIB = 2**20


class Deep(nn.Module):
    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(layers))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = x + torch.tanh(layer(x))
        return x.square().mean()


def sizes(smoke: bool) -> tuple[int, int, int]:
    """Width, layers, MiB that a process may have beside what torch itself has taken."""
    return (512, 8, 28) if smoke else (2048, 12, 512)


def section(options: argparse.Namespace) -> list[dict[str, Any]]:
    width, layers, limit = sizes(options.smoke)
    state = 4 * 4 * layers * (width * width + width) / MIB
    rows = []
    many = 2 if options.smoke else 4
    for count in (1, many):
        found = start("limit", count, options.smoke)
        losses = [result["losses"] for code, result, _ in found if code == 0 and result]
        if count == 1 and losses:
            raise SystemExit("one process has trained what it has no memory for: is the limit not kept?")
        if count == many and len(losses) != many:
            raise SystemExit("\n".join(text for _, _, text in found))
        rows.append({
            "processes": count, "state MiB": state, "limit MiB a process": limit,
            "outcome": "trains" if losses else _last_words(found[0][2]), "losses": losses[0] if losses else [],
            "planned MiB a process": found[0][1]["planned MiB"] if losses else None,
        })  # fmt: skip
    assert rows[1]["losses"][-1] < rows[1]["losses"][0]
    return rows


def _last_words(text: str) -> str:
    words = [line for line in text.splitlines() if "allocate memory" in line or "MemoryError" in line]
    if not words:
        raise SystemExit(text)
    return f"refused: {words[-1].split(': ', 1)[-1][:90]}"


def worker(smoke: bool) -> dict[str, Any]:
    """One process, which may take ``limit`` more than it has when torch is warm."""
    width, layers, limit = sizes(smoke)
    count = int(os.environ["WORLD_SIZE"])
    with torch.device("meta"):
        model, x = Deep(width, layers), torch.zeros(64, width)
    plan = vgraph.parallelize(model, (x,), count, init=_init)
    planned = plan.memory_per_worker / MIB
    _warm()
    lines = Path("/proc/self/status").read_text().splitlines()
    taken = int(next(line for line in lines if "VmSize" in line).split()[1])
    resource.setrlimit(resource.RLIMIT_AS, (taken * 1024 + limit * MIB,) * 2)
    part = plan.launch()
    optimizer = torch.optim.Adam(part.parameters(), lr=1e-3)
    batch = torch.randn(64, width, generator=torch.Generator().manual_seed(1))
    losses = []
    for _ in range(3):
        optimizer.zero_grad()
        losses.append(float(part(batch)))
        optimizer.step()
    return {"losses": losses, "planned MiB": planned}


def _warm() -> None:
    """What libraries take for themselves is taken before the limit is set."""
    layer = nn.Linear(8, 8)
    layer(torch.zeros(4, 8)).sum().backward()
    torch.optim.Adam(layer.parameters()).step()
    dist.init_process_group("gloo")
    dist.all_reduce(torch.zeros(1 << 20))


def _init(name: str, tensor: Tensor) -> Tensor:
    return nn.init.normal_(tensor, std=0.02)
