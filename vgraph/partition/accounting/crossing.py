"""Crossing cuts: what moves where two placements cut one dim in different steps, or alike after different steps.

Takes: a value's shape, where it lies, how it is read. Gives: elements that cross workers. Runs once per kind of move.
Source: none. Halves of halves are other entries than halves: counted step by step such a move looks too cheap; or too
dear, where a worker has the half of a half, and needs half of each half, or rows and columns are cut in other steps.
What slices, cats, pads and windows take of an operand is counted as it lies in it.
"""

from __future__ import annotations

import math
from functools import cache

from vgraph.ir.program import Op
from vgraph.ir.sharding import Placement, Region, ShardingPlan, Split, Strategy
from vgraph.ir.tdl.affine import parse_access
from vgraph.partition.rewrite.layout import Steps, Workers, moved_entries, partial_steps, placed, spread
from vgraph.partition.rewrite.regions import notation_of, op_regions

Placements = tuple[Placement, ...]
Regions = tuple[Region | None, ...]  # one a worker
# Of an operand a worker reads a part that begins where the op says; asked by name, for notations take time to be made.
TAKES_PART = frozenset(
    """slice select narrow unbind split split_with_sizes chunk unsafe_split unsafe_split_with_sizes slice_backward
    constant_pad_nd cat""".split()
)
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
    return part_entries(shape, have, placed(shape, need, _workers(axes)).regions, partial_steps(need), axes)


@cache
def part_entries(shape: tuple[int, ...], have: Placements, wanted: Regions, kept: Steps, axes: tuple[int, ...]) -> int:
    """The same where every worker reads a region; ``kept``: the steps in which terms stay terms."""
    workers = _workers(axes)
    layout = placed(shape, have, workers)
    at_once = moved_entries(layout, wanted, kept, workers)
    if not partial_steps(have) - kept:
        return at_once
    stays = kept & partial_steps(have)
    reduced = spread(layout, stays, workers)
    first = moved_entries(layout, reduced.regions, stays, workers)
    return min(at_once, first + moved_entries(reduced, wanted, kept, workers))


def parts_read(op: Op, position: int, strategies: tuple[Strategy, ...], axes: tuple[int, ...]) -> Regions | None:
    """What every worker reads of an operand, where an op takes a part of it that no placement tells; else None."""
    notation = notation_of(op)
    if notation is None or math.prod(axes) >= MANY:
        return None
    cut = {strategy.index for strategy in strategies}
    dims = [dim.split("|", maxsplit=1)[0] for dim in notation.inputs[position] if not dim.isidentifier()]
    accesses = [access for dim in dims if (access := parse_access(dim)) is not None and dim != "1"]
    if not any(len(access.names) < 2 or access.names & cut for access in accesses):
        return None
    workers = _workers(axes)
    found = tuple([op_regions(op, notation, strategies, axes, each).inputs[position] for each in workers.digits])
    needed = tuple([strategy.inputs[position] for strategy in strategies])
    return None if found == placed(list(op.operands())[position].row_shape, needed, workers).regions else found


@cache
def _workers(axes: tuple[int, ...]) -> Workers:
    return Workers(ShardingPlan(axes, (), {}))
