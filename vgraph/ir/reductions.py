"""The table of reductions: one row says all that any stage asks about a reduction.

Takes: the name of a reduction. Gives: its ReduceInfo. Nothing here runs by itself.
A reduction folds (elements join an accumulator that starts with an identity) or picks (one element is the result, and
its slot is known). A new one that folds is one row of ``REDUCTIONS``; CONTRIBUTING.md says what to write in it.
Source: Koç, multi-mode tensor reduction (element, combination, finish); DGL section 3 (sums over edges).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import torch
from torch import Tensor

from vgraph.ir.reduction import ACCUMULATED
from vgraph_kernels import reference


class Segments(Protocol):
    """The edges of a vertex, or the elements of a slice, for a derivative."""

    def spread(self, rows: Tensor) -> Tensor:
        """The row of its segment for every element."""
        ...

    def reduce(self, name: str, elements: Tensor) -> Tensor:
        """Another reduction over the same segments."""
        ...


@dataclass(frozen=True)
class Sum:
    """A reduction that a derivative needs: ``name`` of ``of(value)``, or of ``of(value, result)``."""

    name: str
    of: Callable[..., Tensor]


Reduced: TypeAlias = Tensor | tuple[Tensor, Tensor]  # with the slots of what picks


@dataclass(frozen=True)
class Derivative:
    """What each element gets of the gradient of its segment's result.

    ``at(value, grad, *sums)``, or ``at(value, result, grad, *sums)`` if it ``reads_result``: pointwise, written in
    torch. ``result``, ``grad`` and the sums are those of the element's segment.
    ``over_slots``: a better way over the edges of a vertex, of the segments, the elements and the spread gradient.
    """

    at: Callable[..., Tensor]
    reads_result: bool = False
    sums: tuple[Sum, ...] = ()
    over_slots: Callable[[Segments, Tensor, Tensor], Tensor] | None = None


@dataclass(frozen=True)
class ReduceInfo:
    """A row of the table.

    C text, for CPUs and GPUs: {a} is an accumulator, {x} another (in ``combine``) or a number (in ``lift``), all of
    them short vectors; {T} is the type of a number, {V} that of a vector.

    Attributes:
        name: what Programs, kernels and ``vgraph.reduce`` call it.
        identity: what accumulators start with, which changes nothing; None for what picks.
        empty: what a segment without elements gives.
        combine: the C expression of two accumulators as one.
        segments: the same in torch: elements (e, ...), pointers (m + 1,), every segment's length where they agree;
            gives (m, ...), and of what picks also slots (m, ...).
        dims: the same in torch over some dims of a tensor.
        derivative: what an element gets of the gradient.
        join: how the terms of several workers become one, in the place of the first; None: they are not divided.
        lift: the C expression of an element as an accumulator; as it is, where there is none.
        finish: the C expression of the result, of the accumulator {x} of all; as it is, where there is none.
        largest: of what picks, whether it picks the largest or the smallest; None for what folds.
        team: what combines over the lanes of a team (teams.cuh); a loop around ``combine`` where there is none.
        is_linear: whether the transpose is to copy the gradient to each element.
        in_chains: whether rounding errors add up, so that long segments are reduced in pieces.
        widens: whether whole numbers and truth values become int64 first, as in torch.
        takes_complex: whether complex numbers can be reduced.
        many_dims: whether torch's function of this name takes several dims.
        joins: operators over dims of which it joins what several workers give, each of a part of the dims.
    """

    name: str
    identity: int | float | None
    empty: int | float
    combine: str
    segments: Callable[[Tensor, Tensor, int | None], Reduced]
    dims: Callable[[Tensor, tuple[int, ...]], Tensor]
    derivative: Derivative
    join: Callable[[Tensor, Tensor], object] | None = None  # into the first of the two
    lift: str = ""
    finish: str = ""
    largest: bool | None = None
    team: str = ""
    is_linear: bool = False
    in_chains: bool = False
    widens: bool = False
    takes_complex: bool = False
    many_dims: bool = False
    joins: tuple[str, ...] = ()

    @property
    def picks(self) -> bool:
        """Whether the result is one of the elements, so that its slot is a second result."""
        return self.largest is not None


def reduce_info(name: str) -> ReduceInfo:
    """The row of a reduction; AssertionError: there is none, which ``verify`` should have found."""
    row = REDUCTIONS.get(name)
    assert row is not None, f"there is no reduction {name!r}: one of {', '.join(REDUCTIONS)}"
    return row


# ---------------------------------------------------------------- references
def _sums(rows: Tensor, ptr: Tensor, degree: int | None) -> Tensor:
    return reference.segment_sum(rows, None, ptr, degree)


def _largest(rows: Tensor, ptr: Tensor, degree: int | None) -> tuple[Tensor, Tensor]:
    return reference.segment_extremum(rows, ptr, degree, largest=True)


def _smallest(rows: Tensor, ptr: Tensor, degree: int | None) -> tuple[Tensor, Tensor]:
    return reference.segment_extremum(rows, ptr, degree, largest=False)


def _maximum(there: Tensor, here: Tensor) -> None:
    torch.maximum(there, here, out=there)


def _minimum(there: Tensor, here: Tensor) -> None:
    torch.minimum(there, here, out=there)


def _product_of_dims(element: Tensor, dims: tuple[int, ...]) -> Tensor:
    for dim in sorted(dims, reverse=True):
        element = element.prod(dim)
    return element


# ---------------------------------------------------------------- derivatives
def _whole_gradient(value: Tensor, grad: Tensor) -> Tensor:
    return grad


def _is_result(value: Tensor, result: Tensor) -> Tensor:
    return (value == result).to(ACCUMULATED[result.dtype])


def _share_of_equals(value: Tensor, result: Tensor, grad: Tensor, count: Tensor) -> Tensor:
    """Equal elements share, as under torch.amax."""
    part = (grad.to(count.dtype) / count).to(grad.dtype)
    return torch.where(value == result, part, torch.zeros_like(part))


def _is_zero(value: Tensor) -> Tensor:
    return (value == 0).to(ACCUMULATED[value.dtype])


def _without_zeros(value: Tensor) -> Tensor:
    return torch.where(value == 0, torch.ones_like(value), value)


def _product_of_others(value: Tensor, grad: Tensor, zeros: Tensor, others: Tensor) -> Tensor:
    """Which is not the result divided by the value where the value is 0; ``others``: the product of what is not 0."""
    whole = grad * others
    nothing = torch.zeros_like(whole)
    without = torch.where(zeros == 0, whole / value, nothing)
    return torch.where(value == 0, torch.where(zeros == 1, whole, nothing), without)


def _product_over_slots(over: Segments, x: Tensor, grad: Tensor) -> Tensor:
    """The gradient is the product of the others, exact where one or two of them are zero, in every order."""
    zero = x == 0
    filled = torch.where(zero, torch.ones_like(x), x)
    num_zeros = over.spread(over.reduce("sum", zero.to(x.dtype)))
    rest = over.spread(over.reduce("prod", filled))
    only_zeros = torch.where(zero, x, torch.zeros_like(x))
    other_zero = over.spread(over.reduce("sum", only_zeros)) - x
    if_two = torch.where(num_zeros == 2, other_zero * rest, torch.zeros_like(x))
    if_zero = torch.where(num_zeros == 1, rest, if_two)
    others = torch.where(zero, if_zero, over.spread(over.reduce("prod", x)) / filled)
    return over.spread(grad) * others.conj_physical()


_EQUALS = Derivative(_share_of_equals, reads_result=True, sums=(Sum("sum", _is_result),))


# ---------------------------------------------------------------- the rows
_ROWS = (
    ReduceInfo(
        name="sum",
        identity=0,
        empty=0,
        combine="{a} + {x}",
        segments=_sums,
        dims=lambda element, dims: element.sum(dims),
        derivative=Derivative(_whole_gradient),
        join=Tensor.add_,
        team="vg_team_add",
        is_linear=True,
        in_chains=True,
        widens=True,
        takes_complex=True,
        many_dims=True,
        joins=("sum", "mean", "nansum"),
    ),
    ReduceInfo(
        name="prod",
        identity=1,
        empty=1,
        combine="{a} * {x}",
        segments=reference.segment_prod,
        dims=_product_of_dims,
        derivative=Derivative(
            _product_of_others,
            sums=(Sum("sum", _is_zero), Sum("prod", _without_zeros)),
            over_slots=_product_over_slots,
        ),
        join=Tensor.mul_,
        team="vg_team_multiply",
        widens=True,
        takes_complex=True,
        joins=("prod",),
    ),
    ReduceInfo(
        name="max",
        identity=None,
        empty=0,
        combine="vg_select<{V}>(vg_or({a} > {x}, {a} != {a}), {a}, {x})",
        segments=_largest,
        dims=lambda element, dims: element.amax(dims),
        derivative=_EQUALS,
        join=_maximum,
        largest=True,
        joins=("max", "amax", "any"),
    ),
    ReduceInfo(
        name="min",
        identity=None,
        empty=0,
        combine="vg_select<{V}>(vg_or({a} < {x}, {a} != {a}), {a}, {x})",
        segments=_smallest,
        dims=lambda element, dims: element.amin(dims),
        derivative=_EQUALS,
        join=_minimum,
        largest=False,
        joins=("min", "amin", "all"),
    ),
    ReduceInfo(
        name="nansum",
        identity=0,
        empty=0,
        lift="vg_select<{V}>({x} == {x}, {x}, {T}(0))",
        combine="{a} + {x}",
        segments=lambda rows, ptr, degree: _sums(torch.where(rows.isnan(), 0, rows), ptr, degree),
        dims=lambda element, dims: element.nansum(dims),
        derivative=Derivative(lambda value, grad: torch.where(value.isnan(), torch.zeros_like(grad), grad)),
        in_chains=True,
        widens=True,
        many_dims=True,
    ),
)
REDUCTIONS: dict[str, ReduceInfo] = {row.name: row for row in _ROWS}
