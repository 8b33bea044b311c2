"""Notice: one line for whoever waits at a terminal while kernels are compiled for the first time.

Takes: the compilations of a process. Gives: a line on stderr, if that is a terminal and logging is not set up.
Runs where a compiler does: once a kernel, never where it is found in the cache.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Generator
from contextlib import contextmanager
from threading import Timer
from time import perf_counter

logger = logging.getLogger("vgraph")

PATIENCE = 1.0  # seconds of compiling after which it is told


class Notice:
    """Tells once that kernels are compiled, as soon as that has taken a second in all."""

    def __init__(self, patience: float = PATIENCE) -> None:
        self.patience, self.is_told = patience, False

    @contextmanager
    def compiling(self) -> Generator[None]:
        """Meanwhile a kernel is compiled."""
        if self.is_told:
            yield
            return
        timer, begin = Timer(max(self.patience, 0.0), self.tell), perf_counter()
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
            self.patience -= perf_counter() - begin

    def tell(self) -> None:
        """A line, once: none on a stderr that nobody watches, nor into a program's own log."""
        is_watched = sys.stderr is not None and sys.stderr.isatty() and not logger.hasHandlers()
        was_told, self.is_told = self.is_told, True  # first, as several compile at once
        if is_watched and not was_told:
            print("vgraph: compiling kernels; they are kept, and later calls and runs find them", file=sys.stderr)


of_process = Notice()
