"""CostGraph: what a search sees: vertices with states, what each costs, and what each pair costs.

Takes: costs, as vectors and matrices. Gives: CostGraph. Runs once per step of the recursion.
Source: Tofu section 5 (dynamic programming over the coarsened graph).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Costs = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class CostGraph:
    """``alone[v]``: a cost a state of vertex v; ``pairs[u, v]``, u < v: a cost a pair of states.

    Equal costs should be one array: what was computed for an array is not computed again.
    """

    alone: Sequence[Costs]
    pairs: Mapping[tuple[int, int], Costs]

    @property
    def num_vertices(self) -> int:
        return len(self.alone)

    def cost(self, states: Sequence[int]) -> float:
        """What one choice of states costs in all."""
        total = sum(float(costs[s]) for costs, s in zip(self.alone, states, strict=True))
        return total + sum(float(costs[states[u], states[v]]) for (u, v), costs in self.pairs.items())

    def neighbours(self) -> list[set[int]]:
        """For every vertex those that it shares a cost with."""
        found: list[set[int]] = [set() for _ in self.alone]
        for u, v in self.pairs:
            found[u].add(v)
            found[v].add(u)
        return found
