"""Folds: several short rows of features in one vector, as heads of 8 numbers are.

Takes: how accesses walk the innermost dims and those ahead of them. Gives: how many rows, text. Runs once per
function.
"""

from __future__ import annotations

from collections.abc import Iterable

Walk = tuple[int, int]  # strides along the dims ahead of the innermost ones, and along these


def most_rows(most: int, length: int, rows: int, walks: Iterable[Walk]) -> int:
    """How many of ``rows`` a vector of at most ``most`` numbers holds, each with all ``length`` innermost features."""
    known = ((length, 1), (1, 0), (0, 1), (0, 0))  # as one row, spread, repeated, one number
    if any(walk not in known for walk in walks):
        return 1
    fold = most // length
    while rows % fold:
        fold //= 2
    return fold


def folded_load(pointer: str, walk: Walk, width: int, length: int, rows: int) -> str:
    """The vector for rows f, f + 1 ...; ``pointer`` is where the first number lies."""
    ahead, inner = walk
    if ahead and inner:
        return f"vg_load<{width}>({pointer})"
    if inner:
        return f"vg_repeat<{width}>(vg_load<{length}>({pointer}))"
    return f"vg_spread<{width}, {length}, {rows}>({pointer} - f, f)"
