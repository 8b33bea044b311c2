"""Arguments within bounds: what numbers a constructor or function takes stands above it, name by name.

Takes: a function and the bounds of its arguments. Gives: the function, which refuses what is outside before it does
anything. Runs once per function; the checks run at every call. Source: none.
"""

from __future__ import annotations

import functools
import inspect
import math
import os
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from operator import index
from typing import ParamSpec, TypeVar

from vgraph.errors import ArgumentError, VGraphError

Params = ParamSpec("Params")
Result = TypeVar("Result")


_LONGEST = 200  # letters of what was given that an error shows
MOST = 2**63 - 1  # what an id, a size and a C++ program count up to


@dataclass(frozen=True)
class Bound:
    """What an argument may be, in words and as a test; ``error``: what is raised where it is not."""

    words: str
    accepts: Callable[[object], bool]
    error: type[VGraphError] = ArgumentError
    number: Callable[[object], object] | None = None  # what it is given as; None: as it is

    def check(self, call: str, name: str, given: object) -> None:
        """ArgumentError, or the bound's own error: this argument of a call is outside."""
        if not self.accepts(given):
            is_long = isinstance(given, int) and abs(given) > MOST
            told = repr(given)
            if len(told) > _LONGEST or "\n" in told:
                told = f"a {type(given).__name__}"
            raise self.error(f"{call}({name}={told})", cure=f"give {self.words}" + ", of 64 bits" * is_long)

    def or_none(self) -> Bound:
        """The same, and None."""
        own, words = self.number, f"{self.words}, or None"
        number = None if own is None else lambda given: None if given is None else own(given)
        return Bound(words, lambda given: given is None or self.accepts(given), self.error, number)

    def or_pair(self) -> Bound:
        """The same, or a tuple of two of them."""
        return Bound(
            f"{self.words}, or a pair of them",
            lambda given: (
                all(map(self.accepts, given)) if isinstance(given, tuple) and len(given) == 2 else self.accepts(given)
            ),
        )

    def each(self) -> Bound:
        """A sequence of them, of any length."""
        return Bound(
            f"{self.words}, for each",
            lambda given: is_iterable(given) and all(map(self.accepts, given)),  # pyright: ignore
        )

    def by_name(self) -> Bound:
        """A mapping to it."""
        return Bound(
            f"{self.words}, for every name",
            lambda given: hasattr(given, "values") and all(map(self.accepts, given.values())),  # pyright: ignore
        )


def _is_truth_value(given: object) -> bool:
    """Whether it is True or False of any library, whose tensors of one are numbers, too."""
    return isinstance(given, bool) or str(getattr(given, "dtype", "")) in ("bool", "torch.bool")


def whole(least: int | None = None, most: int = MOST) -> Bound:
    """Whole numbers of any library from ``least`` to ``most``, or to those of 64 bits, but no truth value.

    Where they count nothing (``least`` is None: seeds), they are those that a ``torch.Generator`` takes.
    """
    low, high = (-MOST - 1, 2 * MOST + 1) if least is None else (least, most)

    def accepts(given: object) -> bool:
        try:
            number = index(given)  # pyright: ignore[reportArgumentType]
        except (TypeError, ValueError, RuntimeError):  # RuntimeError: a tensor of many numbers
            return False
        return not _is_truth_value(given) and low <= number <= high

    words = "a whole number" + ("" if least is None else f", {least} or more") + f", {most} at most" * (most < MOST)
    return Bound(words, accepts, number=index)  # pyright: ignore[reportArgumentType]


def real(words: str, fits: Callable[[float], bool]) -> Bound:
    """Numbers, also those of other libraries, that pass a test; NaN passes none that compares."""

    def accepts(given: object) -> bool:
        try:
            is_long = isinstance(given, int) and abs(given) > MOST  # which no tensor takes
            return hasattr(given, "__float__") and not is_long and fits(float(given))  # pyright: ignore[reportArgumentType]
        except (TypeError, ValueError, RuntimeError, OverflowError):
            return False

    return Bound(words, accepts)


def is_list_of(given: object, kind: type) -> bool:
    """Whether it is a sized collection, no text and no tensor, of things of a kind."""
    if not isinstance(given, Collection) or isinstance(given, str) or hasattr(given, "dtype"):
        return False
    return all(isinstance(one, kind) for one in given)


def is_iterable(given: object) -> bool:
    """Whether things can be taken of it one by one; a text is one thing, and so is a tensor of one number."""
    return isinstance(given, Iterable) and not isinstance(given, (str, bytes)) and getattr(given, "ndim", 1) > 0


WHOLE, COUNT, POSITIVE = whole(), whole(0), whole(1)
PART = real("a number from 0 to 1", lambda number: 0 <= number <= 1)
FROM_ZERO = real("a number, 0 or more", lambda number: number >= 0)
ABOVE_ZERO = real("a number above 0", lambda number: number > 0)
FINITE = real("a finite number above 0", lambda number: 0 < number < math.inf)
SECONDS = real("a number of seconds above 0, a year's at most", lambda number: 0 < number <= 366 * 24 * 3600)
NUMBER = real("a number", lambda number: not math.isnan(number))
FLAG = Bound("True or False", real("", lambda number: number in (0, 1)).or_none().accepts)
FUNCTION = Bound("a function", callable)
PATH = Bound("a path", lambda given: isinstance(given, (str, os.PathLike)) and "\0" not in str(given))
MAPPING = Bound("a dict", lambda given: isinstance(given, Mapping))
NAME = Bound("a name", lambda given: isinstance(given, str))
WORDS = Bound("a list of names", lambda given: is_list_of(given, str))
EACH = Bound("a list", is_iterable)
NAMES = Bound("a list of one or more names", lambda given: is_list_of(given, str) and bool(given))


def checked(**bounds: Bound) -> Callable[[Callable[Params, Result]], Callable[Params, Result]]:
    """A decorator: calls whose arguments are outside of the bounds raise ``ArgumentError``; defaults are not looked at.

    Whole numbers of other libraries reach the function as an ``int``: in-place arithmetic would write to a tensor.
    What is annotated ``bool`` has the bound ``FLAG``.

    >>> @checked(k=POSITIVE)
    ... def nearest(points: int, k: int = 1) -> int:
    ...     return points // k
    >>> nearest(3, k=0)
    Traceback (most recent call last):
    ...
    vgraph.errors.ArgumentError: nearest(k=0)
      at <doctest vgraph.arguments.checked[1]>:1
      cure: give a whole number, 1 or more
    """

    def bind(function: Callable[Params, Result]) -> Callable[Params, Result]:
        parameters = inspect.signature(function).parameters
        by_name = {name for name, one in parameters.items() if one.kind is one.KEYWORD_ONLY}
        places = {name: _NOWHERE if name in by_name else place for place, name in enumerate(parameters)}
        flags = {name: FLAG for name, one in parameters.items() if one.annotation in ("bool", "bool | None", bool)}
        wanted = [(name, places[name], bound) for name, bound in (flags | bounds).items()]

        @functools.wraps(function)
        def call(*args: Params.args, **kwargs: Params.kwargs) -> Result:
            for name, place, bound in wanted:
                given = args[place] if place < len(args) else kwargs.get(name, _DEFAULT)
                if given is not _DEFAULT and not bound.accepts(given):
                    whose = type(args[0]).__name__ if function.__name__ == "__init__" else function.__name__
                    bound.check(whose, name, given)
                if bound.number is not None and given is not _DEFAULT and type(given) is not int:
                    if place < len(args):
                        args = (*args[:place], bound.number(given), *args[place + 1 :])  # pyright: ignore
                    else:
                        kwargs[name] = bound.number(given)
            return function(*args, **kwargs)

        vars(call)["bounds"] = flags | bounds  # for whoever asks what has none
        return call

    return bind


_DEFAULT = object()
_NOWHERE = 2**31  # arguments
