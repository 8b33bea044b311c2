"""State widths: how many columns a call of torch needs, while states of unknown width have one.

Takes: a function of torch and its arguments. Gives: a number of columns. Runs while states are inferred.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod

import torch
from torch import Tensor

MATRIX_PRODUCTS = frozenset[Callable[..., object]](
    {
        torch.nn.functional.linear,
        torch.matmul,
        torch.mm,
        Tensor.matmul,
        Tensor.mm,
        Tensor.__matmul__,
    }
)
_VIEWS = frozenset[Callable[..., object]]({Tensor.view, Tensor.reshape, torch.reshape})
_SPLITS = frozenset[Callable[..., object]]({Tensor.split, torch.split, Tensor.split_with_sizes, torch.split_with_sizes})


def width_of_product(func: Callable[..., object], matrix: Tensor) -> int:
    """How many columns a product of rows and a matrix needs."""
    return matrix.shape[-1 if func is torch.nn.functional.linear or matrix.dim() == 1 else -2]


def width_told(
    func: Callable[..., object], count: int, rest: tuple[object, ...], named: Mapping[str, object]
) -> int | None:
    """How many columns a view of rows, or their division into parts, needs.

    Args:
        func: the function of torch.
        count: how many rows there are.
        rest: its arguments but the rows.
        named: its arguments by name.

    Returns:
        A number of columns; None: the call does not tell.
    """
    first, *others = rest or (None,)
    if func in _VIEWS:
        sizes = _numbers(rest if others else first)
        return _product(sizes[1:]) if sizes[:1] in ([-1], [count]) else None
    if func is Tensor.unflatten and others:
        return _product(_numbers(others[0])) if first in (1, -1) else None
    if func in _SPLITS:
        dim = others[0] if others else named.get("dim", 0)
        return sum(_numbers(first)) or None if dim in (1, -1) else None
    return None


def _numbers(sizes: object) -> list[int]:
    return [int.__int__(n) for n in sizes if isinstance(n, int)] if isinstance(sizes, (tuple, list)) else []


def _product(sizes: list[int]) -> int | None:
    return prod(sizes) if sizes and min(sizes) > 0 else None
