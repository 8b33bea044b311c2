"""Modes: the dims of a reduction as virtual coordinates, fewer than the tensor has.

Takes: a shape, strides of operands, the dims to reduce. Gives: Modes, outermost first. Runs once per layout.
Source: Koç, multi-mode tensor reduction on GPUs: adjacent modes are one, modes of size 1 are none.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Mode:
    """One virtual dim; ``strides`` of each operand in bytes, ``out`` in elements of the result (0 if reduced)."""

    size: int
    is_reduced: bool
    strides: tuple[int, ...]
    out: int = 0

    @property
    def row(self) -> tuple[int, ...]:
        """As a loop reads it."""
        return (self.size, *self.strides) if self.is_reduced else (self.size, self.out, *self.strides)


def virtual_modes(
    shape: Sequence[int], reduced: Sequence[int], strides: Sequence[Sequence[int]], *, in_order: bool
) -> tuple[Mode, ...]:
    """The modes of a tensor of ``shape``, with the smallest strides last.

    ``strides``: of each operand, in bytes. ``in_order``: elements of a slice are combined in row-major order,
    so that the reduced modes keep theirs; else whatever lies close in memory is close in the loop.

    >>> virtual_modes((4, 1, 5, 6), (2, 3), [(120, 120, 24, 4)], in_order=False)
    (Mode(size=4, is_reduced=False, strides=(120,), out=1), Mode(size=30, is_reduced=True, strides=(4,), out=0))
    """
    kept = [d for d in range(len(shape)) if d not in reduced]
    outs = {d: math.prod(shape[e] for e in kept[i + 1 :]) for i, d in enumerate(kept)}
    modes = [
        Mode(shape[d], d in reduced, tuple(s[d] for s in strides), outs.get(d, 0))
        for d in range(len(shape))
        if shape[d] != 1
    ]
    return _merge(_by_stride(modes, in_order=in_order))


def _by_stride(modes: list[Mode], *, in_order: bool) -> list[Mode]:
    """What is repeated along a mode (stride 0) is repeated by the outermost loops."""
    placed = sorted(modes, key=lambda m: max(m.strides) or math.inf, reverse=True)
    if not in_order:
        return placed
    reduced = iter([m for m in modes if m.is_reduced])
    return [next(reduced) if m.is_reduced else m for m in placed]


def _merge(modes: list[Mode]) -> tuple[Mode, ...]:
    """Neighbours through which every operand (and the result) steps evenly are one mode."""
    merged: list[Mode] = []
    for mode in modes:
        last = merged[-1] if merged else None
        if last is not None and last.is_reduced == mode.is_reduced and follows(last, mode, mode.size):
            if last.out == mode.out * mode.size:
                merged[-1] = replace(mode, size=last.size * mode.size)
                continue
        merged.append(mode)
    return tuple(merged)


def follows(outer: Mode, inner: Mode, count: int) -> bool:
    """Whether one step of ``outer`` is ``count`` steps of ``inner`` for every operand."""
    return all(a == b * count for a, b in zip(outer.strides, inner.strides, strict=True))
