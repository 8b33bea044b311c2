"""The floor of a workload: the sweeps over edges, the arithmetic and the bytes that it cannot do without.

A sum over in-edges gathers one row an edge. Its gradient gathers one over the reversed edges. Attention
gathers once forward; backward it needs one sweep over either direction. A linear map costs its products
forward, and twice that backward (once where the input has no gradient).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from statistics import median

import numpy as np
import torch
from roofline import SAMPLE, Machine, Pass, floor_seconds, measure

from sides.workloads import Workload


@dataclass
class Floor:
    """The floor of a workload, whose folder holds its graph, measured anew at every call."""

    work: Workload
    threads: int
    budget: float
    seconds: list[float] = field(default_factory=list[float])

    def __call__(self) -> None:
        src = np.load(f"{self.work.folder}/src.npy", mmap_mode="r")
        self.seconds.append(floor_of(self.work, src, measure(self.threads, self.budget)))

    @property
    def median(self) -> float:
        return median(self.seconds)


def floor_of(work: Workload, src: np.ndarray, machine: Machine) -> float:
    """Seconds of one step."""
    ids = torch.from_numpy(np.array(src[:SAMPLE], np.int32))

    def sweep(width: int) -> Pass:
        return Pass(work.edges, work.nodes, width, ids)

    if work.kind == "aggregate":
        return floor_seconds(machine, [sweep(work.width)])
    if work.kind in ("gcn", "gat", "gatv2", "dot"):
        return _floor_of_model(work, machine, ids)
    width = work.width
    if work.kind == "edge_mlp":  # the message's matrix is applied to vertices and edges, not to pairs of them
        maps = 2 * width * width * (3 * work.nodes) + 2 * work.edges * width * work.options["edge_width"]
        return floor_seconds(machine, [sweep(width)] * 4, flops=3 * maps)
    gathered = {"gated": 2, "linear_message": 1, "softmax_reduce": 2, "std_reduce": 1}[work.kind]
    backward = [sweep(width)] * {"linear_message": 1}.get(work.kind, 2)
    flops = 3 * 2 * work.nodes * width * width if work.kind == "linear_message" else 0
    return floor_seconds(machine, [sweep(gathered * width), *backward], flops=flops)


def _floor_of_model(work: Workload, machine: Machine, ids: torch.Tensor) -> float:
    sweeps, flops = [], 0.0
    maps = {"gcn": 1, "gat": 1, "gatv2": 2, "dot": 3}[work.kind]
    for i, (rows, columns) in enumerate(zip(work.sizes, work.sizes[1:], strict=False)):
        # a sum commutes with a linear map: the narrower side travels; attention sends what was mapped
        width = min(rows, columns) if work.kind == "gcn" else columns * (2 if work.kind == "dot" else 1)
        count = 2 if work.kind == "gcn" else 3
        if work.kind == "gcn" and i == 0 and rows < columns:
            count = 1  # nothing asks for the gradient of what travels
        sweeps += [Pass(work.edges, work.nodes, width, ids)] * count
        flops += maps * 2 * work.nodes * rows * columns * (2 if i == 0 else 3)
    return floor_seconds(machine, sweeps, flops=flops)
