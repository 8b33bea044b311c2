"""Features: one loop over the features of a row, in short vectors.

Takes: a Loop of a kernel's layout. Gives: its text. Runs once per function.
The dims along which every operand either walks or stands still are run as one, in vectors; the last
vector overlaps the one before it where the length is no multiple. Of short ones a vector holds several (heads of 8).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

from vgraph.fusion.feature_body import Access, Body, Strides
from vgraph.fusion.folds import Walk, folded_load, most_rows
from vgraph.fusion.layout import Layout, Loop, Stage, sum_strides
from vgraph.fusion.online_softmax import Ride
from vgraph.ir.kernel import contiguous
from vgraph.ir.program import Value


@dataclass(eq=False)
class Features:
    """The loop nest; ``rows``: which rows it reads ("o": at the other end), ``irregular``: loads from there."""

    layout: Layout
    stage: Stage
    loop: Loop
    most: int  # numbers in a vector
    unrolled: bool = False
    rows: set[str] = field(default_factory=set[str])
    irregular: list[tuple[Value, str]] = field(default_factory=list["tuple[Value, str]"])

    def __post_init__(self) -> None:
        self.shape, self.width, self.length, self.fold = self.loop.shape, 1, 1, 1
        self.makes = frozenset(store.value.id for store in self.loop.loop_stores if store.kind == "array")
        self.groups: list[tuple[int, int]] = [(0, len(self.shape))] if self.shape else []
        dry = self._body()
        for store in self.loop.loop_stores:
            if store.kind == "product":
                dry.multiply(store.op)
            elif store.kind in ("left", "right"):
                dry.get(store.value, reader=store.op)
            elif store.kind in ("reduce", "feature"):
                (operand,) = store.op.operands()
                dry.get(operand, reader=store.op)
            else:
                dry.get(store.value)
            if store.kind == "feature":
                dry.accesses.append(sum_strides(store.op))
        self.groups = self._groups(dry.accesses)
        inner = self.groups[-1] if self.groups else (0, 0)
        self.length = math.prod(self.shape[inner[0] : inner[1]])
        fits = all(self.stride(strides, -1) in (0, 1) for strides in dry.accesses) if self.groups else True
        self.width = self._widest(dry) if fits else 1
        self.fold = self._most_rows(dry) if fits else 1
        self.width *= self.fold
        self.rows.clear()
        self.irregular.clear()

    def _body(self) -> Body:
        return Body(self)

    def _widest(self, dry: Body) -> int:
        """Numbers in a vector of the innermost dims, as the accesses of ``dry`` allow."""
        return min(self.most, 1 << (self.length.bit_length() - 1))

    def _most_rows(self, dry: Body) -> int:
        """How many neighbours along the dims ahead of the innermost one vector holds, each all of the innermost."""
        if len(self.groups) < 2 or self.width == 1 or self.width != self.length or dry.draws:
            return 1
        if any(store.kind == "product" for store in self.loop.loop_stores):
            return 1
        taken = [sum_strides(store.op) for store in self.loop.loop_stores if store.kind == "feature"]
        if any(self._walk(strides) != (1, 0) for strides in taken):
            return 1
        return most_rows(self.most, self.length, self.size(len(self.groups) - 2), map(self._walk, dry.accesses))

    def _walk(self, strides: Strides) -> Walk:
        return self.stride(strides, -2), self.stride(strides, -1)

    # ------------------------------------------------------------ dims
    def size(self, group: int) -> int:
        first, last = self.groups[group]
        return math.prod(self.shape[first:last])

    @property
    def last(self) -> int:
        """The group that vectors walk along."""
        return len(self.groups) - (2 if self.fold > 1 else 1)

    def _groups(self, accesses: list[Strides]) -> list[tuple[int, int]]:
        """Neighbouring dims that every access walks as if they were one."""
        groups: list[tuple[int, int]] = []
        for dim in range(len(self.shape)):
            joined = dim > 0 and all(s[dim - 1] == s[dim] * self.shape[dim] for s in accesses)
            if joined:
                groups[-1] = (groups[-1][0], dim + 1)
            else:
                groups.append((dim, dim + 1))
        return groups

    def stride(self, strides: Strides, group: int) -> int:
        return strides[self.groups[group][1] - 1]

    def num_tiles(self) -> int:
        """Vectors in the whole loop."""
        return math.prod(self.size(group) for group in range(self.last)) * self.tiles_inside()

    def tiles_inside(self) -> int:
        return self.size(self.last) // self.fold if self.fold > 1 else -(-self.length // self.width)

    def of_peak(self, ride: Ride, name: str) -> str:
        """What lies in ``name`` for the peak on which a sum of this loop rides."""
        access = (0, ride.strides(self.shape))
        return self.load(f"{name}{ride.peak.id} + {self.index(access)}", access)

    def load(self, pointer: str, access: Access) -> str:
        """The vector whose first number lies there."""
        if not self.steps(access):
            return f"vg_load<1>({pointer})"
        if self.fold == 1:
            return f"vg_load<{self.width}>({pointer})"
        return folded_load(pointer, self._walk(access[1]), self.width, self.length, self.size(self.last))

    # ------------------------------------------------------------ text
    def text(self, make: Callable[[Body], None], indent: str) -> list[str]:
        """The nest around what ``make`` puts into the body."""
        body = Body(self)
        make(body)
        lines, inside = list[str](body.before), indent
        if not body.lines:
            return [inside + line for line in lines]
        for number in range(self.last):
            lines += self._pragma()
            lines.append(f"for (int64_t i{number} = 0; i{number} < {self.size(number)}; ++i{number}) {{")
        lines += body.around
        lines += self._pragma()
        lines.append(f"for (int64_t q = 0; q < {self.tiles_inside()}; ++q) {{")
        lines.append(f"  const int64_t f = {self._feature()}; (void)f;")
        lines += [f"  {line}" for line in body.lines]
        lines.append("}")
        lines += body.after
        lines += ["}"] * max(self.last, 0)
        return [inside + line for line in lines]

    def _pragma(self) -> list[str]:
        return ["VG_UNROLL"] if self.unrolled else []

    def _feature(self) -> str:
        if self.fold > 1:
            return f"q * {self.fold}"
        if self.length % self.width == 0:
            return f"q * {self.width}"
        last = self.length - self.width
        return f"q * {self.width} < {last} ? q * {self.width} : {last}"

    def index(self, access: Access) -> str:
        """The place of the first number of a vector."""
        offset, strides = access
        terms = [str(offset)] if offset else []
        for number in range(self.last + 1):
            stride = self.stride(strides, number)
            if stride:
                name = f"i{number}" if number < self.last else "f"
                terms.append(name if stride == 1 else f"{name} * {stride}")
        return " + ".join(terms) or "0"

    def steps(self, access: Access) -> bool:
        """Whether the access walks along with the vector."""
        return any(self.stride(access[1], number) for number in range(max(self.last, 0), len(self.groups)))

    def flat(self) -> str:
        return self.index((0, contiguous(self.shape)))

    def tile(self) -> str:
        """The number of the vector within the whole loop."""
        inside, terms, step = self.tiles_inside(), ["q"], self.tiles_inside()
        for number in reversed(range(self.last)):
            terms.append(f"i{number} * {step}")
            step *= self.size(number)
        assert inside
        return " + ".join(terms)
