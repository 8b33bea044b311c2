"""Plain DP: all steps at once, each cluster's state being its choices in every step; exact, and slow.

Takes: a TrainingStep, the workers of each step. Gives: a Found; tempo: in benchmarks and tests.
Source: Tofu section 5.2 (dynamic programming without recursion, which the paper gives 8 to 24 hours).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from vgraph.errors import ModelError
from vgraph.ir.step import TrainingStep
from vgraph.partition.search.clusters import Cluster, Coarse, Link
from vgraph.partition.search.cost_graph import CostGraph, Costs
from vgraph.partition.search.critical import solve
from vgraph.partition.search.eliminate import eliminate
from vgraph.partition.search.enumeration import Enumeration
from vgraph.partition.search.options import Options, Past
from vgraph.partition.search.search import Found, Prepared, plan_of, search
from vgraph.partition.search.states import Kind, SearchState, State
from vgraph.partition.search.step_costs import StepCosts, combined, needs_of

MAX_TABLE = 1 << 26


def search_apart(
    step: TrainingStep, axes: Sequence[int], restrict: Callable[[Options], Options] = lambda options: options
) -> Found:
    """The recursion where every cluster fetches for itself, as in ``plain_dp``: its least bytes, and its plan."""
    costs: list[float] = []

    def solved(problem: StepCosts) -> list[int]:
        graph = problem.apart()
        states = solve(graph)
        costs.append(graph.cost(states) - sum(costs))
        return states

    found = search(step, axes, solve=solved, restrict=restrict)
    return replace(found, step_bytes=tuple(costs))


@dataclass(eq=False)
class _Branch:
    """What a cluster may choose in one step after what it chose before, and where its sequences begin."""

    past: tuple[State, ...]
    kind: Kind
    below: list[_Branch]  # one a state; none in the last step
    first: int = 0
    count: int = 0


def plain_dp(
    step: TrainingStep, axes: Sequence[int], restrict: Callable[[Options], Options] = lambda options: options
) -> Found:
    """The least bytes over all sequences of choices, by the costs of the recursion.

    Raises:
        ModelError: a table would need more than 67 million entries.
    """
    began = time.perf_counter()
    prepared = Prepared(step)
    joint = _Joint(prepared.coarse, restrict(prepared.options), tuple(axes))
    graph = joint.graph()
    chosen = eliminate(graph, MAX_TABLE)
    if chosen is None:
        raise ModelError("the model is too large for a search of all steps at once", cure="use search, step by step")
    past: list[Past] = [()] * len(prepared.coarse.cluster_of)
    for cluster, number in zip(prepared.coarse.clusters, chosen, strict=True):
        sequence = joint.sequences[cluster.index][number]
        for place, member in enumerate(cluster.members):
            past[member] = tuple(state[place] for state in sequence)
        for other in cluster.owned:
            past[other] = past[cluster.members[0]]
    plan = plan_of(prepared.coarse, past, tuple(axes))
    return Found(plan, (graph.cost(chosen),), time.perf_counter() - began)


class _Joint:
    def __init__(self, coarse: Coarse, options: Options, axes: tuple[int, ...]) -> None:
        self.coarse, self.options, self.axes = coarse, options, axes
        self.known: dict[object, Costs] = {}
        self.roots = [self._branch(cluster, ()) for cluster in coarse.clusters]
        self.sequences = [list(_sequences(root)) for root in self.roots]
        for root in self.roots:
            _number(root, 0)

    def _search_state(self, *chosen: tuple[Cluster, tuple[State, ...]]) -> SearchState:
        past: list[Past] = [()] * len(self.coarse.cluster_of)
        depth = len(chosen[0][1])
        for cluster, states in chosen:
            for place, member in enumerate(cluster.members):
                past[member] = tuple(state[place] for state in states)
            for other in cluster.owned:
                past[other] = past[cluster.members[0]]
        return SearchState(self.coarse, self.options, past, self.axes[:depth], self.axes[depth])

    def _branch(self, cluster: Cluster, past: tuple[State, ...]) -> _Branch:
        kind = Enumeration(self._search_state((cluster, past)), cluster).run()
        is_last = len(past) + 1 == len(self.axes)
        return _Branch(past, kind, [] if is_last else [self._branch(cluster, (*past, state)) for state in kind.states])

    def graph(self) -> CostGraph:
        alone = [np.array(list(_alone(root))) for root in self.roots]
        pairs: dict[tuple[int, int], Costs] = {}
        for link in self.coarse.between:
            u, v = link.source, link.reader
            costs = np.zeros((len(alone[u]), len(alone[v])))
            self._fill(costs, link, self.roots[u], self.roots[v])
            pair, matrix = ((u, v), costs) if u < v else ((v, u), costs.T)
            pairs[pair] = pairs[pair] + matrix if pair in pairs else matrix
        return CostGraph(alone, pairs)

    def _fill(self, costs: Costs, link: Link, source: _Branch, reader: _Branch) -> None:
        """What all steps cost, for every pair of states of the last one."""
        for one in source.below:
            for other in reader.below:
                self._fill(costs, link, one, other)
        if source.below:
            return
        clusters = self.coarse.clusters
        search_state = self._search_state((clusters[link.source], source.past), (clusters[link.reader], reader.past))
        home, found = needs_of(search_state, source.kind, reader.kind, link.readings)
        key = (home, *found)
        step = self.known.get(key)
        if step is None:
            step = self.known[key] = combined(home, found, search_state.ways)
        costs[source.first : source.first + source.count, reader.first : reader.first + reader.count] += step


def _sequences(branch: _Branch) -> Iterator[tuple[State, ...]]:
    if not branch.below:
        yield from ((*branch.past, state) for state in branch.kind.states)
    for below in branch.below:
        yield from _sequences(below)


def _alone(branch: _Branch) -> Iterator[float]:
    """What the last step's states cost by themselves, in all steps."""
    if not branch.below:
        yield from branch.kind.alone.tolist()
    for below in branch.below:
        yield from _alone(below)


def _number(branch: _Branch, first: int) -> int:
    branch.first = at = first
    for below in branch.below:
        at = _number(below, at)
    branch.count = at - first if branch.below else len(branch.kind.states)
    return first + branch.count
