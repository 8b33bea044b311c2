"""Degrees: what is known of vertices of which nothing but the in-degree is read.

Takes: Phases. Gives: numbers for an in-degree; sums that leave leaves out. Runs once per function.
Masks of absent children are the same for all vertices of one in-degree.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from vgraph.ir.moves import AnyMove, InnerRows, LeafRows, PutSlot, Random, SegmentReduce, TakeSlot
from vgraph.ir.program import Op, Program, Rows, Value, needed_ops, op_name
from vgraph.ir.schedule import INNER_PART, LEAVES_PART, Phase
from vgraph.ir.space import INNER, OF_LEAVES, SHARED, VERTEX
from vgraph.ir.trampoline import Steps, run_deep
from vgraph.scheduler.at_leaves import features_of_leaves, is_of_leaves

aten = torch.ops.aten
NewValue = Callable[..., Value]


@dataclass(frozen=True, eq=False)
class Degrees:
    """``ids``: values that are in-degrees; ``derived``: by id of a result, ops on them alone that run once.

    ``inner``: the in-degree of all vertices that are no leaves, where they have one.
    """

    ids: set[int]
    derived: Mapping[int, Op]
    inner: int | None = None

    def truth(self, value: Value, degree: int | None) -> bool | None:
        """Whether a mask holds for all vertices of an in-degree, or for none; None: neither is known."""
        found = None if degree is None else run_deep(self._at(value, degree, {}))
        if found is None or found.dtype != torch.bool or found.numel() == 0:
            return None
        first = bool(found.flatten()[0])
        return first if bool((found == first).all()) else None

    def _at(self, value: Value, degree: int, rows: dict[int, Tensor | None]) -> Steps[Tensor | None]:
        """The one row that such vertices have; ``rows``: of other values, by id."""
        if value.id not in rows:
            rows[value.id] = yield self._find_at(value, degree, rows)
        return rows[value.id]

    def _find_at(self, value: Value, degree: int, rows: dict[int, Tensor | None]) -> Steps[Tensor | None]:
        if value.id in self.ids:
            return torch.full((1, *value.row_shape), degree, dtype=value.dtype, device="cpu")
        op = self.derived.get(value.id)
        if op is None or any(v.row_dim is None for v in op.operands()):
            return None
        for operand in op.operands():
            if (yield self._at(operand, degree, rows)) is None:
                return None

        def now(leaf: object) -> object:
            return rows[leaf.id] if isinstance(leaf, Value) else leaf.times if isinstance(leaf, Rows) else leaf

        found = op.evaluate(now)
        return found if isinstance(found, Tensor) else None


def depends_on_degree(program: Program) -> bool:
    """Whether a loop over frontiers does less where all vertices but leaves have one in-degree."""
    by_degree = any(item.name == "$in_degree" for item in program.inputs)
    return bool(program.carries) and (
        by_degree or any(isinstance(op.target, (TakeSlot, PutSlot)) for op in program.ops)
    )


def find_degrees(phases: Sequence[Phase], ids: set[int], inner: int | None) -> Degrees:
    """What ops that run once compute of in-degrees, whose ids are given."""
    found: dict[int, Op] = {}
    for op in (op for phase in phases if not phase.is_loop for op in phase.ops):
        rows = [v for v in op.operands() if v.row_dim is not None]
        known = bool(rows) and all(v.id in ids or v.id in found for v in rows)
        plain = all(v.space.kind == "vertex" and v.shape[:1] == (Rows(v.space),) for v in op.results)
        if known and plain and op.is_rowwise and not isinstance(op.target, AnyMove | Random):
            found.update((v.id, op) for v in op.results)
    return Degrees(ids, found, inner)


def adds_number(op: Op) -> bool:
    """Whether zeros become another number: ``child["h"] - 0.5``."""
    return op.name in ("add", "sub") and any(not isinstance(arg, Value) and arg != 0 for arg in op.args[:2])


# ---------------------------------------------------------------- sums over vertices
def without_leaves(phase: Phase, zeros: set[int], degrees: Degrees, new: NewValue, last: LastRows) -> Phase:
    """Sums over vertices of what is zero at leaves, or only there something, on the other rows alone."""
    makers = {v.id: op for op in phase.ops for v in op.results}
    ops = list[Op]()
    for op in phase.ops:
        found = _inner_product(op, makers, zeros, new) or _inner_sum(op, zeros, new)
        ops += found or _leaf_rows(op, makers, zeros, degrees) or _loose_rows(op, phase, last) or [op]
    return replace(phase, ops=_still_read(phase, ops))


@dataclass(frozen=True, eq=False)
class LastRows:
    """The row behind those of leaves: ids of inputs where it is ``zero``, of outputs where it is ``unread``.

    ``read``: values that others than the phase that makes them read.
    """

    zero: frozenset[int]
    unread: frozenset[int]
    read: frozenset[int]


def find_last_rows(program: Program, num_outputs: int, phases: Sequence[Phase]) -> LastRows:
    """A feature of leaves ends with a row of zeros, whose gradient nobody asks for."""
    saved = {v.id for v in program.outputs[num_outputs:] if v is not None}
    given = {v.id for v in program.outputs[:num_outputs] if v is not None}
    unread = {v.id for v in program.outputs[:num_outputs] if v is not None and is_of_leaves(v)} - saved
    made = [{v.id for op in phase.ops for v in op.results} for phase in phases]
    reads = [{v.id for op in phase.ops for v in op.operands()} for phase in phases]
    across = set[int]().union(*(read - own for read, own in zip(reads, made, strict=True)))
    return LastRows(features_of_leaves(program), frozenset(unread), frozenset(saved | given | across))


def _loose_rows(op: Op, phase: Phase, last: LastRows) -> list[Op]:
    """Rows of leaves alone, where the last row is multiplied by zeros, or read by nobody."""
    if not isinstance(op.target, SegmentReduce) or not op.target.end.endswith(OF_LEAVES):
        return []

    def users(value: Value) -> list[Op]:
        return [other for other in phase.ops if value.id in {v.id for v in other.operands()}]

    def is_dropped(value: Value) -> bool:
        """Whether nobody reads the last row of the value, or of its products."""
        products = [value]
        while products:
            one = products.pop()
            if one.id in last.read and one.id not in last.unread:
                return False
            for other in users(one):
                if op_name(other.target) == "mm" and other.args[0].id == one.id and other.args[1].space == SHARED:
                    products.append(other.results[0])
                elif not meets_zeros(other):
                    return False
        return True

    def meets_zeros(other: Op) -> bool:
        result = other.results[0]
        if op_name(other.target) != "t" or result.id in last.read:
            return False
        return all(
            op_name(o.target) == "mm" and o.args[0].id == result.id and o.args[1].id in last.zero for o in users(result)
        )

    (rows,), result = op.operands(), op.results[0]
    plain = op.reduction.is_linear and len(op.results) == 1 and rows.shape[0] == Rows(VERTEX)
    return [replace(op, target=LeafRows(op.target.end, is_loose=True))] if plain and is_dropped(result) else []


def _inner_product(op: Op, makers: Mapping[int, Op], zeros: set[int], new: NewValue) -> list[Op]:
    turned = makers.get(op.args[0].id) if op.name == "mm" else None
    if turned is None or op_name(turned.target) != "t":
        return []
    left, right = turned.args[0], op.args[1]
    whole = all(v.space == VERTEX and len(v.shape) == 2 and v.shape[0] == Rows(VERTEX) for v in (left, right))
    if not whole or not {left.id, right.id} & zeros:
        return []
    (first, one), (second, other) = _inner(left, op, new), _inner(right, op, new)
    across = new(one, INNER, (left.shape[1], Rows(INNER)))
    return [first, second, Op(aten.t.default, (one,), {}, (across,), op.line), replace(op, args=(across, other))]


def _inner_sum(op: Op, zeros: set[int], new: NewValue) -> list[Op]:
    if op.name != "sum" or len(op.args) < 2 or op.args[0].id not in zeros:
        return []
    rows = op.args[0]
    if rows.space != VERTEX or rows.shape[0] != Rows(VERTEX) or list(op.args[1] or ()) != [0]:
        return []
    made, inner = _inner(rows, op, new)
    return [made, replace(op, args=(inner, *op.args[1:]))]


def _inner(value: Value, op: Op, new: NewValue) -> tuple[Op, Value]:
    inner = new(value, INNER, (Rows(INNER), *value.shape[1:]))
    return Op(InnerRows(), (value,), {}, (inner,), op.line), inner


def _leaf_rows(op: Op, makers: Mapping[int, Op], zeros: set[int], degrees: Degrees) -> list[Op]:
    """The gradient of a feature that leaves alone were given and that a mask keeps to leaves."""
    if not isinstance(op.target, SegmentReduce) or not op.target.end.endswith(OF_LEAVES):
        return []
    (value,) = op.operands()
    maker = makers.get(value.id)
    if maker is None or op_name(maker.target) != "where" or not all(isinstance(v, Value) for v in maker.args):
        return []
    mask, one, other = maker.args
    if degrees.truth(mask, 0) is None or degrees.truth(mask, 0) == degrees.truth(mask, degrees.inner):
        return []
    chosen, rest = (one, other) if degrees.truth(mask, 0) else (other, one)
    if rest.id not in zeros or chosen.shape != value.shape or chosen.dtype != value.dtype:
        return []
    return [] if degrees.inner is None else [Op(LeafRows(op.target.end), (chosen,), {}, op.results, op.line)]


def _still_read(phase: Phase, ops: Sequence[Op]) -> tuple[Op, ...]:
    """Without transposes and masks that nothing reads any more."""
    before = {v.id for op in phase.ops for v in op.operands()}
    kept = list(ops)
    while True:
        read = {v.id for op in kept for v in op.operands()}
        still = [op for op in kept if not all(v.id in before and v.id not in read for v in op.results)]
        if len(still) == len(kept):
            return tuple(kept)
        kept = still


# ---------------------------------------------------------------- rows of leaves that nobody reads
def read_at_leaves(phases: Sequence[Phase]) -> set[int]:
    """Ids of what any op reads at vertices without in-edges."""
    return {
        v.id
        for phase in phases
        for op in phase.ops
        if not isinstance(op.target, InnerRows) and not (phase.part == INNER_PART and _reads_own_rows(op))
        for v in op.operands()
    }


def unread_in(program: Program, read: frozenset[int]) -> frozenset[int]:
    """Ids of inputs with rows of vertices that nothing reads at vertices without in-edges; ``read``: what ops do."""
    rows = {item.value.id for item in program.inputs if item.value.space == VERTEX}
    given = {v.id for v in program.outputs if v is not None} | {c.source.id for c in program.carries}
    return frozenset(rows - given - read)


def _reads_own_rows(op: Op) -> bool:
    return getattr(op.target, "end", "dst") == "dst" or not isinstance(op.target, AnyMove)


def without_unread(phases: Sequence[Phase], outside: set[int]) -> tuple[Phase, ...]:
    """Leaves make only what is read of them; ``outside``: ids that the caller or a Carry reads."""
    wanted, found = set(outside), list[Phase]()
    for index in reversed(range(len(phases))):
        phase = phases[index]
        if phase.part == LEAVES_PART:
            others = read_at_leaves([*phases[:index], *found])
            phase = replace(phase, ops=needed_ops(phase.ops, others | outside))
        elif not phase.is_loop:
            loops = {v.id for p in phases[:index] if p.is_loop for op in p.ops for v in op.operands()}
            phase = replace(phase, ops=needed_ops(phase.ops, wanted | loops))
        wanted |= {v.id for op in phase.ops for v in op.operands()}
        found.insert(0, phase)
    return tuple(phase for phase in found if phase.ops)
