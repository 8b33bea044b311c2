"""Background: work that runs while its caller goes on; compilers of C++ do theirs in a process of their own.

Takes: a function and its arguments. Gives: what waits for its result. Runs once per Program.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from threading import Thread
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


def in_background(function: Callable[P, T], *args: P.args, **options: P.kwargs) -> Callable[[], T]:
    """Runs ``function`` on a thread of its own; what is given waits for its result, or raises what it raised.

    >>> wait = in_background(pow, 2, 10)
    >>> wait()
    1024
    """
    future = Future[T]()

    def work() -> None:
        try:
            future.set_result(function(*args, **options))
        except BaseException as error:
            future.set_exception(error)

    Thread(target=work, name="vgraph-background").start()
    return future.result
