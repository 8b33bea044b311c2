"""Copies of parts: a reader of a part of a value is served by a copy of the whole that an earlier reader has.

Takes: who reads a part of a value, or all of which it is a part, and when. Gives: when the part is fetched for itself,
as costs. Runs once per value and step of the recursion.
Source: none (the books read a part of a copy that is there).
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from vgraph.partition.search.cost_graph import Costs
from vgraph.partition.search.shared_copies import Copy, Home, Uses, whole_of, without


class Event(NamedTuple):
    """That a reader reads a copy of a part, or one that serves others: which reader, when, in which of its states."""

    reader: int
    at: int
    uses: Uses
    is_part: bool = True


@dataclass(frozen=True, eq=False)
class PartCopy:
    """A copy of a part of ``whole``; who reads either."""

    whole: Copy
    events: tuple[Event, ...]

    @cached_property
    def readers(self) -> list[int]:
        return list(dict.fromkeys(event.reader for event in self.events))

    @cached_property
    def servers(self) -> list[Event]:
        """Those whose copy of the whole a later reader of the part may read."""
        last = max(event.at for event in self.events if event.is_part)
        return [event for event in self.events if not event.is_part and event.at < last]

    @property
    def is_served(self) -> bool:
        """Whether a reader of the part may read another one's copy."""
        parts = [event for event in self.events if event.is_part]
        return any(one.at < event.at and one.reader != event.reader for event in parts for one in self.servers)

    def is_copied(self, home: Home) -> NDArray[np.bool_]:
        """By state of the source, whether who reads the whole has a copy of it; else the value itself lies so."""
        return (np.array(home.have) != self.whole.code) | (home.before != self.whole.before)

    def of_two(self, fetched: Costs, home: Home) -> list[tuple[Costs, list[Event]]]:
        """What is fetched, by state of the source, for which readers: those that are served, and those that are not."""
        copied = self.is_copied(home)
        alone = [event for event in self.events if event.is_part]
        return [(fetched * copied, list(self.events)), (fetched * ~copied, alone)]

    def states(self, fetched: Costs, home: Home) -> Costs:
        """By state of the source and server, what it costs that this serves: nothing, if there is a copy."""
        return np.repeat(np.where(self.is_copied(home), 0.0, fetched)[:, None], len(self.servers), axis=1)

    def without(self, dearest: float, first: int) -> list[tuple[int, Costs]]:
        """By reader, what it costs if the part was not fetched, and from state ``first`` on, if a server serves it."""
        found: list[tuple[int, Costs]] = []
        for event in self.events:
            costs = without(event.uses & event.is_part, dearest, first + len(self.servers))
            for state, server in enumerate(self.servers, first):
                if event.is_part and event.at < server.at:
                    costs[event.uses, state] = dearest
                elif event is server:
                    costs[~event.uses, state] = dearest
            found.append((event.reader, costs))
        return found


def part_copies(
    readers: Sequence[Sequence[Mapping[Copy, Uses]]], order: Sequence[Sequence[int]]
) -> dict[Copy, PartCopy]:
    """Copies of parts of which somebody may read the whole; ``readers``: by need, when it reads what: ``order``."""
    every = dict.fromkeys(copy for needs in readers for copies in needs for copy in copies)
    found: dict[Copy, PartCopy] = {}
    for copy in every:
        whole = whole_of(copy)
        if whole != copy and whole in every:
            events = [
                Event(reader, at, copies[one], one is copy)
                for reader, (needs, times) in enumerate(zip(readers, order, strict=True))
                for copies, at in zip(needs, times, strict=True)
                for one in (copy, whole)
                if one in copies
            ]
            found[copy] = PartCopy(whole, tuple(events))
    return found


def is_fetched(events: Sequence[Event], places: tuple[int, int], states: Sequence[Sequence[int]]) -> Uses:
    """Whether a copy is fetched, by some states of the two readers at these places."""

    def seen(event: Event) -> Uses:
        side = places.index(event.reader)
        return np.expand_dims(event.uses.take(states[side]), 1 - side)

    found = np.zeros([len(side) for side in states], np.bool_)
    for event in events:
        if event.is_part:
            served = [seen(other) for other in events if not other.is_part and other.at < event.at]
            found |= functools.reduce(lambda uses, other: uses & ~other, served, seen(event))
    return found
