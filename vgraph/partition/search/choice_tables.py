"""Choice tables: what one member of a cluster may choose, and what that costs, by where the operand lies it follows.

Takes: a SearchState and a member. Gives: Choices. Runs once per kind of op and step of the recursion.
Source: Tofu section 5.2; a sum may be kept as terms, scattered, or be given to all (docs/adr/0010).
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field

import numpy as np

from vgraph.ir.sharding import Partial, Replicate, Split
from vgraph.partition.accounting.costs import placement_of, transfer
from vgraph.partition.search.cost_graph import Costs
from vgraph.partition.search.options import Choice
from vgraph.partition.search.skeleton import Numbers, Place
from vgraph.partition.search.states import SearchState


@dataclass(frozen=True, eq=False)
class Choices:
    """Choices for several placements of the followed operand; ``rows``: by placement, which of them; costs if any."""

    choices: list[Choice]
    rows: dict[int, range]
    costs: Costs | None
    _looks: dict[tuple[Place, ...], Numbers] = field(default_factory=dict[tuple[Place, ...], Numbers])
    _about: dict[tuple[Place, ...], Hashable] = field(default_factory=dict[tuple[Place, ...], Hashable])

    def looks(self, ports: tuple[Place, ...]) -> Numbers:
        """By port and choice, how it looks there."""
        found = self._looks.get(ports)
        if found is None:
            rows = [
                [c.keep_looks[at] for c in self.choices] if is_result else [c.read_looks[at] for c in self.choices]
                for is_result, at in ports
            ]
            found = self._looks[ports] = np.array(rows, np.intp)
        return found

    def about(self, ports: tuple[Place, ...]) -> Hashable:
        """Equal for choices that look and cost the same."""
        found = self._about.get(ports)
        if found is None:
            costs = b"" if self.costs is None else self.costs.tobytes()
            found = self._about[ports] = (self.looks(ports).tobytes(), costs, *self.rows.items())
        return found


class ChoiceTables:
    """All choices of one member."""

    def __init__(self, search_state: SearchState, member: int, follows: int) -> None:
        self.search_state, self.member, self.follows = search_state, member, follows
        self._single: dict[int, tuple[list[Choice], list[float]]] = {}
        self._choices: dict[tuple[int, ...], Choices] = {}

    def choices(self, codes: tuple[int, ...]) -> Choices:
        """The choices for these placements of the followed operand, one after the other; -1: it follows none."""
        found = self._choices.get(codes)
        if found is None:
            found = self._choices[codes] = self._joined(codes)
        return found

    def _joined(self, codes: tuple[int, ...]) -> Choices:
        choices: list[Choice] = []
        added: list[float] = []
        rows: dict[int, range] = {}
        for code in codes:
            if code not in self._single:
                made = self._made(code)
                self._single[code] = (made, list(map(self._keeping, made)))
            mine, costs = self._single[code]
            rows[code] = range(len(choices), len(choices) + len(mine))
            choices += mine
            added += costs
        return Choices(choices, rows, np.array(added) if any(added) else None)

    def _keeping(self, choice: Choice) -> float:
        """What it costs to bring results to where they are kept."""
        search_state, member, total = self.search_state, self.member, 0.0
        ways, price = search_state.ways, search_state.options.price
        if price:
            shared = sum(search_state.kept(member, i) for i, p in enumerate(choice.kept) if not isinstance(p, Split))
            total += price * (ways - 1) * shared
        if choice.strategy is not None and not choice.stays:
            for result, (made, kept) in enumerate(zip(choice.strategy.outputs, choice.kept, strict=True)):
                if made is not kept and made != kept:
                    total += search_state.made(member, result) * transfer(made, kept, ways)
                elif isinstance(made, Partial):
                    total += (ways - 1) * search_state.brought(member, result)
        return total

    def _made(self, have: int) -> list[Choice]:
        search_state, member = self.search_state, self.member
        options, past, ways = search_state.options, search_state.past[member], search_state.ways
        if member >= search_state.first_input:
            return options.of_input(search_state.coarse.classes.value(member, 0), past, search_state.past_ways, ways)
        op_class = search_state.coarse.classes.classes[member]
        if have < 0:
            return options.of_op(op_class.op, op_class.kind, past, search_state.past_ways, ways)
        given = placement_of(have)
        every = options.of_op(op_class.op, op_class.kind, past, search_state.past_ways, ways, (self.follows, given))
        fitting = [c for c in every if c.reads[self.follows] == have]
        if isinstance(given, Partial) and fitting:
            return fitting
        plain = [c for c in fitting if c.strategy and c.strategy.index != "+"]
        if isinstance(given, Replicate):
            plain = [c for c in plain if c.strategy and not c.strategy.index] or plain
        return plain or [c for c in every if c.strategy and c.strategy.index not in ("", "+")] or every
