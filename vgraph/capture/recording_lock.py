"""Recording lock: one thread at a time records, and none waits for another one's compiler.

Takes: nothing. Gives: a lock. Runs once per function.
A recording puts stand-ins in the place of what the user's objects hold: no other thread may look then, and no
process may be forked.
"""

from __future__ import annotations

import threading
from collections.abc import Generator
from contextlib import contextmanager

from vgraph.forks import held_by_forks


class RecordingLock:
    """A lock that its holder may take again, and lay down while it compiles what it has recorded."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._depth = 0  # of the thread that holds it

    def acquire(self) -> None:
        self._lock.acquire()
        self._depth += 1

    def release(self) -> None:
        self._depth -= 1
        self._lock.release()

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(self, *raised: object) -> None:
        self.release()

    @contextmanager
    def paused(self) -> Generator[None]:
        """Others may record meanwhile; not where this recording is part of another one of this thread."""
        is_outer = self._depth == 1
        if is_outer:
            self.release()
        try:
            yield
        finally:
            if is_outer:
                self.acquire()


recording = held_by_forks(RecordingLock(), last=False)
