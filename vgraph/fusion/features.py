"""Features: how a loop walks the features of a row, in vectors.

Takes: a shape, and how what is read and written walks along it. Gives: where vectors lie. Runs once per function.
The dims along which every operand either walks or stands still are walked as one, in vectors; of short ones a vector
holds several (heads of 8).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from vgraph.fusion.layout import Access, Shape
from vgraph.ir.program import contiguous

Strides = tuple[int, ...]
Walk = tuple[int, int]  # strides along the dims ahead of the innermost ones, and along these
Group = tuple[int, int]  # the first of neighbouring dims that are walked as one, and the one after the last


def group_dims(shape: Shape, accesses: Sequence[Strides]) -> tuple[Group, ...]:
    """Neighbouring dims that every access walks as if they were one."""
    groups: list[Group] = []
    for dim in range(len(shape)):
        if dim > 0 and all(s[dim - 1] == s[dim] * shape[dim] for s in accesses):
            groups[-1] = (groups[-1][0], dim + 1)
        else:
            groups.append((dim, dim + 1))
    return tuple(groups)


@dataclass(frozen=True)
class Features:
    """Vectors of ``width`` numbers; ``fold``: how many rows of the innermost dims one of them holds."""

    shape: Shape
    groups: tuple[Group, ...]
    width: int = 1
    fold: int = 1

    @classmethod
    def undivided(cls, shape: Shape) -> Features:
        """All dims as one, number by number."""
        return cls(shape, ((0, len(shape)),) if shape else ())

    # ------------------------------------------------------------ dims
    def size(self, group: int) -> int:
        first, last = self.groups[group]
        return math.prod(self.shape[first:last])

    @cached_property
    def length(self) -> int:
        """Numbers along the innermost group."""
        return self.size(-1) if self.groups else 1

    @cached_property
    def last(self) -> int:
        """The group that vectors walk along."""
        return len(self.groups) - (2 if self.fold > 1 else 1)

    @cached_property
    def tiles_inside(self) -> int:
        """Vectors along that group."""
        return self.size(self.last) // self.fold if self.fold > 1 else -(-self.length // self.width)

    @property
    def num_tiles(self) -> int:
        """Vectors in the whole loop."""
        return math.prod(self.size(group) for group in range(self.last)) * self.tiles_inside

    # ------------------------------------------------------------ accesses
    def stride(self, strides: Strides, group: int) -> int:
        return strides[self.groups[group][1] - 1]

    def walk(self, strides: Strides) -> Walk:
        """Along the innermost two groups."""
        return self.stride(strides, -2), self.stride(strides, -1)

    def steps(self, access: Access) -> bool:
        """Whether the access walks along with the vector."""
        return any(self.stride(access[1], group) for group in range(max(self.last, 0), len(self.groups)))

    def index(self, access: Access) -> str:
        """The place of the first number of a vector."""
        offset, strides = access
        terms = [str(offset)] if offset else []
        for group in range(self.last + 1):
            stride = self.stride(strides, group)
            if stride:
                name = f"i{group}" if group < self.last else "f"
                terms.append(name if stride == 1 else f"{name} * {stride}")
        return " + ".join(terms) or "0"

    def flat(self) -> str:
        """The place in a row of the loop's own shape."""
        return self.index((0, contiguous(self.shape)))

    def load(self, pointer: str, access: Access) -> str:
        """The vector whose first number lies there."""
        if not self.steps(access):
            return f"vg_load<1>({pointer})"
        if self.fold == 1:
            return f"vg_load<{self.width}>({pointer})"
        return folded_load(pointer, self.walk(access[1]), self.width, self.length, self.size(self.last))


# ---------------------------------------------------------------- several short rows in one vector
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
