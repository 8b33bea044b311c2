"""Shared copies: what one cluster fetched and others read again is paid for once.

Takes: the links of one value to all clusters that read it. Gives: the copies that several may read, and two-state
vertices that pay for them. Runs once per value and step of the recursion.
Source: none (the books keep a copy for later readers; a cost of many clusters as costs of pairs).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from vgraph.partition.accounting.costs import are_terms, transfers
from vgraph.partition.search.cost_graph import Costs
from vgraph.partition.search.states import Amount, Kind


class Need(NamedTuple):
    """How an operand is read: ``codes`` by state; by which member, at which position; how many bytes.

    ``before``: how earlier steps read it: only what is alike in all steps is one copy.
    """

    codes: tuple[int, ...]
    member: int
    position: int
    amount: Amount
    before: tuple[int, ...]


class Copy(NamedTuple):
    """A value in one placement."""

    code: int
    amount: Amount
    before: tuple[int, ...]


def shared_copies(readers: Sequence[tuple[Kind, Sequence[Need]]]) -> frozenset[Copy]:
    """The copies that clusters may read of one value, if more than one cluster may."""
    met: set[Copy] = set()
    shared: set[Copy] = set()
    for kind, needs in readers:
        mine = {copy for need in needs for copy in _copies(kind, need)}
        shared |= met & mine
        met |= mine
    terms = are_terms()
    return frozenset([copy for copy in shared if not terms[copy.code]])


def _copies(kind: Kind, need: Need) -> set[Copy]:
    halos = kind.halos(need.member, need.position)
    plain = {code for code, halo in zip(need.codes, halos, strict=True) if not halo}
    return {Copy(code, need.amount, need.before) for code in plain}


def reads_copy(kind: Kind, need: Need, copy: Copy) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """By state, whether it reads this copy."""
    if (need.amount, need.before) != (copy.amount, copy.before):
        return np.zeros(len(need.codes), dtype=bool)
    return (np.array(need.codes) == copy.code) & ~np.array(kind.halos(need.member, need.position), dtype=bool)


def readable(kind: Kind, need: Need) -> set[Copy]:
    """The copies that a reader may need."""
    terms = are_terms()
    return {copy for copy in _copies(kind, need) if not terms[copy.code]}


def fetching(have: tuple[int, ...], copy: Copy, ways: int) -> Costs:
    """By state of the source, what it costs not to fetch a copy, which is nothing, and to fetch it."""
    rows = np.array(have)
    moved = transfers(ways)[rows, copy.code]
    costs = np.array(copy.amount)[are_terms()[rows].astype(np.intp)] * np.where(np.isfinite(moved), moved, 0.0)
    return np.stack([np.zeros(len(have)), costs], axis=1)


def without(uses: np.ndarray[tuple[int], np.dtype[np.bool_]], dearest: float, count: int = 2) -> Costs:
    """By state of a reader, what it costs if the copy was not fetched, no less than fetching it, and if it was.

    ``count``: states of the copy, of which all but the first have it.
    """
    costs = np.zeros((len(uses), count))
    costs[uses, 0] = dearest
    return costs
