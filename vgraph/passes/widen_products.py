"""Widen: products of 16-bit rows within loops over frontiers, as products of 32-bit ones.

Takes: a Program. Gives: the same with casts around such products. Runs once per function, for CPUs.
The loops' own products have 32 or 64 bits; a loop with others would run operator by operator. A product of 16-bit
numbers is added up in 32 bits by every library, and rounded at last: so it is here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import count

import torch

from vgraph.ir.program import Op, Program, Value, needed_ops
from vgraph.ir.space import SHARED
from vgraph.ir.verify import verify

_SHORT = (torch.bfloat16, torch.float16)
_cast = torch.ops.aten._to_copy.default


def widen_products(program: Program) -> Program:
    """What runs outside of loops stays as it is: libraries may have more for 16 bits."""
    looped = _looped(program)
    if not any(_is_short_product(op) for op in looped):
        return program
    widening = _Widening(count(1 + max(value.id for value in _values(program))))
    chosen = {id(op) for op in looped}
    made = [new for op in program.ops for new in (widening.widened(op) if id(op) in chosen else (op,))]
    widened = replace(program, ops=tuple(made))
    verify(widened)
    return widened


def _looped(program: Program) -> list[Op]:
    """Ops that read what a Carry gives, and lead to what one takes."""
    reached = {carry.target.id for carry in program.carries}
    for op in program.ops:
        if any(value.id in reached for value in op.operands()):
            reached |= {value.id for value in op.results}
    ahead = needed_ops(program.ops, {carry.source.id for carry in program.carries})
    return [op for op in ahead if any(value.id in reached for value in op.results)]


def _values(program: Program) -> Iterator[Value]:
    yield from (item.value for item in program.inputs)
    for op in program.ops:
        yield from op.operands()
        yield from op.results
    for carry in program.carries:
        yield from (carry.source, carry.target)


def _is_short_product(op: Op) -> bool:
    if op.name not in ("mm", "addmm") or op.kwargs or op.results[0].dtype not in _SHORT:
        return False
    return op.results[0].row_dim == 0 and op.args[-1].space == SHARED and op.args[-1].row_dim is None


@dataclass(eq=False)
class _Widening:
    numbers: count[int]
    known: dict[int, Value] = field(default_factory=dict[int, Value])  # by the id of what was made wider

    def widened(self, op: Op) -> Iterator[Op]:
        if not _is_short_product(op):
            yield op
            return
        (result,) = op.results
        for value in op.operands():
            if value.id not in self.known:
                wide = self.known[value.id] = self._wide(value)
                yield Op(_cast, (value,), {"dtype": wide.dtype}, (wide,), op.line)
        product = self._wide(result)
        yield replace(op, args=tuple(self.known[value.id] for value in op.args), results=(product,))
        yield Op(_cast, (product,), {"dtype": result.dtype}, (result,), op.line)

    def _wide(self, value: Value) -> Value:
        return replace(value, id=next(self.numbers), dtype=torch.float32)
