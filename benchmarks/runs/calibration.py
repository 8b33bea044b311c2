"""The simulator beside runs: two processes over gloo, on a machine whose numbers are fitted to other models' runs.

Every op and every exchange of a run is timed (a barrier before an exchange takes the waiting out). Products give
operations a second, other ops bytes a second, both what an op costs at least; exchanges give bytes a second and
latency. A model's step is then simulated on the machine that the *other* models' runs describe.
"""

from __future__ import annotations

import argparse
import statistics
import time
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from models.lstm import StackedLSTM
from models.resnet import WideResNet
from models.transformer import Llama
from partitioning.sensitivity import sensitivity
from scipy.optimize import nnls
from torch import Tensor, nn

import vgraph
from vgraph.ir.exchange import Exchange
from vgraph.ir.program import Op, op_name
from vgraph.ir.tdl.table import is_view
from vgraph.partition.accounting.machines import Link, Machine
from vgraph.partition.accounting.simulate import num_flops
from vgraph.runtime.distributed import shards

from .processes import results

PROCESSES = 2
PRODUCTS = frozenset("mm bmm addmm baddbmm convolution convolution_backward".split())


class Perceptron(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(torch.relu(self.up(x))).square().mean()


def made(name: str, smoke: bool) -> tuple[nn.Module, tuple[Tensor, ...]]:
    torch.manual_seed(0)
    if name == "perceptron":
        width, rows = (64, 8) if smoke else (1024, 256)
        return Perceptron(width), (torch.randn(rows, width),)
    if name == "lstm":
        steps, rows, width = (2, 8, 32) if smoke else (8, 64, 512)
        return StackedLSTM(2, width), (torch.randn(steps, rows, width), torch.randn(steps, rows, width))
    if name == "transformer":
        ids = torch.randint(0, 1024, (4, 128))
        return Llama(1024, 256, 8, 4, 1024, 2), (ids, ids)
    return WideResNet(50, 1, 8, (1, 1, 1, 1)), (torch.randn(8, 3, 64, 64), torch.randint(0, 8, (8,)))


@dataclass
class Timed:
    """What one model's run took: products (operations, s), others (bytes, s), exchanges (bytes, s), waiting."""

    plan: Any
    step: float = 0.0  # each fetch is waited for
    overlapped: float = 0.0  # fetches travel while workers compute
    products: list[tuple[float, float]] = field(default_factory=list)
    others: list[tuple[float, float]] = field(default_factory=list)
    exchanges: list[tuple[float, float]] = field(default_factory=list)
    waiting: list[float] = field(default_factory=list)
    repeats: int = 1

    @property
    def computing(self) -> float:
        return sum(s for _, s in (*self.products, *self.others)) / self.repeats

    @property
    def exchanging(self) -> float:
        return sum(s for _, s in self.exchanges) / self.repeats


def section(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Rows of the first process; a step takes as long as the slower one's."""
    return results("calibration", PROCESSES, options.smoke)[0]


def worker(smoke: bool) -> list[dict[str, Any]]:
    dist.init_process_group("gloo")
    names = ("perceptron", "lstm") if smoke else ("perceptron", "lstm", "transformer", "wresnet")
    timed = {name: measure(name, smoke) for name in names}
    return [compare(name, [t for other, t in timed.items() if other != name], timed[name]) for name in names]


def measure(name: str, smoke: bool) -> Timed:
    """Steps as they are, then steps in which everything is timed."""
    model, batch = made(name, smoke)
    plan = vgraph.parallelize(model, batch, PROCESSES)
    part, found = plan.launch(), Timed(plan)
    steps: dict[bool, list[float]] = {True: [], False: []}
    for number in range(3 if smoke else 12):
        for overlaps, seconds in steps.items():  # at the end without, as the rest is measured
            part._group.overlaps = overlaps
            dist.barrier()
            start = time.perf_counter()
            part(*batch)
            if number > 1:
                seconds.append(time.perf_counter() - start)
    found.step, found.overlapped = (_slower(statistics.median(steps[each])) for each in (False, True))
    found.repeats = 1 if smoke else 3
    with _Watch(part, found):
        for _ in range(found.repeats):
            part(*batch)
    return found


class _Watch:
    """Times each op and each exchange of a worker."""

    def __init__(self, part: Any, found: Timed) -> None:
        self.part, self.found, self.evaluate = part, found, shards.evaluate

    def __enter__(self) -> None:
        self.exchange = self.part._group.exchange
        self.part._group.exchange, shards.evaluate = self._exchange, self._evaluate

    def __exit__(self, *_: object) -> None:
        self.part._group.exchange, shards.evaluate = self.exchange, self.evaluate

    def _evaluate(self, op: Op, env: Any, device: Any = None) -> None:
        start = time.perf_counter()
        self.evaluate(op, env, device)
        seconds = time.perf_counter() - start
        if op_name(op.target) in PRODUCTS:
            self.found.products.append((num_flops(op), seconds))
        else:
            moved = 0 if is_view(op.target) else sum(v.row_bytes for v in (*op.operands(), *op.results))
            self.found.others.append((float(moved), seconds))

    def _exchange(self, exchange: Exchange, shard: Tensor | None) -> Any:
        start = time.perf_counter()
        if exchange.num_bytes:
            dist.barrier()
        began = time.perf_counter()
        result = self.exchange(exchange, shard)
        if exchange.num_bytes:
            self.found.waiting.append(began - start)
            self.found.exchanges.append((float(exchange.received_bytes(self.part.rank)), time.perf_counter() - began))
        return result


# ------------------------------------------------------------------ the machine that runs describe
def described(runs: list[Timed]) -> Machine:
    latency, link = _line([pair for run in runs for pair in run.exchanges])
    _, product = _line([pair for run in runs for pair in run.products])
    least, memory = _line([pair for run in runs for pair in run.others])
    counted = sum(not is_view(op.target) for run in runs for op in run.plan.step.ops)
    done = sum((len(run.products) + len(run.others)) / run.repeats for run in runs)
    launch = least * done / counted  # the simulator counts the step's ops, a worker runs more
    return Machine("fitted", product, memory, 2.0**34, (Link(1, link, latency),), launch=launch, fused=1.0)


def _line(pairs: list[tuple[float, float]]) -> tuple[float, float]:
    """Seconds at nothing and amount a second, neither below zero, by least squares: their sum is that of the runs."""
    amount, seconds = (np.array(column) for column in zip(*pairs, strict=True))
    scale = max(float(amount.max()), 1.0)
    (least, slope), _ = nnls(np.stack([np.ones_like(amount), amount / scale], 1), seconds)
    return float(least), scale / max(float(slope), 1e-12)


def compare(name: str, others: list[Timed], run: Timed) -> dict[str, Any]:
    machine = described(others)
    found = run.plan.simulate(machine)
    serial = found.compute_seconds + found.copy_seconds  # the steps that are timed wait for each fetch
    return {
        "model": name, "ops": len(run.plan.step.ops), "exchanges": len(run.exchanges) // run.repeats,
        "MB moved": run.plan.communicated_bytes / 1e6, "step ms": run.step * 1e3, "overlapped ms": run.overlapped * 1e3,
        "MB overlapped": run.plan.overlapped_bytes / 1e6, "simulated ms": serial * 1e3,
        "measured over simulated": run.step / serial,
        "computing ms": _slower(run.computing) * 1e3, "simulated computing ms": found.compute_seconds * 1e3,
        "exchanging ms": _slower(run.exchanging) * 1e3, "simulated exchanging ms": found.copy_seconds * 1e3,
        "waiting ms": _slower(sum(run.waiting) / run.repeats) * 1e3,
        "machine": {"GFLOP/s": machine.flops / 1e9, "GB/s": machine.memory_bandwidth / 1e9,
                    "us an op": machine.launch * 1e6, "link GB/s": machine.links[0].bandwidth / 1e9,
                    "link us": machine.links[0].latency * 1e6},
        "sensitivity ms": {what: seconds * 1e3 for what, seconds in sensitivity(run.plan.book, machine).items()},
    }  # fmt: skip


def _slower(seconds: float) -> float:
    both = torch.tensor(seconds, dtype=torch.float64)
    dist.all_reduce(both, dist.ReduceOp.MAX)
    return float(both)
