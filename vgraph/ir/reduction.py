"""Reduction: what is computed at each element, and how a slice's elements become one.

Takes: nothing (a plain value). Gives: what a loop over modes is generated from. Runs once per function.
Source: Koç, multi-mode tensor reduction on GPUs; with pointwise producers computed inside the loop.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch

from vgraph.ir.program import Op, Value
from vgraph.ir.tdl.notation import op_name

ACCUMULATED = {  # sums of short numbers are kept in longer ones
    torch.float32: torch.float32,
    torch.float64: torch.float64,
    torch.bfloat16: torch.float32,
    torch.float16: torch.float32,
}


@dataclass(frozen=True, eq=False)
class Pointwise:
    """Ops from scalars to a scalar: every Value stands for one number of its dtype."""

    operands: tuple[Value, ...]
    ops: tuple[Op, ...]
    result: Value

    def __str__(self) -> str:
        """The same for the same arithmetic, whoever recorded it."""
        names = {v.id: f"%{i}" for i, v in enumerate([*self.operands, *(v for op in self.ops for v in op.results)])}
        said = [f"{names[v.id]}:{v.dtype}" for v in self.operands]
        for op in self.ops:
            args = [names[a.id] if isinstance(a, Value) else repr(a) for a in op.args]
            args += [f"{key}={names[a.id] if isinstance(a, Value) else a!r}" for key, a in op.kwargs.items()]
            said.append(f"{names[op.results[0].id]}:{op.results[0].dtype} = {op.target}({', '.join(args)})")
        return "\n".join([*said, names[self.result.id]])


@dataclass(frozen=True, eq=False)
class Reduction:
    """``element`` at every position, combined by ``name`` or by ``function``, then ``after``.

    ``name``: a row of ``reductions.py``. A function is associative and need not be commutative: a slice is combined in
    row-major order.
    """

    element: Pointwise
    name: str = ""
    function: Pointwise | None = None
    after: Pointwise | None = None  # of a slice's result, before it is rounded and stored
    key: str = field(init=False)

    def __post_init__(self) -> None:
        assert bool(self.name) != (self.function is not None)
        object.__setattr__(self, "key", f"{self.element}\n| {self.function or self.name}\n| {self.after}")

    @property
    def dtype(self) -> torch.dtype:
        """Of elements and results."""
        return self.element.result.dtype

    @property
    def is_ordered(self) -> bool:
        return self.function is not None


@dataclass(frozen=True, eq=False)
class RowSum:
    """The target of an Op of a Program: ``reduction`` over ``dims``, rows among them, of what operands broadcast to.

    ``ops`` compute the same elements from ``operands``, stored.
    """

    reduction: Reduction
    dims: tuple[int, ...]
    keepdim: bool
    operands: tuple[Value, ...]
    ops: tuple[Op, ...]

    def __str__(self) -> str:
        return self.__name__

    @property
    def __name__(self) -> str:
        return "_".join(["sum_of", *dict.fromkeys(op_name(op.target).strip("_") for op in self.ops)])


def kind_of(pace: int, itemsize: int) -> str:
    """What neighbours along the innermost mode are to each other, which is compiled in."""
    return "same" if pace == 0 else "unit" if pace == itemsize else "strided"


@dataclass(frozen=True)
class DeviceShape:
    """What a kernel on a GPU is generated for; sizes, strides and addresses are its arguments."""

    kinds: tuple[str, ...]  # of each operand along the innermost mode
    num_kept: int
    num_reduced: int
    columns: bool  # lanes along kept elements; else along a slice
    lanes: int  # elements that a thread loads at once
    team: int  # threads that share a slice; of columns: that lie side by side

    @property
    def num_words(self) -> int:
        """Arguments of the kernel: 64-bit integers all."""
        operands = len(self.kinds)
        return 5 + operands + self.num_kept * (4 + operands) + self.num_reduced * (3 + operands)
