"""Draws: random numbers as functions of (key, id, slot), and where keys come from.

Takes: keys and ids. Gives: numbers. Runs at every step. Source: Salmon et al. 2011 (numbers by counter).
kernels/vgraph_kernels/sampling.h computes the same: a sample does not depend on what drew it.
"""

from __future__ import annotations

import threading
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from vgraph.graphs.seed import generator

Array: TypeAlias = NDArray[Any]
MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15
_SHORT, _LOW = np.uint64(1 << 32), np.uint64((1 << 32) - 1)
_now = threading.local()  # the keys of the batch that the thread prepares


def mix(x: int) -> int:
    """A whole number below 2**64 from another one (splitmix64)."""
    x = int(x)  # a seed of NumPy's would overflow
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK
    return x ^ (x >> 31)


def _mix_array(x: Array) -> Array:
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def draw(key: int, ids: Array, slots: Array | int) -> Array:
    """One number below 2**64 for every id and slot, which broadcast."""
    place = ids.astype(np.uint64) * np.uint64(_GOLDEN) + np.asarray(slots).astype(np.uint64)
    return _mix_array(np.uint64(key) ^ _mix_array(place))


def below(drawn: Array, limits: Array | int) -> Array:
    """Whole numbers below ``limits``, each at most 2**40, as int64: what kernels draw, as far as these go, to 2**32."""
    half, given = np.uint64(32), np.asarray(limits).astype(np.uint64)
    high = drawn >> half
    if not (given > _SHORT).any():
        return (high * given >> half).astype(np.int64)
    low, wide, narrow = drawn & _LOW, given >> half, given & _LOW  # the upper 64 bits of ``drawn`` times ``given``
    carried = (high * narrow & _LOW) + low * wide + (low * narrow >> half)
    return (high * wide + (high * narrow >> half) + (carried >> half)).astype(np.int64)


def uniform(drawn: Array) -> Array:
    """Numbers above 0 and at most 1."""
    return ((drawn >> np.uint64(11)) + np.uint64(1)).astype(np.float64) * 2.0**-53


class Keys:
    """The keys of one batch: numbers that follow from its own, one a call that draws.

    ``place``: a number that all batches of an epoch have in common, and which of them this is; None: no loader says.
    """

    def __init__(self, key: int, place: tuple[int, int] | None = None) -> None:
        self._key, self._taken, self.place = key, 0, place

    def next(self) -> int:
        """The key of the next call."""
        self._taken += 1
        return mix(self._key + self._taken * _GOLDEN & MASK)


def next_key() -> int:
    """A key for one call: the next of the batch that this thread prepares, else drawn as ``vgraph.seed`` has it."""
    keys: Keys | None = getattr(_now, "keys", None)
    if keys is not None:
        return keys.next()
    return mix(int(torch.randint(2**62, (), generator=generator(), device="cpu")))


def batch_place() -> tuple[int, int] | None:
    """What all batches of the epoch have in common, and the number of the one that this thread prepares."""
    keys: Keys | None = getattr(_now, "keys", None)
    return None if keys is None else keys.place


@contextmanager
def keyed(key: int | Keys) -> Generator[None]:
    """All keys of this thread follow from ``key`` within; a batch that is prepared by turns brings its ``Keys``."""
    before = getattr(_now, "keys", None)
    _now.keys = key if isinstance(key, Keys) else Keys(key)
    try:
        yield
    finally:
        _now.keys = before
