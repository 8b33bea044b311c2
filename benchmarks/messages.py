"""Python message and reduce functions: torch's operators, compiled loops, and the same written by hand.

Forward and backward of ``update_all`` on a random graph with a skewed degree distribution. The three
sides take turns in one run; figures are seconds at the median.

usage: messages.py [--nodes 50000] [--edges 1000000] [--width 64] [--steps 3] [--json FILE] [--smoke]
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import vgraph
from vgraph.capture.capture import forget

PAIRS: dict[str, tuple[Any, Any]] = {
    "gated sum": (
        lambda edges: {"m": torch.sigmoid(edges.src["a"] + edges.dst["b"]) * edges.src["h"]},
        lambda nodes: {"o": nodes.mailbox["m"].sum(1)},
    ),
    "standard deviation": (
        lambda edges: {"m": edges.src["h"] - edges.dst["b"]},
        lambda nodes: {"o": torch.sqrt(torch.relu(variance(nodes.mailbox["m"])) + 1e-6)},
    ),
}


def variance(m: Tensor) -> Tensor:
    return (m**2).mean(1) - m.mean(1) ** 2


class Workload:
    """One graph and its features."""

    def __init__(self, nodes: int, edges: int, width: int) -> None:
        draw = torch.Generator().manual_seed(0)
        weights = torch.arange(1, nodes + 1, dtype=torch.float64) ** -0.8
        shuffle = torch.randperm(nodes, generator=draw)
        ends = [shuffle[torch.multinomial(weights, edges, replacement=True, generator=draw)] for _ in range(2)]
        self.src, self.dst = ends
        self.graph = vgraph.graph((self.src, self.dst), num_nodes=nodes)
        self.degree = self.graph.in_degrees().clamp(min=1)[:, None]
        self.features = {k: torch.randn(nodes, width, generator=draw, requires_grad=True) for k in "hab"}

    def by_vgraph(self, name: str, kernels: str) -> Tensor:
        os.environ["VGRAPH_KERNELS"] = kernels
        self.graph.ndata.update(self.features)
        self.graph.update_all(*PAIRS[name])
        return self.graph.ndata["o"]

    def by_hand(self, name: str, _: str) -> Tensor:
        h, a, b = (self.features[k] for k in "hab")
        if name == "gated sum":
            return self.sums(torch.sigmoid(a[self.src] + b[self.dst]) * h[self.src])
        m = h[self.src] - b[self.dst]
        spread = self.sums(m**2) / self.degree - (self.sums(m) / self.degree) ** 2
        return torch.sqrt(torch.relu(spread) + 1e-6) * (self.graph.in_degrees() > 0)[:, None]

    def sums(self, m: Tensor) -> Tensor:
        return m.new_zeros(self.graph.num_nodes(), m.shape[1]).index_add(0, self.dst, m)


def seconds(run: Callable[[], Tensor]) -> tuple[float, Tensor]:
    start = time.perf_counter()
    out = run()
    out.square().sum().backward()
    return time.perf_counter() - start, out.detach()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=50_000)
    parser.add_argument("--edges", type=int, default=1_000_000)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--json")
    parser.add_argument("--smoke", action="store_true")
    options = parser.parse_args()
    if options.smoke:
        options.nodes, options.edges, options.width, options.steps = 50, 300, 4, 1
    work, rows = Workload(options.nodes, options.edges, options.width), []
    for name in PAIRS:
        row = time_pair(work, name, options.steps)
        rows.append({"function": name, **row})
        for side, median in row.items():
            print(f"{name:20s} {side:24s} {median:8.4f} s   {row['by hand in torch'] / median:6.2f} times as fast")
    if options.json:
        Path(options.json).write_text(json.dumps(rows, indent=1))


def time_pair(work: Workload, name: str, steps: int) -> dict[str, float]:
    """Median seconds of each side; their outputs must agree."""
    sides = {
        "by hand in torch": (work.by_hand, ""),
        "vgraph, torch's operators": (work.by_vgraph, "0"),
        "vgraph, compiled loops": (work.by_vgraph, "1"),
    }
    times: dict[str, list[float]] = {side: [] for side in sides}
    for number in range(steps + 1):
        outputs = []
        for side, (run, setting) in sides.items():
            forget()  # the setting is read when a function is captured
            if number == 0 or setting:
                run(name, setting)
            taken, out = seconds(lambda run=run, setting=setting: run(name, setting))
            outputs.append(out)
            if number:
                times[side].append(taken)
        if not all(torch.allclose(outputs[0], out, rtol=1e-3, atol=1e-3) for out in outputs):
            raise SystemExit(f"{name}: the sides do not compute the same")
    return {side: sorted(all_)[len(all_) // 2] for side, all_ in times.items()}


if __name__ == "__main__":
    main()
