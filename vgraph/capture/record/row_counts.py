"""Row counts: numbers of rows that notice what is done with them, while a function is recorded.

Takes: sizes of examples. Gives: the same sizes. Runs while a function is traced. A recording holds for any number of
rows only where nothing was decided by the examples' own.
"""

from __future__ import annotations

from typing import Any, Protocol


class CountContext(Protocol):
    """Who is told, and which sizes count rows."""

    @property
    def row_sizes(self) -> frozenset[int]: ...

    def note_branch(self) -> None: ...
    def note_count(self) -> None: ...


_exact = int.__int__  # the number itself, which notices nothing


class RowCount(int):
    """A number of rows that notices when it is compared, or becomes a number that notices nothing."""

    context: CountContext

    def _noting(name: str) -> Any:  # pyright: ignore
        method = getattr(int, name)

        def compare(self: RowCount, other: object) -> bool:
            same = isinstance(other, int) and _exact(self) == int.__int__(other)
            # equal in both recordings: the same number of rows, not a number that the user wrote
            if not (same and name in ("__eq__", "__ne__")):
                self.context.note_branch()
            return method(_exact(self), other)

        return compare

    __eq__, __ne__, __lt__ = _noting("__eq__"), _noting("__ne__"), _noting("__lt__")
    __le__, __gt__, __ge__ = _noting("__le__"), _noting("__gt__"), _noting("__ge__")

    def __bool__(self) -> bool:
        self.context.note_branch()
        return _exact(self) != 0

    def _counting(name: str) -> Any:  # pyright: ignore
        method = getattr(int, name)

        def compute(self: RowCount, other: Any) -> Any:
            found = method(_exact(self), other)
            return count_of(found, self.context) if type(found) is int else found

        return compute

    def _leaving(name: str) -> Any:  # pyright: ignore
        method = getattr(int, name)

        def leave(self: RowCount, *other: Any) -> Any:
            self.context.note_branch()  # what is computed from it further on is not followed
            return method(_exact(self), *other)

        return leave

    __add__, __radd__ = _counting("__add__"), _counting("__radd__")
    __sub__, __rsub__ = _counting("__sub__"), _counting("__rsub__")
    __mul__, __rmul__ = _counting("__mul__"), _counting("__rmul__")
    __floordiv__, __mod__ = _counting("__floordiv__"), _counting("__mod__")
    __truediv__, __rtruediv__ = _leaving("__truediv__"), _leaving("__rtruediv__")
    __pow__, __rpow__, __float__ = _leaving("__pow__"), _leaving("__rpow__"), _leaving("__float__")
    __rfloordiv__, __rmod__ = _leaving("__rfloordiv__"), _leaving("__rmod__")
    __divmod__, __rdivmod__ = _leaving("__divmod__"), _leaving("__rdivmod__")
    __and__, __or__, __xor__ = _leaving("__and__"), _leaving("__or__"), _leaving("__xor__")
    __lshift__, __rshift__, __round__ = _leaving("__lshift__"), _leaving("__rshift__"), _leaving("__round__")
    __neg__, __abs__, __invert__ = _leaving("__neg__"), _leaving("__abs__"), _leaving("__invert__")

    def _told(name: str) -> Any:  # pyright: ignore
        method = getattr(int, name)

        def tell(self: RowCount, *other: Any) -> Any:
            self.context.note_count()
            return method(_exact(self), *other)

        return tell

    __int__, __hash__, __format__ = _told("__int__"), _told("__hash__"), _told("__format__")
    __str__, __repr__ = _told("__str__"), _told("__repr__")


def as_count(size: int, context: CountContext) -> int:
    """A size that counts rows, or happens to be as large."""
    return count_of(size, context) if size in context.row_sizes else size


def count_of(size: int, context: CountContext) -> RowCount:
    """The size as a number that knows what it counts."""
    number = RowCount(size)
    number.context = context
    return number
