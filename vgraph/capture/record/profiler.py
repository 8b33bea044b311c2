"""Profiler: who watches a thread's Python code, put aside while vgraph watches it, and put back.

Takes: nothing. Gives: the thread's profiler, whether it is written in Python or in C. Runs once per function.
"""

from __future__ import annotations

import ctypes
import sys
import threading
import types
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, wraps
from typing import NamedTuple, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")
Watcher = Callable[[types.FrameType, str, object], None]


class _Watching(threading.local):
    """This thread's watcher that vgraph has set, if it was the last that did."""

    by: Watcher | None = None


_watching = _Watching()


@dataclass(frozen=True, eq=False)
class Profiler:
    """What a thread's events are told to: a ``function`` of C (0: unknown) with its ``argument``.

    Python gives and takes the argument alone, and calls it. That of a profiler written in C, such as torch's with
    ``with_stack=True``, cannot be called, and may be missing.
    """

    function: int
    argument: object
    own: Watcher | None = None

    def resume(self) -> None:
        """The thread's events are told to it again."""
        if self.function:
            _of_python().set_profile(self.function, None if self.argument is None else id(self.argument))
        else:
            sys.setprofile(self.argument if callable(self.argument) else None)
        _watching.by = self.own  # last: until then ``stop_watching`` knows whose it was


def replace_profiler(by: Watcher | None) -> Profiler:
    """Tells this thread's events to ``by``; gives who was told before.

    Whoever comes back has seen two functions begin that it does not see return, this one and its caller, and
    sees two return whose beginning it missed: ``resume`` and its caller. So its own account comes out even.
    """
    place = _place_of_function()
    before = Profiler(0 if place is None else _thread_state()[place] or 0, sys.getprofile(), _watching.by)
    _watching.by = by
    sys.setprofile(by)
    return before


def stop_watching(before: object) -> None:
    """Puts ``before`` in the place of vgraph's own watcher, if that has been left behind."""
    if _watching.by is not None and sys.getprofile() is _watching.by and _watching.by is not before:
        _watching.by = None
        sys.setprofile(before if callable(before) else None)


def unseen(function: Callable[P, T]) -> Callable[P, T]:
    """The same function without events for vgraph's own watcher: what it does is no work of the user's.

    To be told of every call that our own work makes takes several times as long as the work.
    """

    @wraps(function)
    def quietly(*args: P.args, **kwargs: P.kwargs) -> T:
        by = _watching.by
        if by is None or sys.getprofile() is not by:  # nobody watches, or somebody else
            return function(*args, **kwargs)
        sys.setprofile(None)
        try:
            return function(*args, **kwargs)
        finally:
            sys.setprofile(by)

    return quietly


class _OfPython(NamedTuple):
    set_profile: Callable[[int | None, int | None], None]  # takes the addresses of a function of C and of an object
    thread_state: Callable[[], int]  # its address


_NUM_WORDS = 32  # of a thread's state; every version of CPython has more
_Event = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p)


@cache
def _of_python() -> _OfPython:
    set_profile, thread_state = ctypes.pythonapi.PyEval_SetProfile, ctypes.pythonapi.PyThreadState_Get
    set_profile.restype, set_profile.argtypes = None, (ctypes.c_void_p, ctypes.c_void_p)
    thread_state.restype, thread_state.argtypes = ctypes.c_void_p, ()
    return _OfPython(set_profile, thread_state)


def _thread_state() -> list[int | None]:
    return list((ctypes.c_void_p * _NUM_WORDS).from_address(_of_python().thread_state()))


@cache
def _place_of_function() -> int | None:
    """Which word of a thread's state is the function: Python gives no other way to read it.

    It is the word that changes to the address of a function that is set.
    """
    if sys.implementation.name != "cpython":
        return None
    function = _Event(lambda *event: 0)
    address, argument = ctypes.cast(function, ctypes.c_void_p).value, sys.getprofile()
    before = _thread_state()
    _of_python().set_profile(address, None)
    found = [i for i, word in enumerate(_thread_state()) if word == address != before[i]]
    if len(found) != 1:
        Profiler(0, argument).resume()
        return None
    Profiler(before[found[0]] or 0, argument).resume()
    return found[0]
