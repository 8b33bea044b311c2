"""Mailbox lowering: (vertex, slot, ...) becomes rows of edges, so that any degree runs at once.

Takes: a Tape recorded with a slot dim. Gives: the same tape without one. Runs once per function.
A recording of V vertices with D slots holds for any V and D, so also for E edges with one slot each:
what has a slot is run as V := E, D := 1; a sum over slots becomes a SegmentReduce.
Source: DGL section 3 (a reduce function over a mailbox as a segment reduction).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import torch

from vgraph.capture.errors import CaptureError
from vgraph.capture.record.tape_ir import Tape
from vgraph.capture.record.unify import substitute
from vgraph.ir.moves import AnyMove, Gather, SegmentReduce
from vgraph.ir.program import Op, Rows, Target, Value, map_leaves
from vgraph.ir.space import EDGE, SLOT, VERTEX
from vgraph.ir.tdl.notation import Notation
from vgraph.ir.tdl.rowwise import Effect, operand_atoms, row_effects
from vgraph.ir.tdl.table import FACTORIES, describe


def lower_mailbox(tape: Tape, outputs: Sequence[int]) -> None:
    """Rewrites the tape in place; raises CaptureError where slots are mixed in other ways than sums.

    ``outputs``: the user's, as keys of ``tape.values``.
    """
    for index in outputs:
        if has_slots(tape.values[index]):
            raise CaptureError("an output has slots", tape.values[index].line)
    lowering = _Lowering(tape)
    for op in tape.ops:
        lowering.add(op)
    tape.ops = lowering.ops
    for index, value in tape.values.items():
        tape.values[index] = lowering.final.get(value.id, value)
    tape.inputs = {name: lowering.final.get(v.id, v) for name, v in tape.inputs.items()}


def name_counts(tape: Tape) -> None:
    """A number of slots that a tensor is added to, times, or divided by is the in-degree of each vertex."""
    ops: list[Op] = []
    for op in tape.ops:
        ops += _with_degree(op, tape) if _takes_a_count(op) else [op]
    tape.ops = ops


def _takes_a_count(op: Op) -> bool:
    if op.name not in ("add", "sub", "mul", "div") or len(op.args) != 2 or op.kwargs:
        return False
    rows, count = op.args
    return (
        isinstance(rows, Value)
        and rows.dtype.is_floating_point
        and rows.shape[:1] == (Rows(VERTEX),)
        and count == Rows(SLOT)
    )


def _with_degree(op: Op, tape: Tape) -> list[Op]:
    rows: Value = op.args[0]
    degree = tape.inputs.get("$in_degree")
    if degree is None:
        degree = tape.new_value(rows, space=VERTEX, dtype=torch.int64, shape=(Rows(VERTEX),))
        tape.inputs["$in_degree"] = degree
    number = tape.new_value(rows, space=VERTEX, shape=(Rows(VERTEX),))
    spread = tape.new_value(number, shape=(Rows(VERTEX), *(1 for _ in rows.shape[1:])))
    return [
        Op(torch.ops.aten._to_copy.default, (degree,), {"dtype": rows.dtype}, (number,), op.line),
        Op(torch.ops.aten.view.default, (number, list(spread.shape)), {}, (spread,), op.line),
        replace(op, args=(rows, spread)),
    ]


def refuse_mixed_batches(tape: Tape, count: int) -> None:
    """Raises CaptureError where one of the first ``count`` ops mixes vertices or edges.

    DGL gives a function all edges at once, in the user's order, and all vertices of one degree: no
    batch of ours is the same. Slots of one vertex may be summed.
    """
    for op in tape.ops[:count]:
        if isinstance(op.target, AnyMove):
            continue
        for effect in row_effects(op):
            if effect is Effect.CONTRACT and _sums_slots(op):
                continue
            if effect is not Effect.ROWWISE and not _is_about_slots(op):
                raise CaptureError(f"{op.target} mixes rows", op.line)


def _sums_slots(op: Op) -> bool:
    notation = describe(op)
    return notation is not None and _loses(op, notation) == {SLOT}


def _is_about_slots(op: Op) -> bool:
    """Slots that are mixed are refused, or run one degree at a time, by ``lower_mailbox``; edges are not slots."""
    has_slot = any(isinstance(d, Rows) and d.space == SLOT for v in op.operands() for d in v.shape)
    return has_slot and any(v.row_dim is not None for v in op.results)


def has_slots(value: Value) -> bool:
    """Whether its rows are those of edges, or slots of vertices, which ``space_of`` calls edges, too."""
    return value.space == EDGE


class _Lowering:
    def __init__(self, tape: Tape) -> None:
        self.tape = tape
        self.ops: list[Op] = []
        self.final: dict[int, Value] = {}  # old Value id -> the Value that stands for it
        self.spread: dict[int, Value] = {}  # new vertex Value id -> its rows spread over edges

    def add(self, op: Op) -> None:
        slotted_out = any(map(has_slots, op.results))
        if isinstance(op.target, AnyMove) or not (slotted_out or any(map(has_slots, op.operands()))):
            self._keep(op)
        elif op.name in FACTORIES:
            self._make(op)
        elif slotted_out:
            self._run_on_edges(op)
        else:
            self._reduce(op)

    def _keep(self, op: Op) -> None:
        for value in op.results:
            self.final.setdefault(value.id, self._as_edges(value) if has_slots(value) else value)
        kept = substitute(op, self.final)
        self.ops.append(replace(kept, results=tuple(self.final[v.id] for v in op.results)))

    def _make(self, op: Op) -> None:
        """Constants take no more than a size and a dtype from their operand."""
        if any(effect is not Effect.ROWWISE for effect in row_effects(op)):
            raise CaptureError(f"{op.target} counts the slots of a mailbox", op.line)
        (result,) = op.results
        is_slotted = has_slots(result)
        mapping = {v.id: self.final.get(v.id, v) for v in op.operands()}
        args = map_leaves(op.args, _edge_size) if is_slotted else op.args
        self.final[result.id] = self._as_edges(result) if is_slotted else result
        made = substitute(replace(op, args=args), mapping)
        self.ops.append(replace(made, results=(self.final[result.id],)))

    # ------------------------------------------------------------ one slot an edge
    def _run_on_edges(self, op: Op) -> None:
        """Results without rows are sums over all edges: a layer's backward gives both."""
        for value, effect in zip(op.results, row_effects(op), strict=True):
            summed = effect is Effect.CONTRACT and value.row_dim is None
            if effect is not Effect.ROWWISE and not summed and not _is_regrouped(op):
                raise CaptureError(f"{op.target} mixes the slots of a mailbox", op.line)
            if value.row_dim is not None and not has_slots(value):
                raise CaptureError(f"{op.target} gives slots and vertices", op.line)
        results = tuple(self._as_edges(v) if has_slots(v) else v for v in op.results)
        self.final.update(zip((v.id for v in op.results), results, strict=True))
        self.ops.append(replace(self._on_edges(op), results=results))

    def _on_edges(self, op: Op) -> Op:
        """Operands spread over edges, numbers of rows with V := E and D := 1."""
        mapping = {value.id: self._edge_operand(value, op) for value in op.operands()}
        return substitute(op, mapping).mapped(_edge_size)

    def _edge_operand(self, value: Value, op: Op) -> Value:
        now = self.final.get(value.id, value)
        if has_slots(value):
            return now if now is not value else self._input_as_edges(value)
        if now.row_dim is None:
            return now
        if now.space != VERTEX or now.shape[0] != Rows(VERTEX):
            raise CaptureError("rows of different kinds meet in a mailbox", op.line)
        if now.id not in self.spread:
            edges = self.tape.new_value(now, space=EDGE, shape=(Rows(EDGE), *now.shape[1:]))
            self.ops.append(Op(Gather("dst"), (now,), {}, (edges,), op.line))
            self.spread[now.id] = edges
        return self.spread[now.id]

    def _input_as_edges(self, value: Value) -> Value:
        self.final[value.id] = self._as_edges(value)
        return self.final[value.id]

    def _as_edges(self, value: Value) -> Value:
        shape = tuple(_edge_size(d) for d in value.shape)
        if sum(isinstance(d, Rows) for d in shape) != 1:
            raise CaptureError("a tensor has slots without their vertices", value.line)
        return replace(value, space=EDGE, shape=shape)

    # ------------------------------------------------------------ slots summed away
    def _reduce(self, op: Op) -> None:
        if self._combine(op):
            return
        notation = describe(op)
        effects = row_effects(op)
        if notation is None or any(e is not Effect.CONTRACT for e in effects):
            raise CaptureError(f"{op.target} reduces the slots of a mailbox other than by a sum", op.line)
        if all(v.row_dim is None for v in op.results):  # a parameter's gradient: all edges at once
            self.ops.append(replace(self._on_edges(op), results=op.results))
            return
        (result,) = op.results
        if _loses(op, notation) != {SLOT} or result.shape[0] != Rows(VERTEX):
            raise CaptureError("vertices and slots are reduced together", op.line)
        part = self.tape.new_value(result, space=EDGE, shape=(Rows(EDGE), *result.shape[1:]))
        self.ops.append(replace(self._on_edges(op), results=(part,)))
        self.ops.append(Op(SegmentReduce("dst", "sum"), (part,), {}, (result,), op.line))

    def _combine(self, op: Op) -> bool:
        """A norm, or any or all, over the slots of each vertex: pointwise before and after a sum or an extremum."""
        result, steps = op.results[0], slot_reduction(op)
        if steps is None or result.row_dim != 0 or result.shape[0] != Rows(VERTEX):
            return False
        rows = self._edge_operand(op.args[0], op)
        shape = (Rows(EDGE), *result.shape[1:])
        rows = self._put(op, torch.ops.aten.view.default, (rows, list(shape)), self.tape.new_value(rows, shape=shape))
        for target, *rest in steps[:-1]:
            dtype = torch.bool if target in _COMPARES else rest[0] if target is _cast else rows.dtype
            made = self.tape.new_value(result if isinstance(target, SegmentReduce) else rows, dtype=dtype)
            rows = self._step(op, target, rows, rest, made)
        target, *rest = steps[-1]
        self._step(op, target, rows, rest, result)
        return True

    def _step(self, op: Op, target: Target, rows: Value, rest: Sequence[object], result: Value) -> Value:
        if target is _cast:
            return self._put(op, target, (rows,), result, dtype=rest[0])
        return self._put(op, target, (rows, *rest), result)

    def _put(self, op: Op, target: Target, args: tuple[object, ...], result: Value, **kwargs: object) -> Value:
        two = isinstance(target, SegmentReduce) and target.info.picks
        slot = (self.tape.new_value(result, dtype=torch.int64),) if two else ()
        self.ops.append(Op(target, args, kwargs, (result, *slot), op.line))
        return result


_aten = torch.ops.aten
_cast, _COMPARES = _aten._to_copy.default, (_aten.ne.Scalar, _aten.eq.Scalar)
_SUM = SegmentReduce("dst", "sum")
_Steps: TypeAlias = tuple[tuple[Any, ...], ...]


def slot_reduction(op: Op) -> _Steps | None:
    """How an operator that reduces dim 1 of (vertices, slots, ...) alone does it: targets and what they take more."""
    name, at = op.name, 2 if op.name == "linalg_vector_norm" else 1
    if name not in ("any", "all", "linalg_vector_norm") or len(op.args) <= at:
        return None
    dims = op.args[at] if isinstance(op.args[at], list) else [op.args[at]]
    if [d % len(op.args[0].shape) for d in dims if d is not None] != [1]:
        return None
    if name in ("any", "all"):
        compare = _aten.ne.Scalar if name == "any" else _aten.eq.Scalar
        steps = (compare, 0), (_cast, torch.int64), (_SUM,), (compare, 0)
        return steps if op.results[0].dtype == torch.bool else (*steps, (_cast, op.results[0].dtype))  # uint8 stays so
    if op.kwargs.get("dtype") is not None or op.args[1] == 0:
        return None
    steps = _norm_steps(op.args[1])
    if op.args[0].dtype != torch.float16:
        return steps
    return (_cast, torch.float32), *steps, (_cast, torch.float16)  # its sums of squares may be larger than 65,504


def _norm_steps(order: float) -> _Steps:
    size = (_aten.abs.default,)
    if abs(order) == torch.inf:
        return size, (SegmentReduce("dst", "max" if order > 0 else "min"),)
    if order == 1:
        return size, (_SUM,)
    if order == 2:
        return size, (_aten.pow.Tensor_Scalar, 2), (_SUM,), (_aten.sqrt.default,)
    return size, (_aten.pow.Tensor_Scalar, order), (_SUM,), (_aten.pow.Tensor_Scalar, 1 / order)


def _edge_size(leaf: object) -> object:
    if not isinstance(leaf, Rows):
        return leaf
    if leaf.space == SLOT:
        return leaf.times
    return Rows(EDGE, leaf.times) if leaf.space == VERTEX else leaf


def _is_regrouped(op: Op) -> bool:
    """Whether features of edges become rows, or rows features: what belongs to one edge stays together, in order."""
    is_view = op.name in ("view", "_unsafe_view", "reshape")
    first = [v.shape[0] if v.shape else None for v in (*op.operands(), *op.results)]
    return is_view and all(isinstance(size, Rows) and size.space == EDGE for size in first)


def _loses(op: Op, notation: Notation) -> set[object]:
    atoms = operand_atoms(op, notation) or {}
    kept = {part for dims in notation.outputs for dim in dims for part in dim.split()}
    return {space for name, space in atoms.items() if name not in kept}
