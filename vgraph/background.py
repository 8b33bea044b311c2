"""Background: work that runs while its caller goes on; compilers of C++ do theirs in a process of their own.

Takes: a function and its arguments. Gives: a Future of its result. Runs once per Program.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from threading import Thread
from typing import Any, Generic, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class Beginning(Generic[T]):
    """Something on whose parts others work in the background; ``finish`` waits for them and puts it together."""

    waits_for: Sequence[Future[Any]]
    finish: Callable[[], T]


def at_once(function: Callable[P, T], *args: P.args, **options: P.kwargs) -> Future[T]:
    """As ``in_background``, on this thread: what it raises is raised here.

    >>> at_once(pow, 2, 10).done()
    True
    """
    future = Future[T]()
    future.set_result(function(*args, **options))
    return future


def in_background(function: Callable[P, T], *args: P.args, **options: P.kwargs) -> Future[T]:
    """Runs ``function`` on a thread of its own. A forked process has no such thread: its copy is never done.

    >>> in_background(pow, 2, 10).result()
    1024
    """
    future = Future[T]()

    def work() -> None:
        try:
            future.set_result(function(*args, **options))
        except BaseException as error:
            future.set_exception(error)

    Thread(target=work, name="vgraph-background").start()
    return future
