"""Places: rows that hold several vectors each, (rows, ..., columns), times a matrix that all of them share.

Takes: rows, a matrix. Gives: one product a place. Runs while a function is traced.
Torch's own call makes one row of each place, and those are rows of no space; a product a place keeps the rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor


def multiplied(lead: int, *, is_linear: bool, args: tuple[Any, ...], named: Mapping[str, Any]) -> Tensor | None:
    """``matmul`` or ``linear`` of rows whose first ``lead`` dims count them; None where there is one place.

    >>> import torch
    >>> multiplied(1, is_linear=False, args=(torch.ones(3, 5, 2), torch.ones(2, 4)), named={}).shape
    torch.Size([3, 5, 4])
    """
    given: tuple[Any, ...] = (*args, *(named.get(name) for name in ("input", "weight", "bias")[len(args) :]))
    rows, matrix, bias = given[0], given[1], given[2]
    if not isinstance(matrix, Tensor) or matrix.dim() != 2 or rows.dim() <= lead + 1:
        return None
    by_place = rows.flatten(0, lead - 1).flatten(1, -2).transpose(0, 1)
    shared = matrix.mT if is_linear else matrix
    found = torch.bmm(by_place, shared.expand(by_place.shape[0], -1, -1)).transpose(0, 1)
    found = found.unflatten(1, rows.shape[lead:-1]).unflatten(0, rows.shape[:lead])
    return found if bias is None else found + bias.to(found.dtype)


def contracted(lead: int, equation: object, rows: Tensor, *others: Tensor) -> Tensor | None:
    """``einsum`` of rows and one shared tensor, which gets the places that it lacks; None for other calls.

    >>> import torch
    >>> contracted(1, "nhd,dk->nhk", torch.ones(3, 5, 2), torch.ones(2, 4)).shape
    torch.Size([3, 5, 4])
    """
    if not isinstance(equation, str) or "->" not in equation or "." in equation or len(others) != 1:
        return None
    words = equation.replace(" ", "").replace("->", ",").split(",")
    if len(words) != 3 or len(words[0]) != rows.dim():
        return None
    left, right, out = words
    lacks = [letter for letter in left[lead:] if letter in out and letter not in right]
    if not lacks or len(set(left)) < len(left):
        return None
    given = others[0].expand(*(rows.shape[left.index(letter)] for letter in lacks), *others[0].shape)
    return torch.einsum(f"{left},{''.join(lacks)}{right}->{out}", rows, given)
