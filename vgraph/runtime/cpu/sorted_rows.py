"""Sorted rows: the row order that native code makes, in two blocks of memory; or that of edges alone.

Takes: how many vertices and edges. Gives: room that native code fills, and the tensors in it. Runs once per topology.
Source: Cavs section 3.3 (what is evaluated together lies together).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vgraph.ir.schedule import LOOK_AHEAD

_SHORT = ("edge_ids", "src_rows", "dst_rows", "out_edges", "out_dst")


def room_for(num_vertices: int, num_edges: int) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """(4 vertices + 2,): ids and rows of vertices, where in-edges and out-edges begin; and rows of ``_SHORT``."""
    short = np.empty((len(_SHORT), num_edges + LOOK_AHEAD), np.int32)
    short[:, num_edges:] = 0
    return np.empty(4 * num_vertices + 2, np.int64), short


def places_in(wide: NDArray[np.int64], short: NDArray[np.int32]) -> tuple[int, ...]:
    """Addresses of ids and rows of vertices, of where in-edges and out-edges begin, and of what ``_SHORT`` names."""
    at, first, step, n = wide.ctypes.data, short.ctypes.data, short.strides[0], (len(wide) - 2) // 4
    return (at, at + 8 * n, at + 16 * n, at + 24 * n + 8, *range(first, first + len(short) * step, step))


@dataclass(frozen=True, eq=False)
class SortedRows:
    """Filled room; of most of it, kernels need the addresses alone. A copy lies in memory of its own.

    ``is_sorted``, ``is_grouped``: whether vertices, and edges, were in order already.
    """

    wide: NDArray[np.int64]
    short: NDArray[np.int32]
    is_sorted: bool
    is_grouped: bool

    def find(self, name: str) -> Tensor | None:
        """A tensor of the row order by its name."""
        n, m = (len(self.wide) - 2) // 4, self.short.shape[1] - LOOK_AHEAD
        if name in _SHORT:
            return (
                None if name == "edge_ids" and self.is_grouped else torch.from_numpy(self.short[_SHORT.index(name), :m])
            )
        starts = {"in_ptr": (2 * n, 3 * n + 1), "out_ptr": (3 * n + 1, 4 * n + 2)}
        if not self.is_sorted:
            starts |= {"vertex_ids": (0, n), "vertex_rows": (n, 2 * n)}
        return torch.from_numpy(self.wide[slice(*starts[name])]) if name in starts else None


class GroupedEdges:
    """Room for the order of edges where vertices keep theirs, in one piece; native code fills it.

    ``is_grouped``: whether edges were in order already.
    """

    def __init__(self, num_src: int, num_dst: int, num_edges: int) -> None:
        self.is_grouped, self._num_dst, self._num_edges = False, num_dst, num_edges
        self._num_wide, self._stride = num_src + num_dst + 2, num_edges + LOOK_AHEAD
        words = self._num_wide + (len(_SHORT) * self._stride + 1) // 2
        self._room = torch.empty(words, dtype=torch.int64, device="cpu")

    @property
    def places(self) -> tuple[int, ...]:
        """Addresses of where in-edges and out-edges begin, and of what ``_SHORT`` names."""
        at, step = self._room.data_ptr(), 4 * self._stride
        first = at + 8 * self._num_wide
        return (at, at + 8 * (self._num_dst + 1), *range(first, first + len(_SHORT) * step, step))

    def find(self, name: str) -> Tensor | None:
        """A tensor of the row order by its name."""
        if name in _SHORT:
            if name == "edge_ids" and self.is_grouped:
                return None
            first = _SHORT.index(name) * self._stride
            return self._room[self._num_wide :].view(torch.int32)[first : first + self._num_edges]
        if name in ("in_ptr", "out_ptr"):
            first = self._num_dst + 1
            return self._room[:first] if name == "in_ptr" else self._room[first : self._num_wide]
        return None
