"""Reductions on a GPU: how modes become blocks, teams and lanes, and the launch.

Takes: Modes, tensors of one device, a function that loads a kernel. Gives: the reduced tensor. Runs at every call.
It launches through functions that it is given, so that the same code runs where a test stands in for the GPU.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from vgraph.ir.modes import Mode
from vgraph.ir.program import Reduction
from vgraph.ir.reduction import ACCUMULATED, DeviceShape, kind_of

Launch = Callable[[tuple[int, int, int], tuple[int, int, int], Sequence[int]], None]  # grid, block, arguments
Load = Callable[[Reduction, DeviceShape], "Mapping[str, Launch] | None"]
THREADS, WARP = 256, 32  # as in reduction.cuh
_WIDEST = 16  # bytes of an access
_MOST_COUNT = 1 << 31
_BLOCKS, _CHUNK_ELEMENTS = 2048, 4096  # that keep all of a GPU busy; the least work of one
_MOST_CHUNKS = 1024


@dataclass(frozen=True)
class DevicePlan:
    """The shape of the kernel, into how many chunks slices are cut, and the numbers behind the addresses."""

    shape: DeviceShape
    num_slices: int
    num_elements: int
    chunks: int
    blocks: int
    rows: tuple[int, ...]


def plan_device(
    modes: Sequence[Mode], kinds: tuple[str, ...], itemsizes: Sequence[int], aligned: bool, *, in_order: bool
) -> DevicePlan | None:
    """None: more elements or slices than a kernel counts to."""
    kept, reduced = [m for m in modes if not m.is_reduced], [m for m in modes if m.is_reduced]
    slices, elements = (math.prod(m.size for m in some) for some in (kept, reduced))
    if slices >= _MOST_COUNT or elements >= _MOST_COUNT:
        return None
    columns = bool(modes) and not modes[-1].is_reduced
    lanes = _lanes(modes, kinds, itemsizes) if aligned else 1
    shape = DeviceShape(kinds, len(kept), len(reduced), columns, lanes, 1)
    team = _columns(slices // lanes) if columns else _team(elements // lanes, in_order=in_order)
    blocks = -(-slices // (team * lanes if columns else THREADS // team))
    least = _CHUNK_ELEMENTS // team if columns else _CHUNK_ELEMENTS
    chunks = max(1, min(-(-_BLOCKS // blocks), elements // least, _MOST_CHUNKS))
    rows = [number for m in kept for number in (m.size, *_division(m.size), m.out, *m.strides)]
    rows += [number for m in reduced for number in (m.size, *_division(m.size), *m.strides)]
    return DevicePlan(replace(shape, team=team), slices, elements, chunks, blocks, tuple(rows))


def _lanes(modes: Sequence[Mode], kinds: tuple[str, ...], itemsizes: Sequence[int]) -> int:
    """The most neighbours that every operand can load at once, whatever the place."""
    if not modes or "strided" in kinds:
        return 1
    lanes = _WIDEST // max((n for n, kind in zip(itemsizes, kinds, strict=True) if kind == "unit"), default=_WIDEST)
    while lanes > 1 and not _fits(modes, kinds, itemsizes, lanes):
        lanes //= 2
    return lanes


def _fits(modes: Sequence[Mode], kinds: tuple[str, ...], itemsizes: Sequence[int], lanes: int) -> bool:
    steps = [
        mode.strides[k] % (size * lanes)
        for k, (size, kind) in enumerate(zip(itemsizes, kinds, strict=True))
        if kind == "unit"
        for mode in modes[:-1]
    ]
    return modes[-1].size % lanes == 0 and not any(steps)


def _team(units: int, *, in_order: bool) -> int:
    """Threads for a slice: a few loads each; in order, at most a warp."""
    if units >= 16 * THREADS and not in_order:
        return THREADS
    wanted = max(1, units // 2)
    return min(1 << (wanted.bit_length() - 1), WARP)


def _columns(units: int) -> int:
    """Threads side by side; the fewer there are, the more share a column."""
    return THREADS if units >= _BLOCKS * THREADS else WARP


def _division(size: int) -> tuple[int, int]:
    """(factor, shift) such that ``(n * factor / 2^32 + n) >> shift`` is ``n // size`` for n < 2^31.

    >>> factor, shift = _division(7)
    >>> [(((n * factor) >> 32) + n) >> shift for n in (6, 7, 13, 2**31 - 1)] == [0, 1, 1, (2**31 - 1) // 7]
    True
    """
    shift = (size - 1).bit_length()
    return ((1 << 32) * ((1 << shift) - size)) // size + 1, shift


def bind_device(
    reduction: Reduction, modes: Sequence[Mode], tensors: Sequence[Tensor], out: tuple[int, ...], load: Load
) -> Callable[[Sequence[Tensor]], Tensor] | None:
    """A call on tensors of this layout; None: there is no kernel for it."""
    sizes = [t.element_size() for t in tensors]
    paces = modes[-1].strides if modes else (0,) * len(tensors)
    kinds = tuple(kind_of(pace, size) for pace, size in zip(paces, sizes, strict=True))
    aligned = all(t.data_ptr() % _WIDEST == 0 for t in tensors)
    plan = plan_device(modes, kinds, sizes, aligned, in_order=reduction.is_ordered)
    functions = None if plan is None else load(reduction, plan.shape)
    if plan is None or functions is None:
        return None
    return DeviceReduction(reduction, plan, out, functions)


class DeviceReduction:
    """A plan and its kernels, bound to a layout."""

    def __init__(self, reduction: Reduction, plan: DevicePlan, out: tuple[int, ...], functions: Mapping[str, Launch]):
        self.reduction, self.plan, self.out, self.functions = reduction, plan, out, functions

    def __call__(self, tensors: Sequence[Tensor]) -> Tensor:
        """One launch; a second one where slices were cut into chunks."""
        plan, device = self.plan, tensors[0].device
        made = torch.empty(self.out, dtype=self.reduction.dtype, device=device)
        partial = None
        if plan.chunks > 1:
            size = plan.chunks * plan.num_slices
            partial = torch.empty(size, dtype=ACCUMULATED[self.reduction.dtype], device=device)
        words = [made.data_ptr(), 0 if partial is None else partial.data_ptr(), plan.num_slices, plan.num_elements]
        words += [plan.chunks, *(t.data_ptr() for t in tensors), *plan.rows]
        self.functions["kernel0"]((plan.blocks, plan.chunks, 1), (THREADS, 1, 1), words)
        if partial is not None:
            self.functions["kernel1"]((-(-plan.num_slices // THREADS), 1, 1), (THREADS, 1, 1), words)
        return made
