"""Crossing cuts: what moves where two placements cut one dim in different steps, or alike after different steps.

Takes: a value's shape, where it lies, how it is read. Gives: elements that cross workers. Runs once per kind of move.
Source: none. Halves of halves are other entries than halves: counted step by step such a move looks too cheap; or too
dear, where a worker has the half of a half, and needs half of each half, or rows and columns are cut in other steps.
"""

from __future__ import annotations

from functools import cache

from vgraph.ir.sharding import Placement, ShardingPlan, Split
from vgraph.partition.rewrite.layout import Workers, moved_entries, partial_steps, placed, spread

Placements = tuple[Placement, ...]
MANY = 64  # workers from which on moves are counted step by step alone: pairs of workers would be too many


@cache
def crosses(have: Placements, need: Placements) -> bool:
    """Whether some dim is cut by one in a step and by the other in another step, and not by both alike."""

    def steps(placements: Placements, dim: int) -> dict[int, Split]:
        return {step: p for step, p in enumerate(placements) if isinstance(p, Split) and p.dim == dim}

    dims = {p.dim for p in (*have, *need) if isinstance(p, Split)}
    pairs = [(steps(have, dim), steps(need, dim)) for dim in dims]
    return any(h and n and h != n and len(h.keys() | n.keys()) > 1 for h, n in pairs)


@cache
def crossing_entries(shape: tuple[int, ...], have: Placements, need: Placements, axes: tuple[int, ...]) -> int:
    """How many elements cross workers, counted worker by worker as the generated program moves them."""
    workers = _workers(axes)
    layout, kept = placed(shape, have, workers), partial_steps(need)
    wanted = placed(shape, need, workers).regions
    at_once = moved_entries(layout, wanted, kept, workers)
    if not partial_steps(have) - kept:
        return at_once
    stays = kept & partial_steps(have)
    reduced = spread(layout, stays, workers)
    first = moved_entries(layout, reduced.regions, stays, workers)
    return min(at_once, first + moved_entries(reduced, wanted, kept, workers))


@cache
def _workers(axes: tuple[int, ...]) -> Workers:
    return Workers(ShardingPlan(axes, (), {}))
