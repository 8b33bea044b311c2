"""Skeletons: how the members of a cluster hang together, which is the same for all clusters of one form.

Takes: a coarsened step and a cluster. Gives: its Skeleton. Runs once per form of cluster.
Source: Tofu section 5.2 (forward and gradient may be split differently).
"""

from __future__ import annotations

import itertools
from collections.abc import Hashable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from vgraph.partition.search.clusters import Cluster, Coarse, Port

Numbers = NDArray[np.intp]
Place = tuple[bool, int]  # whether it is a result; which result or operand


@dataclass(frozen=True)
class Wire:
    """A reading within a cluster: its number among all, and the rows of what is there and what is needed."""

    reading: int
    have: int
    need: int


@dataclass(frozen=True, eq=False)
class Skeleton:
    """A row for every port that anything depends on, member by member.

    ``wires``: by the later of both ends; ``followed``: the row of the result that a member follows, or -1;
    ``first``, ``ports``: a member's rows; ``live``: rows that later members or other clusters depend on.
    """

    num_rows: int
    wires: tuple[tuple[Wire, ...], ...]
    followed: tuple[int, ...]
    first: tuple[int, ...]
    ports: tuple[tuple[Place, ...], ...]
    live: tuple[Numbers, ...]
    outside: tuple[tuple[Port, int], ...]

    @cached_property
    def shapes(self) -> list[Hashable]:
        """By member, what tells how its states grow of those before, whatever its choices and amounts."""
        wires = [tuple([(wire.have, wire.need) for wire in found]) for found in self.wires]
        last, first = len(wires) - 1, self.first
        return [
            (
                self.followed[i],
                first[i] if self.ports[i] else -1,
                self.ports[i],
                wires[i],
                self.live[i].tobytes(),
                i == last,
            )
            for i in range(last + 1)
        ]


def skeleton_of(coarse: Coarse, cluster: Cluster) -> Skeleton:
    """That of the cluster's form, found once."""
    form = coarse.forms[cluster.index]
    found = coarse.skeletons.get(form)
    if found is None:
        found = coarse.skeletons[form] = _build(coarse, cluster)
    assert isinstance(found, Skeleton)
    return found


def _build(coarse: Coarse, cluster: Cluster) -> Skeleton:
    count = len(cluster.members)
    place = {item: max(coarse.member_of[item], 0) for item in (*cluster.members, *cluster.owned)}
    ends: list[list[tuple[int, Port, Port]]] = [[] for _ in cluster.members]
    followed: list[Port | None] = [None] * count
    for number, r in enumerate(coarse.inside[cluster.index]):
        have, need = (True, place[r.source], r.result), (False, place[r.reader], r.position)
        if r.members:
            ends[max(have[1], need[1])].append((number, have, need))
        if r.position == cluster.follows[need[1]] and have[1] < need[1]:
            followed[need[1]] = have
    outside = coarse.ports[cluster.index]
    every = dict.fromkeys(outside)
    every |= dict.fromkeys(port for _, have, need in itertools.chain.from_iterable(ends) for port in (have, need))
    every |= dict.fromkeys(port for port in followed if port is not None)
    rows = {port: row for row, port in enumerate(sorted(every, key=lambda port: port[1]))}
    ports: list[list[Port]] = [[] for _ in cluster.members]
    for port in rows:
        ports[port[1]].append(port)
    return Skeleton(
        len(rows),
        tuple([tuple([Wire(number, rows[have], rows[need]) for number, have, need in found]) for found in ends]),
        tuple([-1 if port is None else rows[port] for port in followed]),
        tuple([rows[found[0]] if found else 0 for found in ports]),
        tuple([tuple([(port[0], port[2]) for port in found]) for found in ports]),
        tuple(_live(outside, ends, followed, rows)),
        tuple([(port, rows[port]) for port in outside]),
    )


def _live(
    outside: tuple[Port, ...],
    ends: list[list[tuple[int, Port, Port]]],
    followed: list[Port | None],
    rows: dict[Port, int],
) -> list[Numbers]:
    """By member, the rows that are looked at after it."""
    count = len(ends)
    last: dict[Port, int] = dict.fromkeys(outside, count)
    for place, found in enumerate(ends):
        for port in (port for _, have, need in found for port in (have, need) if port[1] < place):
            last[port] = max(last.get(port, 0), place)
    for place, port in enumerate(followed):
        if port is not None:
            last[port] = max(last.get(port, 0), place)
    first = np.array([port[1] for port in last], np.intp)
    until, row = np.array(list(last.values()), np.intp), np.array([rows[port] for port in last], np.intp)
    return [row[(first <= place) & (place < until)] for place in range(count)]
