"""Windows: what workers read of an operand of which their op takes a part: a slice, a pad, a halo, a piece of a cat.

Takes: the region that each worker reads. Gives: a Window, and what moves to it, by where the operand lies, as a factor
of the operand's bytes. Runs once per form of op and step of the recursion.
Source: Tofu section 4.2 (symbolic interval analysis); what a worker has already is not fetched.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from vgraph.ir.index_set import IndexSet
from vgraph.ir.sharding import Partial, Placement, Region, Replicate, Split, split_at
from vgraph.partition.rewrite.views import View

Part = tuple[int, tuple[IndexSet, ...]]  # the size of a dim, and what each worker of a group reads of it


@dataclass(frozen=True)
class Window:
    """What workers read of an operand, in the ``dims`` of which one of them does not read all.

    ``groups``: a part a dim, for each group of workers that the steps before have made, or one if they are alike; in
    positions among what is left to the group. ``within``: the placement that the strategy names. ``longest``: the dim
    along which terms of a sum would be spread.
    """

    within: Placement
    longest: int
    dims: tuple[int, ...]
    groups: tuple[tuple[Part, ...], ...]

    @cached_property
    def size(self) -> int:
        """Entries that are left to all groups, of these dims."""
        return sum([math.prod([size for size, _ in parts]) for parts in self.groups])

    @cached_property
    def entries(self) -> tuple[tuple[int, ...], ...]:
        """By group, how many of them each of its workers reads."""
        return tuple([tuple(map(math.prod, _counts(parts))) for parts in self.groups])

    @cached_property
    def total(self) -> int:
        """How many all workers read, each for itself."""
        return sum(map(sum, self.entries))

    def held(self, cut: Split) -> float:
        """How many of those that a worker reads it has, all workers together, if the operand is cut so."""
        if cut.dim not in self.dims:
            return self.total / len(self.entries[0])
        at, found = self.dims.index(cut.dim), 0
        for counts, parts in zip(self.entries, self.groups, strict=True):
            size, reads = parts[at]
            whole = IndexSet.whole(size)
            for worker, (count, mine) in enumerate(zip(counts, reads, strict=True)):
                if count:
                    found += count // len(mine) * len(mine & whole.cut(cut.outer, len(reads), worker))
        return found

    def moved(self, have: Placement, ways: int) -> float:
        """Bytes moved among ``ways`` workers; without bound where no operand of this window lies so.

        >>> halo = Window(Split(0), 0, (0,), (((8, (IndexSet.one(0, 5), IndexSet.one(3, 8))),),))
        >>> halo.moved(Split(0), 2), halo.moved(Split(1), 2), halo.moved(Partial(), 2)
        (0.25, 0.625, 1.25)
        """
        if isinstance(have, Replicate):
            return 0.0
        if len(self.entries[0]) != ways:
            return math.inf
        if isinstance(have, Partial):  # every worker reduces what it reads; or a part, of which others read
            spread = (ways - 1) * self.size + self.total - self.held(split_at(self.longest))
            return min((ways - 1) * self.total, spread) / self.size
        if not isinstance(have, Split) or any(size % have.outer for size in self._sizes(have.dim)):
            return math.inf
        return (self.total - self.held(have)) / self.size

    def _sizes(self, dim: int) -> list[int]:
        return [parts[self.dims.index(dim)][0] for parts in self.groups] if dim in self.dims else []

    def in_base(self, view: View) -> Window | None:
        """The same entries of what the operand is a view of; None: they are no window of that."""
        within, dims = view.placement(self.within), [view.dims[dim] for dim in self.dims]
        if within is None or any(dim < 0 for dim in dims):
            return None
        order = sorted(range(len(dims)), key=dims.__getitem__)
        groups = tuple([tuple([parts[at] for at in order]) for parts in self.groups])
        return Window(within, _longest(view.base.row_shape), tuple([dims[at] for at in order]), groups)


def window_of(
    shape: tuple[int, ...], within: Placement, regions: Sequence[Region], before: Sequence[Region]
) -> Window | Placement:
    """The window of these regions, one a worker; a placement, if it is one.

    ``before``: what the steps before leave of the operand to each group of workers. What a group reads beyond that, it
    has fetched as a group.

    >>> halves = [(IndexSet.one(0, 4),), (IndexSet.one(4, 8),)]
    >>> print(window_of((8,), Split(0), halves, [(IndexSet.whole(8),)]))
    S0
    """
    ways = len(regions) // len(before)
    groups: list[tuple[Part, ...]] = []
    for number, whole in enumerate(before):
        mine = regions[number * ways : (number + 1) * ways]
        if all(map(len, whole)):
            each = [tuple([all_of.positions(r[dim] & all_of) for r in mine]) for dim, all_of in enumerate(whole)]
            groups.append(tuple([(len(all_of), reads) for all_of, reads in zip(whole, each, strict=True)]))
    if all(_is_plain(parts, within) for parts in groups):
        return within
    cut = within.dim if isinstance(within, Split) else -1
    dims = [dim for dim in range(len(shape)) if dim == cut or any(not _is_whole(parts[dim]) for parts in groups)]
    found = dict.fromkeys([tuple([parts[dim] for dim in dims]) for parts in groups])
    chosen = tuple(found) if len(found) == 1 else tuple([tuple([parts[dim] for dim in dims]) for parts in groups])
    return Window(within, _longest(shape), tuple(dims), chosen)


def _counts(parts: tuple[Part, ...]) -> list[list[int]]:
    """By worker how many entries it reads of each dim."""
    return [list(map(len, mine)) for mine in zip(*[reads for _, reads in parts], strict=True)]


def _is_whole(part: Part) -> bool:
    return all(len(entries) == part[0] for entries in part[1])


def _is_plain(parts: tuple[Part, ...], within: Placement) -> bool:
    """Whether workers read what a placement gives them."""
    for dim, (size, reads) in enumerate(parts):
        if isinstance(within, Split) and within.dim == dim:
            whole = IndexSet.whole(size)
            if size % within.outer or any(
                entries != whole.cut(within.outer, len(reads), worker) for worker, entries in enumerate(reads)
            ):
                return False
        elif not _is_whole((size, reads)):
            return False
    return True


def _longest(shape: tuple[int, ...]) -> int:
    return shape.index(max(shape))
