"""Outcome: what one call of a Program gave, and the memory that it holds.

Takes: tensors. Gives: the noun that ``compiled`` makes, ``cuda.cuda_graphs`` repeats and ``autograd`` keeps. Made at
every step.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from torch import Tensor


class Lease(Protocol):
    """A buffer of bytes that nobody else holds until it is released or forgotten."""

    buffer: Tensor


@dataclass(eq=False, slots=True)  # a frozen one takes longer to make
class Outcome:
    """Outputs, values saved for the backward (in row order) and what keeps their memory.

    ``shared``: saved values that lie in an output's memory, and which output that is, both by their places.
    """

    outputs: list[Tensor | None]
    saved: list[Tensor]
    lease: Lease | None
    shared: Mapping[int, int] = field(default_factory=dict[int, int])
