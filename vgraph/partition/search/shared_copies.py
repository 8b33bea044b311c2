"""Shared copies: what one cluster fetched and others read again is paid for once.

Takes: the links of one value to all clusters that read it. Gives: the copies that several may read, and two-state
vertices that pay for them. Runs once per value and step of the recursion.
Source: none (the books keep a copy for later readers; a cost of many clusters as costs of pairs).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache, lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from vgraph.partition.accounting.costs import are_terms, code_of, is_window, placement_of
from vgraph.partition.accounting.several_steps import Route, Way, each_of, factors_between
from vgraph.partition.search.classes import Members
from vgraph.partition.search.cost_graph import Costs

Uses = NDArray[np.bool_]  # by state of a reader, whether it reads a copy


class Need(NamedTuple):
    """How an operand is read: ``codes`` by state; how many bytes; by which ``member`` of its cluster first.

    ``before``: how earlier steps read it: only what is alike in all steps is one copy. ``members``: of those of the
    class that makes it.
    """

    codes: tuple[int, ...]
    amount: float
    before: tuple[int, ...]
    member: int
    members: Members


class Copy(NamedTuple):
    """A value in one placement: of ``members`` of the class that makes it."""

    code: int
    amount: float
    before: tuple[int, ...]
    members: Members


class Home(NamedTuple):
    """Where a value of a shape lies: codes by state of its source; ``before``: in earlier steps of these workers."""

    have: tuple[int, ...]
    before: tuple[int, ...]
    shape: tuple[int, ...]
    axes: tuple[int, ...]

    def way(self, before: tuple[int, ...], codes: tuple[int, ...]) -> Way:
        """How it was read in earlier steps, and whether these codes are parts."""
        if not self.axes or (before == self.before and not reads_parts(codes)):
            return each_of(self.before, self.axes)
        return Route(self.shape, self.before, before, self.axes)


@lru_cache(1 << 14)
def as_array(codes: tuple[int, ...]) -> NDArray[np.intp]:
    """Codes by state, which many ask about, as an array that nobody changes."""
    return np.array(codes, np.intp)


@lru_cache(1 << 14)
def reads_parts(codes: tuple[int, ...]) -> bool:
    """Whether any of these codes is a part of what a placement leaves."""
    return any(map(is_window, codes))


@cache
def whole(code: int) -> int:
    """The code of all that the strategy names, of which a part may be read."""
    return code_of(placement_of(code))


def whole_of(copy: Copy) -> Copy:
    """The copy of all that the strategies name; often it is the same."""
    return copy._replace(code=whole(copy.code), before=tuple(map(whole, copy.before)))


def shared_copies(readers: Sequence[Iterable[Copy]]) -> list[Copy]:
    """Of the copies that each cluster may read of one value those that more than one may, in the order of readers.

    Codes order nothing: they are numbered by all that the process has planned.
    """
    met: set[Copy] = set()
    shared: dict[Copy, None] = {}
    for mine in readers:
        shared.update(dict.fromkeys(copy for copy in mine if copy in met))
        met.update(mine)
    terms = are_terms()
    return [copy for copy in shared if not terms[copy.code]]


def reads_of(need: Need) -> dict[Copy, Uses]:
    """By copy that a reader may need, in which of its states it reads that."""
    codes = as_array(need.codes)
    return {Copy(code, need.amount, need.before, need.members): codes == code for code in dict.fromkeys(need.codes)}


def joined(reads: Sequence[Mapping[Copy, Uses]]) -> Mapping[Copy, Uses]:
    """The same of all needs of a reader."""
    if len(reads) == 1:
        return reads[0]
    found: dict[Copy, Uses] = {}
    for mine in reads:
        for copy, uses in mine.items():
            found[copy] = found[copy] | uses if copy in found else uses
    return found


def fetching(home: Home, copies: Iterable[Copy], ways: int) -> dict[Copy, Costs]:
    """By copy and state of the source, what it costs not to fetch it, which is nothing, and to fetch it."""
    rows = as_array(home.have)
    found: dict[Copy, Costs] = {}
    for copy in copies:
        codes = (copy.code,)
        factors = factors_between(home.way(copy.before, codes), rows, as_array(codes), ways)[:, 0]
        costs = found[copy] = np.zeros((len(rows), 2))
        costs[:, 1] = copy.amount * np.where(np.isinf(factors), 0.0, factors)
    return found


def without(uses: Uses, dearest: float, count: int = 2) -> Costs:
    """By state of a reader, what it costs if the copy was not fetched, no less than fetching it, and if it was.

    ``count``: states of the copy, of which all but the first have it.
    """
    costs = np.zeros((len(uses), count))
    costs[uses, 0] = dearest
    return costs
