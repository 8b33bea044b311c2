"""Several steps: what all steps so far move of a value together.

Takes: how a value lies and is read in earlier steps, and in one more. Gives: a factor of its bytes. Runs once per way
in which a value lies and is read, and step of the recursion.
Source: none (worker by worker, as the books count it: a copy that two had in common is fetched twice where a further
step makes two of it, and what moves in one step may be there of another).
"""

from __future__ import annotations

import math
from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from vgraph.ir.sharding import Partial, Placement, Split
from vgraph.partition.accounting.costs import IMPOSSIBLE, placement_of, read_of, transfer, transfers
from vgraph.partition.accounting.crossing import Regions, crossing_entries, part_entries
from vgraph.partition.accounting.windows import Window
from vgraph.partition.rewrite.layout import partial_steps

Codes = tuple[int, ...]


class Route(NamedTuple):
    """How a value of a shape lies and is read in the steps of so many workers that were before."""

    shape: tuple[int, ...]
    have: Codes
    need: Codes
    axes: tuple[int, ...]


Way = float | Route  # how often groups that lie and read alike have what they read, or how they do not


@cache
def each_of(have: Codes, axes: tuple[int, ...]) -> float:
    """How many groups have the same of what lies so."""
    placements = map(placement_of, have)
    return float(math.prod([ways for at, ways in zip(placements, axes, strict=True) if not isinstance(at, Split)]))


@cache
def entries_moved(shape: tuple[int, ...], have: Codes, need: Codes, axes: tuple[int, ...]) -> int:
    """How many entries cross workers in all of these steps."""
    lies, needed = tuple(map(placement_of, have)), tuple(map(placement_of, need))
    parts = _regions(shape, need, needed, axes)
    if parts is None:
        return 0 if lies == needed else crossing_entries(shape, lies, needed, axes)
    return part_entries(shape, lies, parts, partial_steps(needed), axes)


def _regions(
    shape: tuple[int, ...], need: Codes, needed: tuple[Placement, ...], axes: tuple[int, ...]
) -> Regions | None:
    """What every worker reads, if no placement tells; terms are read as in the steps before."""
    last = len(need)
    while last and isinstance(needed[last - 1], Partial):
        last -= 1
    window = read_of(need[last - 1]) if last else None
    if not isinstance(window, Window):
        return None
    each = math.prod(axes[last:])
    return tuple([region for region in window.regions(shape) for _ in range(each)])


class _Factors:
    """By two codes of a further step among ``ways`` workers, what all steps move from one to the other."""

    def __init__(self, route: Route, ways: int) -> None:
        self.route, self.ways, self.known = route, ways, dict[tuple[int, int], float]()
        self.size = math.prod(route.shape)

    def of(self, have: int, need: int) -> float:
        found = self.known.get((have, need))
        if found is None:
            found = self.known[have, need] = self._factor(have, need)
        return found

    def _factor(self, have: int, need: int) -> float:
        shape, lies, reads, axes = self.route
        if transfer(placement_of(have), placement_of(need), self.ways) == IMPOSSIBLE:
            return IMPOSSIBLE
        moved = entries_moved(shape, (*lies, have), (*reads, need), (*axes, self.ways))
        return moved / self.size if self.size else 0.0


@cache
def _factors(route: Route, ways: int) -> _Factors:
    return _Factors(route, ways)


def factor_of(route: Route, have: int, need: int, ways: int) -> float:
    """What moves in all steps, as a factor of a value's bytes."""
    return _factors(route, ways).of(have, need)


def factors_of_pairs(way: Way, have: NDArray[np.intp], need: NDArray[np.intp], ways: int) -> NDArray[np.float64]:
    """Of pairs of codes of a further step, what all steps move between them, as factors of a value's bytes."""
    if not isinstance(way, Route):
        return way * transfers(ways).pairs(have, need)
    of = _factors(way, ways).of
    return np.array([of(*pair) for pair in zip(have.tolist(), need.tolist(), strict=True)])


def factors_between(way: Way, have: NDArray[np.intp], need: NDArray[np.intp], ways: int) -> NDArray[np.float64]:
    """The same of every one with every other."""
    if not isinstance(way, Route):
        return way * transfers(ways).rows(have).take(need, axis=1)
    of, rows, columns = _factors(way, ways).of, have.tolist(), need.tolist()
    different = dict.fromkeys(columns)
    place = {code: at for at, code in enumerate(different)}
    known = {row: [of(row, code) for code in different] for row in dict.fromkeys(rows)}
    return np.array([known[row] for row in rows]).take([place[code] for code in columns], axis=1)
