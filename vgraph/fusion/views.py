"""Views inside kernels: where an element of a view lies in the row that it views.

Takes: view ops, Moves between the ends of edges. Gives: a Place. Runs once per function.
torch itself says where: the view is taken of a tensor without memory, and its strides are read off.
"""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from torch import Tensor

from vgraph.ir.kernel import KernelSpec, Place
from vgraph.ir.moves import Gather
from vgraph.ir.program import Op, Rows, Value, contiguous
from vgraph.ir.space import SHARED
from vgraph.ir.tdl.table import is_view

_NUM_ROWS = 7919  # a number of rows that no view can confuse with a size


def whole(value: Value) -> Place:
    """A value that views nothing; of a shared one, dims of size one ahead of the others left out."""
    shape = value.row_shape
    while value.space == SHARED and shape and shape[0] == 1:
        shape = shape[1:]
    return Place(value, "", 0, contiguous(shape), shape)


def place_of(spec: KernelSpec, value: Value) -> Place:
    """Where a kernel finds a value."""
    found = spec.places.get(value.id) or spec.wholes.get(value.id)
    if found is None:
        found = spec.wholes[value.id] = whole(value)
    return found


def view_places(op: Op, operand: Place) -> list[Place] | None:
    """Where the results of a view lie, one by one; None if they are not a view of rows."""
    if isinstance(op.target, Gather):
        if operand.end or op.target.end not in ("src", "dst"):
            return None
        return [Place(operand.base, op.target.end, operand.offset, operand.strides, operand.shape)]
    if not (is_view(op.target) or op.name == "expand"):
        return None
    return _by_torch(op, operand)


def _by_torch(op: Op, operand: Place) -> list[Place] | None:
    numel = math.prod(operand.base.row_shape)
    rows = torch.empty(0, device="meta").as_strided(
        (_NUM_ROWS, *operand.shape), (numel, *operand.strides), operand.offset
    )  # an element's address tells the row and the place in it
    if op.name in ("_unsafe_view", "reshape"):
        op = replace(op, target=torch.ops.aten.view.default)

    def concrete(leaf: object) -> object:
        if isinstance(leaf, Value):
            return rows
        return _NUM_ROWS * leaf.times if isinstance(leaf, Rows) else leaf

    try:
        found = op.evaluate(concrete)
    except RuntimeError:  # not a view of memory that lies like this
        return None
    results: list[Tensor] = [found] if isinstance(found, Tensor) else list(found)
    places = [_place(t, operand, numel) for t in results]
    known = [p for p in places if p is not None]
    return known if len(known) == len(places) == len(op.results) else None


def _place(rows: Tensor, operand: Place, numel: int) -> Place | None:
    if rows.dim() == 0 or rows.shape[0] != _NUM_ROWS or rows.stride(0) != numel:
        return None
    return Place(operand.base, operand.end, int(rows.storage_offset()), rows.stride()[1:], tuple(rows.shape[1:]))
