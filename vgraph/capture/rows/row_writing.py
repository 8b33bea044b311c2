"""Row writing: writes that have no room where they go, for rows or for fractions.

Takes: calls of torch functions on rows. Gives: an error, or nothing. Runs while a function is traced.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from torch import Tensor

from vgraph.capture.record.aliases import leaves_of
from vgraph.capture.record.op_tables import writes_in_place
from vgraph.errors import FunctionError
from vgraph.ir.space import EDGE, GRAPH, SHARED, VERTEX, Space

_ONE_ROW = {GRAPH.kind: "a graph", VERTEX.kind: "a vertex", EDGE.kind: "a child"}


def check_written(
    func: Callable[..., object], args: tuple[object, ...], named: Mapping[str, object], space: Space
) -> None:
    """Rows of a vertex have no room for those of its children, nor rows of a graph for those of its vertices.

    ``x += rows`` may be: Python gives the name to the result, which has as many rows as it needs.

    Args:
        func: the function of torch.
        args: its arguments.
        named: its arguments by name.
        space: the space in which the operands meet.

    Raises:
        FunctionError: the call would write to a copy in that space, and leave the tensor itself as it is.
    """
    name = func.__name__
    writes = writes_in_place(func) and (name == "__setitem__" or not name.startswith("__"))
    written = named.get("out") if named.get("out") is not None else args[0] if writes and args else None
    if not isinstance(written, Tensor):
        return
    own: Space = getattr(written, "vg_space", SHARED)
    if own in (space, SHARED):
        return
    what = "an assignment" if name == "__setitem__" else name
    fact = f"{what} writes one row {_ONE_ROW[space.kind]} to a tensor with one row {_ONE_ROW.get(own.kind, 'for some')}"
    raise FunctionError(fact, cure="make a new tensor, as in y = x + rows or y = torch.where(mask, rows, x)")


class LostFractionsError(RuntimeError):
    """States were guessed to be whole numbers, and the function writes other numbers into them."""


def check_whole(args: tuple[object, ...], named: Mapping[str, object], out: object) -> None:
    """Whole numbers stay whole numbers: those that a function fills with fractions are meant to be none.

    Here a tensor is asked for its dtype alone: a view of what was written to locks itself while autograd finds its way.

    Args:
        args: the arguments of a function of torch, what it writes to or fills first.
        named: its arguments by name.
        out: what it gave.

    Raises:
        LostFractionsError: what is first has whole numbers as before, and something else has fractions.
    """
    first = args[0] if args else None
    if not isinstance(first, Tensor) or first.dtype.is_floating_point or first.dtype.is_complex:
        return
    if out is not None and not (isinstance(out, Tensor) and out.dtype == first.dtype):
        return
    if any(map(_has_fractions, leaves_of((args[1:], tuple(named.values()))))):
        raise LostFractionsError("fractions are written to whole numbers")


def _has_fractions(leaf: object) -> bool:
    if isinstance(leaf, Tensor):
        return leaf.dtype.is_floating_point
    return isinstance(leaf, float) and leaf % 1 != 0
