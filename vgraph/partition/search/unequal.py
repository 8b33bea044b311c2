"""Unequal devices: each has as many equal shares of a step as it is fast; slow ones, or those not worth it, none.

Takes: a TrainingStep and the speeds of devices. Gives: a Found and the device of every share. Runs once per model.
Source: Tofu as a thesis, section 5.2 (devices of different speeds, subsets of workers).
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import replace

from tqdm import tqdm

from vgraph.errors import ModelError
from vgraph.ir.step import TrainingStep
from vgraph.partition.accounting.account import account
from vgraph.partition.accounting.machines import MACHINES, Machine
from vgraph.partition.accounting.simulate import simulate
from vgraph.partition.search.fit import search_best
from vgraph.partition.search.search import Found

MOST = 4  # shares a device, on average
TRIES = 3  # numbers of shares that are searched for their balance


def shares_of(speeds: Sequence[float], count: int) -> tuple[int, ...]:
    """How many of ``count`` equal shares each device has, so that the last to end ends soonest.

    >>> shares_of((2.0, 1.0, 1.0), 4), shares_of((1.0, 0.1), 3)
    ((2, 1, 1), (3, 0))
    """
    shares = [0] * len(speeds)
    for _ in range(count):
        shares[min(range(len(speeds)), key=lambda i: ((shares[i] + 1) / speeds[i], i))] += 1
    return tuple(shares)


def busy(speeds: Sequence[float], shares: Sequence[int]) -> float:
    """Seconds of the last device to end, where one of speed 1 does a whole step in one."""
    return max(n / speed for n, speed in zip(shares, speeds, strict=True)) / sum(shares)


def counts_to_try(speeds: Sequence[float]) -> list[int]:
    """Numbers of shares that balance best, and powers of two for steps too small for all devices."""
    every = range(1, MOST * len(speeds) + 1)
    balanced = sorted(every, key=lambda count: (round(busy(speeds, shares_of(speeds, count)), 9), count))[:TRIES]
    subsets = [2**i for i in range(len(speeds).bit_length()) if 2**i <= len(speeds)]
    return sorted({*balanced, *subsets})


def search_unequal(
    step: TrainingStep, speeds: Sequence[float], memory_limit: float | None = None, machine: Machine | None = None
) -> tuple[Found, tuple[int, ...]]:
    """The plan that takes least simulated time, and the device of each of its workers, those of one device in a row.

    ``machine`` describes a device of speed 1 and its links. What shares of one device send each other counts as if
    it crossed a link.

    Raises:
        ModelError: a speed is not a number above zero, or no number of shares fits the limit.
    """
    began = time.perf_counter()
    if not all(0 < speed < math.inf for speed in speeds):
        raise ModelError(f"speeds={tuple(speeds)!r} are not all above zero", cure="pass a positive number a device")
    best: tuple[float, Found, tuple[int, ...]] | None = None
    refused: ModelError | None = None
    for count in tqdm(counts_to_try(speeds), desc="shares", leave=False, disable=None):
        shares = shares_of(speeds, count)
        try:
            found = search_best(step, count, memory_limit, machine)
        except ModelError as error:
            refused = error
            continue
        seconds = simulate(account(step, found.plan), _slowed(machine or MACHINES["paper"], speeds, shares)).seconds
        if best is None or seconds < best[0]:
            best = (seconds, found, shares)
    if best is None:
        assert refused is not None
        raise refused
    _, found, shares = best
    devices = tuple(device for device, count in enumerate(shares) for _ in range(count))
    return replace(found, seconds=time.perf_counter() - began), devices


def _slowed(machine: Machine, speeds: Sequence[float], shares: Sequence[int]) -> Machine:
    """A machine of which every worker is as fast as the slowest share."""
    rate = min(speed / n for speed, n in zip(speeds, shares, strict=True) if n)
    return replace(machine, flops=machine.flops * rate, memory_bandwidth=machine.memory_bandwidth * rate)
