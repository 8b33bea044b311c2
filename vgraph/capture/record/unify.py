"""Two recordings become one tape: numbers that differ between them count rows.

Takes: two Recordings of one function. Gives: a Tape of Ops over Values. Runs once per function.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from vgraph.capture.errors import RunsDifferError
from vgraph.capture.record.aliases import Ref
from vgraph.capture.record.embedding_grad import sum_at_ids
from vgraph.capture.record.op_tables import LAZY_VIEWS, UNSAFE_VIEWS
from vgraph.capture.record.tape_ir import Tape
from vgraph.capture.record.tracer import Record, Recording
from vgraph.ir.program import Dim, Op, Rows, Value, op_name
from vgraph.ir.space import EDGE, SHARED, SLOT, Space
from vgraph.ir.tdl.rowwise import Effect, row_effects

_TARGETS = {**UNSAFE_VIEWS, **LAZY_VIEWS}
_RUNS_BY_ROW = frozenset({Effect.ROWWISE, Effect.CONTRACT})


def unify(first: Recording, second: Recording) -> Tape:
    """One tape for any number of rows; raises CaptureError where the runs took different ways."""
    if len(first.records) != len(second.records) or list(first.inputs) != list(second.inputs):
        raise RunsDifferError("what it does depends on the number of rows")
    for (one, ref), (two, _) in zip(first.lifted, second.lifted, strict=False):
        if one is not two and not (ref in first.constants and torch.equal(one, two)):
            raise RunsDifferError("the tensors that it reads are made anew at every call")
    tape = Tape([], {}, [], {}, (first.sizes, second.sizes), 0)
    pairs = _Pairs(tape, first, second)
    tape.inputs = {name: pairs.value(ref) for name, ref in first.inputs.items()}
    tape.lifted = [(tensor, pairs.value(ref)) for tensor, ref in first.lifted]
    tape.constants = {i for i, (_, ref) in enumerate(first.lifted) if ref in first.constants}
    for one, two in zip(first.records, second.records, strict=True):
        tape.ops.append(pairs.op(one, two))
    tape.next_id = len(first.tensors)
    tape.ops = [part for op in tape.ops for part in _parts(tape, op)]
    sum_at_ids(tape)
    return tape


# Backward ops that give what goes on row by row and sums over rows at once: position of their mask.
_MASKS = {
    "native_layer_norm_backward": 7,
    "native_batch_norm_backward": 9,
    "native_group_norm_backward": 9,
    "convolution_backward": 10,
}


def _parts(tape: Tape, op: Op) -> list[Op]:
    """One op for the rows and one for the sums, so that a loop holds only the first."""
    place = _MASKS.get(op.name)
    if place is None or len(op.args) <= place or not any(r.row_dim is None for r in op.results):
        return [op]
    made: list[Op] = []
    for of_rows in (True, False):
        mask = [want and (r.row_dim is not None) is of_rows for want, r in zip(op.args[place], op.results, strict=True)]
        results = [r if want else tape.new_value(r) for want, r in zip(mask, op.results, strict=True)]
        args = (*op.args[:place], mask, *op.args[place + 1 :])
        made.append(replace(op, args=args, results=tuple(results)))
    return [part for part in made if any(part.args[place])]


def _plain(tensor: Tensor) -> Tensor:
    return tensor if tensor.is_sparse else tensor.as_subclass(Tensor)  # a sparse one has no storage to share


@dataclass(eq=False)
class _Pairs:
    tape: Tape
    first: Recording
    second: Recording
    dims: dict[tuple[int, int], Dim] = field(default_factory=dict[tuple[int, int], Dim])

    def value(self, ref: Ref, line: str = "") -> Value:
        """The Value of a recorded tensor, its shape read off both recordings."""
        known = self.tape.values.get(ref.index)
        if known is None:
            one, two = (_plain(r.tensors[ref.index]) for r in (self.first, self.second))
            if one.dim() != two.dim() or one.dtype != two.dtype:
                raise RunsDifferError("a tensor's rank depends on the number of rows", line)
            shape = tuple([a if a == b else self.dim(a, b, line) for a, b in zip(one.shape, two.shape, strict=True)])
            known = Value(ref.index, space_of(shape), one.dtype, shape, line)
            self.tape.values[ref.index] = known
        return known

    def dim(self, one: int, two: int, line: str = "") -> Dim:
        if one == two:
            return one
        found = self.dims.get((one, two))
        if found is None:
            found = self.dims[one, two] = self._counted(one, two, line)
        return found

    def _counted(self, one: int, two: int, line: str) -> Rows:
        """The rows that a size counts which differs from recording to recording."""
        first, second = self.tape.sizes
        exact = [space for space in first if (first[space], second[space]) == (one, two)]
        if exact:
            return Rows(exact[0])
        for space, size in first.items():
            times, rest = divmod(one, size)
            if not rest and times and two == times * second[space]:
                return Rows(space, times)
        raise RunsDifferError("a size is computed from the number of rows", line)

    def op(self, one: Record, two: Record) -> Op:
        if one.target != two.target or one.results != two.results:
            raise RunsDifferError("what it does depends on the number of rows", one.line)
        args = self._both(one.args, two.args, one.line)
        kwargs = {k: self._both(v, two.kwargs[k], one.line) for k, v in one.kwargs.items()}
        results = tuple([self.value(ref, one.line) for ref in one.results])
        name = op_name(one.target)
        target = _TARGETS.get(name, one.target)
        if name == "squeeze":  # a single row stays a row
            target, args, kwargs = torch.ops.aten.view.default, (args[0], list(results[0].shape)), {}
        op = Op(target, args, kwargs, results, one.line, one.returns_sequence)
        return op if _RUNS_BY_ROW.issuperset(row_effects(op)) else replace(op, is_rowwise=False)

    def _both(self, one: Any, two: Any, line: str) -> Any:
        if isinstance(one, (tuple, list)):
            if type(one) is not type(two) or len(one) != len(two):
                raise RunsDifferError("an argument depends on the number of rows", line)
            pairs = [self._both(a, b, line) for a, b in zip(one, two, strict=True)]
            return tuple(pairs) if isinstance(one, tuple) else pairs
        if isinstance(one, Ref):
            if one != two:
                raise RunsDifferError("the dataflow depends on the number of rows", line)
            return self.value(one, line)
        if type(one) is int and type(two) is int:
            return self.dim(one, two, line)
        if one == two or (isinstance(one, float) and math.isnan(one) and math.isnan(two)):
            return one
        raise RunsDifferError("a number is computed from the number of rows", line)


def space_of(shape: tuple[Dim, ...]) -> Space:
    """The space that a shape's rows lie in; vertex and slot together are edges."""
    spaces = [d.space for d in shape if isinstance(d, Rows)]
    if not spaces:
        return SHARED
    return EDGE if SLOT in spaces or EDGE in spaces else spaces[0]


def substitute(op: Op, mapping: Mapping[int, Value]) -> Op:
    """The same op on other operands (by Value id)."""
    return op.mapped(lambda leaf: mapping.get(leaf.id, leaf) if isinstance(leaf, Value) else leaf)
