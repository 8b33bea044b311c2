"""Layouts: which worker has which region of a value, and where the pieces of another region come from.

Takes: placements, regions that are read. Gives: Layout, Exchange. Runs once per function.
Source: Tofu section 6 (the partitioned graph); fetches are direct, not axis by axis (docs/adr).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import torch

from vgraph.ir.exchange import Exchange, Piece
from vgraph.ir.index_set import IndexSet
from vgraph.ir.partitioned import Layout
from vgraph.ir.sharding import Partial, Placement, Region, Replicate, ShardingPlan, shard_region
from vgraph.partition.rewrite.regions import intersect, num_entries

Steps = frozenset[int]


class Workers:
    """The workers of a plan: their digits, and for each the others with the nearest first."""

    def __init__(self, plan: ShardingPlan) -> None:
        self.axes, self.count = plan.axes, plan.num_workers
        self.digits = [plan.digits(worker) for worker in range(self.count)]
        self.near = [self._nearest(worker) for worker in range(self.count)]
        self.known: dict[tuple[object, ...], tuple[tuple[Piece, ...], ...]] = {}

    def _nearest(self, worker: int) -> list[int]:
        return sorted(range(self.count), key=lambda other: self._distance(worker, other))

    def _distance(self, worker: int, other: int) -> tuple[int, int]:
        """Workers that differ in late steps only are near; among equals, the next one on."""
        pairs = zip(self.digits[worker], self.digits[other], strict=True)
        first = next((s for s, (a, b) in enumerate(pairs) if a != b), len(self.axes))
        return (-first, (other - worker) % self.count)


def placed(shape: tuple[int, ...], placements: tuple[Placement, ...], workers: Workers) -> Layout:
    """The layout of a tensor with a placement a step."""
    return Layout(placements, tuple(shard_region(shape, placements, workers.axes, d) for d in workers.digits))


def chunk_layout(shape: tuple[int, ...], workers: Workers) -> Layout:
    """Chunks along the first dim, one a worker, as torch.chunk cuts them; without dims, on every worker."""
    if not shape:
        return Layout((Replicate(),) * len(workers.axes), ((),) * workers.count)
    step = -(-shape[0] // workers.count)
    bounds = [(min(w * step, shape[0]), min((w + 1) * step, shape[0])) for w in range(workers.count)]
    rest = tuple(IndexSet.whole(size) for size in shape[1:])
    return Layout((Replicate(),) * len(workers.axes), tuple((IndexSet.one(*b), *rest) for b in bounds))


def whole_layout(shape: tuple[int, ...], workers: Workers) -> Layout:
    """All of a tensor on every worker."""
    return placed(shape, (Replicate(),) * len(workers.axes), workers)


def partial_steps(placements: Sequence[Placement]) -> Steps:
    """The steps in which workers have terms of a reduction."""
    return frozenset(s for s, p in enumerate(placements) if isinstance(p, Partial))


def plan_pieces(
    layout: Layout, need: tuple[Region | None, ...], kept: Steps, workers: Workers
) -> tuple[tuple[Piece, ...], ...]:
    """For every worker, where each part of its region comes from; ``kept``: steps that stay Partial."""
    partial = partial_steps(layout.placements)
    key = (layout.regions, partial, need, kept)
    if key not in workers.known:
        reduced = sorted(partial - kept)
        made = kept - partial  # not a sum yet: the first worker has all of it
        workers.known[key] = tuple(
            ()
            if region is None or any(workers.digits[worker][s] for s in made)
            else tuple(_pieces(worker, region, layout, reduced, kept - made, workers))
            for worker, region in enumerate(need)
        )
    return workers.known[key]


def _pieces(
    worker: int, region: Region, layout: Layout, reduced: list[int], kept: Steps, workers: Workers
) -> list[Piece]:
    mine, found = workers.digits[worker], list[Piece]()
    for term, digits in enumerate(itertools.product(*(range(workers.axes[s]) for s in reduced))):
        wanted = [*zip(reduced, digits, strict=True), *((s, mine[s]) for s in kept)]
        sources: dict[Region, int] = {}
        for source in workers.near[worker]:
            have, theirs = layout.regions[source], workers.digits[source]
            if have is not None and all(theirs[s] == digit for s, digit in wanted):
                sources.setdefault(have, source)
        if region in sources:
            found.append(Piece(sources[region], region, term))
            continue
        pieces = [(source, intersect(region, have)) for have, source in sources.items()]
        found += [Piece(source, part, term) for source, part in pieces if part is not None]
        covered = sum(num_entries(part) for _, part in pieces if part is not None)
        assert covered == num_entries(region), f"worker {worker} finds {covered} of {num_entries(region)} entries"
    return found


def build_exchange(
    number: int, dtype: torch.dtype, layout: Layout, need: tuple[Region | None, ...], kept: Steps, workers: Workers
) -> Exchange:
    """The exchange that brings ``need`` to every worker."""
    reducers = {p.reducer for s, p in enumerate(layout.placements) if isinstance(p, Partial) and s not in kept}
    assert len(reducers) <= 1, "a value is partial in one way"
    pieces = plan_pieces(layout, need, kept, workers)
    made = bool(kept - partial_steps(layout.placements))
    return Exchange(number, dtype, layout.regions, need, pieces, next(iter(reducers), None), made)


def moved_entries(layout: Layout, need: tuple[Region | None, ...], kept: Steps, workers: Workers) -> int:
    """How many elements would cross workers: of every term what a worker needs, but what it has itself."""
    partial, total = partial_steps(layout.placements), 0
    terms = math.prod([workers.axes[step] for step in partial - kept])
    for digits, region, have in zip(workers.digits, need, layout.regions, strict=True):
        if region is None or any(digits[step] for step in kept - partial):  # the first worker has all of it
            continue
        mine = intersect(region, have) if have is not None else None
        total += terms * num_entries(region) - (num_entries(mine) if mine is not None else 0)
    return total


def spread(layout: Layout, kept: Steps, workers: Workers, *, is_spread: bool = True) -> Layout:
    """The layout in which a reduction is spread out: every worker of a group reduces a part of its own.

    Not spread: the first worker of each group reduces all.
    """
    reduced = partial_steps(layout.placements) - kept
    placements = tuple(Replicate() if s in reduced else p for s, p in enumerate(layout.placements))
    regions: list[Region | None] = []
    for worker, region in enumerate(layout.regions):
        digits = workers.digits[worker]
        regions.append(region and _own_part(region, sorted(reduced), digits, workers.axes, is_spread))
        if region == () and any(digits[s] for s in reduced):  # a scalar has one owner
            regions[-1] = None
    return Layout(placements, tuple(regions))


def _own_part(
    region: Region, reduced: list[int], digits: tuple[int, ...], axes: Sequence[int], is_spread: bool
) -> Region | None:
    if not is_spread:
        return None if any(digits[s] for s in reduced) else region
    dim, part = _longest(region), list(region)
    for step in reduced:
        part[dim] = part[dim].cut(1, axes[step], digits[step])
    return tuple(part) if len(part[dim]) else None


def _longest(region: Region) -> int:
    sizes = [len(entries) for entries in region]
    return sizes.index(max(sizes))
