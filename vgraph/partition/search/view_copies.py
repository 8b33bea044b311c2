"""Copies of views: which copies of a value and of its views may be one, and what it costs to take one for the other.

Takes: how a family of values is read. Gives: copies that get a vertex, and the costs that tie them. Runs once per step
of the recursion. Source: none (the books read a view of the copy of what it is a view of).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeVar

import numpy as np

from vgraph.partition.accounting.costs import code_of, read_of
from vgraph.partition.accounting.windows import Window
from vgraph.partition.search.clusters import ClassView, Result
from vgraph.partition.search.cost_graph import Costs
from vgraph.partition.search.shared_copies import Copy, Need

Views = Mapping[Result, tuple[Result, ClassView]]


_Read = TypeVar("_Read", Need, Copy)


class Taken(NamedTuple):
    """A copy that may be taken from one of the base, ``there``, while both lie alike: at one of ``homes``."""

    base: Result
    there: Copy
    homes: tuple[int, ...]


def turned(code: int, view: ClassView) -> int:
    """The code of how a view lies or is read as it is in the base; -1: there is none."""
    read = read_of(code)
    found = read.in_base(view) if isinstance(read, Window) else view.placement(read)
    return -1 if found is None else code_of(found)


def _of_base(read: _Read, view: ClassView) -> _Read:
    """The same bytes of what it is a view of: all views of one value have them in common."""
    return read if view.only is None else read._replace(amount=read.amount / len(read.members), members=view.only)


def in_base(need: Need, views: Sequence[ClassView]) -> Need:
    """How a view is read, as the same reading of what it is a view of."""
    for view in views:
        need = _of_base(need, view)
        codes = {code: turned(code, view) for code in {*need.codes, *need.before}}
        need = need._replace(codes=tuple([codes[c] for c in need.codes]), before=tuple([codes[c] for c in need.before]))
    return need


def _copy_in_base(copy: Copy, view: ClassView) -> Copy | None:
    found = _of_base(copy, view)._replace(
        code=turned(copy.code, view), before=tuple([turned(code, view) for code in copy.before])
    )
    return None if -1 in (found.code, *found.before) else found


class Families:
    """Values with views in other clusters, and the copies that several of a family may read.

    ``read``: by value the copies that its readers may need; ``have``: by value the codes of where it lies, by state.
    ``found``: by value the copies that get a vertex; with what they may be taken from, if that has one.
    """

    def __init__(
        self, views: Views, read: Mapping[Result, Sequence[Copy]], have: Mapping[Result, tuple[int, ...]]
    ) -> None:
        self.views, self.read, self.have = views, read, have
        self.children: dict[Result, list[Result]] = {}
        for value in read:
            if value in views:
                self.children.setdefault(views[value][0], []).append(value)
        self.counts: dict[Result, dict[Copy, int]] = {}
        self.found: dict[Result, dict[Copy, Taken | None]] = {}
        for root in [value for value in self.children if views.get(value, (None,))[0] not in self.children]:
            self._count(root)
            self._mark(root)

    def _count(self, value: Result) -> dict[Copy, int]:
        """By copy, how many of the value itself and its views may read it."""
        found = dict.fromkeys(self.read.get(value, ()), 1)
        for child in self.children.get(value, ()):
            for copy, count in self._count(child).items():
                there = _copy_in_base(copy, self.views[child][1])
                if there is not None:
                    found[there] = found.get(there, 0) + (count if there.members == copy.members else count + 1)
        self.counts[value] = found
        return found

    def _mark(self, value: Result) -> None:
        self.found[value] = {}
        for copy, count in self.counts[value].items():
            taken = self._taken(value, copy)
            if count > 1 or taken is not None:
                self.found[value][copy] = taken
        for child in self.children.get(value, ()):
            self._mark(child)

    def _taken(self, value: Result, copy: Copy) -> Taken | None:
        if value not in self.views:
            return None
        base, view = self.views[value]
        there = _copy_in_base(copy, view)
        if there is None or there not in self.found.get(base, {}):
            return None
        theirs = set(self.have[base])
        homes = tuple([code for code in dict.fromkeys(self.have[value]) if turned(code, view) in theirs])
        return Taken(base, there, homes) if homes else None


def lying(have: Sequence[int], homes: Sequence[int], dearest: float, count: int) -> Costs:
    """By state of a value, what it costs to take a copy as lying at each of the homes: nothing where it does.

    ``count``: states of the copy; those that take it from elsewhere are the last ones.
    """
    costs = np.zeros((len(have), count))
    costs[:, 2 : 2 + len(homes)] = np.where(np.array(have)[:, None] == np.array(homes)[None, :], 0.0, dearest)
    return costs


def taking(homes: int, counts: tuple[int, int], dearest: float) -> Costs:
    """By state of a copy and of the base's copy: what is taken from one that is not there costs as if fetched."""
    costs = np.zeros(counts)
    costs[2 : 2 + homes, 0] = dearest
    return costs
