"""Scratch: where a kernel keeps what it computes of one row.

Takes: the arrays that a kernel asks for, by size. Gives: their declarations in C++. Runs once per function.
Threads may have little stack, so only so much lies there; the largest arrays, and those of every edge of a row,
share one room of the heap, which is asked for once a call of the body.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from vgraph.fusion.expressions import NUMBER_TYPES
from vgraph.fusion.layout import Layout
from vgraph.fusion.text import block
from vgraph.ir.program import Value

_MOST_ON_STACK = 1 << 15  # bytes of all arrays
_LINE = 64  # bytes of the cache, and of the widest vector


@dataclass(frozen=True)
class Array:
    """Under a name ``count`` rows of a value's kind, for every slot of a team its own if they are ``of_an_edge``."""

    name: str
    value: Value
    count: int = 1
    of_an_edge: bool = False

    @property
    def kind(self) -> str:
        return NUMBER_TYPES[self.value.dtype]

    @property
    def size(self) -> int:
        return self.count * math.prod(self.value.row_shape)


def row_arrays(layout: Layout) -> list[Array]:
    """What stages hand to later stages of the same row."""
    needed = layout.row_arrays.union(*(stage.arrays for stage in layout.stages if not stage.over))
    return [Array(f"t{v.id}", v) for v in layout.made(needed)]


def edge_arrays(layout: Layout, rows: int) -> list[Array]:
    """What loops over the features of an edge hand to later loops, and ``rows`` whose outer products are summed."""
    needed = frozenset[int]().union(*(stage.arrays for stage in layout.stages if stage.over))
    arrays = [Array(f"t{v.id}", v, of_an_edge=True) for v in layout.made(needed)]
    for op in layout.outer_sums:
        name, (left, right) = op.results[0].id, op.args
        arrays += [Array(f"left{name}", left, rows), Array(f"right{name}", right, rows)]
    return arrays


@dataclass(eq=False)
class Scratch:
    """``on_heap``: where in the room arrays lie, by name; ``sizes``: bytes of all that were asked for."""

    on_heap: Mapping[str, int] = field(default_factory=dict[str, int])
    sizes: dict[str, int] = field(default_factory=dict[str, int])

    def array(self, kind: str, name: str, count: int, itemsize: int) -> str:
        """The declaration of ``count`` items."""
        self.sizes[name] = count * itemsize
        if name not in self.on_heap:
            return f"{kind} {name}[{count}];"
        return f"{kind}* const __restrict {name} = ({kind}*)(room + {self.on_heap[name]});"

    def spilled(self) -> dict[str, int]:
        """Where in the room the arrays lie for which the stack has no place: the largest."""
        left, places, end = sum(self.sizes.values()), dict[str, int](), 0
        for name, size in sorted(self.sizes.items(), key=lambda item: -item[1]):
            if left <= _MOST_ON_STACK:
                break
            left -= size
            places[name] = end
            end += -(-size // _LINE) * _LINE
        return places

    def open(self, kept: Sequence[Value], ptr: str) -> str:
        """The room, and in it ``kept``, numbers of every edge of the longest row; returns where there is no memory."""
        if not kept and not self.on_heap:
            return ""
        fixed = max((at + -(-self.sizes[name] // _LINE) * _LINE for name, at in self.on_heap.items()), default=0)
        edge, lines = 0, list[str]()
        for value in sorted(kept, key=lambda v: -bytes_of(v)):  # each begins at a multiple of its items
            kind, size = NUMBER_TYPES[value.dtype], math.prod(value.row_shape)
            lines.append(f"{kind}* k{value.id} = ({kind}*)(room + {fixed} + (longest + 1) * {edge});")
            edge += size * bytes_of(value)
        return f"""
        {_longest_row(ptr) if kept else ""}
        void* const given = malloc({fixed + _LINE}{f" + (longest + 1) * {edge}" if kept else ""});
        if (given == nullptr) return 1;
        char* const room = vg_on_line(given);
        {block(lines)}
        """

    def close(self, kept: Sequence[Value]) -> str:
        """Gives the room back."""
        return "free(given);" if kept or self.on_heap else ""


def bytes_of(value: Value) -> int:
    """Of a number as it is computed with."""
    return 4 if value.dtype.is_floating_point and value.dtype.itemsize == 2 else value.dtype.itemsize


def _longest_row(ptr: str) -> str:
    return f"""
    int64_t longest = 0;
    for (int64_t v = begin; v < end; ++v) {{
      if ({ptr}[v + 1] - {ptr}[v] > longest) longest = {ptr}[v + 1] - {ptr}[v];
    }}
    """
