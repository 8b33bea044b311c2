"""Simulate: seconds of one step of a plan on a described machine; never a measurement.

Takes: an Account and a Machine. Gives: a Simulation. Runs once per plan.
Source: alpha-beta transfers and roofline operators; one compute and one copy stream a worker, in order.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from vgraph.ir.program import Op, op_name
from vgraph.ir.sharding import Split, Strategy
from vgraph.ir.tdl.table import is_pointwise, is_view
from vgraph.partition.accounting.account import Account
from vgraph.partition.accounting.footprint import Footprint, footprint
from vgraph.partition.accounting.machines import Machine
from vgraph.partition.accounting.placed_time import is_placed, placed_footprint, placed_seconds


@dataclass(frozen=True)
class Simulation:
    """What ``Plan.simulate`` gives: simulated seconds of a step, and whether a worker's memory suffices.

    Attributes:
        seconds: the seconds of a step, in which copies run beside operators where they can.
        compute_seconds: the seconds that one worker's operators take, added up.
        copy_seconds: the seconds that one worker's copies take, added up.
        memory: what one worker holds at the peak.
        fits: whether that is no more than the machine's memory.
        machine: the name of the machine.

    Source: Wang, Huang and Li 2019 (Tofu), section 7.1.

    Example:
        >>> import torch, vgraph
        >>> class Model(torch.nn.Linear):
        ...     def forward(self, x):
        ...         return super().forward(x).square().mean()
        >>> plan = vgraph.parallelize(Model(8, 8), (torch.ones(4, 8),), num_workers=2)
        >>> simulation = plan.simulate("nvlink")
        >>> simulation.fits, 0 <= simulation.communication_share <= 1
        (True, True)
    """

    seconds: float
    compute_seconds: float
    copy_seconds: float
    memory: Footprint
    fits: bool
    machine: str

    @property
    def communication_share(self) -> float:
        """The part of the step in which nothing is computed."""
        return 1 - self.compute_seconds / self.seconds if self.seconds else 0.0


def simulate(book: Account, machine: Machine) -> Simulation:
    """Workers are alike, so one stands for all; placed ops run where they are, one worker each."""
    placed = is_placed(book)
    memory = placed_footprint(book) if placed else footprint(book)
    times = [compute_seconds(op, row, book.plan.axes, machine) for op, row in _pairs(book)]
    copies = [_copy_seconds(a, b, book, machine) for a, b in zip(book.fetched, book.kept, strict=True)]
    workers = book.plan.num_workers
    alone = [workers * (before + after) for before, after in copies]  # one pair of workers moves all of it
    seconds = placed_seconds(book, times, alone) if placed else _streams(book, times, copies)
    compute = sum(times) / (workers if placed else 1)
    return Simulation(
        seconds, compute, sum(a + b for a, b in copies), memory, memory.total <= machine.memory, machine.name
    )


def link_seconds(book: Account, machine: Machine) -> float:
    """Seconds for which a worker's links are busy: the bytes of every step over the link that it crosses."""
    total, group = 0.0, book.plan.num_workers
    for amount, ways in zip(book.step_bytes, book.plan.axes, strict=True):
        total += amount / book.plan.num_workers / machine.link(group).bandwidth
        group //= ways
    return total


def _pairs(book: Account) -> Sequence[tuple[Op, tuple[Strategy, ...]]]:
    return list(zip(book.step.ops, book.plan.strategies, strict=True))


# ---------------------------------------------------------------- one op
def num_flops(op: Op) -> float:
    """Operations of the whole op; a multiplication and an addition count as two."""
    name, operands = op_name(op.target), list(op.operands())
    sizes = [list(v.row_shape) for v in operands]
    made = math.prod(op.results[0].row_shape)
    if name in ("mm", "bmm"):
        return 2.0 * made * sizes[0][-1]
    if name in ("addmm", "baddbmm"):
        return 2.0 * made * sizes[1][-1]
    if name == "convolution":
        return 2.0 * made * math.prod(sizes[1][1:])
    if name == "convolution_backward":
        asked = sum(1 for value in op.results[:2] if value.shape != (0,))
        return 2.0 * asked * math.prod(sizes[0]) * math.prod(sizes[2][1:])
    return float(max([made, *(math.prod(s) for s in sizes)]))


def compute_seconds(op: Op, row: tuple[Strategy, ...], axes: tuple[int, ...], machine: Machine) -> float:
    """Roofline: the slower of arithmetic and memory, for one worker's share."""
    if is_view(op.target):
        return 0.0
    flops = num_flops(op) / math.prod(w for s, w in zip(row, axes, strict=True) if s.index not in ("", "+"))
    moved = sum(value.row_bytes * _share([s.outputs[i] for s in row], axes) for i, value in enumerate(op.results))
    moved += sum(value.row_bytes * _share([s.inputs[i] for s in row], axes) for i, value in enumerate(op.operands()))
    part = machine.fused if is_pointwise(op.target) else 1.0
    return max(flops / machine.flops, part * moved / machine.memory_bandwidth) + part * machine.launch


def _share(placements: Sequence[object], axes: tuple[int, ...]) -> float:
    return 1 / math.prod(w for p, w in zip(placements, axes, strict=True) if isinstance(p, Split))


def _copy_seconds(
    fetched: Sequence[float], kept: Sequence[float], book: Account, machine: Machine
) -> tuple[float, float]:
    """Before and after an op, of one worker: every step's bytes over the link that it crosses."""

    def seconds(row: Sequence[float]) -> float:
        total, group = 0.0, book.plan.num_workers
        for amount, ways in zip(row, book.plan.axes, strict=True):
            if amount:
                link = machine.link(group)
                total += amount / book.plan.num_workers / link.bandwidth + link.latency
            group //= ways
        return total

    return seconds(fetched), seconds(kept)


# ---------------------------------------------------------------- one step
def _streams(book: Account, times: Sequence[float], copies: Sequence[tuple[float, float]]) -> float:
    """A copy begins when its operands are made and the op before has begun, a worker's ops in order."""
    ready: dict[int, float] = {}
    computing = copying = began = 0.0
    for op, spent, (before, after) in zip(book.step.ops, times, copies, strict=True):
        given = max((ready.get(value.id, 0.0) for value in op.operands()), default=0.0)
        arrived = given
        if before:
            copying = arrived = max(copying, given, began) + before
        began = max(computing, arrived)
        computing = began + spent
        done = computing
        if after:
            copying = done = max(copying, computing) + after
        for value in op.results:
            ready[value.id] = done
    return max(computing, copying)
