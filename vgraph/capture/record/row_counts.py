"""Row counts: numbers of rows that notice what is done with them, while a function is recorded.

Takes: sizes of examples. Gives: the same sizes. Runs while a function is traced. A recording holds for any number of
rows only where nothing was decided by the examples' own.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from typing import Protocol, TypeAlias, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vgraph.ir.program import map_leaves

Given = TypeVar("Given")
Value = TypeVar("Value")


class CountContext(Protocol):
    """Who is told, and which sizes count rows."""

    @property
    def row_sizes(self) -> frozenset[int]: ...

    def note_branch(self) -> None: ...
    def note_count(self) -> None: ...


class RowCount(torch.SymInt):
    """A number of rows that notices when it is compared, or becomes a number that notices nothing.

    It passes for an int (``isinstance``), and torch takes it as a symbolic one. It is none to the interpreter, which
    compares an int with a float, or takes its logarithm, without asking it. Its operators are set below.
    """

    @property
    def __class__(self) -> type[int]:  # what isinstance asks  # pyright: ignore[reportIncompatibleMethodOverride]
        return int

    def __init__(self, value: int, context: CountContext) -> None:
        self.value, self.context = value, context

    @property
    def node(self) -> _Size:
        """What torch asks for the number where it takes a symbolic int."""
        return _Size(self.value)

    def __bool__(self) -> bool:
        self.context.note_branch()
        return self.value != 0

    def __getattr__(self, name: str) -> object:  # such as ``numerator``
        found = getattr(self.value, name)
        self.context.note_count()
        return found

    def __array__(self, dtype: np.dtype[np.generic] | None = None, copy: bool | None = None) -> NDArray[np.generic]:
        self.context.note_branch()
        return np.asarray(self.value, dtype)

    def __reduce_ex__(self, _: object) -> tuple[type[int], tuple[int]]:
        self.context.note_count()
        return int, (self.value,)


class _Size:
    """A number of rows within torch, on its way to the operator that is recorded."""

    def __init__(self, value: int) -> None:
        self.value = value

    def guard_int(self, _file: str, _line: int) -> int:
        """The number, where torch's own C++ needs it."""
        return self.value

    def maybe_as_int(self) -> int:
        """The number, of which C++ computes others."""
        return self.value

    def is_int(self) -> bool:
        """It is neither a float nor a truth value."""
        return True


def plain_number(leaf: object) -> object:
    """A number of rows as an int that notices nothing, within a slice too; all else as it is."""
    if isinstance(leaf, torch.SymInt):
        return leaf.node.value if isinstance(leaf.node, _Size) else leaf
    if isinstance(leaf, slice):
        return slice(plain_number(leaf.start), plain_number(leaf.stop), plain_number(leaf.step))
    return leaf


def plain_arguments(
    args: tuple[Given, ...], kwargs: Mapping[str, Value] | None
) -> tuple[tuple[Given, ...], dict[str, Value]]:
    """What a function of torch is given, numbers of rows as plain ints."""
    named = dict(kwargs) if kwargs else {}
    if counts_rows(args):
        args = map_leaves(args, plain_number)
    if named and counts_rows(named.values()):
        named = {name: map_leaves(value, plain_number) for name, value in named.items()}
    return args, named


def counts_rows(items: Iterable[object]) -> bool:
    """Whether a number of rows is among them; of most calls none is."""
    for item in items:
        if isinstance(item, torch.SymInt):
            return True
        if isinstance(item, (tuple, list)) and counts_rows(item):
            return True
        if isinstance(item, slice) and counts_rows((item.start, item.stop, item.step)):
            return True
    return False


# ---------------------------------------------------------------- what becomes of them
_Function: TypeAlias = Callable[..., object]
_Functions: TypeAlias = dict[str, _Function]
# What becomes of a number of rows: methods by name, and the functions of plain numbers behind them.
_COMPARED: _Functions = {name: getattr(operator, name) for name in "eq ne lt le gt ge".split()}
_BINARY: _Functions = {
    **{name: getattr(operator, name) for name in "add sub mul floordiv mod truediv lshift rshift xor".split()},
    "and": operator.and_, "or": operator.or_, "pow": pow, "divmod": divmod,
}  # fmt: skip
_UNARY: _Functions = {
    **{name: getattr(operator, name) for name in "pos neg abs invert".split()},
    "float": float, "complex": complex, "round": round, "trunc": math.trunc, "floor": math.floor, "ceil": math.ceil,
}  # fmt: skip
_TOLD: _Functions = {"int": int, "index": int, "hash": hash, "format": format, "str": str, "repr": repr}
_FOLLOWED, _DIVIDED = ("add", "sub", "mul"), ("floordiv", "mod")  # what they give may count rows itself


def set_methods(kind: type, make: Callable[[_Function], _Function], functions: _Functions) -> None:
    """Gives a class the methods ``__name__`` that ``make`` makes of functions of plain numbers."""
    for name, function in functions.items():
        setattr(kind, f"__{name}__", _left_to_tensors(make(function)))


def _left_to_tensors(method: _Function) -> _Function:
    """Beside a tensor a number is an argument of the tensor's operator, as any other."""

    @wraps(method)
    def asked(self: RowCount, *other: object) -> object:
        return NotImplemented if other and isinstance(other[0], Tensor) else method(self, *other)

    return asked


def both_sides(names: tuple[str, ...]) -> _Functions:
    """Operators by name, and those of a number of rows on the right."""
    given = {name: _BINARY[name] for name in names}
    return given | {f"r{name}": _reversed(function) for name, function in given.items()}


def _reversed(function: _Function) -> _Function:
    return lambda number, other: function(other, number)


def _noting(function: _Function) -> _Function:
    def compare(self: RowCount, other: object) -> object:
        same = isinstance(other, int) and self.value == plain_number(other)
        # equal in both recordings: the same number of rows, not a number that the user wrote
        if not (same and function in (operator.eq, operator.ne)):
            self.context.note_branch()
        return function(self.value, plain_number(other))

    return compare


def _counting(function: _Function) -> _Function:
    def compute(self: RowCount, other: object) -> object:
        found = function(self.value, plain_number(other))
        if type(found) is int:
            return RowCount(found, self.context)
        self.context.note_branch()  # what a float (a list) makes of it is not followed
        return found

    return compute


def _dividing(function: _Function) -> _Function:
    """Followed where nothing is left over, as for any number of rows: the examples' own numbers are prime.

    What else a division gives may be the same for the examples, all of which are odd, and another one later.
    """
    follow = _counting(function)

    def divide(self: RowCount, other: object) -> object:
        if not is_multiple(self.value, plain_number(other)):
            self.context.note_branch()
        return follow(self, other)

    return divide


def is_multiple(size: int, of: object) -> bool:
    """Whether a number divides another; what is no integer, or 0, is left to the operator."""
    return isinstance(of, int) and (of == 0 or size % of == 0)


def _leaving(function: _Function) -> _Function:
    def leave(self: RowCount, *other: object) -> object:
        self.context.note_branch()  # what is computed from it further on is not followed
        return function(self.value, *map(plain_number, other))

    return leave


def _told(function: _Function) -> _Function:
    def tell(self: RowCount, *other: object) -> object:
        self.context.note_count()
        return function(self.value, *other)

    return tell


FOLLOWED, DIVIDED = both_sides(_FOLLOWED), {name: _BINARY[name] for name in _DIVIDED}
_LEFT = {name: function for name, function in both_sides(tuple(_BINARY)).items() if name not in FOLLOWED | DIVIDED}
set_methods(RowCount, _noting, _COMPARED)
set_methods(RowCount, _counting, FOLLOWED)
set_methods(RowCount, _dividing, DIVIDED)
set_methods(RowCount, _leaving, _LEFT | _UNARY)
set_methods(RowCount, _told, _TOLD)
for _name in ("as_integer_ratio", "bit_length", "conjugate"):  # which SymInt has otherwise
    setattr(RowCount, _name, _leaving(getattr(int, _name)))


class PositiveCount(RowCount):
    """A number of rows that is known to be more than 0."""

    def __bool__(self) -> bool:
        return True


def _noting_positive(function: _Function) -> _Function:
    noting = _noting(function)

    def compare(self: PositiveCount, other: object) -> object:
        if type(other) is int and other <= 0:
            return function(self.value, other)
        return noting(self, other)

    return compare


set_methods(PositiveCount, _noting_positive, _COMPARED)
set_methods(PositiveCount, _told, {"hash": hash})


def as_count(size: int, context: CountContext) -> int:
    """A size that counts rows, or happens to be as large."""
    return count_of(size, context) if size in context.row_sizes else size


def count_of(size: int, context: CountContext) -> int:
    """The size as a number that knows what it counts: a RowCount."""
    return RowCount(size, context)  # pyright: ignore[reportReturnType]  # it passes for an int
