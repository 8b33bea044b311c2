"""Index sets: which entries of one dim a worker has or reads, as a union of runs.

Takes: sizes and cuts. Gives: IndexSet with exact intersections. Runs once per function.
Source: Tofu section 4.2 (regions); unions of runs because an inner factor's cut is one.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property, lru_cache


@dataclass(frozen=True)
class IndexSet:
    """Ascending, disjoint, non-adjacent runs [lower, upper).

    >>> IndexSet.of([(0, 2), (2, 5), (7, 8)])
    0:5+7:8
    """

    runs: tuple[tuple[int, int], ...]

    @cached_property
    def _hash(self) -> int:
        return hash(self.runs)

    def __hash__(self) -> int:
        return self._hash  # regions are keys of many look-ups

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, IndexSet) and self.runs == other.runs)

    @staticmethod
    def of(runs: Iterable[tuple[int, int]]) -> IndexSet:
        """The union of any runs."""
        merged: list[tuple[int, int]] = []
        for low, high in sorted(run for run in runs if run[0] < run[1]):
            if merged and low <= merged[-1][1]:
                merged[-1] = (merged[-1][0], max(high, merged[-1][1]))
            else:
                merged.append((low, high))
        return IndexSet(tuple(merged))

    @staticmethod
    def whole(size: int) -> IndexSet:
        return IndexSet(((0, size),) if size else ())

    @staticmethod
    def one(low: int, high: int) -> IndexSet:
        return IndexSet(((low, high),) if low < high else ())

    def __len__(self) -> int:
        return sum(high - low for low, high in self.runs)

    @property
    def is_interval(self) -> bool:
        return len(self.runs) <= 1

    @property
    def bounds(self) -> tuple[int, int]:
        """The least interval that holds all."""
        return (self.runs[0][0], self.runs[-1][1]) if self.runs else (0, 0)

    def at(self, positions: IndexSet) -> IndexSet:
        """The entries at some positions among the entries of this set."""
        return _at(self, positions)

    def positions(self, part: IndexSet) -> IndexSet:
        """Where the entries of ``part``, all of them in this set, stand among its entries."""
        return _positions(self, part)

    def cut(self, outer: int, ways: int, which: int) -> IndexSet:
        """One of ``ways`` parts: the set seen as (outer, inner) by position, inner cut into blocks.

        Blocks differ by at most one entry where ``ways`` does not divide; the first ones are larger.
        """
        return self.at(_block(len(self), outer, ways, which))

    def __and__(self, other: IndexSet) -> IndexSet:
        return self if self == other else _intersect(self, other)

    def __or__(self, other: IndexSet) -> IndexSet:
        return IndexSet.of((*self.runs, *other.runs))

    def __sub__(self, other: IndexSet) -> IndexSet:
        left: list[tuple[int, int]] = []
        for low, high in self.runs:
            for start, stop in other.runs:
                if start >= high or stop <= low:
                    continue
                left.append((low, start))
                low = max(low, stop)
            left.append((low, high))
        return IndexSet.of(left)

    def shifted(self, by: int) -> IndexSet:
        return IndexSet(tuple((low + by, high + by) for low, high in self.runs))

    def times(self, inner: IndexSet, inner_size: int) -> IndexSet:
        """The set of a * inner_size + b over all a of this set and b of ``inner``."""
        if len(inner) == inner_size:
            return IndexSet.of((low * inner_size, high * inner_size) for low, high in self.runs)
        entries = (a for low, high in self.runs for a in range(low, high))
        return IndexSet.of((a * inner_size + low, a * inner_size + high) for a in entries for low, high in inner.runs)

    def __repr__(self) -> str:
        return "+".join(f"{low}:{high}" for low, high in self.runs) or "none"


@lru_cache(maxsize=100_000)
def _block(size: int, outer: int, ways: int, which: int) -> IndexSet:
    assert size % outer == 0, f"{size} entries are not {outer} equal blocks"
    inner = size // outer
    step, rest = divmod(inner, ways)
    low = which * step + min(which, rest)
    high = low + step + (which < rest)
    return IndexSet.of((o * inner + low, o * inner + high) for o in range(outer))


@lru_cache(maxsize=100_000)
def _at(entries: IndexSet, positions: IndexSet) -> IndexSet:
    found: list[tuple[int, int]] = []
    seen = 0
    for low, high in entries.runs:
        found += [
            (low + max(start - seen, 0), low + min(stop - seen, high - low))
            for start, stop in positions.runs
            if start < seen + high - low and stop > seen
        ]
        seen += high - low
    return IndexSet.of(found)


@lru_cache(maxsize=100_000)
def _positions(entries: IndexSet, part: IndexSet) -> IndexSet:
    found: list[tuple[int, int]] = []
    seen = 0
    for low, high in entries.runs:
        found += [
            (seen + max(start, low) - low, seen + min(stop, high) - low)
            for start, stop in part.runs
            if start < high and stop > low
        ]
        seen += high - low
    positions = IndexSet.of(found)
    assert len(positions) == len(part), f"{part} is not within {entries}"
    return positions


@lru_cache(maxsize=100_000)
def _intersect(one: IndexSet, two: IndexSet) -> IndexSet:
    found: list[tuple[int, int]] = []
    i = j = 0
    while i < len(one.runs) and j < len(two.runs):
        low, high = max(one.runs[i][0], two.runs[j][0]), min(one.runs[i][1], two.runs[j][1])
        if low < high:
            found.append((low, high))
        if one.runs[i][1] < two.runs[j][1]:
            i += 1
        else:
            j += 1
    return IndexSet(tuple(found))
