"""Cost: bytes and operations of ops on rows, once it is known how many rows there are.

Takes: Values, Ops, the number of rows of each space. Gives: numbers. Runs once per function and graph.
Source: Tofu section 4 (index notation tells operations and bytes).
"""

from __future__ import annotations

import math
from collections.abc import Callable

from vgraph.ir.kernel import KernelSpec
from vgraph.ir.moves import AnyMove, Gather, SegmentReduce
from vgraph.ir.program import Op, Rows, RowSum, Value
from vgraph.ir.space import EDGE, SHARED, SOURCE, VERTEX, Space
from vgraph.ir.tdl.table import is_view

Count = Callable[[Space], int]
_PRODUCTS = frozenset("mm addmm bmm baddbmm".split())
_SUMS = frozenset("sum mean amax amin prod var logsumexp".split())


def num_elements(value: Value, count: Count) -> int:
    """Elements of a value with all its rows."""
    return math.prod(d.times * count(d.space) if isinstance(d, Rows) else d for d in value.shape)


def num_bytes(value: Value, count: Count) -> int:
    """Bytes of a value with all its rows."""
    return num_elements(value, count) * value.dtype.itemsize


def is_product(op: Op) -> bool:
    return op.name in _PRODUCTS


def is_free(op: Op) -> bool:
    """Whether the op makes no memory of its own."""
    return not isinstance(op.target, AnyMove) and (is_view(op.target) or op.name == "expand")


def num_operations(op: Op, count: Count) -> int:
    """Multiplications and additions of a product; one an element of anything else that computes."""
    if is_product(op):
        left = next(v for v in list(op.operands())[-2:])
        inner = left.shape[-1]
        width = inner.times * count(inner.space) if isinstance(inner, Rows) else inner
        return 2 * num_elements(op.results[0], count) * width
    if isinstance(op.target, RowSum):
        return (1 + len(op.target.ops)) * max(num_elements(v, count) for v in op.operands())
    if isinstance(op.target, SegmentReduce) or op.name in _SUMS:
        return sum(num_elements(v, count) for v in op.operands())
    if isinstance(op.target, Gather) or is_free(op):
        return 0
    return num_elements(op.results[0], count)


def kernel_bytes(spec: KernelSpec, count: Count) -> tuple[int, int]:
    """Bytes that a kernel reads (a row at the far end of an edge counts once an edge) and writes."""
    reads = {(p.base.id, p.end): (p.base, p.end) for p in (spec.places.get(v.id) for v in _operands(spec)) if p}
    reads.update({(v.id, ""): (v, "") for v in _operands(spec) if v.id not in spec.places})
    loaded = {v.id for v in (*spec.loads, *spec.made_ahead)}
    total = sum(_read(base, end, spec, count) for base, end in reads.values() if base.id in loaded)
    uses_edges = any(v.space == EDGE for op in spec.ops for v in (*op.operands(), *op.results))
    index = 4 * count(EDGE) + 8 * count(SOURCE if spec.is_source else VERTEX) if uses_edges else 0
    return total + index, sum(num_bytes(v, count) for v in spec.stores)


def _operands(spec: KernelSpec) -> list[Value]:
    return [v for op in spec.ops for v in op.operands()]


def _read(base: Value, end: str, spec: KernelSpec, count: Count) -> int:
    if base.space == SHARED or end in ("", spec.own):
        return num_bytes(base, count)
    return count(EDGE) * base.row_bytes
