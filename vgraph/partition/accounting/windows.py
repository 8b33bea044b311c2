"""Windows: what workers read of an operand of which their op takes a part: a slice, a pad, a halo, a piece of a cat.

Takes: the accesses of an operand, and how steps cut its op. Gives: a Window, and what moves to it, by where the operand
lies, as a factor of the operand's bytes. Runs once per form of op and step of the recursion.
Source: Tofu section 4.2 (symbolic interval analysis); what a worker has already is not fetched.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cache, cached_property
from typing import NamedTuple

import numpy as np

from vgraph.ir.index_set import IndexSet
from vgraph.ir.sharding import Partial, Placement, Replicate, Split, split_at
from vgraph.ir.tdl.notation import Indices
from vgraph.partition.accounting.crossing import accessed, names_of, takes_part
from vgraph.partition.rewrite.regions import image
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


class Step(NamedTuple):
    """How one step cuts an op: an index by name, with the outer factor; where the strategy reads the operand."""

    name: str
    outer: int
    within: Placement
    ways: int


def read_in(
    shape: tuple[int, ...], dims: Indices, sizes: Mapping[str, int], steps: Sequence[Step]
) -> Window | Placement:
    """What the workers of the last step read of an operand with these accesses: a placement, or a window.

    ``sizes``: those of the indices. What a group of workers reads beyond what the steps before leave to it, it has
    fetched as a group.

    >>> print(read_in((8,), ("y",), {"y": 8}, [Step("y", 1, Split(0), 2)]))
    S0
    >>> window = read_in((8,), ("y+1",), {"y": 6}, [Step("y", 1, Split(0), 2)])
    >>> window.groups if isinstance(window, Window) else None
    (((8, (1:4, 4:7)),),)
    """
    within = steps[-1].within
    if isinstance(within, Partial) or 0 in shape or not any(accessed(dim) for dim in dims):
        return within
    along: list[_Along] = []
    for at, (dim, size) in enumerate(zip(dims, shape, strict=True)):
        names = names_of(dim)
        along.append(_along(dim, size, tuple([(name, sizes[name]) for name in names]), _cuts(at, names, steps)))
    if all(one.is_plain for one in along) or not any(one.takes_part for one in along):
        return within
    last = within.dim if isinstance(within, Split) else -1
    chosen = [at for at, one in enumerate(along) if at == last or not one.is_whole]
    axes = [step.ways for step in steps[:-1]]
    if all(len(along[at].parts) == 1 for at in chosen):
        axes = [1] * len(axes)
    groups = tuple(zip(*[along[at].by_group(axes) for at in chosen], strict=True))
    return Window(within, _longest(shape), tuple(chosen), groups)


# Of a dim in a step: an index of its access, with the outer factor; that of the dim itself; among how many workers.
Cut = tuple[str, int, int, int]


@dataclass(frozen=True, eq=False)
class _Along:
    """What workers read along one dim: a part for each group of workers, or one if they are alike.

    ``groups``: how many that differ each earlier step makes. ``is_plain``: the placement tells what they read;
    ``is_whole``: it is all that is left; ``takes_part``: it may be neither.
    """

    parts: tuple[Part, ...]
    groups: tuple[int, ...]
    is_plain: bool
    is_whole: bool
    takes_part: bool

    def by_group(self, axes: Sequence[int]) -> list[Part]:
        """The part of each group that steps before the last one have made, of so many workers each."""
        if len(self.parts) == 1:
            return [self.parts[0]] * math.prod(axes)
        numbers = np.arange(len(self.parts)).reshape(self.groups)
        return [self.parts[number] for number in np.broadcast_to(numbers, axes).ravel().tolist()]


def _cuts(at: int, names: Set[str], steps: Sequence[Step]) -> tuple[Cut, ...]:
    """What steps cut of one dim: those before the last one that cut nothing of it are steps of one worker."""
    found: list[Cut] = []
    for number, (index, outer, within, ways) in enumerate(steps, 1):
        mine = outer if index in names else 0
        own = within.outer if isinstance(within, Split) and within.dim == at else 0
        found.append((index if mine else "", mine, own, ways if mine or own or number == len(steps) else 1))
    return tuple(found)


@cache
def _along(dim: str, size: int, sizes: tuple[tuple[str, int], ...], cuts: tuple[Cut, ...]) -> _Along:
    known, parts = dict(sizes), list[Part]()
    for digits in itertools.product(*[range(cut[-1]) for cut in cuts[:-1]]):
        sets, left = {name: IndexSet.whole(count) for name, count in sizes}, IndexSet.whole(size)
        for (index, outer, own, ways), digit in zip(cuts, digits, strict=False):
            if index:
                sets[index] = sets[index].cut(outer, ways, digit)
            if own:
                left = left.cut(own, ways, digit)
        index, outer, own, ways = cuts[-1]
        each = [sets] * ways
        if index:
            each = [sets | {index: sets[index].cut(outer, ways, digit)} for digit in range(ways)]
        parts.append((len(left), tuple([left.positions(image(dim, size, mine, known) & left) for mine in each])))
    different, own = dict.fromkeys(parts), cuts[-1][2]
    is_whole = all(map(_is_whole, different))
    is_plain = all(_is_cut(part, own) for part in different) if own else is_whole
    partly = takes_part(dim, size, {cut[0] for cut in cuts}, known)
    chosen = tuple(different if len(different) == 1 else parts)
    return _Along(chosen, tuple([cut[-1] for cut in cuts[:-1]]), is_plain, is_whole, partly)


def _counts(parts: tuple[Part, ...]) -> list[list[int]]:
    """By worker how many entries it reads of each dim."""
    return [list(map(len, mine)) for mine in zip(*[reads for _, reads in parts], strict=True)]


def _is_whole(part: Part) -> bool:
    return all(len(entries) == part[0] for entries in part[1])


def _is_cut(part: Part, outer: int) -> bool:
    """Whether workers read what a cut gives them."""
    size, reads = part
    whole = IndexSet.whole(size)
    return size % outer == 0 and all(entries == whole.cut(outer, len(reads), w) for w, entries in enumerate(reads))


def _longest(shape: tuple[int, ...]) -> int:
    return shape.index(max(shape))
