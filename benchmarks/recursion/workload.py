"""A workload: sides that do the same step, and the products that none of them can do without."""

from __future__ import annotations

import importlib
import time
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any, TypeVar

import torch

INDUCTOR, AS_IT_IS = "inductor", ""  # torch.compile's backend; the function itself, where speed means nothing
Function = TypeVar("Function", bound=Callable[..., Any])
Step = Callable[[], object]  # a whole training step, or a forward; a number of it is compared


@dataclass(frozen=True, eq=False)
class Workload:
    """``sides``: name to step. ``flops``: of the matrix products alone. ``frontiers``: of the whole batch."""

    name: str
    sides: dict[str, Step]
    flops: float = 0.0
    frontiers: int = 0
    notes: dict[str, object] = field(default_factory=dict)


STEPS = 3  # that a side makes in a row, as in training: the first finds caches and threads as another side left them


def take_turns(workload: Workload, rounds: int, clock: Callable[[], float] = time.perf_counter) -> dict[str, float]:
    """Seconds of the best step of each side; sides take turns, and on a shared machine the best is least disturbed."""
    times: dict[str, list[float]] = {name: [] for name in workload.sides}
    for number in range(rounds + 1):
        for name, step in workload.sides.items():
            for _ in range(STEPS if number else 1):
                start = clock()
                step()
                if number or rounds == 0:
                    times[name].append(clock() - start)
    return {name: min(found) for name, found in times.items()}


def product_rate(size: int = 1024, repeats: int = 5) -> float:
    """Flops a second of torch's own product of this size, fp32."""
    a, b, out = torch.randn(size, size), torch.randn(size, size), torch.empty(size, size)
    torch.mm(a, b, out=out)
    best = float("inf")
    for _ in range(repeats):
        start = time.perf_counter()
        torch.mm(a, b, out=out)
        best = min(best, time.perf_counter() - start)
    return 2 * size**3 / best


def training(parameters: Iterable[torch.Tensor], loss: Callable[[], torch.Tensor]) -> Step:
    """Forward, backward and SGD."""
    kept = list(parameters)
    optimizer = torch.optim.SGD(kept, lr=1e-6)

    def step() -> float:
        optimizer.zero_grad()
        found = loss()
        found.backward()
        optimizer.step()
        return float(found.detach())

    return step


def forward_alone(loss: Callable[[], torch.Tensor]) -> Step:
    """Inference: no gradients."""

    def step() -> float:
        with torch.no_grad():
            return float(loss())

    return step


def compiled(function: Function, backend: str, *, dynamic: bool | None = None) -> Function:
    """The function under torch.compile, whatever the number of rows where it is ``dynamic``; or as it is."""
    return torch.compile(function, dynamic=dynamic, backend=backend) if backend else function


def optional(name: str) -> ModuleType | None:
    """A library that may not be there, or that does not import under this torch."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return importlib.import_module(name)
    except Exception:  # any failure of a foreign binary means that it is not there
        return None


def dynet_with_batches() -> Any:
    """DyNet with its own batching, or None where it is not there."""
    config = optional("dynet_config")
    if config is None:
        return None
    config.set(autobatch=1, mem="3000", random_seed=1)
    return optional("dynet")
