"""Crossing cuts: what moves in several steps, worker by worker.

Takes: a value's shape, where it lies, how it is read. Gives: elements that cross workers. Runs once per kind of move.
Source: none. Halves of halves are other entries than halves: counted step by step such a move looks too cheap; or too
dear, where a worker has the half of a half, and needs half of each half, or rows and columns are cut in other steps, or
terms are summed up by who has them already.
What slices, cats, pads and windows take of an operand is counted as it lies in it.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Mapping, Sequence, Set
from functools import cache

import numpy as np
from numpy.typing import NDArray

from vgraph.ir.index_set import IndexSet
from vgraph.ir.program import Op, op_name
from vgraph.ir.sharding import At, Placement, Region, ShardingPlan, Split, Strategy
from vgraph.ir.tdl.affine import parse_access
from vgraph.ir.tdl.notation import Notation
from vgraph.partition.rewrite.layout import Steps, Workers, moved_entries, partial_steps, placed, spread
from vgraph.partition.rewrite.regions import Sets, image, index_sets, region

Placements = tuple[Placement, ...]
Regions = tuple[Region | None, ...]  # one a worker
Along = tuple[IndexSet, ...]  # of one dim, by worker
Cuts = tuple[tuple[int, int], ...]  # of one dim: steps, and outer factors
# Of an operand a worker reads a part that begins where the op says; asked by name, for notations take time to be made.
TAKES_PART = frozenset(
    """slice select narrow unbind split split_with_sizes chunk unsafe_split unsafe_split_with_sizes slice_backward
    constant_pad_nd cat""".split()
)
MANY = 64  # workers from which on moves are counted step by step alone: pairs of workers would be too many


@cache
def crossing_entries(shape: tuple[int, ...], have: Placements, need: Placements, axes: tuple[int, ...]) -> int:
    """How many elements cross workers, counted worker by worker as the generated program moves them."""
    kept = partial_steps(need)
    if _is_regular(shape, have, kept, axes) and not any(isinstance(placement, At) for placement in need):
        return _regular_entries(shape, have, _along_dims(shape, need, axes), kept, axes)
    return part_entries(shape, have, placed(shape, need, _workers(axes)).regions, kept, axes)


@cache
def part_entries(shape: tuple[int, ...], have: Placements, wanted: Regions, kept: Steps, axes: tuple[int, ...]) -> int:
    """The same where every worker reads a region; ``kept``: the steps in which terms stay terms."""
    regions = [region for region in wanted if region is not None]
    if len(regions) == len(wanted) and _is_regular(shape, have, kept, axes):
        return _regular_entries(shape, have, tuple(zip(*regions, strict=True)), kept, axes)
    at_once, first, then = ways_to_sum(shape, have, wanted, kept, axes)
    return min(at_once, first + then)


@cache
def ways_to_sum(
    shape: tuple[int, ...], have: Placements, wanted: Regions, kept: Steps, axes: tuple[int, ...]
) -> tuple[int, int, int]:
    """How many elements cross where terms are read at once; and for sums that are spread out, then of these.

    Once there are sums, later readers are given of them. Where nothing is to be summed up all are read at once.
    """
    workers = _workers(axes)
    layout, stays = placed(shape, have, workers), kept & partial_steps(have)
    at_once = moved_entries(layout, wanted, kept, workers)
    if not partial_steps(have) - kept:
        return at_once, 0, at_once
    sums = spread(layout, stays, workers)
    return at_once, moved_entries(layout, sums.regions, stays, workers), moved_entries(sums, wanted, kept, workers)


@cache
def _is_regular(shape: tuple[int, ...], have: Placements, kept: Steps, axes: tuple[int, ...]) -> bool:
    """Whether every worker has a part, what stays terms is, and all would spread terms along one dim."""
    terms = partial_steps(have)
    if not shape or not kept <= terms or any(isinstance(placement, At) for placement in have):
        return False
    return terms <= kept or all(len(set(map(len, along))) == 1 for along in _along_dims(shape, have, axes))


def _regular_entries(
    shape: tuple[int, ...], have: Placements, wanted: tuple[Along, ...], kept: Steps, axes: tuple[int, ...]
) -> int:
    """The same, dim by dim."""
    reduced = sorted(partial_steps(have) - kept)
    terms, lies = math.prod([axes[step] for step in reduced]), _along_dims(shape, have, axes)
    read = int(_product(map(_lengths, wanted)).sum())
    at_once = terms * read - _common(lies, wanted)
    if not reduced:
        return at_once
    sizes = [len(along[0]) for along in lies]
    own = list(lies)
    longest = sizes.index(max(sizes))
    own[longest] = _along(shape[longest], (*_cuts(have, longest), *[(step, 1) for step in reduced]), axes)
    first = (terms - 1) * int(_product(map(_lengths, own)).sum())
    return min(at_once, first + read - _common(own, wanted))


def _along_dims(shape: tuple[int, ...], placements: Placements, axes: tuple[int, ...]) -> tuple[Along, ...]:
    """By dim, what each worker has of it."""
    return tuple([_along(size, _cuts(placements, dim), axes) for dim, size in enumerate(shape)])


def _cuts(placements: Placements, dim: int) -> Cuts:
    return tuple([(at, one.outer) for at, one in enumerate(placements) if isinstance(one, Split) and one.dim == dim])


@cache
def _along(size: int, cuts: Cuts, axes: tuple[int, ...]) -> Along:
    """What each worker has of one dim, which these steps cut by these outer factors."""
    found: list[IndexSet] = []
    for digits in _workers(axes).digits:
        mine = IndexSet.whole(size)
        for step, outer in cuts:
            mine = mine.cut(outer, axes[step], digits[step])
        found.append(mine)
    return tuple(found)


@cache
def _lengths(along: Along) -> NDArray[np.int64]:
    return np.array(list(map(len, along)), np.int64)


@cache
def _lengths_of_both(one: Along, other: Along) -> NDArray[np.int64]:
    return np.array([len(a & b) for a, b in zip(one, other, strict=True)], np.int64)


def _common(lies: Sequence[Along], wanted: Sequence[Along]) -> int:
    """How many entries workers read where they have them."""
    return int(_product(map(_lengths_of_both, lies, wanted)).sum())


def _product(factors: Iterable[NDArray[np.int64]]) -> NDArray[np.int64]:
    return functools.reduce(np.multiply, factors)


def may_take_part(op: Op, strategies: tuple[Strategy, ...]) -> bool:
    """Whether an op that is divided so may read a part of an operand that no placement tells."""
    return op_name(op.target) in TAKES_PART or any(strategy.halo for strategy in strategies)


def parts_read(
    op: Op, notation: Notation, sizes: Mapping[str, int], strategies: tuple[Strategy, ...], axes: tuple[int, ...]
) -> Mapping[int, tuple[Region, ...]]:
    """By operand what every worker reads, of those of which an op takes a part that no placement tells.

    ``sizes``: those of the indices.
    """
    if not may_take_part(op, strategies):
        return {}
    cut, workers, found = {strategy.index for strategy in strategies}, _workers(axes), dict[int, tuple[Region, ...]]()
    sets: list[Sets] = []
    for place, (value, dims) in enumerate(zip(op.operands(), notation.inputs, strict=True)):
        if any(takes_part(dim, size, cut, sizes) for dim, size in zip(dims, value.row_shape, strict=True)):
            sets = sets or [index_sets(sizes, strategies, axes, digits) for digits in workers.digits]
            regions = tuple([region(value, dims, mine, sizes) for mine in sets])
            needed = tuple([strategy.inputs[place] for strategy in strategies])
            if regions != placed(value.row_shape, needed, workers).regions:
                found[place] = regions
    return found


@cache
def accessed(dim: str) -> bool:
    """Whether a dim has an affine access that is not an index by itself."""
    return not dim.isidentifier() and dim != "1" and parse_access(dim.split("|", maxsplit=1)[0]) is not None


@cache
def names_of(dim: str) -> frozenset[str]:
    """The indices of a dim's access."""
    if dim == "1" or "?" in dim:
        return frozenset()
    accesses = [(part, parse_access(part)) for part in dim.split("|")]
    return frozenset().union(*[part.split() if access is None else access.names for part, access in accesses])


def takes_part(dim: str, size: int, cut: Set[str], sizes: Mapping[str, int]) -> bool:
    """Whether less or more of a dim with such an access may be read than a placement tells."""
    if not accessed(dim):
        return False
    names = names_of(dim)
    if names & cut:
        return True
    sets = {name: IndexSet.whole(sizes[name]) for name in names}
    return len(names) < 2 and len(image(dim, size, sets, sizes)) < size


@cache
def lying(shape: tuple[int, ...], placements: Placements, axes: tuple[int, ...]) -> Regions:
    """What each worker has of a tensor."""
    return placed(shape, placements, _workers(axes)).regions


@cache
def _workers(axes: tuple[int, ...]) -> Workers:
    return Workers(ShardingPlan(axes, (), {}))
