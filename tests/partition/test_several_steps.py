"""What moves in several steps, dim by dim, is what the generated program exchanges, worker by worker."""

from __future__ import annotations

import random

import pytest

from vgraph.ir.sharding import At, Partial, Placement, Replicate, ShardingPlan, Split
from vgraph.partition.accounting.costs import IMPOSSIBLE, code_of, transfer
from vgraph.partition.accounting.crossing import crossing_entries
from vgraph.partition.accounting.several_steps import Route, each_of, factor_of
from vgraph.partition.rewrite.layout import Workers, moved_entries, partial_steps, placed, spread

Placements = tuple[Placement, ...]
KINDS: list[Placement] = [Split(0), Split(1), Split(0, 2), Replicate(), Partial()]


def _by_workers(shape: tuple[int, ...], have: Placements, need: Placements, axes: tuple[int, ...]) -> int:
    """As the rewrite moves it: terms at once, or spread first."""
    workers, kept = Workers(ShardingPlan(axes, (), {})), partial_steps(need)
    layout, wanted = placed(shape, have, workers), placed(shape, need, workers).regions
    at_once = moved_entries(layout, wanted, kept, workers)
    if partial_steps(have) <= kept:
        return at_once
    reduced = spread(layout, kept, workers)
    return min(
        at_once, moved_entries(layout, reduced.regions, kept, workers) + moved_entries(reduced, wanted, kept, workers)
    )


@pytest.mark.parametrize("shape", [(24, 48), (48, 24, 8), (49, 24), (25, 26)])
@pytest.mark.parametrize("axes", [(2, 2), (3, 2), (2, 2, 2)])
def test_entries_are_those_of_the_exchange(shape: tuple[int, ...], axes: tuple[int, ...]) -> None:
    rng, compared = random.Random(0), 0
    kinds = [kind for kind in KINDS if kind != Split(0, 2) or shape[0] % 8 == 0]
    while compared < 60:
        have, need = (tuple([rng.choice(kinds) for _ in axes]) for _ in range(2))
        if any(transfer(h, n, ways) == IMPOSSIBLE for h, n, ways in zip(have, need, axes, strict=True)):
            continue
        compared += 1
        assert crossing_entries(shape, have, need, axes) == _by_workers(shape, have, need, axes), (have, need)


def test_who_places_ops_is_counted_as_well() -> None:
    assert crossing_entries((8, 3), (At(0), Split(0)), (At(1), Split(0)), (2, 2)) == 24


def test_a_further_step_counts_what_all_steps_move() -> None:
    """Rows that are read as columns: half moves; of quarters, those that two of four workers have stay."""
    rows, columns = code_of(Split(0)), code_of(Split(1))
    route = Route((8, 8), (rows,), (columns,), (2,))
    assert factor_of(route, columns, rows, 2) == 0.5
    assert factor_of(route, columns, columns, 2) == 0.75
    assert factor_of(route, code_of(Replicate()), code_of(Partial()), 2) == IMPOSSIBLE
    assert each_of((rows, code_of(Replicate())), (2, 3)) == 3.0
