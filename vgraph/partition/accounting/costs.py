"""Costs: bytes that cross workers in one step to bring a tensor from one placement to another.

Takes: what is there, what is needed. Gives: a factor of the tensor's bytes. Runs once per search.
Source: Tofu section 5.3 (communication of an op in one step of the recursion).
"""

from __future__ import annotations

import math
from functools import cache

import numpy as np
from numpy.typing import NDArray

from vgraph.ir.index_set import IndexSet
from vgraph.ir.sharding import At, Partial, Placement, Replicate, Split

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


_codes: dict[Placement, int] = {}
_placements: list[Placement] = []


def code_of(placement: Placement) -> int:
    """A small number that stands for a placement."""
    found = _codes.setdefault(placement, len(_placements))
    if found == len(_placements):
        _placements.append(placement)
    return found


def placement_of(code: int) -> Placement:
    """What a code stands for."""
    return _placements[code]


_tables: dict[int, NDArray[np.float64]] = {}
_terms: list[NDArray[np.bool_]] = [np.zeros(0, dtype=bool)]


def transfers(ways: int) -> NDArray[np.float64]:
    """``transfer`` of all codes that there are, as a table."""
    count = len(_placements)
    found = _tables.get(ways)
    if found is None or len(found) < count:
        rows = [[transfer(have, need, ways) for need in _placements] for have in _placements]
        found = _tables[ways] = np.array(rows)
    return found


def times(amounts: NDArray[np.float64], moved: NDArray[np.float64]) -> NDArray[np.float64]:
    """Bytes of a value, times how often they move; what is impossible stays so of a value without bytes."""
    if amounts.all():
        return amounts * moved
    return np.multiply(amounts, moved, out=moved.copy(), where=np.isfinite(moved))


def are_terms() -> NDArray[np.bool_]:
    """By code, whether it stands for a Partial."""
    if len(_terms[0]) < len(_placements):
        _terms[0] = np.array([isinstance(placement, Partial) for placement in _placements])
    return _terms[0]


_numbers: dict[tuple[int, float], int] = {}
_looks: list[tuple[NDArray[np.intp], NDArray[np.float64]]] = []


def look_of(code: int, halo: float) -> int:
    """A small number that stands for a placement and what is read beside the shard."""
    return _numbers.setdefault((code, halo), len(_numbers))


def looks_of() -> tuple[NDArray[np.intp], NDArray[np.float64]]:
    """The codes and the halos of all looks that there are."""
    if not _looks or len(_looks[0][0]) < len(_numbers):
        codes, halos = zip(*_numbers, strict=True)
        _looks[:] = [(np.array(codes), np.array(halos))]
    return _looks[0]


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
