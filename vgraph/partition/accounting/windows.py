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

Part = tuple[int, tuple[IndexSet, ...]]  # the size of a dim, and what each worker reads of it


@dataclass(frozen=True)
class Window:
    """What the workers of all steps so far read of an operand, in the ``dims`` of which one of them does not read all.

    ``parts``: one a dim. ``within``: the placement that the last step's strategy names. ``longest``: the dim along
    which terms of a sum would be spread.
    """

    within: Placement
    longest: int
    dims: tuple[int, ...]
    parts: tuple[Part, ...]

    @cached_property
    def _hash(self) -> int:
        return hash((self.within, self.dims, self.parts))

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def size(self) -> int:
        """Entries of these dims."""
        return math.prod([size for size, _ in self.parts])

    @cached_property
    def entries(self) -> tuple[int, ...]:
        """How many of them each worker reads."""
        return tuple([math.prod(map(len, mine)) for mine in zip(*[reads for _, reads in self.parts], strict=True)])

    @cached_property
    def total(self) -> int:
        """How many all workers read, each for itself."""
        return sum(self.entries)

    def held(self, cut: Split) -> float:
        """How many of those that a worker reads it has, all workers together, if the operand is cut so."""
        if cut.dim not in self.dims:
            return self.total / len(self.entries)
        size, reads = self.parts[self.dims.index(cut.dim)]
        whole, found = IndexSet.whole(size), 0
        for worker, (count, mine) in enumerate(zip(self.entries, reads, strict=True)):
            if count:
                found += count // len(mine) * len(mine & whole.cut(cut.outer, len(reads), worker))
        return found

    def moved(self, have: Placement, ways: int) -> float:
        """Bytes moved among ``ways`` workers in the only step; without bound where no operand of this window lies so.

        >>> halo = Window(Split(0), 0, (0,), ((8, (IndexSet.one(0, 5), IndexSet.one(3, 8))),))
        >>> halo.moved(Split(0), 2), halo.moved(Split(1), 2), halo.moved(Partial(), 2)
        (0.25, 0.625, 1.25)
        """
        if isinstance(have, Replicate):
            return 0.0
        if len(self.entries) != ways:
            return math.inf
        if isinstance(have, Partial):  # every worker reduces what it reads; or a part, of which others read
            spread = (ways - 1) * self.size + self.total - self.held(split_at(self.longest))
            return min((ways - 1) * self.total, spread) / self.size
        if not isinstance(have, Split) or (have.dim in self.dims and self._size(have.dim) % have.outer):
            return math.inf
        return (self.total - self.held(have)) / self.size

    def _size(self, dim: int) -> int:
        return self.parts[self.dims.index(dim)][0]

    def regions(self, shape: tuple[int, ...]) -> tuple[tuple[IndexSet, ...], ...]:
        """By worker, what it reads of an operand of this shape."""
        along = [[IndexSet.whole(size)] * len(self.entries) for size in shape]
        for dim, (_, reads) in zip(self.dims, self.parts, strict=True):
            along[dim] = list(reads)
        return tuple(zip(*along, strict=True))

    def in_base(self, view: View) -> Window | None:
        """The same entries of what the operand is a view of; None: they are no window of that."""
        within, dims = view.placement(self.within), [view.dims[dim] for dim in self.dims]
        if within is None or any(dim < 0 for dim in dims):
            return None
        order = sorted(range(len(dims)), key=dims.__getitem__)
        parts = tuple([self.parts[at] for at in order])
        return Window(within, _longest(view.base.row_shape), tuple([dims[at] for at in order]), parts)


class Step(NamedTuple):
    """How one step cuts an op: an index by name, with the outer factor; where the strategy reads the operand."""

    name: str
    outer: int
    within: Placement
    ways: int


def read_in(
    shape: tuple[int, ...], dims: Indices, sizes: Mapping[str, int], steps: Sequence[Step]
) -> Window | Placement:
    """What workers read of an operand with these accesses after all steps: a placement in the last one, or a window.

    ``sizes``: those of the indices.

    >>> print(read_in((8,), ("y",), {"y": 8}, [Step("y", 1, Split(0), 2)]))
    S0
    >>> window = read_in((8,), ("y+1",), {"y": 6}, [Step("y", 1, Split(0), 2)])
    >>> window.parts if isinstance(window, Window) else None
    ((8, (1:4, 4:7)),)
    """
    within = steps[-1].within
    if isinstance(within, Partial) or 0 in shape or not any(map(accessed, dims)):
        return within
    along: list[_Along] = []
    for at, (dim, size) in enumerate(zip(dims, shape, strict=True)):
        names = names_of(dim)
        along.append(_along(dim, size, tuple([(name, sizes[name]) for name in names]), _cuts(at, names, steps)))
    if all(one.is_plain for one in along) or not any(one.takes_part for one in along):
        return within
    last = within.dim if isinstance(within, Split) else -1
    chosen = [at for at, one in enumerate(along) if at == last or not one.is_whole]
    axes = [step.ways for step in steps]
    parts = tuple([(shape[at], along[at].by_worker(axes)) for at in chosen])
    return Window(within, _longest(shape), tuple(chosen), parts)


# Of a dim in a step: an index of its access, with the outer factor; that of the dim itself; among how many workers.
Cut = tuple[str, int, int, int]


@dataclass(frozen=True, eq=False)
class _Along:
    """What workers read along one dim.

    ``workers``: how many that differ each step makes. ``is_plain``: placements tell what they read; ``is_whole``: it is
    all; ``takes_part``: it may be neither.
    """

    reads: tuple[IndexSet, ...]
    workers: tuple[int, ...]
    is_plain: bool
    is_whole: bool
    takes_part: bool

    def by_worker(self, axes: Sequence[int]) -> tuple[IndexSet, ...]:
        """What each worker of all steps reads."""
        numbers = np.arange(len(self.reads)).reshape(self.workers)
        return tuple([self.reads[number] for number in np.broadcast_to(numbers, axes).ravel().tolist()])


def _cuts(at: int, names: Set[str], steps: Sequence[Step]) -> tuple[Cut, ...]:
    """What steps cut of one dim: those that cut nothing of it are steps of one worker."""
    found: list[Cut] = []
    for index, outer, within, ways in steps:
        mine = outer if index in names else 0
        own = within.outer if isinstance(within, Split) and within.dim == at else 0
        found.append((index if mine else "", mine, own, ways if mine or own else 1))
    return tuple(found)


@cache
def _along(dim: str, size: int, sizes: tuple[tuple[str, int], ...], cuts: tuple[Cut, ...]) -> _Along:
    known, whole = dict(sizes), IndexSet.whole(size)
    reads: list[IndexSet] = []
    is_plain = True
    for digits in itertools.product(*[range(cut[-1]) for cut in cuts]):
        sets, left = {name: IndexSet.whole(count) for name, count in sizes}, whole
        for (index, outer, own, ways), digit in zip(cuts, digits, strict=True):
            if index:
                sets[index] = sets[index].cut(outer, ways, digit)
            if own:
                is_plain = is_plain and len(left) % own == 0
                left = left.cut(own, ways, digit) if is_plain else left
        reads.append(image(dim, size, sets, known))
        is_plain = is_plain and reads[-1] == left
    partly = takes_part(dim, size, {cut[0] for cut in cuts}, known)
    is_whole = all(mine == whole for mine in reads)
    return _Along(tuple(reads), tuple([cut[-1] for cut in cuts]), is_plain, is_whole, partly)


def _longest(shape: tuple[int, ...]) -> int:
    return shape.index(max(shape))
