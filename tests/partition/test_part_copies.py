"""What is fetched of a part of which others read the whole: as a table of two readers, as a vertex, and counted."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest

from vgraph.ir.index_set import IndexSet
from vgraph.ir.sharding import Replicate, Split
from vgraph.partition.accounting.costs import code_of
from vgraph.partition.accounting.windows import Window
from vgraph.partition.search.part_copies import PartCopy, is_fetched, part_copies
from vgraph.partition.search.shared_copies import Copy, Home, Uses

ROWS = code_of(Split(0))
WHOLE = Copy(code_of(Replicate()), 96.0, (), frozenset((0,)))
PART = WHOLE._replace(code=code_of(Window(Replicate(), 0, (0,), ((8, (IndexSet.one(0, 3), IndexSet.one(0, 3))),))))
FETCHED = np.array([36.0])
HOME = Home((ROWS,), (), (8, 3), ())


def _drawn(rng: random.Random, readers: int) -> tuple[list[list[dict[Copy, Uses]]], list[list[int]]]:
    """By reader two needs, each of three states, some of which read the part and some the whole; and when."""
    times = rng.sample(range(9), 2 * readers)
    reads: list[list[dict[Copy, Uses]]] = []
    for _ in range(readers):
        needs = [[rng.choice((PART, WHOLE, None)) for _ in range(3)] for _ in range(2)]
        reads.append([{c: np.array([one == c for one in need]) for c in need if c is not None} for need in needs])
    return reads, [sorted(times[2 * reader : 2 * reader + 2]) for reader in range(readers)]


def _counted(reads: list[list[dict[Copy, Uses]]], order: list[list[int]], states: tuple[int, ...]) -> float:
    """Reader after reader: the part is fetched where neither it nor the whole is there."""
    has: set[Copy] = set()
    cost = 0.0
    for _, reader, need in sorted((at, i, j) for i, times in enumerate(order) for j, at in enumerate(times)):
        for copy, uses in reads[reader][need].items():
            if uses[states[reader]]:
                cost += 36.0 if copy == PART and not has else 0.0
                has.add(copy)
    return cost


@pytest.mark.parametrize("readers", [2, 3])
def test_a_part_is_fetched_where_nothing_is_there_that_has_it(readers: int) -> None:
    rng, compared = random.Random(0), 0
    for _ in range(200):
        reads, order = _drawn(rng, readers)
        found = part_copies(reads, order)
        if PART not in found:
            continue
        compared += 1
        part = found[PART]
        first = part.states(FETCHED, HOME)[0]
        source, costs = np.array([0.0, 36.0, *first]), part.without(1000.0, 2)
        of_two = sum(
            fetched[0] * is_fetched(events, (0, 1), [[0, 1, 2], [0, 1, 2]])
            for fetched, events in part.of_two(FETCHED, HOME)
            if readers == 2
        )
        for states in itertools.product(range(3), repeat=readers):
            expected = _counted(reads, order, states)
            assert min(source + sum(cost[states[reader]] for reader, cost in costs)) == expected
            if readers == 2:
                assert np.asarray(of_two)[states] == expected
    assert compared > 100


def test_what_lies_there_is_no_copy() -> None:
    """Who reads all rows where they lie has fetched nothing that another could read."""
    uses = {"part": {PART: np.array([True])}, "whole": {WHOLE: np.array([True])}}
    (part,) = part_copies([[uses["whole"]], [uses["part"]]], [[0], [1]]).values()
    assert part.is_served
    assert part.states(FETCHED, HOME).tolist() == [[0.0]]
    assert part.states(FETCHED, Home((WHOLE.code,), (), (8, 3), ())).tolist() == [[36.0]]
    late = part_copies([[uses["whole"]], [uses["part"]]], [[1], [0]])[PART]
    assert isinstance(late, PartCopy)
    assert not late.is_served
