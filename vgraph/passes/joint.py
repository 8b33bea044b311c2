"""Joint: one recording of a function and its derivative, cut into two Programs.

Takes: ops in recorded order, outputs of both. Gives: forward and backward Programs. Runs once per function.
Source: Cavs section 3.4 (auto-differentiation of vertex functions); cut at values worth keeping.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from vgraph.ir.moves import Gather, Random, SegmentReduce
from vgraph.ir.program import Carry, Input, Op, Program, Value, needed_ops
from vgraph.ir.row_ops import feature_sum, row_product
from vgraph.ir.space import EDGE, VERTEX
from vgraph.ir.tdl.rowwise import Effect, row_effects
from vgraph.ir.tdl.table import is_pointwise, is_view
from vgraph.ir.verify import verify


@dataclass(frozen=True, eq=False)
class Joint:
    """``forward`` gives its outputs, then the ``saved`` values that ``backward`` takes as inputs."""

    forward: Program
    backward: Program
    saved: tuple[Value, ...]


def make_program(
    name: str,
    ops: Sequence[Op],
    inputs: Mapping[str, Value],
    outputs: Sequence[Value | None],
    carries: Sequence[Carry] = (),
) -> Program:
    """A verified Program of what the outputs need: dead ops, inputs and carries are left out."""
    live = list(carries)
    while True:
        wanted = _ids(outputs) | {c.source.id for c in live}
        kept = needed_ops(ops, wanted, {c.target.id for c in live})
        used = {v.id for op in kept for v in op.operands()} | wanted
        still = [c for c in live if c.target.id in used]
        if len(still) == len(live):
            break
        live = still
    found = tuple(Input(value, key) for key, value in inputs.items() if value.id in used)
    program = Program(name, found, kept, tuple(outputs), tuple(live))
    verify(program)
    return program


def split_joint(
    name: str,
    ops: tuple[Sequence[Op], Sequence[Op]],
    inputs: Mapping[str, Value],
    forward: tuple[Sequence[Value | None], Sequence[Carry]],
    backward: tuple[Sequence[Value | None], Sequence[Carry]],
    *,
    recompute_edges: bool = False,
    kept: Collection[int] = (),
) -> Joint:
    """Cuts where the backward reads what the forward computed; views and Gathers are computed again.

    ``ops``: those of the forward, and those of both (where the forward's carried values are known).
    ``recompute_edges``: so is what each edge has for itself, which is then never stored.
    ``kept``: ids of what the forward computes for the backward alone.
    """
    (outs, carries), (grads, back_carries) = forward, backward
    ahead_ops, all_ops = ops
    wanted = _ids(outs) | {c.source.id for c in carries} | set(kept)
    first = needed_ops(ahead_ops, wanted, {c.target.id for c in carries})
    computed = {v.id for op in first for v in op.results}
    saved = _values_to_save(
        all_ops, computed, [*grads, *(c.source for c in back_carries)], recompute_edges, inputs.get("$in_degree")
    )
    if recompute_edges and not (carries or back_carries):
        saved = _fewer_saved(saved, all_ops, grads)
    ahead = make_program(name, ahead_ops, inputs, [*outs, *saved], carries)
    given = {**inputs, **{f"saved:{v.id}": v for v in saved}}
    behind = make_program(f"{name}'", _without(all_ops, saved), given, grads, back_carries)
    return Joint(ahead, behind, saved)


def _ids(values: Iterable[Value | None]) -> set[int]:
    return {v.id for v in values if v is not None}


def _without(ops: Sequence[Op], values: Sequence[Value]) -> list[Op]:
    """The ops but those whose results come from elsewhere (of several results, all that are used)."""
    ids = {v.id for v in values}
    return [op for op in ops if not any(r.id in ids for r in op.results)]


def _values_to_save(
    ops: Sequence[Op], computed: set[int], wanted: Sequence[Value | None], recompute_edges: bool, degrees: Value | None
) -> tuple[Value, ...]:
    producers = {v.id: op for op in ops for v in op.results}
    of_degrees, of_library = _computed_of(degrees, ops), _made_by_library(ops)
    saved: dict[int, Value] = {}
    seen, remade = set[int](), set[int]()
    stack = [v for v in wanted if v is not None]
    while stack:
        value = stack.pop()
        if value.id in seen or value.id not in producers:
            continue
        seen.add(value.id)
        op = producers[value.id]
        again = recompute_edges and value.space == EDGE and _is_of_one_edge(op)
        again = again or value.id in of_degrees
        if recompute_edges and _is_sought(value, op, of_library):
            again, remade = True, remade | {v.id for v in op.results}  # its slots with it: an op is made as a whole
        if value.id in computed and not again and not _is_cheap(op):
            saved[value.id] = value
        else:
            stack.extend(op.operands())
    return tuple(saved[key] for key in sorted(saved) if key not in remade)


def _fewer_saved(saved: tuple[Value, ...], ops: Sequence[Op], wanted: Sequence[Value | None]) -> tuple[Value, ...]:
    """Where several rows of a vertex are only read to make one, that one is saved instead."""
    behind = needed_ops(ops, _ids(wanted), _ids(saved))
    readers = Counter(i for op in behind for i in {v.id for v in op.operands()})
    readers.update(v.id for v in wanted if v is not None)
    made: dict[int, tuple[Value, tuple[Value, ...]]] = {v.id: (v, (v,)) for v in saved}  # and what it stands for
    for op in behind:
        operands = {v.id: v for v in op.operands()}
        plain = is_pointwise(op.target) and len(op.results) == 1 and op.results[0].space == VERTEX
        if not plain or not operands or any(i not in made or readers[i] > 1 for i in operands):
            continue
        if op.results[0].row_bytes <= sum(v.row_bytes for v in operands.values()):
            stands_for = tuple(one for i in operands for one in made.pop(i)[1])
            made[op.results[0].id] = (op.results[0], stands_for)
    fewer = [value for one, parts in made.values() for value in ((one,) if len(parts) > 1 else parts)]
    return tuple(sorted(fewer, key=lambda v: v.id))


def _computed_of(given: Value | None, ops: Sequence[Op]) -> set[int]:
    """Ids of what is pointwise or a view of one input alone."""
    found = set[int]() if given is None else {given.id}
    for op in ops:
        operands = list(op.operands())
        if operands and all(v.id in found for v in operands) and (is_pointwise(op.target) or is_view(op.target)):
            found |= {v.id for v in op.results}
    return found


def _made_by_library(ops: Sequence[Op]) -> set[int]:
    """Ids of rows of edges that depend on what no kernel computes, such as a product with a large matrix."""
    found = set[int]()
    for op in ops:
        in_kernels = is_pointwise(op.target) or is_view(op.target) or isinstance(op.target, (Gather, Random))
        own = not in_kernels and not feature_sum(op) and not row_product(op)
        if all(v.space == EDGE for v in op.results) and (own or any(v.id in found for v in op.operands())):
            found |= {v.id for v in op.results}
    return found


def _is_sought(value: Value, op: Op, of_library: Collection[int]) -> bool:
    """Whether it is an extremum of what the library computes again, perhaps rounded so that no edge equals it."""
    is_extremum = isinstance(op.target, SegmentReduce) and op.target.info.picks
    return is_extremum and value.id == op.results[0].id and any(v.id in of_library for v in op.operands())


def _is_of_one_edge(op: Op) -> bool:
    """What each edge has for itself is computed again rather than kept: no row an edge is stored."""
    return all(v.space == EDGE for v in op.results) and all(effect is Effect.ROWWISE for effect in row_effects(op))


def _is_cheap(op: Op) -> bool:
    return is_view(op.target) or isinstance(op.target, (Gather, Random)) or not any(True for _ in op.operands())
