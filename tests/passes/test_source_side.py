"""The narrowest values of a source side: no choice is cheaper, and all that edges read follows from it."""

from __future__ import annotations

from itertools import combinations

import torch
from hypothesis import given
from hypothesis import strategies as st

from vgraph.ir.program import Rows, Value
from vgraph.ir.space import EDGE
from vgraph.passes.source_side import SourceSide, narrowest

Case = tuple[int, list[tuple[int, int]], list[int | None], set[int]]


@st.composite
def sides(draw: st.DrawFn) -> Case:
    """Numbers of columns, who feeds whom (later ones), costs, and who is read."""
    count, columns = draw(st.integers(2, 8)), draw(st.integers(1, 2))
    feeds = [
        (draw(st.integers(0, reader - 1)), reader)
        for reader in range(columns, count)
        for _ in range(draw(st.integers(1, 2)))
    ]
    costs: list[int | None] = [draw(st.integers(0, 9)) for _ in range(columns)]
    costs += [draw(st.none() | st.integers(1, 9)) for _ in range(columns, count)]
    return columns, feeds, costs, draw(st.sets(st.integers(0, count - 1), min_size=1))


def made(case: Case) -> SourceSide:
    columns, feeds, costs, read = case
    values = [Value(i, EDGE, torch.float32, (Rows(EDGE), 1)) for i in range(len(costs))]
    side = SourceSide(
        dict(enumerate(values[:columns])), {i: v for i, v in enumerate(values) if i >= columns}, read=read
    )
    for one, other in feeds:
        side.feeds.setdefault(one, []).append(other)
    return side


def follows(side: SourceSide, chosen: frozenset[int]) -> bool:
    """Whether no way leads from a column to what is read but through what is chosen."""
    waiting, seen = [key for key in side.columns if key not in chosen], set[int]()
    while waiting:
        key = waiting.pop()
        if key in side.read:
            return False
        seen.add(key)
        waiting += [other for other in side.feeds.get(key, ()) if other not in chosen | seen]
    return True


@given(sides())
def test_nothing_cheaper_is_enough(case: Case) -> None:
    side, costs = made(case), case[2]
    found = frozenset(value.id for value in narrowest(side, lambda value: costs[value.id]))
    assert follows(side, found)
    able = [i for i, cost in enumerate(costs) if cost is not None]
    choices = (frozenset(some) for size in range(len(able) + 1) for some in combinations(able, size))
    least = min(sum(costs[i] or 0 for i in some) for some in choices if follows(side, some))
    assert sum(costs[i] or 0 for i in found) == least


def test_columns_are_sent_where_nothing_is_narrower() -> None:
    side = made((1, [(0, 1), (1, 2)], [4, 4, 4], {2}))
    assert [value.id for value in narrowest(side, lambda value: 4)] == [0]
