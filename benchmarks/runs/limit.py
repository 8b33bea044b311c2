"""A model whose training does not fit the memory that a process may have: one is refused, four train it.

What a process may have is measured, not guessed: what one takes where nothing limits it, libraries and all, less
half of what division is to save. A worker that then also holds what it should not have to hold is refused too.
"""

from __future__ import annotations

import argparse
import contextlib
import os
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

import vgraph

from .processes import start

resource: ModuleType | None = None
with contextlib.suppress(ImportError):  # a system without limits
    import resource

MIB = 2**20
STATUS = Path("/proc/self/status")
GIVES_BACK = {"MALLOC_MMAP_THRESHOLD_": "65536"}  # the allocator keeps nothing of what a tensor had


class Deep(nn.Module):
    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(layers))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = x + torch.tanh(layer(x))
        return x.square().mean()


def sizes(smoke: bool) -> tuple[int, int]:
    """Width, layers."""
    return (1024, 8) if smoke else (2048, 12)


def state(smoke: bool) -> float:
    """MiB of parameters, gradients and both moments."""
    width, layers = sizes(smoke)
    return 4 * 4 * layers * (width * width + width) / MIB


def section(options: argparse.Namespace) -> list[dict[str, Any]]:
    if resource is None or not STATUS.exists():
        return [{"outcome": "this system has no limit of what a process may write to (RLIMIT_DATA)"}]
    smoke, many = options.smoke, 2 if options.smoke else 4
    (free,) = _train(1, smoke)
    limit = free["taken MiB"] - state(smoke) * (1 - 1 / many) / 2
    ((code, result, text),) = start("limit", 1, smoke, **GIVES_BACK, DATA_LIMIT=str(limit))
    if code == 0 and result:
        raise SystemExit("one process has trained what it has no memory for: is the limit not kept?")
    parts = _train(many, smoke, DATA_LIMIT=str(limit))
    if any(part["more"] != "refused" for part in parts):
        raise SystemExit(f"a process that took more than its share was let: {[part['more'] for part in parts]}")
    shared = {"state MiB": state(smoke), "limit MiB a process": limit}
    return [
        {"processes": 1, **shared, "outcome": _last_words(text), "taken MiB": free["taken MiB"], "losses": []},
        {
            "processes": many, **shared, "outcome": "trains", "taken MiB": max(part["taken MiB"] for part in parts),
            "losses": parts[0]["losses"], "planned MiB a process": parts[0]["planned MiB"],
        },
    ]  # fmt: skip


def _train(count: int, smoke: bool, **environment: str) -> list[dict[str, Any]]:
    found = start("limit", count, smoke, **GIVES_BACK, **environment)
    if any(code or not result for code, result, _ in found):
        raise SystemExit("\n".join(text for _, _, text in found))
    results = [result for _, result, _ in found]
    assert results[0]["losses"][-1] < results[0]["losses"][0]
    return results


def _last_words(text: str) -> str:
    words = [line for line in text.splitlines() if "allocate memory" in line or "MemoryError" in line]
    if not words:
        raise SystemExit(text)
    return f"refused: {words[-1].split(': ', 1)[-1][:90]}"


def worker(smoke: bool) -> dict[str, Any]:
    """One process, which may take ``DATA_LIMIT`` MiB more than it has when torch is warm, if that is set."""
    width, layers = sizes(smoke)
    count, limit = int(os.environ["WORLD_SIZE"]), os.environ.get("DATA_LIMIT")
    with torch.device("meta"):
        model, x = Deep(width, layers), torch.zeros(64, width)
    plan = vgraph.parallelize(model, (x,), count, init=_init)
    _warm()
    before = most = _held()
    if limit is not None:
        _allow(int(before + float(limit) * MIB))
    part = plan.launch()
    optimizer = torch.optim.Adam(part.parameters(), lr=1e-3)
    batch = torch.randn(64, width, generator=torch.Generator().manual_seed(1))
    losses = []
    for _ in range(3):
        optimizer.zero_grad()
        losses.append(float(part(batch)))
        most = max(most, _held())
        optimizer.step()
        most = max(most, _held())
    more = "let" if limit is None else _take(state(smoke))
    planned = plan.memory_per_worker / MIB
    return {"losses": losses, "planned MiB": planned, "taken MiB": (most - before) / MIB, "more": more}


def _held() -> int:
    """Bytes that this process alone may write to: heaps, stacks, libraries' own; what is reserved does not count."""
    line = next(line for line in STATUS.read_text().splitlines() if line.startswith("VmData"))
    return int(line.split()[1]) * 1024


def _allow(held: int) -> None:
    assert resource is not None
    resource.setrlimit(resource.RLIMIT_DATA, (held, resource.getrlimit(resource.RLIMIT_DATA)[1]))


def _take(mib: float) -> str:
    """What becomes of a process that is to hold the whole state beside its share."""
    try:
        torch.ones(int(mib * MIB) // 4)
    except (RuntimeError, MemoryError):
        return "refused"
    return "let"


def _warm() -> None:
    """What libraries take for themselves is taken before the limit is set."""
    layer = nn.Linear(8, 8)
    layer(torch.zeros(4, 8)).sum().backward()
    torch.optim.Adam(layer.parameters()).step()
    dist.init_process_group("gloo")
    dist.all_reduce(torch.zeros(1 << 20))


def _init(name: str, tensor: Tensor) -> Tensor:
    return nn.init.normal_(tensor, std=0.02)
