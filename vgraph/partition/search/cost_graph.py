"""CostGraph: what a search sees: vertices with states, what each costs, and what each pair and some triples cost.

Takes: costs, as vectors, matrices and tables of classes. Gives: CostGraph. Runs once per step of the recursion.
Source: Tofu section 5 (dynamic programming over the coarsened graph).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Costs = NDArray[np.float64]
Kept = NDArray[np.intp]


class Triple(NamedTuple):
    """A cost of three vertices: of two that may read one copy and of what it is fetched from.

    ``table``: no cost is negative; ``maps``: by vertex of the scope, the class of each state, a place in the table.
    """

    scope: tuple[int, int, int]
    table: Costs
    maps: tuple[Kept, Kept, Kept]


@dataclass(frozen=True, eq=False)
class CostGraph:
    """``alone[v]``: a cost a state of vertex v; ``pairs[u, v]``, u < v: a cost a pair of states; ``triples``: of three.

    Equal costs should be one array: what was computed for an array is not computed again.
    """

    alone: Sequence[Costs]
    pairs: Mapping[tuple[int, int], Costs]
    triples: Sequence[Triple] = ()

    @property
    def num_vertices(self) -> int:
        return len(self.alone)

    def cost(self, states: Sequence[int]) -> float:
        """What one choice of states costs in all."""
        total = sum([costs.item(s) for costs, s in zip(self.alone, states, strict=True)])
        total += sum([costs.item(states[u], states[v]) for (u, v), costs in self.pairs.items()])
        for scope, table, maps in self.triples:
            total += float(table[tuple([of[states[v]] for v, of in zip(scope, maps, strict=True)])])
        return total

    def neighbours(self) -> list[set[int]]:
        """For every vertex those that it shares a cost with."""
        found: list[set[int]] = [set() for _ in self.alone]
        for scope in (*self.pairs, *[triple.scope for triple in self.triples]):
            for v in scope:
                found[v].update(scope)
        return [mine - {v} for v, mine in enumerate(found)]

    def in_pairs(self) -> CostGraph:
        """The same costs without triples: each is a further vertex, which says the classes of the last two.

        What says other classes than they have costs as much more as no entry of the table is dearer than another.
        """
        alone, pairs = list(self.alone), dict(self.pairs)
        for scope, table, maps in self.triples:
            vertex, (_, count, width) = len(alone), table.shape
            said = np.arange(count * width)
            alone.append(np.zeros(count * width))
            pairs[scope[0], vertex] = table.reshape(len(table), -1)[maps[0]]
            for v, of, tells in zip(scope[1:], maps[1:], (said // width, said % width), strict=True):
                pairs[v, vertex] = np.where(of[:, None] == tells[None, :], 0.0, table.max())
        return CostGraph(alone, pairs)
