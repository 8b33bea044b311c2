"""Entries of two matrices that meet: at the same places, or at those of either.

Takes: patterns and values. Gives: a pattern and values. Runs at every call.
"""

from __future__ import annotations

import torch
from torch import Tensor

from vgraph.api.sparse.pattern import Pattern, at_keys
from vgraph.errors import FeatureError, GraphError


def merged(pattern: Pattern, value: Tensor) -> tuple[Pattern, Tensor]:
    """Entries in order, with those at one place added."""
    made, place = pattern.coalesced
    if place is None:
        return pattern, value
    return made, value.new_zeros((made.num_entries, *value.shape[1:])).index_add(0, place, value)


def united(a: Pattern, a_value: Tensor, b: Pattern, b_value: Tensor) -> tuple[Pattern, Tensor]:
    """The sum of two matrices: entries at the places of either."""
    check_alike(a, a_value, b, b_value)
    if (a is b or (a.is_diagonal and b.is_diagonal)) and a.is_coalesced:
        return a, a_value + b_value
    keys, place = torch.unique(torch.cat([a.keys, b.keys]), return_inverse=True)
    both = torch.cat([a_value, b_value])
    return at_keys(keys, a.shape), both.new_zeros((len(keys), *both.shape[1:])).index_add(0, place, both)


def common(a: Pattern, a_value: Tensor, b: Pattern, b_value: Tensor) -> tuple[Pattern, Tensor]:
    """The elementwise product: entries at the places of both, in the order of the first."""
    check_alike(a, a_value, b, b_value)
    if a is b or (a.is_diagonal and b.is_diagonal):
        check_single(a)
        return a, a_value * b_value
    mine, theirs = _meetings(a, b)
    return at_keys(a.keys[mine], a.shape), a_value[mine] * b_value[theirs]


def divided(a: Pattern, a_value: Tensor, b: Pattern, b_value: Tensor) -> tuple[Pattern, Tensor]:
    """The elementwise quotient of matrices with the same places, in the order of the first."""
    check_alike(a, a_value, b, b_value)
    if a is b or (a.is_diagonal and b.is_diagonal):
        check_single(a)
        return a, a_value / b_value
    mine, theirs = _meetings(a, b)
    if not a.num_entries == b.num_entries == len(mine):
        fact = f"the matrices have {a.num_entries} and {b.num_entries} entries, {len(mine)} of them at the same places"
        raise GraphError(fact, cure="divide by a matrix with entries at the same places: val_like(A, values)")
    return a, a_value / b_value[theirs]


def _meetings(a: Pattern, b: Pattern) -> tuple[Tensor, Tensor]:
    """Entries of both at the same places, in the order of the first."""
    check_single(a)
    check_single(b)
    if not b.num_entries:
        return b.keys, b.keys
    keys, order = b.keys.sort()
    place = torch.searchsorted(keys, a.keys).clamp(max=len(keys) - 1)
    mine = (keys[place] == a.keys).nonzero().squeeze(1)
    return mine, order[place[mine]]


def check_single(pattern: Pattern) -> None:
    """GraphError: several entries stand at one place."""
    if pattern.has_duplicate:
        raise GraphError("several entries of a matrix stand at one place", cure="add them first: A.coalesce()")


def check_alike(a: Pattern, a_value: Tensor, b: Pattern, b_value: Tensor) -> None:
    """FeatureError: two matrices do not have one shape."""
    if a.shape != b.shape or a_value.shape[1:] != b_value.shape[1:]:
        mine, other = (*a.shape, *a_value.shape[1:]), (*b.shape, *b_value.shape[1:])
        raise FeatureError(f"matrices are {mine} and {other}", cure="give matrices of one shape")
