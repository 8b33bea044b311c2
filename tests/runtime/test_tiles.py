"""Pieces of a region put together by concatenation: what writing each to its place gives."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from vgraph.ir.exchange import Piece
from vgraph.ir.index_set import IndexSet
from vgraph.ir.reductions import reduce_info
from vgraph.ir.sharding import Region
from vgraph.runtime.distributed.shards import put, take
from vgraph.runtime.distributed.tiles import concatenate


def sets(size: int, outer: int, ways: int) -> list[IndexSet]:
    return [IndexSet.whole(size).cut(outer, ways, which) for which in range(ways)]


def pieces_of(whole: Tensor, cuts: list[list[IndexSet]], term: int = 0) -> list[tuple[Piece, Tensor]]:
    """A piece for each member of the product of the cuts."""
    regions: list[Region] = [()]
    for cut in cuts:
        regions = [(*region, entries) for region in regions for entries in cut]
    have = tuple(IndexSet.whole(size) for size in whole.shape)
    return [(Piece(0, region, term), take(whole, have, region)) for region in regions]


@pytest.mark.parametrize(
    "cuts",
    [
        [sets(7, 1, 3), sets(6, 1, 2)],
        [sets(7, 1, 1), sets(6, 1, 4)],
        [sets(7, 1, 2), sets(6, 3, 2)],  # each has three runs
        [sets(7, 1, 1), sets(6, 1, 1)],
        [sets(7, 7, 1), sets(6, 2, 3)],
    ],
)
@pytest.mark.parametrize("reducer", ["sum", "prod"])
@pytest.mark.parametrize("terms", [1, 3])
def test_tiles_are_what_is_written(cuts: list[list[IndexSet]], reducer: str, terms: int) -> None:
    numbers = [torch.randn(7, 6) for _ in range(terms)]
    kept = [each.clone() for each in numbers]
    need = (IndexSet.whole(7), IndexSet.whole(6))
    pieces = [pair for term, whole in enumerate(numbers) for pair in pieces_of(whole, cuts, term)]
    written = torch.empty(7, 6)
    for piece, data in pieces:
        put(written, need, piece.region, data, reduce_info(reducer).join if piece.term else None)
    found = concatenate(need, pieces, reducer)
    assert found is not None and torch.equal(found, written)
    assert all(torch.equal(a, b) for a, b in zip(numbers, kept, strict=True))


def test_a_region_that_is_a_part() -> None:
    """Of entries 2:5 and 8:11, cut where neither run ends."""
    need = (IndexSet.of([(2, 5), (8, 11)]),)
    whole, have = torch.arange(12.0), (IndexSet.whole(12),)
    regions = [(IndexSet.of([(2, 4)]),), (IndexSet.of([(4, 5), (8, 9)]),), (IndexSet.of([(9, 11)]),)]
    found = concatenate(need, [(Piece(i, r), take(whole, have, r)) for i, r in enumerate(regions)], None)
    assert found is not None and found.tolist() == [2, 3, 4, 8, 9, 10]


def test_what_is_no_tiling() -> None:
    """A hole, pieces that meet in no common line, and a term of a part of the region."""
    x, need = torch.randn(4, 4), (IndexSet.whole(4), IndexSet.whole(4))
    tiles = pieces_of(x, [sets(4, 1, 2), sets(4, 1, 2)])
    assert concatenate(need, tiles[:3], None) is None
    assert concatenate(need, [*tiles, (Piece(1, tiles[0][0].region, 1), tiles[0][1])], "sum") is None
    turned = [((0, 3), (0, 1)), ((3, 4), (0, 3)), ((1, 4), (3, 4)), ((0, 1), (1, 4)), ((1, 3), (1, 3))]
    regions = [(IndexSet.one(*rows), IndexSet.one(*columns)) for rows, columns in turned]
    assert concatenate(need, [(Piece(0, r), take(x, need, r)) for r in regions], None) is None


def test_without_dims() -> None:
    assert concatenate((), [(Piece(0, ()), torch.tensor(2.0)), (Piece(1, (), 1), torch.tensor(3.0))], "sum") == 5
