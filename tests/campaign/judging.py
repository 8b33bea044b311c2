"""What the fuzzers of functions share: ways to run, derivatives, and when two results are the same.

Takes: outputs of vgraph and of a reference in plain torch. Gives: a sentence where they differ.
"""

from __future__ import annotations

import math
import os
import random
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from unittest import mock

import torch
from torch import Tensor

from tests.fusion.fuzz import compile_fast
from vgraph.capture import capture
from vgraph.fusion.cpu import build

MOVES = 3  # times that inputs are moved a little, where results differ
_SWITCHES = "HOIST NATIVE LEAVES EAGER LAZY DEGREES SIBLINGS WINDOWS PRODUCTS".split()


@dataclass(frozen=True)
class Way:
    """Settings under which a function runs."""

    kernels: bool
    threads: int
    without: tuple[str, ...] = ()  # what is switched off besides
    policy: str = "frontier"

    def __str__(self) -> str:
        words = ["kernels" if self.kernels else "operators", f"{self.threads} threads", self.policy]
        return ", ".join([*words, *(f"{name}=0" for name in self.without)])

    @contextmanager
    def running(self) -> Generator[None]:
        """Functions are captured anew and run that way while it lasts."""
        settings = {f"VGRAPH_{name}": "0" for name in self.without}
        before = torch.get_num_threads()
        capture.forget()
        torch.set_num_threads(self.threads)
        try:
            with mock.patch.dict(os.environ, {"VGRAPH_KERNELS": "01"[self.kernels], **settings}), compile_fast():
                yield
        finally:
            torch.set_num_threads(before)
            capture.forget()


def draw_ways(draw: random.Random, kernels: float) -> list[Way]:
    """Operators always; kernels with that probability, where there is a compiler."""
    able = build.find_compiler() is not None
    ways = [False, True] if able and draw.random() < kernels else [False]
    off = tuple(name for name in _SWITCHES if draw.random() < 0.04)
    return [Way(on, draw.choice((1, 2)), off, draw.choice(("frontier", "frontier", "serial"))) for on in ways]


# ---------------------------------------------------------------- derivatives
@dataclass(frozen=True)
class Found:
    """Outputs by name, their derivatives by each leaf, and second derivatives."""

    outputs: dict[str, Tensor]
    first: list[Tensor]
    second: list[Tensor]

    def all(self) -> list[tuple[str, Tensor]]:
        named = [(f"output {name}", t.detach()) for name, t in self.outputs.items()]
        named += [(f"gradient {i}", t.detach()) for i, t in enumerate(self.first)]
        return named + [(f"second gradient {i}", t.detach()) for i, t in enumerate(self.second)]


def differentiated(run: Callable[[], dict[str, Tensor]], leaves: Sequence[Tensor], order: int) -> Found:
    outputs = run()
    names = sorted(outputs)
    first = _gradients([outputs[name] for name in names], leaves, again=order > 1) if order else []
    second = _gradients(first, leaves, again=False) if order > 1 else []
    return Found({name: outputs[name] for name in names}, first, second)


def _gradients(outputs: Sequence[Tensor], leaves: Sequence[Tensor], *, again: bool) -> list[Tensor]:
    """Of a weighted sum that gives no element the weight of another; zeros where there are none."""
    able = [(t, i) for i, t in enumerate(outputs) if t.requires_grad]
    zeros = [torch.zeros_like(leaf) for leaf in leaves]
    if not able or not leaves:
        return zeros
    weights = [
        torch.linspace(0.3, 1.7, t.numel(), dtype=torch.float64).reshape(t.shape).to(t.dtype) / (1 + i % 5)
        for t, i in able
    ]
    got = torch.autograd.grad([t for t, _ in able], leaves, weights, allow_unused=True, create_graph=again)
    return [zero if g is None else g for g, zero in zip(got, zeros, strict=True)]


# ---------------------------------------------------------------- agreement
def largest(numbers: Tensor) -> float:
    """The largest magnitude of those that are finite."""
    numbers = numbers.detach().double()
    numbers = numbers[numbers.isfinite()]
    return float(numbers.abs().max()) if numbers.numel() else 0.0


def tolerance(dtype: torch.dtype) -> float:
    """Of the largest number of a tensor; whole numbers are the same."""
    if not dtype.is_floating_point:
        return 0.0
    return 1e-9 if dtype == torch.float64 else 64 * torch.finfo(dtype).eps


def differences(found: Found, exact: Found, rooms: Sequence[float] | None = None) -> list[str]:
    """What differs by more than its dtype explains, and more than ``rooms`` allow."""
    if list(found.outputs) != list(exact.outputs):
        return [f"the outputs are {list(found.outputs)}, not {list(exact.outputs)}"]
    wrong: list[str] = []
    pairs = list(zip(found.all(), exact.all(), strict=True))
    for ((name, mine), (_, theirs)), room in zip(pairs, rooms or [0.0] * len(pairs), strict=True):
        if mine.shape != theirs.shape:
            wrong.append(f"{name} has the shape {tuple(mine.shape)}, not {tuple(theirs.shape)}")
            continue
        off, allowed = _apart(mine, theirs), tolerance(mine.dtype) * max(1.0, largest(theirs)) + room
        if not off <= allowed:
            wrong.append(f"{name} is off by {off:.3g}, where {allowed:.3g} may be")
    return wrong


def _apart(mine: Tensor, theirs: Tensor) -> float:
    """How far apart finite numbers lie; infinite where others are not the same."""
    mine, theirs = mine.double(), theirs.double()
    plain = theirs.isfinite()
    if not torch.equal(mine[~plain].nan_to_num(), theirs[~plain].nan_to_num()) or not mine[plain].isfinite().all():
        return math.inf
    return largest(mine[plain] - theirs[plain])


def rooms_of(exact: Found, others: Sequence[Found]) -> list[float]:
    """How far the function itself carries what inputs were moved by; without bound where it is not defined."""
    rooms: list[float] = []
    for i, (_, wanted) in enumerate(exact.all()):
        aparts = [_apart(other.all()[i][1], wanted) for other in others]
        rooms.append(10 * max(aparts, default=0.0))
    return rooms


def moved(tensor: Tensor, eps: float, draw: int) -> Tensor:
    """The same numbers, each a little off, as a leaf."""
    made = torch.Generator().manual_seed(draw)
    noise = torch.rand(tensor.shape, generator=made, dtype=torch.float64) * 2 - 1
    return (tensor.detach() * (1 + eps * noise).to(tensor.dtype)).requires_grad_(tensor.requires_grad)
