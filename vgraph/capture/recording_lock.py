"""Recording lock: one thread at a time records, and none waits for another one's compiler.

Takes: nothing. Gives: a lock. Runs once per function.
A recording puts stand-ins in the place of what the user's objects hold: no other thread may look then, and no
process may be forked. The lock is Python's own: one with an ``__enter__`` written in Python would stay held for ever
where Ctrl-C comes between its taking and its return.
"""

from __future__ import annotations

import threading
from collections.abc import Generator
from contextlib import contextmanager

from vgraph.forks import held_by_forks

recording = held_by_forks(threading.RLock(), last=False)


@contextmanager
def paused() -> Generator[None]:
    """Others may record meanwhile; but not where this recording is part of another one, which holds the lock, too."""
    recording.release()
    try:
        yield
    finally:
        recording.acquire()
