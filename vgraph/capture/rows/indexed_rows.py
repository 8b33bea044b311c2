"""IndexedRows: rows of edges and vertices that a function joins by ids, as PyG's message functions do.

Takes: calls of torch functions. Gives: the same calls; what reads or adds up rows at the ends of edges becomes a Move.
Runs while a function is traced. Source: Fey and Lenssen 2019 (PyG), section 2 (gather and scatter).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import torch
from torch import Tensor

from vgraph.capture.errors import CaptureError
from vgraph.capture.record.aliases import leaves_of
from vgraph.capture.record.row_counts import PositiveCount, RowCount, plain_arguments
from vgraph.capture.rows.row_tensor import PLAIN, RowContext, RowTensor, TorchFunction, by_place, plain, watched
from vgraph.capture.rows.slot_reductions import REDUCERS, move_rows, scattered_extremum
from vgraph.capture.rows.torch_overrides import STAND_INS
from vgraph.ir.moves import Gather, SegmentReduce
from vgraph.ir.program import map_leaves
from vgraph.ir.space import EDGE, SHARED, SOURCE, VERTEX, Space
from vgraph.user_line import recorded_line


class Joins(RowContext, Protocol):
    """A RowContext that says how many rows its examples have."""

    @property
    def sizes(self) -> Mapping[Space, int]: ...


class IndexedRows(RowTensor):
    """A tensor of a function that joins rows by ids.

    ``known_as``: the end of every edge whose ids these were, "" for other numbers, and the version they had then.
    """

    known_as: tuple[str, int]
    joins: Joins

    @property
    def end(self) -> str:
        """The ids of this end of every edge, unless somebody has written to them since; "": other numbers."""
        end, version = self.known_as
        return end if version == plain(self)._version else ""

    @classmethod
    def __torch_function__(
        cls,
        func: TorchFunction,
        types: object,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        args, named = plain_arguments(args, kwargs)
        rows = [leaf for leaf in leaves_of((args, tuple(named.values()))) if isinstance(leaf, IndexedRows)]
        if not rows:
            return _run(func, types, args, named)
        context = rows[0].joins
        if func in PLAIN:
            return _positive(watched(func, _run(func, types, args, named), context))
        joined = _JOINS.get(func)
        if joined is not None and any(row.end for row in rows):
            out = joined(context, func, *args, **{_ALSO_CALLED.get(name, name): value for name, value in named.items()})
        else:
            out = None
        if out is None and func in STAND_INS:
            out = STAND_INS[func](*args, **named)
        if out is None and rows[0].vg_space != SHARED:
            out = by_place(func, args, named)
        if out is None:
            out = _run(func, types, args, named)
        end = rows[0].end if func in _VIEWS and rows[0] is args[0] else ""
        return map_leaves(out, lambda leaf: _wrapped(leaf, context, end) if isinstance(leaf, Tensor) else leaf)


def _run(func: TorchFunction, types: object, args: tuple[object, ...], named: Mapping[str, object]) -> object:
    """What torch itself does."""
    return super(RowTensor, IndexedRows).__torch_function__(func, types, args, named)


def _positive(size: object) -> object:
    """Numbers of rows that are more than 0: a graph without edges is no occasion to record anything."""
    if isinstance(size, torch.Size):
        return torch.Size([_positive(one) for one in size])  # pyright: ignore[reportArgumentType]
    if not isinstance(size, RowCount):
        return size
    return PositiveCount(size.value, size.context)


def _wrapped(tensor: Tensor, context: Joins, end: str) -> IndexedRows:
    if isinstance(tensor, IndexedRows) and hasattr(tensor, "known_as") and tensor.end:  # handed through
        return tensor
    made = as_indexed(tensor, context)
    return (
        as_indexed(made, context, end) if end and made.vg_space == EDGE and plain(made).dtype == torch.int64 else made
    )


def as_indexed(tensor: Tensor, context: Joins, end: str = "") -> IndexedRows:
    """A tensor seen by a function that joins rows by ids; its leading size tells what its rows are."""
    made = tensor if isinstance(tensor, IndexedRows) else plain(tensor).as_subclass(IndexedRows)
    size = plain(made).shape[0] if plain(made).dim() else None
    spaces = [space for space in (EDGE, VERTEX, SOURCE) if context.sizes[space] == size]
    made.vg_space, made.vg_context, made.joins = (spaces or [SHARED])[0], context, context
    made.known_as = end, plain(made)._version
    return made


# ---------------------------------------------------------------- rows read at ids, and added up at ids
def gathered(context: Joins, x: Tensor, end: str) -> Tensor:
    """The row of one end for every edge."""
    size = context.sizes[VERTEX if end == "dst" else SOURCE]
    if plain(x).dim() == 0 or plain(x).shape[0] != size:
        raise CaptureError("rows are read by ids of other rows", recorded_line())
    return move_rows(context, Gather(end), plain(x))


def reduced(context: Joins, x: Tensor, end: str, reduction: str) -> Tensor:
    """One row for every destination; where it has no edge: 0, and 1 for a product."""
    rows = plain(x)
    if rows.dim() == 0 or rows.shape[0] != context.sizes[EDGE]:
        raise CaptureError("what is added up at ids has not one row an edge", recorded_line())
    if end != "dst":
        if reduction != "sum":
            raise CaptureError(f"{reduction} over the edges that leave a node", recorded_line())
        return move_rows(context, SegmentReduce("src", "sum"), rows)
    if not rows.is_floating_point():
        raise CaptureError("what is added up at ids are no floating-point numbers", recorded_line())
    if reduction in ("amax", "amin"):
        return scattered_extremum(reduction[1:], context, rows)
    return REDUCERS[reduction](context, rows)


def degrees(context: Joins, end: str, dtype: torch.dtype) -> Tensor:
    """How many edges end at every destination, or leave every source."""
    if end == "dst":
        return context.in_degree().to(dtype)
    ones = torch.ones_like(context.slots(), dtype=torch.float64)  # whose sums are right up to any number of edges
    return move_rows(context, SegmentReduce("src", "sum"), ones).to(dtype)


def end_of(index: object) -> str:
    """The end of which these are the ids, one an edge; "": they are others."""
    return index.end if isinstance(index, IndexedRows) else ""


def _select(context: Joins, _: TorchFunction, x: Tensor, dim: int, index: Tensor) -> Tensor | None:
    is_of_edges = end_of(index) and plain(index).dim() == 1 and dim % plain(x).dim() == 0
    return gathered(context, x, end_of(index)) if is_of_edges else None


def _item(context: Joins, _: TorchFunction, x: Tensor, index: object) -> Tensor | None:
    is_of_edges = isinstance(index, IndexedRows) and index.end and plain(index).dim() == 1
    return gathered(context, x, end_of(index)) if is_of_edges else None


def _add(
    context: Joins, func: TorchFunction, x: Tensor, dim: int, index: Tensor, src: object, *, alpha: float = 1
) -> Tensor | None:
    if not end_of(index) or dim % plain(x).dim() != 0 or not isinstance(src, Tensor):
        return None
    _check_ids(func, index, src)
    _check_dtype(x, src)
    wide = plain(src) if alpha == 1 else plain(src) * alpha
    found = reduced(context, wide, end_of(index), "sum")
    _check_rows(x, found)
    return x.add_(found) if func.__name__.endswith("_") else x + found


_OF_TORCH = {"sum": "sum", "mean": "mean", "prod": "prod", "amax": "amax", "amin": "amin"}


def _scatter_reduce(
    context: Joins, func: TorchFunction, x: Tensor, dim: int, index: Tensor, src: Tensor, reduce: str, **named: object
) -> Tensor | None:
    if not end_of(index) or dim % plain(x).dim() != 0 or plain(index).shape != plain(src).shape:
        return None
    _check_dtype(x, src)
    found = reduced(context, plain(src), end_of(index), _OF_TORCH[reduce])
    _check_rows(x, found)
    in_place, before = func.__name__.endswith("_"), plain(x)
    is_empty = context.in_degree() == 0
    is_empty = is_empty.view(-1, *(1 for _ in found.shape[1:]))
    if named.get("include_self", True):
        joined = _JOINED.get(reduce)
        if joined is None:
            raise CaptureError("a mean with what was there before", recorded_line())
        before = before.clone() if in_place else before  # a derivative needs it as it was
        found = joined(before, found)
    found = torch.where(is_empty, before, found)
    return x.copy_(found) if in_place else found


_JOINED: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "sum": torch.add,
    "prod": torch.mul,
    "amax": torch.maximum,
    "amin": torch.minimum,
}


def _check_ids(func: TorchFunction, index: Tensor, src: Tensor) -> None:
    """A function called after an index takes one id a row, the others one a number; torch refuses whatever else."""
    ids = plain(index)
    fits = ids.dim() == 1 if func.__name__.startswith("index") else ids.shape == plain(src).shape
    if not fits:
        raise CaptureError(f"{func.__name__} is given ids of another shape than it takes", recorded_line())


def _check_dtype(x: Tensor, src: Tensor) -> None:
    """Of both; torch refuses to add up numbers of another."""
    if plain(x).dtype != plain(src).dtype:
        raise CaptureError("what is added up at ids is of another dtype than what it goes to", recorded_line())


def _check_rows(x: Tensor, found: Tensor) -> None:
    if plain(x).shape != found.shape:
        raise CaptureError("what is added up at ids goes to other rows", recorded_line())


_JOINS: dict[TorchFunction, Callable[..., Tensor | None]] = {
    **dict.fromkeys((torch.index_select, Tensor.index_select), _select),
    Tensor.__getitem__: _item,
    **dict.fromkeys((torch.scatter_add, Tensor.scatter_add, Tensor.scatter_add_), _add),
    **dict.fromkeys((torch.index_add, Tensor.index_add, Tensor.index_add_), _add),
    **dict.fromkeys((torch.scatter_reduce, Tensor.scatter_reduce, Tensor.scatter_reduce_), _scatter_reduce),
}
_ALSO_CALLED = {"input": "x", "source": "src"}  # torch's names of arguments that are called otherwise above
_VIEWS = frozenset[TorchFunction](
    getattr(Tensor, name)
    for name in "view reshape expand expand_as unsqueeze contiguous to long detach clone squeeze".split()
)
