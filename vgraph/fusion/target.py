"""Target: what differs between the kinds of devices that kernels are printed for.

Takes: a kernel's layout. Gives: what ``emitter.py`` asks of a kind. Runs once per function.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from vgraph.fusion.feature_body import Body
from vgraph.fusion.layout import Layout, Loop, Stage
from vgraph.fusion.row_products import RowProduct
from vgraph.ir.program import Op, Value


@dataclass(eq=False)
class EdgePass:
    """What one stage does with the edges of a row; ``inside`` the loop over edges, ``before`` and ``after`` it.

    Where edges are taken in chains, ``first`` and ``last`` belong to each of them. ``outer_sums``: for each sum of
    outer products to which an edge gives its rows, by its number, the text that adds up those collected so far.
    ``across``: the loops that may run for some edges at once, by their numbers among ``bodies``.
    """

    stage: Stage
    bodies: list[Body] = field(default_factory=list[Body])  # one a loop over features
    across: dict[int, Body] = field(default_factory=dict[int, Body])
    before: list[str] = field(default_factory=list[str])
    first: list[str] = field(default_factory=list[str])
    inside: list[str | RowProduct] = field(default_factory=list["str | RowProduct"])
    outer_sums: dict[int, str] = field(default_factory=dict[int, str])
    last: list[str] = field(default_factory=list[str])
    after: list[str] = field(default_factory=list[str])

    @property
    def ptr(self) -> str:
        """The index tensor that tells a row's edges."""
        return f"{self.stage.over}_ptr"

    @property
    def rows(self) -> set[str]:
        """Which rows the loops read."""
        return set[str]().union(*(body.rows for body in self.bodies))


@dataclass(frozen=True)
class Team:
    """Who shares a row, or an edge: what they wait for one another with, and how texts name them.

    ``size``, ``lane``: the last argument of a template, and of a call.
    """

    sync: str = ""
    size: str = ""
    lane: str = ""


@dataclass(eq=False)
class Target(ABC):
    """How one function of a kind of device addresses features, goes over edges, and shares rows among lanes.

    ``most``: numbers in a vector. Where a row and an edge are one thread's, nobody waits.
    """

    layout: Layout
    most: int
    row_team: Team = field(init=False, default=Team())
    edge_team: Team = field(init=False, default=Team())

    @abstractmethod
    def body(self, stage: Stage, loop: Loop) -> Body:
        """A loop over features, in vectors as wide as it allows."""

    @abstractmethod
    def unrolls(self, body: Body, num_sums: int) -> bool:
        """Whether a loop is written out, as it must be for ``num_sums`` accumulators a vector to lie in registers."""

    def across_edges(self, body: Body) -> Body | None:
        """The loop that does the same for some edges at once; None where there is none."""
        return None

    @abstractmethod
    def columns(self, count: int) -> int:
        """How many columns of a matrix are multiplied, or added up, at a time."""

    def stored_row(self, value: Value, row: str) -> str:
        """Where a row that is stored begins."""
        return f"o{value.id} + {row} * {math.prod(value.row_shape)}"

    def outer_row(self, op: Op) -> str:
        """Which of the rows that are collected for a sum of outer products is the edge's."""
        return f"rows{op.results[0].id}"

    @abstractmethod
    def vectors(self, kind: str, name: str, body: Body, itemsize: int) -> str:
        """Declares a vector for each one of the loop, of numbers of so many bytes."""

    def open_sum(self, made: EdgePass, body: Body, op: Op, opened: Callable[[str], str]) -> str:
        """Makes room for a reduction by ``opened``, which is given a letter; the letter of what holds the result."""
        made.before.append(opened("a"))
        return "a"

    def closing(self, body: Body, op: Op, place: str) -> Body:
        """The loop that hands a reduction over; ``place``: of the slot of what was picked."""
        return replace(body)

    @abstractmethod
    def over_edges(self, passes: Sequence[EdgePass]) -> str:
        """The loop over a row's edges, and what lies around it."""
