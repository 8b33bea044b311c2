"""Source side: what a function computes of the sources of edges alone, and where it is narrowest.

Takes: ops in order, what is read of sources, what a row of each value costs. Gives: the values that sources send.
Runs once per function. Source: Ford and Fulkerson 1956 (the narrowest cut is the largest flow).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from vgraph.ir.moves import AnyMove, Gather, Random
from vgraph.ir.program import Op, Rows, Value
from vgraph.ir.space import EDGE, SHARED
from vgraph.ir.tdl.rowwise import Effect, row_effects


@dataclass(eq=False)
class SourceSide:
    """Values that follow from rows of sources and from what all processes know.

    ``feeds``: by id what is made of it there; ``read``: ids of what edges go on with; ``columns``: ids of the inputs.
    """

    columns: dict[int, Value] = field(default_factory=dict[int, Value])
    values: dict[int, Value] = field(default_factory=dict[int, Value])
    feeds: dict[int, list[int]] = field(default_factory=dict[int, "list[int]"])
    read: set[int] = field(default_factory=set[int])

    def add(self, operands: Iterable[Value], results: Iterable[Value]) -> None:
        for result in results:
            self.values[result.id] = result
            for operand in operands:
                self.feeds.setdefault(operand.id, []).append(result.id)


def source_side(ops: Sequence[Op], known: Iterable[int], outputs: Collection[int]) -> SourceSide:
    """The source side of ops that lead to ``outputs``; ``known``: ids of what has no rows and is alike everywhere."""
    found, alike = SourceSide(), set(known)
    for op in ops:
        operands = list(op.operands())
        rows = [v for v in operands if v.id not in alike]
        if _is_reading(op) and rows:
            found.columns.update((v.id, v) for v in rows)
            found.add(rows, op.results)
        elif not rows and _has_no_rows(op):
            alike.update(v.id for v in op.results)
        elif rows and all(v.id in found.values for v in rows) and _is_of_one_row(op):
            found.add(rows, op.results)
        else:
            found.read.update(v.id for v in operands)
    found.read = (found.read | set(outputs)) & (found.values.keys() | found.columns.keys())
    return found


def _is_reading(op: Op) -> bool:
    return isinstance(op.target, Gather) and op.target.end == "src" and not op.target.part


def _has_no_rows(op: Op) -> bool:
    is_plain = not isinstance(op.target, AnyMove | Random)
    return is_plain and all(v.space == SHARED and v.row_dim is None for v in op.results)


def _is_of_one_row(op: Op) -> bool:
    if isinstance(op.target, AnyMove | Random) or any(v.space != EDGE for v in op.results):
        return False
    return all(effect is Effect.ROWWISE for effect in row_effects(op))


def is_one_row_each(value: Value) -> bool:
    """Whether its leading dim counts edges, and no other one rows."""
    return value.shape[:1] == (Rows(EDGE),) and not any(isinstance(size, Rows) for size in value.shape[1:])


# ---------------------------------------------------------------- where it is narrowest
def narrowest(side: SourceSide, cost: Callable[[Value], int | None]) -> list[Value]:
    """The cheapest values of which all that edges read follows, those nearest to the columns where several are.

    ``cost``: of a row that is sent; None: it cannot be. What follows from them is computed where they arrive.
    """
    values = {**side.columns, **side.values}
    room: dict[tuple[int, bool], dict[tuple[int, bool], float]] = {}  # from the entry of a value to its exit, and on

    def join(one: tuple[int, bool], other: tuple[int, bool], amount: float) -> None:
        room.setdefault(one, {})[other] = amount
        room.setdefault(other, {}).setdefault(one, 0)

    for key, value in values.items():
        given = cost(value)
        join((key, False), (key, True), float("inf") if given is None else given)
        for reader in side.feeds.get(key, ()):
            join((key, True), (reader, False), float("inf"))
    start, end = (-1, True), (-2, False)
    room.update({start: {}, end: {}})
    for key in side.columns:
        join(start, (key, False), float("inf"))
    for key in side.read:
        join((key, True), end, float("inf"))
    while (way := _way(room, start)).get(end) is not None:
        _push(room, way, end)
    reached = _way(room, start)
    return [value for key, value in values.items() if (key, False) in reached and (key, True) not in reached]


_Place = tuple[int, bool]


def _way(room: Mapping[_Place, Mapping[_Place, float]], start: _Place) -> dict[_Place, _Place]:
    """All that is reached where there is room, and from where."""
    came, waiting = {start: start}, deque([start])
    while waiting:
        one = waiting.popleft()
        for other, amount in room[one].items():
            if amount > 0 and other not in came:
                came[other] = one
                waiting.append(other)
    return came


def _push(room: dict[_Place, dict[_Place, float]], came: Mapping[_Place, _Place], end: _Place) -> None:
    steps = [(came[end], end)]
    while came[steps[-1][0]] != steps[-1][0]:
        steps.append((came[steps[-1][0]], steps[-1][0]))
    amount = min(room[one][other] for one, other in steps)
    assert amount < float("inf"), "a column can always be sent"
    for one, other in steps:
        room[one][other] -= amount
        room[other][one] += amount
