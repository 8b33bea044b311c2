"""Layout: the loops of a kernel, in order.

Takes: nothing (plain values). Gives: what stages.py plans and emitters print. Runs once per function.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from functools import cached_property

from vgraph.fusion.online_softmax import Riders
from vgraph.fusion.views import place_of
from vgraph.ir.kernel import KernelSpec, Place
from vgraph.ir.moves import OuterSum, SegmentReduce
from vgraph.ir.program import Op, Value, contiguous
from vgraph.ir.row_ops import Piece, feature_sum, row_product

Shape = tuple[int, ...]
Access = tuple[int, tuple[int, ...]]  # offset and strides over a loop's shape


@dataclass(eq=False)
class LoopStore:
    """Where a value goes.

    ``kind``: "store" (memory), "piece" (the part of the op's result in memory that is ``piece``), "array" (scratch
    of this row or edge), "keep" (scratch for each edge of this row), "reduce" (over edges), "feature" (a sum over
    features), "product" (of a row and a matrix), "left" and "right" (rows whose outer products are summed).
    """

    kind: str
    op: Op
    value: Value
    piece: Piece | None = None

    @property
    def access(self) -> Access:
        """How the loop that puts a piece walks the whole row."""
        assert self.piece is not None
        shape = self.value.row_shape
        return self.piece.offset, tuple(s for s, n in zip(self.piece.strides, shape, strict=True) if n != 1)


@dataclass(eq=False)
class Loop:
    """One pass over ``shape`` features."""

    shape: Shape
    loop_stores: list[LoopStore] = field(default_factory=list[LoopStore])

    @property
    def kinds(self) -> set[str]:
        return {store.kind for store in self.loop_stores}

    @property
    def fills_scratch(self) -> bool:
        """Whether later loops over the same edge or row may read what this one writes."""
        return not self.kinds.isdisjoint(("array", "feature", "product", "left", "right"))

    @property
    def reductions(self) -> list[Op]:
        """Those over edges."""
        return [store.op for store in self.loop_stores if store.kind == "reduce"]


@dataclass(eq=False)
class Stage:
    """Loops on the row (``over`` "") or on each of its edges ("in" or "out").

    ``riders``: sums of this stage that are relative to a maximum that is still running.
    ``joined``: to the stage of that number, whose maxima they ride on: they take some edges by turns.
    """

    number: int
    over: str
    loops: list[Loop]
    arrays: frozenset[int]  # ids of values that later loops of this stage read from scratch
    kept: frozenset[int]  # ids of values of edges that earlier stages kept
    online_sums: Riders
    joined: int | None = None


@dataclass(eq=False)
class Layout:
    """All stages of a kernel; ``row_arrays``: values of a row that later stages read from scratch."""

    spec: KernelSpec
    stages: list[Stage]
    row_arrays: frozenset[int]
    stage_of: dict[int, int]
    makers: dict[int, Op]

    @cached_property
    def used(self) -> frozenset[int]:
        """Ids of what is read or stored."""
        read = {v.id for op in self.spec.ops for v in op.operands()} | {v.id for v in self.spec.stores}
        return frozenset(read | {place.base.id for place in self.spec.places.values()})

    @property
    def outer_sums(self) -> list[Op]:
        return [op for op in self.spec.ops if isinstance(op.target, OuterSum)]

    def made(self, ids: Collection[int]) -> list[Value]:
        """Those of the values that the kernel makes, and reads."""
        return [v for op in self.spec.ops for v in op.results if v.id in ids and v.id in self.used]

    def place(self, value: Value) -> Place:
        return place_of(self.spec, value)


def needs_whole_row(op: Op) -> bool:
    """Whether one number of the result needs many of the operand's row."""
    return feature_sum(op) is not None or row_product(op) is not None


def is_reduction(op: Op) -> bool:
    """Whether the op takes edges away."""
    return isinstance(op.target, (SegmentReduce, OuterSum))


def plain_shape(shape: Shape) -> Shape:
    """Without dims of size one."""
    return tuple(n for n in shape if n != 1)


def sum_strides(op: Op) -> tuple[int, ...]:
    """Where a sum over features puts each of its operand's numbers, along the operand's plain shape."""
    (operand,), taken = op.operands(), feature_sum(op)
    assert taken is not None
    shape = operand.row_shape
    left = contiguous(tuple(1 if d in taken else n for d, n in enumerate(shape)))
    return tuple(0 if d in taken else left[d] for d, n in enumerate(shape) if n != 1)


def is_mean(op: Op) -> bool:
    return str(op.target).startswith("aten.mean")
