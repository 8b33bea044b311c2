"""Factors: what a product of rows on edges is made of.

Takes: a value on edges. Gives: its factors, whatever views and Gathers they were read through. Runs once per
function. Source: index notation; two products of the same factors over the same dims are one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from vgraph.ir.moves import Gather
from vgraph.ir.program import Op, Rows, Value
from vgraph.ir.space import EDGE, SHARED

Axes = tuple[int | None, ...]  # of every dim of a row: which of a product's dims it is; None: of size one
Key = tuple[str, int]
MOST_FACTORS = 16


@dataclass(frozen=True)
class Factor:
    """A value that a product is made of; ``key``: what it is without views, and the end that it was taken from."""

    key: Key
    axes: tuple[int, ...]
    value: Value


def key_of(row_shape: tuple[int, ...], factors: Sequence[Factor]) -> object:
    """The same for products of the same factors over the same dims."""
    return tuple(n for n in row_shape if n != 1), tuple(sorted((f.key, f.axes) for f in factors))


def axes_of(row_shape: tuple[int, ...]) -> Axes:
    """Dims of size one do not count."""
    numbers = iter(range(len(row_shape)))
    return tuple(None if n == 1 else next(numbers) for n in row_shape)


def operand_axes(operand: Value, axes: Axes) -> Axes:
    """Those of an operand that broadcasts to a value with ``axes``; of a shared one only the dims of a row."""
    sizes = operand.row_shape[-len(axes) :] if axes else ()
    return tuple(None if n == 1 else axis for n, axis in zip(sizes, axes[len(axes) - len(sizes) :], strict=True))


def renamed_axes(operand: Value, axes: Axes) -> Axes:
    """Those of what a view that adds or takes away dims of size one is a view of."""
    given = iter(axis for axis in axes if axis is not None)
    return tuple(None if n == 1 else next(given) for n in operand.row_shape)


def factors_of(value: Value, axes: Axes, makers: Mapping[int, Op]) -> tuple[Factor, ...]:
    """What a product of edges is made of, in order; ``axes``: of the dims of a row.

    A product of very many is one factor: squares of squares have more than anybody could count.
    """
    found, waiting = list[Factor](), [(value, axes)]
    while waiting:
        one, own = waiting.pop()
        maker = makers.get(one.id) if one.space != SHARED else None
        if maker is not None and maker.name == "mul" and all(isinstance(a, Value) for a in maker.args):
            waiting += [(a, operand_axes(a, own)) for a in reversed(maker.args)]
        elif maker is not None and renames(maker):
            (operand,) = maker.operands()
            waiting.append((operand, renamed_axes(operand, own)))
        else:
            found.append(_factor(one, own, makers))
        if len(found) + len(waiting) > MOST_FACTORS:
            return (_factor(value, axes, makers),)
    return tuple(found)


def _factor(value: Value, axes: Axes, makers: Mapping[int, Op]) -> Factor:
    return Factor(_identity(value, makers), tuple(a for a in axes if a is not None), value)


def _identity(value: Value, makers: Mapping[int, Op]) -> Key:
    maker = makers.get(value.id)
    if maker is not None and isinstance(maker.target, Gather):
        inner = maker.args[0]
        while (before := makers.get(inner.id)) is not None and renames(before):
            inner = before.args[0]
        return f"{maker.target.end}|{maker.target.part}", inner.id
    return "", value.id


def has_edge_rows(value: Value) -> bool:
    """Rows of edges along the first dim, of floating-point numbers."""
    return value.space == EDGE and value.shape[0] == Rows(EDGE) and value.dtype.is_floating_point


def renames(op: Op) -> bool:
    """A view that adds or takes away dims of size one."""
    if op.name != "view" or op.args[0].space == SHARED:
        return False
    before, after = op.args[0], op.results[0]
    same = [n for n in before.row_shape if n != 1] == [n for n in after.row_shape if n != 1]
    return same and all(v.shape[0] == Rows(v.space) for v in (before, after))


def keeps_factors(op: Op) -> bool:
    """Whether a factor of the first operand is one of the result, too, as it is not where numbers become whole ones."""
    name = op.name
    divides = name == "div" and not op.kwargs  # a rounding mode
    casts = name == "_to_copy" and op.results[0].dtype.is_floating_point
    return name == "neg" or divides or casts
