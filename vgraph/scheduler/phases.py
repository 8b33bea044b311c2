"""Phases: what must go frontier by frontier, and what runs once over all rows.

Takes: a Program. Gives: Phases in order. Runs once per function.
Source: Cavs section 3.5 (lazy batching and streaming), with eager operators batched as well.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from vgraph.ir.cost import is_product
from vgraph.ir.moves import Gather, SegmentReduce
from vgraph.ir.program import Op, Program
from vgraph.ir.schedule import Phase
from vgraph.ir.space import SHARED
from vgraph.late import late
from vgraph.scheduler.unbatched import draw_into_loops, is_sum_of_rows

if TYPE_CHECKING:
    import networkx as nx
else:
    nx = late("networkx")


def build_phases(program: Program, *, per_vertex: bool, eager: bool = True, lazy: bool = True) -> tuple[Phase, ...]:
    """Strongly connected components that hold a Carry become loops, all else runs once.

    ``per_vertex``: ops that TDL does not describe must see one vertex at a time (a vertex function);
    otherwise they see all rows at once, as under DGL's batches. Without ``eager``, what could run once
    before a loop runs within it; without ``lazy``, what could run once after it, sums added up.
    """
    carry_ops = {c.target.id: Op(c.move, (c.source,), {}, (c.target,)) for c in program.carries}
    ops = [*carry_ops.values(), *program.ops]
    if ops and not carry_ops and not (per_vertex and any(map(_needs_one_vertex, ops))):
        return (_phase(0, ops, per_vertex),)  # nothing loops
    graph = _dataflow(ops)
    loops = _loop_members(graph, ops, per_vertex)
    stages = _stages(graph, loops)
    if not (eager and lazy):
        drawn = draw_into_loops(graph, ops, stages, eager=eager, lazy=lazy)
        stages = _stages(graph, loops | drawn)
    members: dict[int, list[Op]] = {}
    for index in _evaluation_order(graph, ops, set(range(len(carry_ops))), stages):
        members.setdefault(stages[index], []).append(ops[index])
    phases = tuple(_phase(stage, members[stage], per_vertex) for stage in sorted(members))
    read = {value.id for op in ops for value in op.operands()}
    read |= {value.id for value in program.outputs if value is not None}
    assert not any(_sums_in_loop(phase, read, lazy) for phase in phases), "a loop holds no sum over rows"
    return phases


def _dataflow(ops: list[Op]) -> nx.DiGraph[int]:
    made = {value.id: index for index, op in enumerate(ops) for value in op.results}
    graph: nx.DiGraph[int] = nx.DiGraph()
    graph.add_nodes_from(range(len(ops)))
    for index, op in enumerate(ops):
        graph.add_edges_from((made[v.id], index) for v in op.operands() if v.id in made)
    return graph


def _loop_members(graph: nx.DiGraph[int], ops: list[Op], per_vertex: bool) -> set[int]:
    """Ops on a cycle through a Carry, and (in a vertex function) ops that TDL does not describe."""
    loops: set[int] = set()
    for component in nx.strongly_connected_components(graph):
        first = next(iter(component))
        if len(component) > 1 or graph.has_edge(first, first):
            loops |= component
    if per_vertex:
        loops |= {i for i, op in enumerate(ops) if _needs_one_vertex(op)}
    return loops


def _needs_one_vertex(op: Op) -> bool:
    return not op.is_rowwise and any(v.row_dim is not None for v in op.results)


def _stages(graph: nx.DiGraph[int], loops: set[int]) -> dict[int, int]:
    """Even stages run once, odd ones loop; every op as early as its operands allow."""
    condensed = nx.condensation(graph)
    stage_of: dict[int, int] = {}
    for component in nx.topological_sort(condensed):
        members = condensed.nodes[component]["members"]
        before = [stage_of[p] for p in condensed.predecessors(component)]
        stage = max(before, default=0)
        if (stage % 2 == 1) != (not members.isdisjoint(loops)):
            stage += 1
        stage_of[component] = stage
    mapping: dict[int, int] = condensed.graph["mapping"]
    return {index: stage_of[component] for index, component in mapping.items()}


def _evaluation_order(graph: nx.DiGraph[int], ops: list[Op], carries: set[int], stages: dict[int, int]) -> list[int]:
    """Dataflow order; within a loop a Carry reads earlier frontiers, so it comes first."""
    acyclic: nx.DiGraph[int] = nx.DiGraph()
    acyclic.add_nodes_from(graph.nodes)
    acyclic.add_edges_from(
        (a, b) for a, b in graph.edges if not (b in carries and stages[a] == stages[b] and stages[b] % 2)
    )
    return list(nx.lexicographical_topological_sort(acyclic))


def _phase(stage: int, ops: list[Op], per_vertex: bool) -> Phase:
    is_loop = stage % 2 == 1
    serial = is_loop and per_vertex and any(_needs_one_vertex(op) for op in ops)
    reverse = is_loop and any(op.target == SegmentReduce("src", "sum") for op in ops)
    forward = is_loop and any(op.target == Gather("src") for op in ops)
    assert not (reverse and forward), "one loop walks one way"
    return Phase(tuple(ops), is_loop, reverse, serial)


def _sums_in_loop(phase: Phase, read: set[int], lazy: bool) -> bool:
    return phase.is_loop and any(
        value.space == SHARED and value.id in read and (lazy or not is_sum_of_rows(op))
        for op in phase.ops
        if any(v.row_dim is not None for v in op.operands())
        for value in op.results
    )


def products_apart(phases: tuple[Phase, ...]) -> tuple[Phase, ...]:
    """Products of rows that a phase is given and that it does not read itself follow it as a phase of their own.

    Where only loops read them they can be made for some frontiers at a time.
    """
    found: list[Phase] = []
    for index, phase in enumerate(phases):
        apart = [] if phase.is_loop or not any(p.is_loop for p in phases[index:]) else _products(phase)
        rest = tuple(op for op in phase.ops if op not in apart)
        found += [replace(phase, ops=ops) for ops in (rest, tuple(apart)) if ops]
    return tuple(found)


def _products(phase: Phase) -> list[Op]:
    rows = {v.id for op in phase.ops for v in op.results if v.row_dim is not None}
    read = {v.id for op in phase.ops for v in op.operands()}
    return [
        op
        for op in phase.ops
        if is_product(op)
        and op.is_rowwise
        and op.results[0].row_dim == 0
        and op.results[0].id not in read
        and rows.isdisjoint(v.id for v in op.operands())
    ]
