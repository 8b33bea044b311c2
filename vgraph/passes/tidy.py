"""Tidy: views that only rename, taken out; operators that kernels have no text for, as some that they have.

Takes: ops in order. Gives: fewer ops, and what each dropped value now is. Runs once per function.
Reshapes of reshapes become one, what gives its operand back is dropped, and a pointwise op on rows that
all carry the same unit dim runs without it: so that kernels see rows of one shape. Rows that are joined along
their features lose their unit dims before they are joined. A norm is the root of a sum of squares, and what is
filled with a number reads nothing of what was there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch

from vgraph.ir.moves import AnyMove
from vgraph.ir.program import Dim, Noun, Op, Program, Rows, Value, map_leaves, takes
from vgraph.ir.schedule import Phase
from vgraph.ir.space import SHARED
from vgraph.ir.tdl.table import is_pointwise

NewValue = Callable[..., Value]
_aten = torch.ops.aten
_RESHAPES = frozenset({"view", "_unsafe_view", "reshape", "unsqueeze", "squeeze"})


def tidy(ops: Sequence[Op], new_value: NewValue) -> tuple[list[Op], dict[int, Value]]:
    """The ops without idle views, and (by id of a dropped value) the value that stands for it."""
    pass_ = _Tidy(new_value)
    for op in ops:
        pass_.add(op)
    return pass_.ops, pass_.stands_for


class _Tidy:
    def __init__(self, new_value: NewValue) -> None:
        self.new_value = new_value
        self.ops: list[Op] = []
        self.stands_for: dict[int, Value] = {}
        self.bases: dict[int, Value] = {}  # a reshape's result -> what it reshapes
        self.joined: dict[int, Op] = {}  # the cat of rows along their last dim that gives a value
        self.transposed: dict[int, Value] = {}  # t(x) -> x
        self.shapes: dict[tuple[int, tuple[Dim, ...]], Value] = {}  # (base, shape) -> the reshape that exists
        self.casts: dict[tuple[int, str], Value] = {}  # (what all rows share, how) -> the cast that exists
        self.empty: dict[int, Value] = {}  # empty_like(x) -> x

    def add(self, op: Op) -> None:
        op = self._on_known(op)
        name = op.name
        if (name in _RESHAPES and op.results[0].dtype == op.args[0].dtype) or _is_of_unit_dim(op, name):
            self._reshape(op)
        elif name == "t" and op.args[0].id in self.transposed:
            self._drop(op.results[0], self.transposed[op.args[0].id])
        elif name == "permute" and _is_identity(op):
            self._drop(op.results[0], op.args[0])
        elif name == "_to_copy" and op.args[0].space == SHARED and self._is_cast(op):
            self._drop(op.results[0], self.casts[op.args[0].id, str(op.kwargs)])
        elif name == "slice" and self._is_apart_from_units(op):
            self._slice_without_units(op)
        elif name == "linalg_vector_norm" and _is_norm_of_features(op):
            self._norm(op)
        else:
            op = self._filled(op, name)
            squeezed = self._squeezed(op)
            if squeezed is None:
                self.ops.append(op)
                if name == "t":
                    self.transposed[op.results[0].id] = op.args[0]
                elif name == "cat" and _is_along_last(op):
                    self.joined[op.results[0].id] = op

    def _on_known(self, op: Op) -> Op:
        def now(leaf: object) -> object:
            return self.stands_for.get(leaf.id, leaf) if isinstance(leaf, Value) else leaf

        return op.mapped(now)

    def _is_cast(self, op: Op) -> bool:
        """Whether this cast was made before: autocast casts a parameter wherever it is used."""
        return self.casts.setdefault((op.args[0].id, str(op.kwargs)), op.results[0]) is not op.results[0]

    def _drop(self, value: Value, now: Value) -> None:
        self.stands_for[value.id] = now

    # ------------------------------------------------------------ norms and constants
    def _norm(self, op: Op) -> None:
        """``x.norm(dim=-1)``."""
        given, (result,) = op.args[0], op.results
        squares, total = self.new_value(given), self.new_value(result)
        self.ops.append(Op(_aten.mul.Tensor, (given, given), {}, (squares,), op.line))
        self.ops.append(Op(_aten.sum.dim_IntList, (squares, *op.args[2:4]), {}, (total,), op.line))
        self.ops.append(Op(_aten.sqrt.default, (total,), {}, (result,), op.line))

    def _filled(self, op: Op, name: str) -> Op:
        """``fill(empty_like(x), 1)`` is ``full_like(x, 1)``."""
        if name == "empty_like" and _same_shape(op.args[0], op.results[0]):
            self.empty[op.results[0].id] = op.args[0]
        if name != "fill" or isinstance(op.args[1], Value) or not _same_shape(op.args[0], op.results[0]):
            return op
        like = self.empty.get(op.args[0].id, op.args[0])
        return replace(op, target=_aten.full_like.default, args=(like, op.args[1]))

    # ------------------------------------------------------------ reshapes
    def _reshape(self, op: Op) -> None:
        result, given = op.results[0], next(op.operands())
        base = self.bases.get(given.id, given)
        if _same_shape(base, result):
            self._drop(result, base)
        else:
            self._drop_or_keep(result, base, op)

    def _drop_or_keep(self, result: Value, base: Value, op: Op) -> None:
        known = self.shapes.get((base.id, result.shape))
        if known is not None:
            self._drop(result, known)
            return
        self.shapes[base.id, result.shape] = result
        self.bases[result.id] = base
        maker = self.joined.get(base.id)
        if maker is not None and _without_units(base.shape) == result.shape:
            self._join_without_units(maker, result)
        else:
            self.ops.append(_view(base, result, op.line))

    def _join_without_units(self, cat: Op, result: Value) -> None:
        made: list[Value] = []
        for operand in cat.operands():
            view = self.new_value(operand, shape=(*_without_units(operand.shape[:-1]), operand.shape[-1]))
            self._reshape(_view(operand, view, cat.line))
            made.append(self.stands_for.get(view.id, view))
        self.ops.append(Op(cat.target, (made, len(result.shape) - 1), {}, (result,), cat.line))

    # ------------------------------------------------------------ unit dims
    def _is_apart_from_units(self, op: Op) -> bool:
        """Whether a slice is one of the last dim of rows that have unit dims besides."""
        given = op.args[0]
        base, dim = self.bases.get(given.id), op.args[1] if len(op.args) > 1 else 0
        is_last = dim in (-1, len(given.shape) - 1) and given.shape[-1] != 1
        return (
            base is not None
            and is_last
            and len(base.shape) < len(given.shape) == len(op.results[0].shape)
            and _without_units(given.shape) == base.shape
        )

    def _slice_without_units(self, op: Op) -> None:
        base, result = self.bases[op.args[0].id], op.results[0]
        inner = self.new_value(result, shape=(*base.shape[:-1], result.shape[-1]))
        self.ops.append(replace(op, args=(base, len(base.shape) - 1, *op.args[2:]), results=(inner,)))
        self._drop_or_keep(result, inner, op)

    def _squeezed(self, op: Op) -> Op | None:
        """A pointwise op or Move on rows with a unit dim, run without it; None if it is not one."""
        if not (is_pointwise(op.target) or isinstance(op.target, AnyMove)) or len(op.results) != 1:
            return None
        result, operands = op.results[0], list(op.operands())
        rows = [v for v in operands if v.space != SHARED]
        if (
            not rows
            or not _has_unit(result)
            or any(_rank(v) >= len(result.shape) - 1 for v in operands if v.space == SHARED)
        ):
            return None
        bases = [self.bases.get(v.id) for v in rows]
        if any(b is None or not _drops_unit(v, b) for v, b in zip(rows, bases, strict=True)):
            return None
        mapping = {v.id: b for v, b in zip(rows, bases, strict=True)}
        inner = self.new_value(result, shape=(result.shape[0], *result.shape[2:]))
        args = map_leaves(op.args, lambda x: mapping.get(x.id, x) if isinstance(x, Value) else x)
        self.ops.append(replace(op, args=args, results=(inner,)))
        self._drop_or_keep(result, inner, op)
        return op


def _is_of_unit_dim(op: Op, name: str) -> bool:
    """Whether an op picks the only entry of a dim, as a derivative does backwards, or stacks or joins one tensor."""
    if name == "select":
        return op.args[0].shape[op.args[1]] == 1
    if name == "select_backward":
        return op.results[0].shape[op.args[2]] == 1
    return name in ("stack", "cat") and len(list(op.operands())) == 1


def _is_norm_of_features(op: Op) -> bool:
    """Whether it is Euclid's, of float32 or float64, and takes no rows away."""
    given, result = op.args[0], op.results[0]
    if len(op.args) < 3 or op.kwargs or op.args[1] != 2 or not op.args[2] or given.dtype != result.dtype:
        return False
    of_features = all(dim % len(given.shape) > 0 for dim in op.args[2])
    return of_features and given.row_dim == 0 and given.dtype in (torch.float32, torch.float64)


def _is_along_last(cat: Op) -> bool:
    """Whether rows are joined along the last of several dims of features."""
    dim, rank = (*cat.args[1:], cat.kwargs.get("dim", 0))[0], len(cat.results[0].shape)
    return rank > 2 and dim in (-1, rank - 1) and all(isinstance(v.shape[0], Rows) for v in cat.operands())


def _without_units(shape: tuple[Dim, ...]) -> tuple[Dim, ...]:
    return tuple(dim for dim in shape if dim != 1)


def _rank(value: Value) -> int:
    return len(value.shape)


def _has_unit(value: Value) -> bool:
    return len(value.shape) > 2 and isinstance(value.shape[0], Rows) and value.shape[1] == 1


def _drops_unit(value: Value, base: Value) -> bool:
    return _has_unit(value) and base.shape == (value.shape[0], *value.shape[2:])


def _same_shape(one: Value, other: Value) -> bool:
    return one.shape == other.shape and one.dtype == other.dtype


def _is_identity(op: Op) -> bool:
    return [d % len(op.args[1]) for d in op.args[1]] == list(range(len(op.args[1])))


def _view(base: Value, result: Value, line: str) -> Op:
    return Op(torch.ops.aten.view.default, (base, list(result.shape)), {}, (result,), line)


def on_device(program: Program, device: str, kind: str) -> Program:
    """The same where operators that name a device name one of another kind."""
    if kind == device:
        return program

    def moved(leaf: object) -> object:
        return torch.device(kind) if isinstance(leaf, torch.device) else leaf

    return replace(program, ops=tuple(op.mapped(moved) for op in program.ops))


def constants_on(phase: Phase, device: str) -> Phase:
    """The same where what is made of nothing, such as the state of absent children, is made on a kind of device."""
    if device == "cpu":
        return phase
    place = {"device": torch.device(device)}
    ops = (replace(op, kwargs={**op.kwargs, **place}) if _is_made_of_nothing(op) else op for op in phase.ops)
    return replace(phase, ops=tuple(ops))


def _is_made_of_nothing(op: Op) -> bool:
    if isinstance(op.target, Noun) or any(op.operands()) or op.kwargs.get("device") is not None:
        return False
    return takes(op.target, "device")
