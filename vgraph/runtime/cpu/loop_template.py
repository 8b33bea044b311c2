"""LoopTemplate: the instructions of a loop over frontiers, without the addresses of a step.

Takes: words and where addresses belong. Gives: what native code needs to put them there. Runs once per function.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from vgraph.ir.program import Value

NUM_INDICES = 6  # index tensors of an order that instructions may name


@dataclass(eq=False)
class Template:
    """Instructions, then the arguments of kernels; ``*_at``: the words that a step adds its addresses to.

    ``roots`` and ``temporary``: values at whose beginnings ``root_at`` and ``scratch_at`` count, by index.
    ``kept``: ids of what lies in the arena.
    """

    words: NDArray[np.int64]
    num_words: int
    roots: tuple[Value, ...]
    temporary: tuple[tuple[Value, int, bool], ...]
    packed: tuple[Value, ...]
    kept: frozenset[int]
    root_at: tuple[NDArray[np.int64], NDArray[np.int64]]  # places in words, indices of roots
    scratch_at: tuple[NDArray[np.int64], NDArray[np.int64]]
    packed_at: NDArray[np.int64]
    order_at: tuple[NDArray[np.int64], NDArray[np.int64]]  # places, which of the order's index tensors
    self_at: NDArray[np.int64]  # addresses of the words themselves
    most_arguments: int  # of a kernel

    @cached_property
    def patches(self) -> list[int]:
        """What native code needs to put addresses into the words: see ``vg_bind``."""
        places, which = self._bases_at
        return [self.words.ctypes.data, len(self.words), len(places), places.ctypes.data, which.ctypes.data]

    @cached_property
    def _bases_at(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The words that a step adds to, and the place of what it adds among: itself, roots, scratch, order, packed."""
        found, count = [(self.self_at, np.zeros_like(self.self_at))], 1
        for (places, which), size in (
            (self.root_at, len(self.roots)),
            (self.scratch_at, len(self.temporary)),
            (self.order_at, NUM_INDICES),
        ):
            found.append((places, which + count))
            count += size
        found.append((self.packed_at, np.arange(len(self.packed_at)) + count))
        places, which = (np.concatenate(part).astype(np.int64) for part in zip(*found, strict=True))
        return places, which

    @cached_property
    def roots_from(self) -> list[tuple[int, bool]]:
        """Of roots: id, and whether it lies in the arena."""
        return [(value.id, value.id in self.kept) for value in self.roots]

    @cached_property
    def packed_from(self) -> list[tuple[int, bool]]:
        """The same of what is packed."""
        return [(value.id, value.id in self.kept) for value in self.packed]
