"""Sigmoids: what several functions of one edge row compute of it, made once.

Takes: a Program. Gives: the same with silu and its derivative as products with a sigmoid. Runs once per function, for
CPUs. A kernel computes on edges anew what it does not store, and silu, its derivative and the derivative of that each
have a sigmoid of the same row within, the dearest of what is pointwise there. As an op of its own it is computed once
an edge. The numbers are those that the operators give.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import count

import torch

from vgraph.ir.program import Op, Program, Value
from vgraph.ir.space import EDGE
from vgraph.ir.verify import verify

_aten = torch.ops.aten
_READ = {"sigmoid": 0, "silu": 0, "silu_backward": 1}  # which argument has its sigmoid computed
_WIDE = (torch.float32, torch.float64)  # others are rounded after every op


def share_sigmoids(program: Program) -> Program:
    """Edge rows of which one function alone computes the sigmoid stay as they are."""
    readers = Counter(_row(op).id for op in program.ops if _has_sigmoid(op))
    if max(readers.values(), default=0) < 2:
        return program
    known = [item.value for item in program.inputs] + [v for op in program.ops for v in (*op.operands(), *op.results)]
    sharing = _Sharing(count(1 + max(value.id for value in known)))
    for op in program.ops:
        if op.name == "sigmoid" and _is_shared(op, readers):
            sharing.explicit.setdefault(_row(op).id, op)
    made = [new for op in program.ops for new in (sharing.shared(op) if _is_shared(op, readers) else (op,))]
    shared = replace(program, ops=tuple(made))
    verify(shared)
    return shared


def _has_sigmoid(op: Op) -> bool:
    result = op.results[0]
    return op.name in _READ and result.space == EDGE and result.dtype in _WIDE and not op.kwargs


def _row(op: Op) -> Value:
    return op.args[_READ[op.name]]


def _is_shared(op: Op, readers: Counter[int]) -> bool:
    return _has_sigmoid(op) and readers[_row(op).id] > 1


@dataclass(eq=False)
class _Sharing:
    """``explicit``: the sigmoid that the function itself asks for, by the id of its row."""

    numbers: count[int]
    explicit: dict[int, Op] = field(default_factory=dict[int, Op])
    sigmoids: dict[int, Value] = field(default_factory=dict[int, Value])  # those made so far, by the id of the row

    def shared(self, op: Op) -> Iterator[Op]:
        name, row = op.name, _row(op)
        if row.id not in self.sigmoids:
            made = self.explicit.get(row.id)
            if made is None:
                made = Op(_aten.sigmoid.default, (row,), {}, (self._like(row),), op.line)
            self.sigmoids[row.id] = made.results[0]
            yield made
        sigmoid = self.sigmoids[row.id]
        if name == "silu":
            yield replace(op, target=_aten.mul.Tensor, args=(row, sigmoid))
        elif name == "silu_backward":
            yield from self._slope(op, row, sigmoid)
        elif op.results[0] is not sigmoid:
            yield op

    def _slope(self, op: Op, row: Value, sigmoid: Value) -> Iterator[Op]:
        """The gradient times s * (1 + x * (1 - s)), in the order of the operator's text."""
        gradient, less, bent, above = op.args[0], *(self._like(row) for _ in range(3))
        scaled = self._like(op.results[0])
        yield Op(_aten.mul.Tensor, (gradient, sigmoid), {}, (scaled,), op.line)
        yield Op(_aten.rsub.Scalar, (sigmoid, 1), {}, (less,), op.line)
        yield Op(_aten.mul.Tensor, (row, less), {}, (bent,), op.line)
        yield Op(_aten.add.Scalar, (bent, 1), {}, (above,), op.line)
        yield replace(op, target=_aten.mul.Tensor, args=(scaled, above))

    def _like(self, value: Value) -> Value:
        return replace(value, id=next(self.numbers))
