"""Costs: bytes that cross workers in one step to bring a tensor from one placement to another.

Takes: what is there, what is needed. Gives: a factor of the tensor's bytes. Runs once per search.
Source: Tofu section 5.3 (communication of an op in one step of the recursion).
"""

from __future__ import annotations

import math
from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from vgraph.ir.index_set import IndexSet
from vgraph.ir.sharding import At, Partial, Placement, Replicate, Split
from vgraph.partition.accounting.windows import Window

IMPOSSIBLE = math.inf


@cache
def transfer(have: Placement, need: Placement, ways: int) -> float:
    """Bytes moved among ``ways`` workers, as a factor of the bytes of the whole tensor.

    >>> transfer(Split(0), Replicate(), 2), transfer(Split(0), Split(1), 2), transfer(Partial(), Split(1), 2)
    (1.0, 0.5, 1.0)
    """
    if isinstance(have, Replicate):
        return IMPOSSIBLE if isinstance(need, Partial) else 0.0
    if isinstance(need, Partial):
        return 0.0 if have == need else IMPOSSIBLE
    if isinstance(have, Partial):  # every worker reduces a part; if all need all, it is then spread
        return float(ways - 1) * (2 if isinstance(need, Replicate) else 1)
    if isinstance(have, At) or isinstance(need, At):
        return _placed(have, need, ways)
    if isinstance(need, Replicate):
        return float(ways - 1)
    assert isinstance(have, Split)
    assert isinstance(need, Split)
    if have == need:
        return 0.0
    return 1 - (1 / ways if have.dim != need.dim else _common(have.outer, need.outer, ways))


Read = Placement | Window
_codes: dict[Read, int] = {}
_reads: list[Read] = []
_lying: list[Placement] = []  # those in which a value may lie
_rows: list[int] = []  # by code the place among those; nothing lies in a window


def code_of(read: Read) -> int:
    """A small number that stands for a placement or a window."""
    found = _codes.setdefault(read, len(_reads))
    if found == len(_reads):
        _reads.append(read)
        _rows.append(len(_lying))
        if not isinstance(read, Window):
            _lying.append(read)
    return found


def read_of(code: int) -> Read:
    """What a code stands for."""
    return _reads[code]


def placement_of(code: int) -> Placement:
    """The same; of a window the placement that its strategy names."""
    found = _reads[code]
    return found.within if isinstance(found, Window) else found


def is_window(code: int) -> bool:
    """Whether a code stands for a part of what a placement leaves."""
    return isinstance(_reads[code], Window)


class Transfers(NamedTuple):
    """``factors``: a row for every placement, a column for every code; ``row_of``: by code its row."""

    factors: NDArray[np.float64]
    row_of: NDArray[np.intp]

    def rows(self, have: NDArray[np.intp]) -> NDArray[np.float64]:
        """By code of where a value lies, what moves to any code."""
        return self.factors.take(self.row_of[have], axis=0)

    def pairs(self, have: NDArray[np.intp], need: NDArray[np.intp]) -> NDArray[np.float64]:
        """The same of pairs of codes."""
        return self.factors[self.row_of[have], need]


_tables: dict[int, Transfers] = {}
_terms: list[NDArray[np.bool_]] = [np.zeros(0, dtype=bool)]


def transfers(ways: int) -> Transfers:
    """What moves among so many workers from every placement to every code that there is."""
    known = _tables.get(ways)
    if known is not None and len(known.row_of) == len(_reads):
        return known
    old = np.zeros((0, 0)) if known is None else known.factors
    factors = np.empty((len(_lying), len(_reads)))
    factors[: len(old), : old.shape[1]] = old
    for code in range(old.shape[1] if len(old) == len(_lying) else 0, len(_reads)):
        need, first = _reads[code], len(old) if code < old.shape[1] else 0
        if isinstance(need, Window):
            factors[first:, code] = [need.moved(have, ways) for have in _lying[first:]]
        else:
            factors[first:, code] = [transfer(have, need, ways) for have in _lying[first:]]
    row_of = np.array(_rows, np.intp)
    found = _tables[ways] = Transfers(factors, row_of)
    return found


def times(amount: float, moved: NDArray[np.float64]) -> NDArray[np.float64]:
    """Bytes of a value, times how often they move; what is impossible stays so of a value without bytes."""
    return amount * moved if amount else np.where(np.isinf(moved), moved, 0.0)


def are_terms() -> NDArray[np.bool_]:
    """By code, whether it stands for a Partial."""
    if len(_terms[0]) < len(_reads):
        _terms[0] = np.array([isinstance(one, Partial) for one in _reads])
    return _terms[0]


def _common(one: int, other: int, ways: int) -> float:
    """The share of a dim that every worker has and needs, for two cuts of it."""
    size = math.lcm(one, other) * ways
    whole = IndexSet.whole(size)
    return sum(len(whole.cut(one, ways, w) & whole.cut(other, ways, w)) for w in range(ways)) / size


def _placed(have: Placement, need: Placement, ways: int) -> float:
    if have == need:
        return 0.0
    if isinstance(need, Replicate):
        return float(ways - 1)
    if isinstance(have, At) and isinstance(need, At):
        return 1.0
    return 1 - 1 / ways
