"""Rows that have a shape and a dtype and no elements, as torch's FakeTensor: what a user's Python computes with.

Takes: results of steps as they are on examples of two sizes. Gives: FakeRows for both, whose numbers of rows are
followed. Used at every call of a function whose reads no guard can watch. Source: docs/adr/0026.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeVar, overload
from weakref import ReferenceType, ref

import torch
from torch import Size, Tensor

from vgraph.capture.errors import CaptureError
from vgraph.capture.record.aliases import leaves_of
from vgraph.capture.record.row_counts import (
    DIVIDED,
    FOLLOWED,
    RowCount,
    is_multiple,
    plain_number,
    set_methods,
)
from vgraph.capture.rows.row_tensor import OVER_SLOTS, PROPERTIES, RowTensor, TorchFunction
from vgraph.capture.rows.slot_reductions import Context
from vgraph.ir.moves import Move
from vgraph.ir.space import Space
from vgraph.user_line import recorded_line

T = TypeVar("T")


class RowPair(RowCount):
    """A number of rows as it is on the examples of either size; what is computed from it is followed."""

    context: PairContext

    def __init__(self, value: int, second: int, context: PairContext) -> None:
        super().__init__(value, context)
        self.second = second
        context.note_made(self)


def _second(number: object) -> object:
    return number.second if isinstance(number, RowPair) else number


def _following(function: Callable[..., object]) -> Callable[..., object]:
    def compute(self: RowPair, other: object) -> object:
        first = function(self.value, plain_number(other))
        if type(first) is int:
            second = function(self.second, _second(other))
            return row_pair(first, second, self.context) if type(second) is int else first
        self.context.note_branch()
        return first

    return compute


def _dividing(function: Callable[..., object]) -> Callable[..., object]:
    """Followed where nothing is left over, of both numbers."""
    follow = _following(function)

    def divide(self: RowPair, other: object) -> object:
        if not (is_multiple(self.value, plain_number(other)) and is_multiple(self.second, _second(other))):
            self.context.note_branch()
        return follow(self, other)

    return divide


set_methods(RowPair, _following, FOLLOWED)
set_methods(RowPair, _dividing, DIVIDED)


class PairContext:
    """Where numbers of rows notice that they are compared, or become plain numbers; of one call, or of no call."""

    row_sizes: frozenset[int] = frozenset()

    def note_branch(self) -> None:
        raise CaptureError("it branches on a number of rows or slots", recorded_line())

    def note_count(self) -> None:
        raise CaptureError("it makes a plain number of a number of rows", recorded_line())

    def note_made(self, pair: RowPair) -> None:
        """One more is there."""


class GivenCounts(PairContext):
    """Numbers of rows that the user's Python was given in one call, and what it has computed of them."""

    def __init__(self) -> None:
        self._made: list[ReferenceType[RowPair]] = []

    def note_made(self, pair: RowPair) -> None:
        self._made.append(ref(pair))

    def are_kept(self) -> bool:
        """Whether somebody holds on to one of them."""
        return any(made() is not None for made in self._made)

    @overload
    def given(self, out: Size) -> Size: ...
    @overload
    def given(self, out: T) -> T: ...
    def given(self, out: object) -> object:
        """A number of rows, or a shape, as one of this call; all else as it is."""
        if type(out) is RowPair:
            return RowPair(out.value, out.second, self)
        if type(out) is Size:
            return Size([self.given(size) for size in out])
        return out


_OF_NO_CALL = PairContext()


def row_pair(first: int, second: int, context: PairContext = _OF_NO_CALL) -> int:
    """A number that counts rows if it differs between the examples of both sizes."""
    if first == second:
        return first
    return RowPair(first, second, context)  # pyright: ignore[reportReturnType]  # it passes for an int


class Call(Protocol):
    """The call that goes on; see ``trace_tree.Cursor``."""

    def call(self, func: TorchFunction, args: tuple[Any, ...], kwargs: Mapping[str, object]) -> Any: ...
    def note(self, action: str | TorchFunction, args: tuple[object, ...], kwargs: Mapping[str, object]) -> Any: ...


class Owner(Protocol):
    """What fake rows belong to; see ``trace_tree.TraceTree``."""

    @property
    def cursor(self) -> Call | None: ...


SHAPE, DTYPE, *_OTHERS = PROPERTIES
_FIXED = [Tensor.dim, Tensor.is_floating_point, Tensor.is_complex, DTYPE, *_OTHERS]
COUNTING = frozenset({SHAPE, Tensor.size, Tensor.numel, Tensor.nelement})
LOOKS = COUNTING | {*_FIXED, Tensor.__repr__, Tensor.__len__}  # all that are no steps


class FakeRows(RowTensor):
    """Stands for one result of a step while a user's Python runs; it has a shape and a dtype, and no elements."""

    owner: Owner
    about: dict[TorchFunction, Any]  # what a look at shape, dtype or device gives
    twin: FakeRows  # the same rows as a plain tensor

    @classmethod
    def __torch_function__(
        cls,
        func: TorchFunction,
        types: object,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> Any:
        named = kwargs or {}
        one = args[0] if args else None
        if not isinstance(one, FakeRows):
            one = next(leaf for leaf in leaves_of((args, tuple(named.values()))) if isinstance(leaf, FakeRows))
        return _running(one).call(func, args, named)

    @classmethod
    def __torch_dispatch__(cls, func: object, types: object, args: object = (), kwargs: object = None) -> object:
        raise CaptureError(f"{func} is called below the functions of torch", recorded_line())

    def bare(self) -> Tensor:
        return self.twin

    def seen_as(self, space: Space, context: Context) -> RowTensor:
        return _running(self).note("rows", (self, space, *part_of(context)), {})

    def brought_to(self, space: Space) -> RowTensor:
        return _running(self).note("brought", (self, space), {})

    def num_rows(self) -> int:
        return self.about[SHAPE][0]

    def row_shape(self) -> tuple[int, ...]:
        return tuple(self.about[SHAPE][1:])

    def moved(self, context: Context, move: Move) -> Tensor:
        """What ``move_rows`` gives."""
        return _running(self).note("moved", (self, move, *part_of(context)), {})


def _noted(name: str) -> Callable[..., Tensor]:
    """One of ``RowTensor``'s own methods."""
    func = getattr(Tensor, name)
    return lambda self, *args, **kwargs: _running(self).note(func, (self, *args), kwargs)


for _name in OVER_SLOTS:
    setattr(FakeRows, _name, _noted(_name))


def part_of(context: Any) -> tuple[object, ...]:
    """How a context of the vertices of one type is made again from a session: its class and its key."""
    return (type(context), context.key) if hasattr(context, "whole") else ()


def _running(fake: FakeRows) -> Call:
    call = fake.owner.cursor
    if call is None:
        raise CaptureError("rows of an earlier call are used", recorded_line())
    return call


def fake_rows(owner: Owner, first: Tensor, second: Tensor) -> FakeRows:
    """What stands for a result; ``first`` and ``second`` are that on examples of two sizes."""
    first, second = first.as_subclass(Tensor), second.as_subclass(Tensor)
    size = torch.Size([row_pair(a, b) for a, b in zip(first.shape, second.shape, strict=True)])
    count = row_pair(first.numel(), second.numel())
    made: FakeRows = Tensor._make_wrapper_subclass(
        FakeRows, tuple(first.shape), dtype=first.dtype, device=first.device, requires_grad=first.requires_grad
    )
    made.owner, made.twin = owner, made
    made.about = {look: look(first) for look in _FIXED} | {
        SHAPE: size,
        Tensor.size: size,
        Tensor.numel: count,
        Tensor.nelement: count,
        Tensor.__repr__: f"<rows of shape {tuple(first.shape)}>",
    }
    return made
