"""Permutation: the numbers below a count in an order that follows from a key; any stretch of it without the rest.

Takes: a count, a key, places. Gives: what stands at the places. Runs at every step.
Source: Luby and Rackoff 1988 (Feistel networks are permutations); Black and Rogaway 2002, section 5 (cycle walking).
"""

from __future__ import annotations

import numpy as np

from vgraph.graphs.draw.random_numbers import Array, draw, mix

_ROUNDS = 6


def permuted(count: int, key: int, places: Array) -> Array:
    """What stands at some places of the numbers below ``count``, in the order of a key.

    No table is made, so that any rank knows any batch of any epoch.

    >>> import numpy as np
    >>> permuted(5, 1, np.arange(5)).tolist()
    [0, 4, 3, 1, 2]
    """
    half = max(1, (max(count - 1, 1).bit_length() + 1) // 2)
    keys = [mix(key + number & (1 << 64) - 1) for number in range(1, _ROUNDS + 1)]
    found = places.astype(np.int64)
    outside = np.ones(len(found), np.bool_)
    while outside.any():  # a network permutes up to four times as many: a walk along its cycle comes back inside
        found[outside] = _network(found[outside], half, keys)
        outside = found >= count
    return found


def _network(numbers: Array, half: int, keys: list[int]) -> Array:
    """A permutation of the numbers of 2 * half bits."""
    mask = np.uint64((1 << half) - 1)
    left, right = numbers.astype(np.uint64) >> np.uint64(half), numbers.astype(np.uint64) & mask
    for key in keys:
        left, right = right, left ^ (draw(key, right, 0) & mask)
    return ((left << np.uint64(half)) | right).astype(np.int64)
