"""Named plans: what others call data parallel, fully sharded (ZeRO-3, FSDP) and Megatron, to compare and to begin with.

Takes: a TrainingStep, a number of workers. Gives: ShardingPlans of one step. Runs once per model.
Source: Rajbhandari et al. 2020 (ZeRO), Zhao et al. 2023 (FSDP), Korthikanti et al. 2022 (Megatron, sequence parallel).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence, Set

import numpy as np

from vgraph.ir.program import Op, Value, op_name
from vgraph.ir.sharding import Partial, Placement, Replicate, ShardingPlan, Split, Strategy
from vgraph.ir.step import FORWARD, UPDATE, TrainingStep
from vgraph.ir.tdl.table import describe, is_view
from vgraph.partition.search.cost_graph import CostGraph
from vgraph.partition.search.critical import solve, solve_known
from vgraph.partition.search.search import Prepared, search
from vgraph.partition.search.step_costs import StepCosts
from vgraph.partition.search.strategies import strategies

Chosen = tuple[Strategy, ...]
_WORK = frozenset("mm bmm addmm baddbmm mv addmv dot convolution convolution_backward".split()) | {"embedding"}


def data_parallel(step: TrainingStep, ways: int, prepared: Prepared | None = None) -> ShardingPlan | None:
    """Every worker has all parameters and a part of the batch; None: that cannot be divided."""
    return _ByBatch(step, ways, prepared or Prepared(step), is_sharded=False).run()


def fully_sharded(step: TrainingStep, ways: int, prepared: Prepared | None = None) -> ShardingPlan | None:
    """The same, but each worker keeps a part of every parameter, which is gathered for each product that reads it."""
    return _ByBatch(step, ways, prepared or Prepared(step), is_sharded=True).run()


def megatron(step: TrainingStep, ways: int, prepared: Prepared | None = None) -> ShardingPlan | None:
    """The plan of fewest bytes by which no matrix of weights and no gradient of one moves: activations do.

    Columns, then rows, with sums scattered among rows in between. None: some matrix has to move.
    """
    possible: list[bool] = []

    def solved(problem: StepCosts) -> list[int]:
        weights, count = _weights(problem), len(problem.kinds)
        graph = _without_moving(problem.graph_apart(weights), weights)
        states, is_least = solve_known(graph)
        found = [(graph.cost(states), states[:count])]
        if not is_least:  # paths may leave a weight nowhere to lie; where nothing is shared the graph is narrower
            narrow = _without_moving(problem.apart(), weights)
            states = solve(narrow)
            found.append((narrow.cost(states), states))
        possible.append(bool(np.isfinite(min(cost for cost, _ in found))))
        return min(found, key=lambda each: (np.isinf(each[0]), problem.graph().cost(problem.with_copies(each[1]))))[1]

    found = search(step, (ways,), solve=solved, prepared=prepared)
    return found.plan if all(possible) else None


NAMED: Mapping[str, Callable[[TrainingStep, int, Prepared], ShardingPlan | None]] = {
    "data parallel": data_parallel, "FSDP, ZeRO-3": fully_sharded, "Megatron": megatron,
}  # fmt: skip


def named_plans(step: TrainingStep, num_workers: int, prepared: Prepared | None = None) -> dict[str, ShardingPlan]:
    """Those of the named plans that the step has, by name."""
    prepared = prepared or Prepared(step)
    made = {name: make(step, num_workers, prepared) for name, make in NAMED.items()}
    return {name: plan for name, plan in made.items() if plan is not None and divides_work(step, plan, 0)}


def _weights(problem: StepCosts) -> set[int]:
    """The clusters of matrices of weights."""
    step, first = problem.coarse.classes.step, len(problem.coarse.classes.classes)
    matrices = {value.id for value in step.parameters.values() if len(value.shape) > 1}
    inputs = [first + i for i, given in enumerate(step.program.inputs) if given.value.id in matrices]
    return {problem.coarse.cluster_of[item] for item in inputs}


def _without_moving(graph: CostGraph, weights: Set[int]) -> CostGraph:
    """What moves between a matrix of weights and what reads it, or makes its gradient, is impossible."""
    pairs = {
        (u, v): np.where(costs > 0, np.inf, 0.0) if u in weights or v in weights else costs
        for (u, v), costs in graph.pairs.items()
    }
    return CostGraph(graph.alone, pairs, graph.triples)


def divides_work(step: TrainingStep, plan: ShardingPlan, number: int) -> bool:
    """Whether a step of the recursion divides a contraction, a convolution or a lookup, if there is any."""
    heavy = [chosen for op, chosen in zip(step.ops, plan.strategies, strict=True) if op_name(op.target) in _WORK]
    return not heavy or any(chosen[number].index not in ("", "+") for chosen in heavy)


def why_undivided(step: TrainingStep, ways: int) -> tuple[str, str]:
    """Why a step of the recursion divides no work, and what to do about it."""
    heavy = [op for op in step.ops if op_name(op.target) in _WORK]
    if not any(strategy.index not in ("", "+") for op in heavy for strategy in strategies(op, ways)):
        reason = f"no contraction or convolution has a dim that {ways} divides"
        return reason, "use fewer workers, or sizes (batch, width) that the number of workers divides"
    unknown = sorted({op_name(op.target) for op in step.ops if describe(op) is None})
    if unknown:
        reason = (
            f"no index notation describes {', '.join(unknown)}, and to divide products alone moves more than it saves"
        )
        return reason, "describe it with vgraph.tdl, use fewer workers, or a larger batch"
    reason = "to divide its products moves more bytes than to have every worker compute them all"
    return reason, "use fewer workers, or a larger batch"


def batch_dims(step: TrainingStep, ways: int) -> Mapping[int, int]:
    """The dim of each input that counts samples: of the sizes that all inputs have the first that divides."""
    shaped = [value for value in step.inputs if value.shape]
    shared = set[object]().union(*(value.shape for value in shaped))
    for value in shaped:
        shared &= set(value.shape)
    sizes = [d for d in shaped[0].shape if d in shared and isinstance(d, int) and d % ways == 0] if shaped else []
    return {v.id: list(v.shape).index(sizes[0]) for v in shaped if sizes}


class _ByBatch:
    """Ops in their order, each divided as its operands lie."""

    def __init__(self, step: TrainingStep, ways: int, prepared: Prepared, *, is_sharded: bool) -> None:
        self.step, self.ways, self.is_sharded = step, ways, is_sharded
        self.classes, self.options = prepared.coarse.classes, prepared.options
        self.weights = {value.id for value in (*step.parameters.values(), *step.gradients.values())}  # and views
        self.lies: dict[int, Placement] = {}
        self.placements: dict[int, tuple[Placement]] = {}
        self.known: dict[Hashable, Chosen] = {}
        forward = [op for op, note in zip(step.ops, step.notes, strict=True) if note.phase == FORWARD]
        views = Counter(v.id for op in forward if is_view(op.target) for v in op.operands())
        self.in_loops = {value for value, count in views.items() if count > 1}

    def run(self) -> ShardingPlan | None:
        batch = batch_dims(self.step, self.ways)
        if not batch:
            return None
        self._place_inputs(batch)
        chosen: list[Chosen] = []
        for number, (op, note) in enumerate(zip(self.step.ops, self.step.notes, strict=True)):
            operands = list(op.operands())
            stays = note.phase == UPDATE or self._is_view_of_weight(op, operands)
            chosen.append(found := self._strategy(number, op, self._where(operands, gathered=not stays)))
            for value, made in zip(op.results, found[0].outputs, strict=True):
                self.lies[value.id] = self.placements.get(value.id, (made,))[0]
        return ShardingPlan((self.ways,), tuple(chosen), self.placements)

    def _is_view_of_weight(self, op: Op, operands: Sequence[Value]) -> bool:
        """Such a view lies as the weight, and is gathered by what reads it; but what a loop reads is gathered once."""
        if len(operands) != 1 or operands[0].id not in self.weights - self.in_loops or not is_view(op.target):
            return False
        self.weights.update(value.id for value in op.results)
        return True

    def _place_inputs(self, batch: Mapping[int, int]) -> None:
        step = self.step
        for given in step.program.inputs:
            dim = batch.get(given.value.id)
            self._place(given.value, Replicate() if dim is None else Split(dim))
        for value in step.parameters.values() if self.is_sharded else ():
            self._place(value, self._shard(value))
        for kept in step.history:
            like = self.placements[step.parameters[kept.parameter].id][0]
            is_alike = kept.before.shape == step.parameters[kept.parameter].shape
            self._place(kept.before, like if is_alike else Replicate())
            self.placements[kept.after.id] = self.placements[kept.before.id]
        for value in step.results_for_all:
            self.placements[value.id] = (Replicate(),)
        for made, given in self._outputs():
            self.placements[made.id] = self.placements[given.id]

    def _outputs(self) -> Iterator[tuple[Value, Value]]:
        step = self.step
        yield from ((value, step.parameters[name]) for name, value in step.gradients.items())
        yield from ((value, step.parameters[name]) for name, value in step.updated.items())
        yield from ((value, step.buffers[name]) for name, value in step.new_buffers.items())

    def _place(self, value: Value, placement: Placement) -> None:
        self.lies[value.id], self.placements[value.id] = placement, (placement,)

    def _shard(self, value: Value) -> Placement:
        dims = [dim for dim, size in enumerate(value.row_shape) if size and size % self.ways == 0]
        return Split(dims[0]) if dims else Replicate()

    def _where(self, operands: Sequence[Value], *, gathered: bool = False) -> tuple[Placement, ...]:
        """Where operands lie; ``gathered``: weights are read whole."""
        return tuple([Replicate() if gathered and v.id in self.weights else self.lies[v.id] for v in operands])

    def _strategy(self, number: int, op: Op, lies: tuple[Placement, ...]) -> Chosen:
        kind = self.classes.classes[self.classes.class_of[number]].kind
        found = self.known.get((kind, lies))
        if found is None:
            found = self.known[kind, lies] = (_following(self.options.every(op, kind, self.ways), lies),)
        return found


def _following(every: Sequence[Strategy], lies: Sequence[Placement]) -> Strategy:
    """The strategy that reads every operand where it lies, of those the one that divides."""
    summed = [Replicate() if isinstance(have, Partial) else have for have in lies]  # statistics of the whole batch
    for given in (lies, summed):
        fitting = [s for s in every if all(_is_free(h, n) for h, n in zip(given, s.inputs, strict=True))]
        divided = [s for s in fitting if s.index and _uses(given, s)]
        if divided:
            return divided[0]
    return every[0]


def _uses(lies: Sequence[Placement], strategy: Strategy) -> bool:
    """A replicated operand is not cut anew for its own sake."""
    cut = [have for have in lies if not isinstance(have, Replicate)]
    return bool(cut) and all(
        have == need for have, need in zip(lies, strategy.inputs, strict=True) if not isinstance(have, Replicate)
    )


def _is_free(have: Placement, need: Placement) -> bool:
    return have == need or (isinstance(have, Replicate) and not isinstance(need, Partial))
