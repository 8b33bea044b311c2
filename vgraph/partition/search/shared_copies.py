"""Shared copies: what one cluster fetched and others read again is paid for once.

Takes: the links of one value to all clusters that read it. Gives: the copies that several may read, and two-state
vertices that pay for them. Runs once per value and step of the recursion.
Source: none (the books keep a copy for later readers; a cost of many clusters as costs of pairs).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from vgraph.partition.accounting.costs import are_terms, transfers
from vgraph.partition.search.cost_graph import Costs
from vgraph.partition.search.states import Amount, Kind

Uses = NDArray[np.bool_]  # by state of a reader, whether it reads a copy


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


def reads_of(kind: Kind, need: Need) -> dict[Copy, Uses]:
    """By copy that a reader may need, in which of its states it reads that, and nothing that lies beside the shard."""
    codes, beside = np.array(need.codes), kind.halo_array(need.member, need.position)
    plain = beside == 0
    found = dict.fromkeys(need.codes if plain.all() else codes[plain].tolist())
    return {Copy(code, need.amount, need.before): (codes == code) & plain for code in found}


def joined(reads: Sequence[Mapping[Copy, Uses]]) -> Mapping[Copy, Uses]:
    """The same of all needs of a reader."""
    if len(reads) == 1:
        return reads[0]
    found: dict[Copy, Uses] = {}
    for mine in reads:
        for copy, uses in mine.items():
            found[copy] = found[copy] | uses if copy in found else uses
    return found


def fetching(have: tuple[int, ...], copy: Copy, ways: int) -> Costs:
    """By state of the source, what it costs not to fetch a copy, which is nothing, and to fetch it."""
    rows = np.array(have)
    moved = transfers(ways)[rows, copy.code]
    costs = np.array(copy.amount)[are_terms()[rows].astype(np.intp)] * np.where(np.isfinite(moved), moved, 0.0)
    return np.stack([np.zeros(len(have)), costs], axis=1)


def without(uses: Uses, dearest: float, count: int = 2) -> Costs:
    """By state of a reader, what it costs if the copy was not fetched, no less than fetching it, and if it was.

    ``count``: states of the copy, of which all but the first have it.
    """
    costs = np.zeros((len(uses), count))
    costs[uses, 0] = dearest
    return costs
