"""Pattern: where the entries of a sparse matrix stand.

Takes: rows and columns, or compressed rows or columns. Gives: each of them, and what values are multiplied by. Made
once, and shared by all matrices whose entries stand at the same places. Source: SciPy's names of the formats.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from vgraph.errors import GraphError
from vgraph.ir.topology import Compressed, Topology, lasting

Shape = tuple[int, int]


@dataclass(frozen=True, eq=False)
class Pattern:
    """An entry is an edge of ``topology`` from its column to its row: a product with a vector is message passing.

    Native loops trust the ids of a topology: what users gave or are given is never one of its tensors. ``stacked``,
    (2, entries), ``in_rows`` and ``in_cols`` are what they gave. Entries of a diagonal stand in its order.
    """

    topology: Topology
    stacked: Tensor | None = None
    in_rows: Compressed | None = None
    in_cols: Compressed | None = None
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
    @lasting()
    def indices(self) -> Tensor:
        """Rows and columns to hand out."""
        return torch.stack([self.rows, self.cols]) if self.stacked is None else self.stacked

    @cached_property
    @lasting()
    def csr(self) -> Compressed:
        """Compressed rows to hand out."""
        return _copied(self.topology.csc) if self.in_rows is None else self.in_rows

    @cached_property
    @lasting()
    def csc(self) -> Compressed:
        """Compressed columns to hand out."""
        return _copied(self.topology.csr) if self.in_cols is None else self.in_cols

    @cached_property
    def transposed(self) -> Pattern:
        return Pattern(self.topology.reversed, is_diagonal=self.is_diagonal)

    @cached_property
    @lasting()
    def keys(self) -> Tensor:
        """A number an entry, which grows with the row, then with the column."""
        return number_places(self.rows, self.cols, self.shape)

    @cached_property
    def is_coalesced(self) -> bool:
        """Entries stand row by row, in ascending columns, one at a place."""
        return bool((self.keys.diff() > 0).all())

    @cached_property
    def has_duplicate(self) -> bool:
        return not self.is_coalesced and len(torch.unique(self.keys)) < self.num_entries

    @cached_property
    @lasting()
    def coalesced(self) -> tuple[Pattern, Tensor | None]:
        """The same places in order, each once, and which of them every entry goes to; None: it goes to its own."""
        if self.is_coalesced:
            return self, None
        keys, place = torch.unique(self.keys, return_inverse=True)
        return at_keys(keys, self.shape), place


def number_places(rows: Tensor, cols: Tensor, shape: Shape) -> Tensor:
    """A number a place, which grows with the row, then with the column; GraphError: there are too many places."""
    if shape[0] * shape[1] > 2**63 - 1:
        fact = f"a matrix of {shape[0]} x {shape[1]} has more places than can be numbered"
        raise GraphError(fact, cure="divide it into blocks of rows or columns")
    return rows.long() * shape[1] + cols.long()


def check_ids(name: str, ids: Tensor, count: int) -> None:
    """GraphError: ids are no whole numbers from 0 below ``count``."""
    if ids.dim() != 1 or ids.dtype not in (torch.int64, torch.int32):
        raise GraphError(f"{name} are {ids.dtype} {tuple(ids.shape)}", cure="give one int64 number an entry")
    if len(ids) and (int(ids.min()) < 0 or int(ids.max()) >= count):
        fact = f"{name} go from {int(ids.min())} to {int(ids.max())}, and there are {count}"
        raise GraphError(fact, cure="give ids from 0 up, or a larger shape")


def at_places(rows: Tensor, cols: Tensor, shape: Shape) -> Pattern:
    """Entries at these rows and columns, (entries,) each, which are known to be right and nobody else's."""
    return Pattern(Topology(cols.contiguous(), rows.contiguous(), shape[1], shape[0]))


def at_keys(keys: Tensor, shape: Shape) -> Pattern:
    """Entries at numbered places."""
    num_cols = max(shape[1], 1)
    return at_places(torch.div(keys, num_cols, rounding_mode="floor"), keys % num_cols, shape)


def as_given(indices: Tensor, shape: Shape) -> Pattern:
    """Entries at a user's rows and columns, (2, entries)."""
    rows, cols = indices.clone(memory_format=torch.contiguous_format)
    return replace(at_places(rows, cols, shape), stacked=indices)


def in_compressed_rows(indptr: Tensor, cols: Tensor, shape: Shape) -> Pattern:
    """A user's entries row by row: ``indptr`` (rows + 1) tells where each begins."""
    given = Compressed(indptr, cols, None)
    own = _copied(given)
    made = at_places(_spread(own), own.other, shape)
    made.topology.__dict__["csc"] = own
    return replace(made, in_rows=given)


def in_compressed_cols(indptr: Tensor, rows: Tensor, shape: Shape) -> Pattern:
    """A user's entries column by column: ``indptr`` (columns + 1) tells where each begins."""
    given = Compressed(indptr, rows, None)
    own = _copied(given)
    made = at_places(own.other, _spread(own), shape)
    made.topology.__dict__["csr"] = own
    return replace(made, in_cols=given)


def _copied(lists: Compressed) -> Compressed:
    ptr, other = (ids.clone(memory_format=torch.contiguous_format) for ids in (lists.ptr, lists.other))
    return Compressed(ptr, other, None if lists.edge_ids is None else lists.edge_ids.clone())


def _spread(lists: Compressed) -> Tensor:
    """The row or column of every entry."""
    ids = torch.arange(len(lists.ptr) - 1, device=lists.other.device, dtype=lists.other.dtype)
    return torch.repeat_interleave(ids, lists.ptr.diff())


def on_diagonal(shape: Shape, device: torch.device) -> Pattern:
    """The entries of the main diagonal."""
    ids = torch.arange(min(shape), device=device)
    return Pattern(Topology(ids, ids, shape[1], shape[0]), is_diagonal=True)
