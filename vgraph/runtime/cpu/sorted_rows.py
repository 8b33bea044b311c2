"""Sorted rows: the row order that native code makes, in two blocks of memory.

Takes: how many vertices and edges. Gives: a RowOrder that native code fills. Runs once per topology.
Source: Cavs section 3.3 (what is evaluated together lies together).
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from vgraph.ir.schedule import LOOK_AHEAD, RowOrder

# Where the rows of each key and their in-edges begin, and where the last end; in-degrees that rows share.
Bounds: TypeAlias = tuple[list[int], list[int], list[int | None]]
_SHORT = ("edge_ids", "src_rows", "dst_rows", "out_edges", "out_dst")


class PlannedLevels(np.ndarray[Any, np.dtype[np.int32]]):
    """The level of every vertex; ``rows`` by level and ``frontiers``, if they are known."""

    rows: RowOrder | None = None
    frontiers: Bounds | None = None

    @property
    def leaf_ids(self) -> np.ndarray[Any, np.dtype[np.int64]] | None:
        """The vertices of level 0, in order, if rows are known."""
        if not isinstance(self.rows, SortedRows) or self.frontiers is None:
            return None
        return vars(self.rows)["wide"][: self.frontiers[0][1]] if len(self) else None


class SortedRows(RowOrder):
    """A RowOrder whose tensors are made when they are asked for: of most, kernels need the addresses alone.

    ``places``: of vertex ids and rows, where in-edges and out-edges begin, and of what ``_SHORT`` names.
    """

    def __init__(self, num_vertices: int, num_edges: int, blocks: tuple[Any, Any] | None = None) -> None:
        n, m = num_vertices, num_edges
        wide, short = blocks or (np.empty(4 * n + 2, np.int64), np.empty((5, m + LOOK_AHEAD), np.int32))
        short[:, m:] = 0
        at, first, step = wide.ctypes.data, short.ctypes.data, 4 * (m + LOOK_AHEAD)
        places = (at, at + 8 * n, at + 16 * n, at + 24 * n + 8, *range(first, first + 5 * step, step))
        starts = {"vertex_ids": 0, "vertex_rows": n, "in_ptr": 2 * n, "out_ptr": 3 * n + 1}
        vars(self).update(sizes=(n, m), wide=wide, short=short, places=places, starts=starts)

    def __reduce__(self) -> Any:
        own = vars(self)
        is_sorted, is_grouped = (own.get(name, self) is None for name in ("vertex_ids", "edge_ids"))
        return _again, (*own["sizes"], (own["wide"], own["short"]), is_sorted, is_grouped)

    def finish(self, *, is_sorted: bool, is_grouped: bool) -> None:
        """Told once it is filled: whether vertices, and edges, were in order already."""
        if is_sorted:
            vars(self).update(vertex_ids=None, vertex_rows=None)
        if is_grouped:
            vars(self)["edge_ids"] = None

    def __getattr__(self, name: str) -> Any:
        made = self._make(name)
        if made is None:
            raise AttributeError(name)
        vars(self)[name] = made
        return made

    def _make(self, name: str) -> Tensor | None:
        own = vars(self)
        if name in own.get("starts", ()):
            start, (n, _) = own["starts"][name], own["sizes"]
            return torch.from_numpy(own["wide"][start : start + n + name.endswith("ptr")])
        if name in _SHORT and "sizes" in own:
            return torch.from_numpy(own["short"][_SHORT.index(name)])[: own["sizes"][1]]
        return None

    def _made(self, name: str) -> Tensor:
        made = self._make(name)
        assert made is not None
        return made

    @cached_property
    def edge_ids(self) -> Tensor | None:
        return self._made("edge_ids")

    @cached_property
    def dst_rows(self) -> Tensor:
        return self._made("dst_rows")

    @cached_property
    def out_edges(self) -> Tensor:
        return self._made("out_edges")

    @cached_property
    def out_dst(self) -> Tensor:
        return self._made("out_dst")

    @property
    def addresses(self) -> tuple[int, ...]:
        """Of in_ptr, src_rows, out_ptr, out_edges and out_dst, and of vertex ids, 0 if they are in order."""
        places, ids = vars(self)["places"], vars(self).get("vertex_ids", self)
        return (places[2], places[5], places[3], places[7], places[8], 0 if ids is None else places[0])


def _again(n: int, m: int, blocks: tuple[Any, Any], is_sorted: bool, is_grouped: bool) -> SortedRows:
    """A copy, in memory of its own."""
    made = SortedRows(n, m, blocks)
    made.finish(is_sorted=is_sorted, is_grouped=is_grouped)
    return made
