"""Rows that have a shape and a dtype and no elements, as torch's FakeTensor: what a user's Python computes with.

Takes: results of steps as they are on examples of two sizes. Gives: FakeRows for both, whose numbers of rows are
followed. Used at every call of a function whose reads no guard can watch. Source: docs/adr/0026.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Protocol

import torch
from torch import Tensor

from vgraph.capture.errors import CaptureError
from vgraph.capture.record.row_counts import RowCount
from vgraph.capture.rows.row_tensor import RowTensor
from vgraph.ir.moves import Move
from vgraph.ir.space import Space
from vgraph.user_line import recorded_line


class RowPair(RowCount):
    """A number of rows as it is on the examples of either size; what is computed from it is followed."""

    second: int

    def _following(name: str) -> Any:  # pyright: ignore
        method = getattr(int, name)

        def compute(self: RowPair, other: Any) -> Any:
            other_second = other.second if isinstance(other, RowPair) else other
            first, second = method(int.__int__(self), other), method(self.second, other_second)
            return row_pair(first, second) if type(first) is int and type(second) is int else first

        return compute

    __add__, __radd__ = _following("__add__"), _following("__radd__")
    __sub__, __rsub__ = _following("__sub__"), _following("__rsub__")
    __mul__, __rmul__ = _following("__mul__"), _following("__rmul__")
    __floordiv__, __mod__ = _following("__floordiv__"), _following("__mod__")


class _NoBranch:
    """Where numbers of rows notice that they are compared, or become plain numbers."""

    row_sizes = frozenset[int]()

    def note_branch(self) -> None:
        raise CaptureError("it branches on a number of rows or slots", recorded_line())

    def note_count(self) -> None:
        raise CaptureError("it makes a plain number of a number of rows", recorded_line())


_NO_BRANCH: Any = _NoBranch()


def row_pair(first: int, second: int, context: Any = _NO_BRANCH) -> int:
    """A number that counts rows if it differs between the examples of both sizes."""
    if first == second:
        return first
    number = RowPair(first)
    number.second, number.context = second, context
    return number


class Call(Protocol):
    """The call that goes on; see ``trace_tree.Cursor``."""

    def call(self, func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any: ...
    def note(self, action: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any: ...


class Owner(Protocol):
    """What fake rows belong to; see ``trace_tree.TraceTree``."""

    @property
    def cursor(self) -> Call | None: ...


SHAPE: Any = Tensor.shape.__get__  # pyright: ignore
_METHODS: tuple[Any, ...] = (Tensor.dim, Tensor.is_floating_point, Tensor.is_complex)
_PROPERTIES: tuple[Any, ...] = (
    Tensor.dtype,
    Tensor.device,
    Tensor.ndim,
    Tensor.requires_grad,
    Tensor.layout,
    Tensor.is_sparse,
)
_LOOKS: dict[Any, Any] = {look: look for look in (*_METHODS, *(p.__get__ for p in _PROPERTIES))}


class FakeRows(RowTensor):
    """Stands for one result of a step while a user's Python runs; it has a shape and a dtype, and no elements."""

    owner: Owner
    about: dict[Any, Any]  # what a look at shape, dtype or device gives
    twin: FakeRows  # the same rows as a plain tensor

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        named = kwargs or {}
        return _running(next(_fakes((args, tuple(named.values()))))).call(func, args, named)

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise CaptureError(f"{func} is called below the functions of torch", recorded_line())

    def bare(self) -> Tensor:
        return self.twin

    def seen_as(self, space: Space, context: Any) -> Any:
        return _running(self).note("rows", (self, space, *part_of(context)), {})

    def brought_to(self, space: Space) -> Any:
        return _running(self).note("brought", (self, space), {})

    def num_rows(self) -> int:
        return self.about[SHAPE][0]

    def row_shape(self) -> tuple[int, ...]:
        return tuple(self.about[SHAPE][1:])

    def moved(self, context: Any, move: Move) -> Tensor:
        """What ``move_rows`` gives."""
        return _running(self).note("moved", (self, move, *part_of(context)), {})

    def softmax(self, dim: int | None = None, dtype: torch.dtype | None = None) -> Tensor:
        return _running(self).note(Tensor.softmax, (self, dim, dtype), {})

    def log_softmax(self, dim: int | None = None, dtype: torch.dtype | None = None) -> Tensor:
        return _running(self).note(Tensor.log_softmax, (self, dim, dtype), {})

    def logsumexp(self, dim: Any = None, keepdim: bool = False) -> Tensor:
        return _running(self).note(Tensor.logsumexp, (self, dim, keepdim), {})


def part_of(context: Any) -> tuple[Any, ...]:
    """How a context of the vertices of one type is made again from a session: its class and its key."""
    return (type(context), context.key) if hasattr(context, "whole") else ()


def _running(fake: FakeRows) -> Call:
    call = fake.owner.cursor
    if call is None:
        raise CaptureError("rows of an earlier call are used", recorded_line())
    return call


def _fakes(tree: Any) -> Iterator[FakeRows]:
    if isinstance(tree, FakeRows):
        yield tree
    elif isinstance(tree, (tuple, list)):
        for item in tree:
            yield from _fakes(item)


def fake_rows(owner: Owner, first: Tensor, second: Tensor) -> FakeRows:
    """What stands for a result; ``first`` and ``second`` are that on examples of two sizes."""
    first, second = first.as_subclass(Tensor), second.as_subclass(Tensor)
    size = torch.Size([row_pair(a, b) for a, b in zip(first.shape, second.shape, strict=True)])
    count = row_pair(first.numel(), second.numel())
    made: Any = Tensor._make_wrapper_subclass(
        FakeRows, tuple(first.shape), dtype=first.dtype, device=first.device, requires_grad=first.requires_grad
    )
    made.owner, made.twin = owner, made
    made.about = {name: look(first) for name, look in _LOOKS.items()} | {
        SHAPE: size,
        Tensor.size: size,
        Tensor.numel: count,
        Tensor.nelement: count,
        Tensor.__repr__: f"<rows of shape {tuple(first.shape)}>",
    }
    return made
