"""Trampoline: recursion as deep as a user's function, which may have more ops in a row than Python has frames.

Takes: a recursive function written as a generator. Gives: what it returns. Runs once per function.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, TypeAlias, TypeVar

T = TypeVar("T")
Steps: TypeAlias = Generator[Any, Any, T]


def run_deep(call: Steps[T]) -> T:
    """The result of a call whose body yields every call of its own kind, and is sent what that returns.

    >>> def depth(nest):
    ...     return 1 + (yield depth(nest[0])) if nest else 0
    >>> nest = ()
    >>> for _ in range(10_000):
    ...     nest = (nest,)
    >>> run_deep(depth(nest))
    10000
    """
    waiting: list[Steps[Any]] = [call]
    result: Any = None
    while waiting:
        try:
            waiting.append(waiting[-1].send(result))
            result = None
        except StopIteration as returned:
            waiting.pop()
            result = returned.value
    return result
