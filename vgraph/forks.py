"""Forks: a forked process finds no lock held, and nothing half done under one.

Takes: the locks of modules and objects. Gives: the same locks, free in a child. Runs once per lock.
A child has none of its parent's other threads, so that a lock that one of them held would never be given back.
"""

from __future__ import annotations

import os
from typing import Protocol, TypeVar
from weakref import WeakSet


class Lock(Protocol):
    """What a fork waits for."""

    def acquire(self) -> object: ...
    def release(self) -> None: ...


L = TypeVar("L", bound=Lock)
_locks: list[WeakSet[Lock]] = [WeakSet(), WeakSet()]
_held: list[Lock] = []


def held_by_forks(lock: L, *, last: bool = True) -> L:
    """The lock, which a fork takes before it happens and gives back in both processes.

    ``last``: it is held for moments, and nothing waits for another lock meanwhile; the others are taken before.
    """
    _locks[last].add(lock)
    return lock


def _take() -> None:
    for locks in _locks:
        for lock in list(locks):
            lock.acquire()
            _held.append(lock)


def _give_back() -> None:
    held = _held[::-1]
    _held.clear()  # first: with the last lock another thread begins to take them, for a fork of its own
    for lock in held:
        lock.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_take, after_in_parent=_give_back, after_in_child=_give_back)
