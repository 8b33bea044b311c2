"""DynamicTensor and MemoryPlan: where every materialised value lies.

Takes: nothing (plain values). Gives: offsets in an arena. Runs once per topology.
Source: Cavs section 3.3 (dynamic tensors: shape, batch size, offset, pointer).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, TypeAlias

import torch

from vgraph.ir.program import Value


class DynamicTensor(NamedTuple):
    """``batch_size`` rows of ``row_shape`` at ``offset`` bytes of the arena."""

    offset: int
    batch_size: int
    row_shape: tuple[int, ...]
    dtype: torch.dtype

    @property
    def num_bytes(self) -> int:
        count = self.batch_size
        for size in self.row_shape:
            count *= size
        return count * self.dtype.itemsize

    def view(self, arena: torch.Tensor) -> torch.Tensor:
        """The tensor itself, (batch_size, *row_shape), on an arena of uint8 or, all of it, of its own dtype."""
        typed = arena if arena.dtype == self.dtype else arena.view(self.dtype)
        strides, step = list[int](), 1
        for size in reversed((self.batch_size, *self.row_shape)):
            strides.append(step)
            step *= size
        start = typed.storage_offset() + self.offset // self.dtype.itemsize
        return typed.as_strided((self.batch_size, *self.row_shape), strides[::-1], start)


@dataclass(frozen=True)
class Lifetime:
    """The phases from ``first`` to ``last``, both included, in which a value must be kept."""

    first: int
    last: int

    def overlaps(self, other: Lifetime) -> bool:
        return self.first <= other.last and other.first <= self.last


# Ids of values as they lie in an arena, each with those below it that live at the same time.
Stack: TypeAlias = list[tuple[int, list[int]]]
Stacks: TypeAlias = dict[tuple[int, ...], Stack]  # by the order of sizes


@dataclass(frozen=True, eq=False)
class MemoryPlan:
    """Where every materialised Value lies: by id its first byte and its rows; and the bytes of the arena."""

    values: Sequence[Value]
    offsets: Mapping[int, int]
    rows: Mapping[int, int]
    lifetimes: Mapping[int, Lifetime]
    num_bytes: int

    @cached_property
    def tensors(self) -> Mapping[int, DynamicTensor]:
        """A DynamicTensor for each."""
        return {v.id: DynamicTensor(self.offsets[v.id], self.rows[v.id], v.row_shape, v.dtype) for v in self.values}
