"""Tables of cases, of which `make test` runs a diagonal and `make thorough` all the rest."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

import pytest

thorough = pytest.mark.thorough


def table(*axes: Sequence[Any]) -> list[Any]:
    """All combinations of one value of each axis, as ``pytest.mark.parametrize`` takes them.

    The first combination, the second value of each axis with the others' second one, and so on (a shorter axis begins
    anew) have no mark, so that every value of every axis is among them. All others are marked ``thorough``.
    """
    steps = range(max(map(len, axes)))
    diagonal = {tuple(step % len(axis) for axis in axes) for step in steps}
    return [
        pytest.param(
            *(axis[place] for axis, place in zip(axes, places, strict=True)),
            id="-".join(_name(axis[place]) for axis, place in zip(axes, places, strict=True)),
            marks=() if places in diagonal else thorough,
        )
        for places in product(*(range(len(axis)) for axis in axes))
    ]


def _name(value: Any) -> str:
    return str(getattr(value, "__name__", value))
