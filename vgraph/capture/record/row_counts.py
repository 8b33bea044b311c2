"""Row counts: numbers of rows that notice what is done with them, while a function is recorded.

Takes: sizes of examples. Gives: the same sizes. Runs while a function is traced. A recording holds for any number of
rows only where nothing was decided by the examples' own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol


class CountContext(Protocol):
    """Who is told, and which sizes count rows."""

    @property
    def row_sizes(self) -> frozenset[int]: ...

    def note_branch(self) -> None: ...
    def note_count(self) -> None: ...


_exact = int.__int__  # the number itself, which notices nothing


class RowCount(int):
    """A number of rows that notices when it is compared, or becomes a number that notices nothing.

    Its arithmetic is set below, by the kinds of what int can do.
    """

    context: CountContext

    def __bool__(self) -> bool:
        self.context.note_branch()
        return _exact(self) != 0


def set_methods(kind: type, names: str, make: Callable[[str, Callable[..., Any]], Callable[..., object]]) -> None:
    """Gives a class the methods ``__name__`` of int that ``make`` makes of them."""
    for name in (f"__{word}__" for word in names.split()):
        setattr(kind, name, make(name, getattr(int, name)))


def _noting(name: str, method: Callable[..., bool]) -> Callable[..., bool]:
    def compare(self: RowCount, other: object) -> bool:
        same = isinstance(other, int) and _exact(self) == int.__int__(other)
        # equal in both recordings: the same number of rows, not a number that the user wrote
        if not (same and name in ("__eq__", "__ne__")):
            self.context.note_branch()
        return method(_exact(self), other)

    return compare


def _counting(_: str, method: Callable[..., object]) -> Callable[..., object]:
    def compute(self: RowCount, other: object) -> object:
        if isinstance(other, float):
            self.context.note_branch()  # what a float makes of it is not followed
        found = method(_exact(self), other)
        return count_of(found, self.context) if type(found) is int else found

    return compute


def _dividing(_: str, method: Callable[..., object]) -> Callable[..., object]:
    """Followed where nothing is left over, as for any number of rows: the examples' own numbers are prime.

    What else a division gives may be the same for the examples, all of which are odd, and another one later.
    """

    def divide(self: RowCount, other: object) -> object:
        if not is_multiple(_exact(self), other):
            self.context.note_branch()
        found = method(_exact(self), other)
        return count_of(found, self.context) if type(found) is int else found

    return divide


def is_multiple(size: int, of: object) -> bool:
    """Whether a number divides another; what is no integer, or 0, is left to the operator."""
    return isinstance(of, int) and (int.__int__(of) == 0 or size % int.__int__(of) == 0)


def _leaving(_: str, method: Callable[..., object]) -> Callable[..., object]:
    def leave(self: RowCount, *other: object) -> object:
        self.context.note_branch()  # what is computed from it further on is not followed
        return method(_exact(self), *other)

    return leave


def _told(_: str, method: Callable[..., object]) -> Callable[..., object]:
    def tell(self: RowCount, *other: object) -> object:
        self.context.note_count()
        return method(_exact(self), *other)

    return tell


FOLLOWED, DIVIDED = "add radd sub rsub mul rmul", "floordiv mod"  # what is computed of numbers of rows and may be one
set_methods(RowCount, "eq ne lt le gt ge", _noting)
set_methods(RowCount, FOLLOWED, _counting)
set_methods(RowCount, DIVIDED, _dividing)
set_methods(
    RowCount,
    "truediv rtruediv pow rpow float rfloordiv rmod divmod rdivmod and rand or ror xor rxor lshift rlshift rshift "
    "rrshift round trunc floor ceil pos neg abs invert",
    _leaving,
)
for _name in ("bit_length", "bit_count"):
    setattr(RowCount, _name, _leaving(_name, getattr(int, _name)))
set_methods(RowCount, "int hash format str repr", _told)


class PositiveCount(RowCount):
    """A number of rows that is known to be more than 0."""

    def __bool__(self) -> bool:
        return True


def _noting_positive(name: str, method: Callable[..., bool]) -> Callable[..., bool]:
    noting = getattr(RowCount, name)

    def compare(self: PositiveCount, other: object) -> bool:
        if type(other) is int and other <= 0:
            return method(_exact(self), other)
        return bool(noting(self, other))

    return compare


set_methods(PositiveCount, "eq ne lt le gt ge", _noting_positive)
PositiveCount.__hash__ = RowCount.__hash__


def as_count(size: int, context: CountContext) -> int:
    """A size that counts rows, or happens to be as large."""
    return count_of(size, context) if size in context.row_sizes else size


def count_of(size: int, context: CountContext) -> RowCount:
    """The size as a number that knows what it counts."""
    number = RowCount(size)
    number.context = context
    return number
