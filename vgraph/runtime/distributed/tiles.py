"""Tiles: pieces put together by concatenation, one operator a dim that is cut.

Takes: pieces of a region. Gives: the region's tensor. Runs once per compiled graph.

``shards.put`` writes each piece to its place, which a compiler sees as three operators and more a piece (it has no
writes, and makes a new tensor of each). Pieces that fill a region as tiles do are concatenated instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import torch
from torch import Tensor

from vgraph.ir.exchange import Piece
from vgraph.ir.reductions import reduce_info
from vgraph.ir.sharding import Region

Tile: TypeAlias = tuple[Region, Tensor]


def concatenate(need: Region, pieces: Sequence[tuple[Piece, Tensor]], reducer: str | None) -> Tensor | None:
    """A region out of its pieces, terms in their order; None: those of a term are no tiles of it.

    What is given may be one of the pieces, or a view of it.
    """
    terms: dict[int, list[Tile]] = {}
    for piece, data in pieces:
        terms.setdefault(piece.term, []).append((piece.region, data))
    wholes = [_tiled(need, tiles) for tiles in terms.values()]
    found = [whole for whole in wholes if whole is not None]
    if not found or len(found) < len(wholes):
        return None
    if len(found) == 1:
        return found[0]
    assert reducer is not None
    join = reduce_info(reducer).join
    assert join is not None
    result = found[0].clone()  # it may be a part of what the worker has
    for other in found[1:]:
        join(result, other)
    return result


def _tiled(need: Region, tiles: Sequence[Tile], first: int = 0) -> Tensor | None:
    """Tiles that differ in dims from ``first`` on: cut into columns along the first of these, each again tiled."""
    if first == len(need):
        return tiles[0][1] if len(tiles) == 1 else None
    whole, columns = need[first], dict[tuple[int, int], list[Tile]]()
    for region, data in tiles:
        seen = 0
        for low, high in whole.positions(region[first]).runs:
            is_all = high - low == len(region[first])
            part = data if is_all else data.narrow(first, seen, high - low)
            columns.setdefault((low, high), []).append((region, part))
            seen += high - low
    ends = sorted(columns)
    if [low for low, _ in ends] != [0, *(high for _, high in ends[:-1])] or ends[-1][1] != len(whole):
        return None
    parts = [_tiled(need, columns[end], first + 1) for end in ends]
    found = [part for part in parts if part is not None]
    if len(found) < len(parts):
        return None
    return found[0] if len(found) == 1 else torch.cat(found, first)
