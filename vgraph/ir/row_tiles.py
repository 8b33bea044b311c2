"""Row tiles: whether a kernel can take some features of all rows at a time, and which rows it then reads from copies.

Takes: a KernelSpec. Gives: the loads that are copied tile by tile. Runs once per function.
Edges read rows of vertices at random. While the rows of all vertices are larger than the caches, most reads wait for
memory; some features of all rows, side by side in a copy, are not (docs/adr/0046-features-are-taken-in-tiles.md).
"""

from __future__ import annotations

import math

from vgraph.ir.kernel import KernelSpec
from vgraph.ir.moves import OuterSum, Random, SegmentReduce
from vgraph.ir.program import Op, Value, contiguous, once_each
from vgraph.ir.row_ops import feature_sum, joined_rows, row_product
from vgraph.ir.space import EDGE, SHARED

TILE_BYTES = 128  # of a row: two cache lines, which processors fetch together
_MOST_OPS = 4  # on edges, for each row that they read: with more, arithmetic is what takes the time


@once_each
def tiled_loads(spec: KernelSpec) -> tuple[Value, ...]:
    """The loads that edges read at their other end, where every feature is computed from the same one of others.

    None where a row is a tile or less, where something takes several features of a row, where an edge computes a single
    number, which would be computed once a tile, or where it computes so much that it does not wait for memory.
    """
    wide = tuple([v for v in spec.loads if v.id in spec.gathered and math.prod(v.row_shape) > 1])
    if spec.in_loop or not wide:
        return ()
    size, itemsize = math.prod(wide[0].row_shape), wide[0].dtype.itemsize
    is_alike = all(math.prod(v.row_shape) == size and v.dtype.itemsize == itemsize for v in wide)
    row_bytes = size * itemsize
    if not is_alike or row_bytes % TILE_BYTES or row_bytes == TILE_BYTES:
        return ()
    num_ops = sum(isinstance(op.target, SegmentReduce) or op.results[0].space == EDGE for op in spec.ops)
    wide_edges = any(v.space == EDGE and math.prod(v.row_shape) > 1 for v in spec.loads)
    if wide_edges or num_ops > _MOST_OPS * len(wide) or any(v.space in (EDGE, SHARED) for v in spec.stores):
        return ()
    return wide if all(is_apart(spec, op, size) for op in spec.ops) else ()


def tile_size(spec: KernelSpec) -> int:
    """Features of a tile."""
    return TILE_BYTES // tiled_loads(spec)[0].dtype.itemsize


def num_tiles(spec: KernelSpec) -> int:
    """How many a row has."""
    return math.prod(tiled_loads(spec)[0].row_shape) // tile_size(spec)


def is_apart(spec: KernelSpec, op: Op, size: int) -> bool:
    """Whether each of ``size`` features of what the op makes comes from the same feature of what it reads."""
    if isinstance(op.target, (OuterSum, Random)) or feature_sum(op) is not None or row_product(op) is not None:
        return False
    if isinstance(op.target, SegmentReduce) or op.results[0].space == EDGE:
        is_whole = all(math.prod(v.row_shape) == size for v in op.results)
    else:
        pieces = joined_rows(op)
        if pieces is not None:
            is_whole = all(piece.strides == contiguous(piece.value.row_shape) for piece in pieces)
        else:
            is_whole = all(math.prod(v.row_shape) in (1, size) for v in op.results)
    return is_whole and all(_reads_in_order(spec, value, size) for value in op.operands())


def _reads_in_order(spec: KernelSpec, value: Value, size: int) -> bool:
    """Whether an operand is one number a row, or as many as there are features, one after the other."""
    place = spec.places.get(value.id)
    base = value if place is None else place.base
    count = math.prod(base.row_shape)
    if count == 1:
        return True
    if count != size:
        return False
    return place is None or (place.size == size and place.offset == 0 and place.is_plain)
