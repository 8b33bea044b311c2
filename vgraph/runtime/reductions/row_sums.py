"""Sums over rows in a Program: one launch, with what is pointwise before them computed inside.

Takes: a RowSum, its compiled Reduction. Gives: what runs it on tensors. Runs at every step.
Source: Koç, multi-mode tensor reduction on GPUs. Few rows, and layouts without a kernel, are torch's.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from vgraph.ir.program import Op, Reduction, RowSum, Value
from vgraph.runtime.python_codegen import StandIn
from vgraph.runtime.reductions.reduction import CompiledReduction

_FEW = 1 << 17  # elements of an operand that torch passes over sooner than a loop of our own begins
_ALONE = 1 << 15  # that one thread of torch adds up to one number; several add in another order
_COLUMNS = 4096  # whose sums are apart: each is made by one thread


class SummedRows:
    """Runs a RowSum on tensors of any number of rows."""

    def __init__(self, target: RowSum, compiled: CompiledReduction) -> None:
        self.target, self.compiled = target, compiled

    def __call__(self, *tensors: Tensor) -> Tensor:
        """One tensor for each operand."""
        target, first = self.target, tensors[0]
        found = None
        least = _ALONE if len(target.dims) == first.dim() else _FEW
        if max(t.numel() for t in tensors) >= least and all(t.device == first.device for t in tensors):
            found = self.compiled(tensors, target.dims)
        if found is None:
            return self.by_library(tensors)
        for dim in target.dims if target.keepdim else ():
            found = found.unsqueeze(dim)
        return found

    def by_library(self, tensors: tuple[Tensor, ...]) -> Tensor:
        """Op by op, each result stored."""
        known = {v.id: t for v, t in zip(self.target.operands, tensors, strict=True)}

        def given(leaf: object) -> object:
            return known[leaf.id] if isinstance(leaf, Value) else leaf

        for op in self.target.ops:
            known[op.results[0].id] = op.evaluate(given)
        last = known[(self.target.ops[-1].results[0] if self.target.ops else self.target.operands[0]).id]
        if len(self.target.dims) < last.dim():
            return last.sum(self.target.dims, self.target.keepdim)
        return _one_number(last).reshape([1] * last.dim() if self.target.keepdim else [])


def _one_number(rows: Tensor) -> Tensor:
    """The sum of all elements, added in one order however many threads there are."""
    flat = rows.reshape(-1)
    if flat.shape[0] < _ALONE:
        return flat.sum()
    whole = flat.shape[0] // _COLUMNS * _COLUMNS
    return flat[:whole].view(-1, _COLUMNS).sum(0).sum() + flat[whole:].sum()


def runs_row_sums(compile_reduction: Callable[[Reduction], CompiledReduction], otherwise: StandIn | None) -> StandIn:
    """What runs an op in the library's place: a sum over rows, or whatever ``otherwise`` gives."""

    def stand_in(op: Op) -> Callable[..., Tensor] | None:
        if isinstance(op.target, RowSum):
            return SummedRows(op.target, compile_reduction(op.target.reduction))
        return None if otherwise is None else otherwise(op)

    return stand_in
