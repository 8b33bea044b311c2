"""RowTensor: a tensor that knows what its rows are, and moves them when rows of two kinds meet.

Takes: calls of torch functions. Gives: the same calls on rows of one space; tempo: while tracing.
Source: HOUSE of spaces; Cavs section 3.1 (a vertex's own value meets its children's).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Protocol

import torch
from torch import Tensor

from vgraph.api.reductions import KEEPS_SLOTS, REDUCERS, Context, move_rows, reducer_names
from vgraph.api.tracer import user_line
from vgraph.errors import FunctionError
from vgraph.ir.moves import Gather
from vgraph.ir.program import EDGE, GRAPH, SHARED, VERTEX, Space, map_leaves

_REDUCERS = reducer_names()


class RowContext(Context, Protocol):
    """A Context in which a function runs; ``mailbox``: slots are dim 1, beside the vertices."""

    mailbox: tuple[int, int] | None
    watches_slots: bool  # the slot dim stands for any degree, so comparing it is noticed too
    widens: bool  # states of unknown width are one column wide and widen where a matrix meets them
    branched: bool  # set where a number of rows is compared: the trace holds for that number alone


class RowCount(int):
    """A number of rows that notices when it is compared."""

    context: RowContext

    def _noting(name: str) -> Any:  # pyright: ignore
        method = getattr(int, name)

        def compare(self: RowCount, other: object) -> bool:
            self.context.branched = True
            return method(int(self), other)

        return compare

    __eq__, __ne__, __lt__ = _noting("__eq__"), _noting("__ne__"), _noting("__lt__")
    __le__, __gt__, __ge__ = _noting("__le__"), _noting("__gt__"), _noting("__ge__")
    __hash__ = int.__hash__

    def __bool__(self) -> bool:
        self.context.branched = True
        return int(self) != 0


class RowTensor(Tensor):
    """Rows of one space; behaves as a plain tensor otherwise."""

    vg_space: Space
    vg_context: RowContext

    @classmethod
    def __torch_function__(
        cls,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        named = dict(kwargs or {})
        rows = [
            leaf for leaf in _tensors((args, tuple(named.values()))) if isinstance(leaf, RowTensor)
        ]
        if not rows or func in _PLAIN:
            out = super().__torch_function__(func, types, args, named)
            return _watched(func, out, rows[0].vg_context) if rows else out
        context, space = rows[0].vg_context, finest(row.vg_space for row in rows)
        name = _REDUCERS.get(func)
        if name is not None:
            reduced = _reduce(name, context, space, args, named)
            if reduced is not None:
                return reduced
        args, values = map_leaves((args, tuple(named.values())), lambda leaf: lift(leaf, space))
        if context.widens and func in _MATRIX_PRODUCTS:
            args = (_widened(args[0], args[1], func), *args[1:])
        out = super().__torch_function__(func, types, args, dict(zip(named, values, strict=True)))
        return map_leaves(out, lambda leaf: as_rows(leaf, space, context)) if _rewraps(out) else out

    # Without a dim these reduce (normalise) over the slots of each vertex; torch's need one.
    def softmax(self, dim: int | None = None, dtype: torch.dtype | None = None) -> Tensor:  # type: ignore[override]
        """Normalises over the slots of each vertex, or over a negative dim of the features."""
        return _without_dim(self, "softmax") if dim is None else torch.softmax(self, dim, dtype)

    def log_softmax(self, dim: int | None = None, dtype: torch.dtype | None = None) -> Tensor:  # type: ignore[override]
        """The logarithm of softmax."""
        return (
            _without_dim(self, "log_softmax")
            if dim is None
            else torch.log_softmax(self, dim, dtype)
        )

    def logsumexp(self, dim: Any = None, keepdim: bool = False) -> Tensor:  # type: ignore[override]
        """log(sum(exp)) over the slots of each vertex, or over negative dims of the features."""
        return (
            _without_dim(self, "logsumexp") if dim is None else torch.logsumexp(self, dim, keepdim)
        )


_PLAIN: frozenset[Any] = frozenset(
    {
        Tensor.shape.__get__,
        Tensor.dtype.__get__,
        Tensor.device.__get__,
        Tensor.requires_grad.__get__,
    }  # type: ignore[attr-defined]
    | {
        Tensor.size,
        Tensor.dim,
        Tensor.ndim.__get__,
        Tensor.numel,
        Tensor.__len__,
        Tensor.is_floating_point,
    }  # type: ignore[attr-defined]
    | {Tensor.layout.__get__, Tensor.is_sparse.__get__, Tensor.__repr__}  # type: ignore[attr-defined]
)
_FINENESS = {SHARED: 0, GRAPH: 1, VERTEX: 3, EDGE: 4}


_MATRIX_PRODUCTS = frozenset(
    {
        torch.nn.functional.linear,
        torch.matmul,
        torch.mm,
        Tensor.matmul,
        Tensor.mm,
        Tensor.__matmul__,
    }
)


def _widened(x: Any, matrix: Tensor, func: Any) -> Any:
    width = matrix.shape[1 if func is torch.nn.functional.linear else -2]
    return x if plain(x).shape[-1] != 1 else x.expand(*plain(x).shape[:-1], width)


def _watched(func: Any, out: Any, context: RowContext) -> Any:
    """Numbers of rows that the user asked for, made to notice comparisons."""
    if isinstance(out, torch.Size):
        return (
            torch.Size([_count(out[0], context), *_slot_counts(out[1:], context)]) if out else out
        )
    if func is Tensor.__len__:
        return _count(out, context)
    return out


def _slot_counts(sizes: Any, context: RowContext) -> list[int]:
    watched = context.watches_slots and len(sizes) > 0 and sizes[0] == context.mailbox[1]
    return [_count(sizes[0], context), *sizes[1:]] if watched else list(sizes)


def _count(size: int, context: RowContext) -> RowCount:
    number = RowCount(size)
    number.context = context
    return number


def finest(spaces: Iterator[Space]) -> Space:
    """The space in which values of several spaces meet: edges before vertices before graphs."""
    return max(spaces, key=lambda space: (_FINENESS.get(space, 2), space.key))


def _rewraps(out: Any) -> bool:
    return isinstance(out, (Tensor, tuple, list))


def _tensors(tree: Any) -> Iterator[Any]:
    if isinstance(tree, (tuple, list)):
        for item in tree:  # pyright: ignore[reportUnknownVariableType]
            yield from _tensors(item)
    else:
        yield tree


def as_rows(leaf: Any, space: Space, context: RowContext) -> Any:
    """A tensor seen as rows of ``space``; anything else unchanged."""
    if not isinstance(leaf, Tensor):
        return leaf
    out: RowTensor = (
        leaf
        if isinstance(leaf, RowTensor) and not hasattr(leaf, "vg_space")
        else leaf.as_subclass(RowTensor)
    )
    out.vg_space, out.vg_context = space, context
    return out


def plain(leaf: Any) -> Any:
    """The tensor itself, without the knowledge of rows."""
    return leaf.as_subclass(Tensor) if isinstance(leaf, RowTensor) else leaf


def lift(leaf: Any, space: Space) -> Any:
    """Brings a row tensor into a finer space: graph or subset to vertex, vertex to edge."""
    if not isinstance(leaf, RowTensor) or leaf.vg_space in (space, SHARED):
        return leaf
    context, rows, at = leaf.vg_context, plain(leaf), leaf.vg_space
    if at != VERTEX:
        rows = move_rows(context, Gather("graph" if at == GRAPH else at.key), rows)
    if space == EDGE:
        rows = move_rows(context, Gather("dst"), rows)
    return as_rows(rows, EDGE if space == EDGE else VERTEX, context)


def _without_dim(x: RowTensor, name: str) -> Tensor:
    reduced = _reduce(name, x.vg_context, x.vg_space, (x,), {})
    if reduced is None:
        raise FunctionError(
            f"{name} without a dim normalises over slots, but these rows are vertices",
            cure=f"give the feature dim: {name}(-1)",
            line=user_line(),
        )
    return reduced


def _reduce(
    name: str, context: RowContext, space: Space, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """The reduction over slots that this call asks for, or None if it is about features."""
    x = args[0]
    if not isinstance(x, RowTensor) or x.vg_space != space:
        return None
    if context.mailbox is not None:
        return _reduce_mailbox(name, context, x, args[1:], kwargs)
    if space != EDGE or len(args) > 1 or kwargs.keys() - {"unbiased", "correction", "dtype"}:
        return None
    return _wrap(REDUCERS[name](context, plain(x), **_spread_options(name, kwargs)), name, context)


def _spread_options(name: str, kwargs: dict[str, Any]) -> dict[str, Any]:
    if name not in ("var", "std"):
        return {}
    unbiased = kwargs.get("unbiased", True)
    return {"correction": kwargs.get("correction", 1 if unbiased else 0)}


def _wrap(out: Any, name: str, context: RowContext) -> Any:
    space = EDGE if name in KEEPS_SLOTS else VERTEX
    if isinstance(out, tuple):  # max and min over slots give values alone
        return as_rows(out[0], VERTEX, context)
    return as_rows(out, space, context)


def _reduce_mailbox(
    name: str, context: RowContext, x: RowTensor, rest: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """A torch call that reduces dim 1 of (vertices, slots, ...) alone."""
    assert context.mailbox is not None
    dim = rest[0] if rest else kwargs.get("dim")
    dims: Any = [dim] if isinstance(dim, int) and not isinstance(dim, bool) else dim
    bare = plain(x)
    if not isinstance(dims, (tuple, list)) or tuple(bare.shape[:2]) != context.mailbox:
        return None
    if [d % bare.dim() for d in dims] != [1] or kwargs.get("dtype") is not None:  # pyright: ignore[reportUnknownVariableType]
        return None
    keepdim = bool(
        kwargs.get("keepdim", rest[1] if len(rest) > 1 and name in _KEEPDIM_SECOND else False)
    )
    edges = bare.reshape(-1, *bare.shape[2:])
    out = REDUCERS[name](context, edges, **_spread_options(name, kwargs))
    return _as_mailbox_result(name, context, out, keepdim, tuple(bare.shape))


_KEEPDIM_SECOND = frozenset({"sum", "mean", "max", "min", "amax", "amin", "prod", "logsumexp"})


def _as_mailbox_result(
    name: str, context: RowContext, out: Any, keepdim: bool, shape: tuple[int, ...]
) -> Any:
    if name in KEEPS_SLOTS:
        return as_rows(out.reshape(shape), VERTEX, context)
    parts: tuple[Any, ...] = out if isinstance(out, tuple) else (out,)
    parts = tuple(p.unsqueeze(1) if keepdim else p for p in parts)
    wrapped = tuple(as_rows(p, VERTEX, context) for p in parts)
    if not isinstance(out, tuple):
        return wrapped[0]
    return getattr(torch.return_types, name)(wrapped)
