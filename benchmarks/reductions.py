"""Reductions over modes: one launch beside one a mode and beside torch, on slices of two modes and orders 3 to 5.

    python benchmarks/reductions.py [--elements 4194304] [--device cpu] [--json results.json]

Shapes after Koç: slices from 8 x 16 to 512 x 512, reduced where they lie first, last or at both ends; tensors of orders
3 to 5 whose first or last mode or modes go. Rates count the bytes read.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import vgraph
from vgraph.runtime.reductions.reduction import torch_reduce

SLICES = ((8, 16), (16, 16), (32, 32), (64, 64), (128, 128), (256, 256), (512, 512))
Case = tuple[str, tuple[int, ...], tuple[int, ...]]


def reduce_by_mode(element: Tensor, dims: tuple[int, ...], name: str) -> Tensor:
    """The baseline: one launch for each mode, the last one first."""
    for dim in sorted(dims, reverse=True):
        element = torch_reduce(element, (dim,), name, None)
    return element


def slices(elements: int) -> Iterator[Case]:
    """Two modes of a tensor of order 3."""
    for a, b in SLICES:
        count = max(1, elements // (a * b))
        yield f"slices {a}x{b}, ends", (a, count, b), (0, 2)
        yield f"slices {a}x{b}, last", (count, a, b), (1, 2)
        yield f"slices {a}x{b}, first", (a, b, count), (0, 1)


def orders(elements: int) -> Iterator[Case]:
    """All sizes equal; what goes: one mode or all but one, at either end, or every second one."""
    for order in (3, 4, 5):
        shape = (max(2, round(elements ** (1 / order))),) * order
        yield f"order {order}, first", shape, tuple(range(order - 1))
        yield f"order {order}, last", shape, tuple(range(1, order))
        yield f"order {order}, first mode", shape, (0,)
        yield f"order {order}, last mode", shape, (order - 1,)
        yield f"order {order}, every second", shape, tuple(range(0, order, 2))


def take_turns(sides: dict[str, Callable[[], Any]], device: str, budget: float) -> dict[str, float]:
    """The best of each, in as many rounds as the budget holds, five at least."""

    def timed(run: Callable[[], Any]) -> float:
        start = time.perf_counter()
        run()
        if device != "cpu":
            torch.cuda.synchronize()
        return time.perf_counter() - start

    best = {side: timed(run) for side, run in sides.items()}
    begun, rounds, order = time.perf_counter(), 0, random.Random(0)
    while rounds < 5 or time.perf_counter() - begun < budget * len(sides):
        for side in order.sample([*sides], len(sides)):  # what ran before leaves its mark on the caches
            best[side] = min(best[side], timed(sides[side]), timed(sides[side]))  # the second finds warm caches
        rounds += 1
    return best


def measure(case: Case, device: str, budget: float) -> dict[str, Any]:
    name, shape, dims = case
    x = torch.randn(shape, device=device)
    room = torch.zeros_like(x)
    sides: dict[str, Callable[[], Tensor]] = {
        "vgraph": lambda: vgraph.reduce(x, dims),
        "launch a mode": lambda: reduce_by_mode(x, dims, "sum"),
        "torch.sum": lambda: torch.sum(x, dims),
        "copy": lambda: room.copy_(x),
    }
    whole = x.double().sum(dims)
    scale = x.double().abs().sum(dims)
    assert ((sides["vgraph"]() - whole).abs() <= 1e-5 * scale).all(), name
    assert sides["vgraph"]().equal(sides["vgraph"]()), f"{name}: two runs differ"
    times = take_turns(sides, device, budget)
    return {"case": name, "shape": shape, "dims": dims, "bytes": 4 * x.numel(), "seconds": times}


def table(rows: list[dict[str, Any]]) -> Iterator[str]:
    yield f"{'case':28} {'ms':>8} {'GB/s':>7} {'of copy':>8} {'torch.sum':>10} {'a mode':>8}"
    for row in rows:
        t = row["seconds"]
        of_copy = t["copy"] / 2 / t["vgraph"]  # a copy reads and writes
        against = f"{t['torch.sum'] / t['vgraph']:9.2f}x {t['launch a mode'] / t['vgraph']:7.2f}x"
        rate = row["bytes"] / t["vgraph"] / 1e9
        yield f"{row['case']:28} {1e3 * t['vgraph']:8.3f} {rate:7.1f} {of_copy:8.0%} {against}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--elements", type=int, default=1 << 22)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--budget", type=float, default=0.1, help="seconds for each side of a case")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--smoke", action="store_true", help="tiny tensors; the figures mean nothing")
    given = parser.parse_args()
    elements, budget = (1 << 12, 0.0) if given.smoke else (given.elements, given.budget)
    cases = [*slices(elements), *orders(elements)]
    rows = [measure(case, given.device, budget) for case in (cases[::8] if given.smoke else cases)]
    print("\n".join(table(rows)))
    if given.json:
        given.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
