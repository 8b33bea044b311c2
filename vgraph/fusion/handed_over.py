"""Handed over: rows of edges that a kernel over in-edges leaves for one over out-edges.

Takes: a grouping that knows which ops are fused. Gives: ids of values. Runs once per function.
What is pointwise on edges is computed again in every kernel that reads it. A product with a matrix that is not small
costs more than to write its outcome and to read it, so that of two kernels that need one of them the first hands over
what follows from it, where that is narrowest. Such phases run on some edges at a time, so that these rows are never
more than a chunk's.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

from vgraph.fusion.as_late_as_possible import Grouping
from vgraph.ir.moves import OuterSum, SegmentReduce
from vgraph.ir.program import Op, Value
from vgraph.ir.row_ops import row_product
from vgraph.ir.space import EDGE

_TIMES_AS_DEAR = 16  # to write a number and to read it elsewhere, as to multiply and add one
_LINE = 16  # numbers: fewer are no cheaper to read at a place of their own


def find_handed_over(grouping: Grouping) -> set[int]:
    """Ids of the edge rows that sums over out-edges read instead of what they are made of."""
    return set(_Search(grouping).found())


@dataclass(eq=False)
class _Search:
    known: Grouping
    products: dict[int, frozenset[int]] = field(default_factory=dict[int, frozenset[int]])  # that a value needs, by ids
    sizes: dict[int, int] = field(default_factory=dict[int, int])  # numbers in the matrix of each

    def __post_init__(self) -> None:
        for op in self.known.phase.ops:
            if op.results[0].space == EDGE and id(op) in self.known.fused:
                needed, found = self._needed(op), row_product(op)
                if found is not None:
                    self.sizes[op.results[0].id] = math.prod(found[1].row_shape)
                    needed |= {op.results[0].id}
                self.products.update((v.id, needed) for v in op.results)

    def _bases(self, op: Op) -> Iterator[Value]:
        return (self.known.place(value).base for value in op.operands())

    def _needed(self, op: Op) -> frozenset[int]:
        """The products that an op's operands need."""
        return frozenset[int]().union(*(self.products.get(base.id, frozenset()) for base in self._bases(op)))

    def found(self) -> Iterator[int]:
        """The narrowest value on the way to each sum over out-edges that shares a product with in-edges' kernels."""
        at_in_edges = frozenset[int]().union(*(self._needed(op) for op in self._over_in_edges()))
        for op in self.known.phase.ops:
            is_out_sum = isinstance(op.target, SegmentReduce) and self.known.own_end(op) == "src"
            shared = self._needed(op) & at_in_edges
            if is_out_sum and id(op) in self.known.fused and shared:
                value = self._narrowest(op)
                if sum(map(self.sizes.__getitem__, shared)) >= _TIMES_AS_DEAR * max(_LINE, math.prod(value.row_shape)):
                    yield value.id

    def _over_in_edges(self) -> Iterator[Op]:
        """Ops of kernels over in-edges that take edges away, or whose rows of edges are kept anyway."""
        for op in self.known.phase.ops:
            if id(op) in self.known.fused and self.known.own_end(op) == "dst":
                kept = op.results[0].id in self.known.wanted | self.known.read_by_library
                if kept or isinstance(op.target, (SegmentReduce, OuterSum)):
                    yield op

    def _narrowest(self, op: Op) -> Value:
        """Up from a sum's operand as long as one value alone needs products; the last of the least bytes."""
        best: Value | None = None
        while True:
            above = {base.id: base for base in self._bases(op) if self.products.get(base.id)}
            if len(above) != 1 or (best is not None and row_product(op)):
                break
            (value,) = above.values()
            best = value if best is None or value.row_bytes < best.row_bytes else best
            op = self.known.makers[value.id]
        assert best is not None, "a sum that needs a product reads it"
        return best
