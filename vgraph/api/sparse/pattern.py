"""Pattern: where the entries of a sparse matrix stand.

Takes: rows and columns, or compressed rows or columns. Gives: each of them, and what values are multiplied by. Made
once, and shared by all matrices whose entries stand at the same places. Source: SciPy's names of the formats.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from vgraph.errors import GraphError
from vgraph.ir.topology import Compressed, Topology

Shape = tuple[int, int]


@dataclass(frozen=True, eq=False)
class Pattern:
    """An entry is an edge of ``topology`` from its column to its row: a product with a vector is message passing.

    ``stacked`` is (2, entries): rows, columns, where they came so. Entries of a diagonal stand in its order.
    """

    topology: Topology
    stacked: Tensor | None = None
    is_diagonal: bool = False

    @property
    def rows(self) -> Tensor:
        return self.topology.dst

    @property
    def cols(self) -> Tensor:
        return self.topology.src

    @property
    def shape(self) -> Shape:
        return self.topology.num_dst, self.topology.num_src

    @property
    def num_entries(self) -> int:
        return self.topology.num_edges

    @cached_property
    def indices(self) -> Tensor:
        return torch.stack([self.rows, self.cols]) if self.stacked is None else self.stacked

    @cached_property
    def transposed(self) -> Pattern:
        return Pattern(self.topology.reversed, is_diagonal=self.is_diagonal)

    @cached_property
    def keys(self) -> Tensor:
        """A number an entry, which grows with the row, then with the column."""
        num_rows, num_cols = self.shape
        if num_rows * num_cols > 2**63 - 1:
            fact = f"a matrix of {num_rows} x {num_cols} has more places than can be numbered"
            raise GraphError(fact, cure="divide it into blocks of rows or columns")
        return self.rows.long() * num_cols + self.cols.long()

    @cached_property
    def is_coalesced(self) -> bool:
        """Entries stand row by row, in ascending columns, one at a place."""
        return bool((self.keys.diff() > 0).all())

    @cached_property
    def has_duplicate(self) -> bool:
        return not self.is_coalesced and len(torch.unique(self.keys)) < self.num_entries

    @cached_property
    def coalesced(self) -> tuple[Pattern, Tensor | None]:
        """The same places in order, each once, and which of them every entry goes to; None: it goes to its own."""
        if self.is_coalesced:
            return self, None
        keys, place = torch.unique(self.keys, return_inverse=True)
        return at_keys(keys, self.shape), place


def check_ids(name: str, ids: Tensor, count: int) -> None:
    """GraphError: ids are no whole numbers from 0 below ``count``."""
    if ids.dim() != 1 or ids.dtype not in (torch.int64, torch.int32):
        raise GraphError(f"{name} are {ids.dtype} {tuple(ids.shape)}", cure="give one int64 number an entry")
    if len(ids) and (int(ids.min()) < 0 or int(ids.max()) >= count):
        fact = f"{name} go from {int(ids.min())} to {int(ids.max())}, and there are {count}"
        raise GraphError(fact, cure="give ids from 0 up, or a larger shape")


def at_places(rows: Tensor, cols: Tensor, shape: Shape, stacked: Tensor | None = None) -> Pattern:
    """Entries at these rows and columns, (entries,) each, which are known to be right."""
    return Pattern(Topology(cols.contiguous(), rows.contiguous(), shape[1], shape[0]), stacked)


def at_keys(keys: Tensor, shape: Shape) -> Pattern:
    """Entries at numbered places."""
    return at_places(torch.div(keys, max(shape[1], 1), rounding_mode="floor"), keys % max(shape[1], 1), shape)


def in_compressed_rows(indptr: Tensor, cols: Tensor, shape: Shape) -> Pattern:
    """Entries row by row: ``indptr`` (rows + 1) tells where each begins."""
    made = at_places(_spread(indptr, cols), cols, shape)
    made.topology.__dict__["csc"] = Compressed(indptr.contiguous(), made.cols, None)  # no copy, if they are
    return made


def in_compressed_cols(indptr: Tensor, rows: Tensor, shape: Shape) -> Pattern:
    """Entries column by column: ``indptr`` (columns + 1) tells where each begins."""
    made = at_places(rows, _spread(indptr, rows), shape)
    made.topology.__dict__["csr"] = Compressed(indptr.contiguous(), made.rows, None)
    return made


def _spread(indptr: Tensor, like: Tensor) -> Tensor:
    """The row or column of every entry."""
    return torch.repeat_interleave(torch.arange(len(indptr) - 1, device=like.device, dtype=like.dtype), indptr.diff())


def on_diagonal(shape: Shape, device: torch.device) -> Pattern:
    """The entries of the main diagonal."""
    ids = torch.arange(min(shape), device=device)
    return Pattern(Topology(ids, ids, shape[1], shape[0]), is_diagonal=True)
