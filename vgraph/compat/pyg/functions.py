"""What stands for PyG's own functions over segments while a layer is recorded.

Takes: their arguments. Gives: segment reductions, where ids of edges' ends are given; what PyG gives elsewhere. Runs
once per function.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import wraps

import torch
from torch import Tensor, nn

from vgraph.capture.errors import CaptureError
from vgraph.capture.record.row_counts import plain_number
from vgraph.capture.rows.indexed_rows import IndexedRows, as_indexed, degrees, end_of, reduced
from vgraph.capture.rows.row_tensor import plain
from vgraph.capture.rows.slot_reductions import REDUCERS
from vgraph.compat.pyg.layer_types import Method
from vgraph.ir.space import EDGE, SOURCE, VERTEX

_REDUCTIONS = {
    "sum": "sum",
    "add": "sum",
    "mean": "mean",
    "max": "amax",
    "min": "amin",
    "mul": "prod",
    "amax": "amax",
    "amin": "amin",
}


def _scatter(src: Tensor, index: IndexedRows, dim: int = 0, dim_size: int | None = None, reduce: str = "sum") -> Tensor:
    context = index.joins
    _check_count(index, dim_size)
    if dim % src.dim() != 0 or reduce not in _REDUCTIONS:
        raise CaptureError(f"scatter with reduce={reduce!r} along dim {dim}")
    return as_indexed(reduced(context, src, end_of(index), _REDUCTIONS[reduce]), context)


def _softmax(src: Tensor, index: IndexedRows, ptr: object = None, num_nodes: int | None = None, dim: int = 0) -> Tensor:
    context, rows = index.joins, plain(src)
    if dim % rows.dim() != 0 or rows.shape[0] != context.sizes[EDGE] or end_of(index) != "dst":
        raise CaptureError("a softmax over other rows than the edges that end at a node")
    return as_indexed(REDUCERS["softmax"](context, rows), context)


def _degree(index: IndexedRows, num_nodes: int | None = None, dtype: torch.dtype | None = None) -> Tensor:
    context = index.joins
    _check_count(index, num_nodes)
    wanted = torch.get_default_dtype() if dtype is None else dtype
    return as_indexed(degrees(context, end_of(index), wanted), context)


def _check_count(index: IndexedRows, count: int | None) -> None:
    space = VERTEX if end_of(index) == "dst" else SOURCE
    if count is None or plain_number(count) != index.joins.sizes[space]:
        raise CaptureError("rows are added up to another number of rows than there are nodes")


_STAND_INS: dict[str, tuple[Callable[..., Tensor], int]] = {  # and at which place each takes the ids
    "scatter": (_scatter, 1),
    "softmax": (_softmax, 1),
    "degree": (_degree, 0),
}


@contextmanager
def standing_in() -> Generator[None]:
    """While it lasts, whoever calls PyG's functions with ids of edges' ends calls ours.

    They are found where modules hold them, for layers import them by name. Other threads notice nothing: all other
    calls go to PyG.
    """
    utils, aggregation = sys.modules["torch_geometric.utils"], sys.modules["torch_geometric.nn.aggr"].Aggregation
    changed: list[tuple[dict[str, object], str, object]] = []
    call = aggregation.__call__
    try:
        aggregation.__call__ = _unchecked(call)
        for name, (ours, place) in _STAND_INS.items():
            theirs = getattr(utils, name)
            instead = _one_of_both(theirs, ours, place)
            for module in list(sys.modules.values()):
                table = getattr(module, "__dict__", {})
                if table.get(name) is theirs:
                    changed.append((table, name, theirs))
                    table[name] = instead
        changed.append((torch.__dict__, "index_select", torch.index_select))
        torch.__dict__["index_select"] = _selecting(torch.index_select)
        yield
    finally:
        aggregation.__call__ = call
        for table, name, theirs in changed:
            table[name] = theirs


def _unchecked(theirs: Method) -> Method:
    """An aggregation without PyG's checks of sizes, which look at ids."""

    @wraps(theirs)
    def call(self: nn.Module, x: Tensor, index: object = None, *args: object, **named: object) -> object:
        if not end_of(index):
            return theirs(self, x, index, *args, **named)
        return nn.Module.__call__(self, x, index, *args, **named)

    return call


def _selecting(theirs: Method) -> Method:
    """In place of PyG's own ``torch.index_select``, which asks whether it is given a tensor of hashes: a method."""

    def index_select(input: Tensor, dim: int, index: Tensor, **named: Tensor) -> object:
        if isinstance(index, IndexedRows) and not named:
            return input.index_select(dim, index)
        return theirs(input, dim, index, **named)

    return index_select


def _one_of_both(theirs: Method, ours: Method, place: int) -> Method:
    @wraps(theirs)
    def choose(*args: object, **named: object) -> object:
        index = args[place] if len(args) > place else named.get("index")
        return (ours if end_of(index) else theirs)(*args, **named)

    return choose
