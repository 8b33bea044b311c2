"""Grouped products: rows of several types, each type with a matrix of its own.

Takes: rows and a matrix a type. Gives: their products, without a loop over types. Runs at every call.
Source: DGL's typed linear maps (R-GCN, HGT): rows of one type are cut into tiles, all tiles are one batched product.
"""

from __future__ import annotations

from collections import OrderedDict

import torch
from torch import Tensor

from vgraph.errors import FeatureError
from vgraph.ir.topology import lasting, stable_argsort

TILE = 64  # rows of one type that share a matrix in the batched product


def segment_mm(a: Tensor, b: Tensor, seglen_a: Tensor) -> Tensor:
    """Rows ``a`` times the matrix of their type, where rows lie type by type.

    Args:
        a: (rows, in), type by type.
        b: (types, in, out).
        seglen_a: (types,), the number of rows of every type.

    Returns:
        (rows, out).

    Raises:
        FeatureError: the lengths do not sum to the rows, or widths differ.

    Source: DGL 1.1, ``dgl.ops.segment_mm``.

    Example:
        >>> import torch, vgraph
        >>> b = torch.stack([torch.eye(2), 2 * torch.eye(2)])
        >>> vgraph.ops.segment_mm(torch.ones(3, 2), b, torch.tensor([1, 2])).tolist()
        [[1.0, 1.0], [2.0, 2.0], [2.0, 2.0]]
    """
    _check(a, b)
    lengths = seglen_a.to(a.device).long()
    if lengths.shape != b.shape[:1] or int(lengths.sum()) != a.shape[0]:
        fact = f"seglen_a has {tuple(lengths.shape)} lengths with sum {int(lengths.sum())} for {a.shape[0]} rows"
        raise FeatureError(fact, cure="give the rows of every type")
    types = torch.repeat_interleave(torch.arange(b.shape[0], device=a.device), lengths)
    return tiled(a, b, Tiles(types, b.shape[0], None))


def gather_mm(a: Tensor, b: Tensor, *, idx_b: Tensor) -> Tensor:
    """Rows times the matrix of their type, in whatever order they lie.

    Args:
        a: (rows, in).
        b: (types, in, out).
        idx_b: (rows,), the type of every row.

    Returns:
        (rows, out).

    Raises:
        FeatureError: a type is out of range, there is not one a row, or widths differ.

    Source: DGL 1.1, ``dgl.ops.gather_mm``.

    Example:
        >>> import torch, vgraph
        >>> b = torch.stack([torch.eye(2), 2 * torch.eye(2)])
        >>> vgraph.ops.gather_mm(torch.ones(2, 2), b, idx_b=torch.tensor([1, 0])).tolist()
        [[2.0, 2.0], [1.0, 1.0]]
    """
    _check(a, b)
    return tiled(a, b, tiles_of(idx_b, a.shape[0], b.shape[0]))


class Tiles:
    """Where every row goes so that a tile holds rows of one type, for types (rows,) below ``num_types``."""

    def __init__(self, types: Tensor, num_types: int, order: Tensor | None) -> None:
        """``order``: the rows type by type; None: they lie so."""
        self.source = types
        counts = torch.bincount(types, minlength=num_types)
        tiles = (counts + TILE - 1) // TILE
        ends, first_tile = counts.cumsum(0), tiles.cumsum(0) - tiles
        self.count = int(tiles.sum())
        self.types = torch.repeat_interleave(
            torch.arange(num_types, device=types.device), tiles, output_size=self.count
        )
        ranks = torch.arange(types.shape[0], device=types.device)
        sorted_types = types if order is None else types.index_select(0, order)
        place = first_tile.index_select(0, sorted_types) * TILE + ranks - (ends - counts).index_select(0, sorted_types)
        self.places = place if order is None else torch.empty_like(place).scatter_(0, order, place)
        # empty places take the last row: it is multiplied in vain, and nobody reads the product
        self.rows = torch.zeros(self.count * TILE, dtype=torch.int64, device=types.device)
        self.rows[self.places] = ranks
        self.filled = torch.zeros(self.count * TILE, dtype=torch.bool, device=types.device)
        self.filled[self.places] = True


def check_types(types: Tensor, num_rows: int, num_types: int) -> Tensor:
    """The types as int64; FeatureError: they are not one a row, below ``num_types``."""
    if types.shape != (num_rows,) or types.is_floating_point() or types.dtype == torch.bool:
        fact = f"types are {types.dtype} {tuple(types.shape)} for {num_rows} rows"
        raise FeatureError(fact, cure="give a whole number for every row")
    types = types.long()
    low, high = (int(end) for end in torch.aminmax(types)) if types.numel() else (0, -1)
    if low < 0 or high >= num_types:
        fact = f"types are from {low} to {high} where there are {num_types} matrices"
        raise FeatureError(fact, cure="number the types 0, 1, 2, ...")
    return types


_known: OrderedDict[tuple[int, int, int], Tiles] = OrderedDict()  # by where types lie, how many, of how many
_MOST_KNOWN = 16


def tiles_of(types: Tensor, num_rows: int, num_types: int) -> Tiles:
    """Tiles for types in any order, kept while the same memory holds the same types."""
    checked = check_types(types, num_rows, num_types)
    key = (types.data_ptr(), num_rows, num_types)
    found = _known.pop(key, None)
    if found is None or found.source.device != checked.device or not torch.equal(found.source, checked):
        with lasting():
            found = Tiles(checked, num_types, stable_argsort(checked, num_types))
            found.source = checked.clone()
    _known[key] = found  # behind those that were asked for earlier
    while len(_known) > _MOST_KNOWN:
        _known.popitem(last=False)
    return found


def tiled(a: Tensor, b: Tensor, tiles: Tiles) -> Tensor:
    """The products as one batched product; ordinary operators, so derivatives of every order."""
    if not a.shape[0]:
        return a.new_zeros((0, b.shape[2])) + 0 * b.sum()
    padded = a.index_select(0, tiles.rows).masked_fill(~tiles.filled.unsqueeze(1), 0)
    stacked = padded.view(tiles.count, TILE, a.shape[1])
    product = torch.bmm(stacked, b.index_select(0, tiles.types))
    return product.view(-1, b.shape[2]).index_select(0, tiles.places)


def _check(a: Tensor, b: Tensor) -> None:
    if a.ndim != 2 or b.ndim != 3 or a.shape[1] != b.shape[1]:
        fact = f"a is {tuple(a.shape)} and b is {tuple(b.shape)}"
        raise FeatureError(fact, cure="give (rows, in) and (types, in, out)")
