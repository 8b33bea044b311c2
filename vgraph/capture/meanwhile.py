"""Meanwhile: with ``VGRAPH_WAIT=0`` torch's operators serve a new function until its kernels are compiled.

Takes: what begins to compile Programs, with and without kernels. Gives: those that can run now. Runs once per function.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from concurrent.futures import wait
from typing import TypeVar

from vgraph import config
from vgraph.background import Beginning
from vgraph.capture.body import Options

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")

PATIENCE = 0.05  # seconds in which kernels of the cache are loaded, so that nothing need serve for them


class Meanwhile:
    """The Programs of one capture whose kernels are on their way."""

    def __init__(self) -> None:
        self.pending: dict[object, tuple[Callable[[], bool], Callable[[], None]]] = {}  # whether it is there; puts it

    def make(self, made: dict[K, T], key: K, begin: Callable[[Options], Beginning[T]], options: Options) -> None:
        """Programs under a key; if their kernels are on their way, those without until ``settle`` finds them there."""
        begun = begin(options)
        if config.waits_for_kernels() or not options["fuse"] or not wait(begun.waits_for, PATIENCE).not_done:
            made[key] = begun.finish()
            return
        made[key] = begin({**options, "fuse": False}).finish()

        def is_there() -> bool:
            return all(one.done() for one in begun.waits_for)

        def put() -> None:
            made[key] = begun.finish()

        self.pending[id(made), key] = is_there, put

    def settle(self) -> None:
        """Puts Programs whose kernels are there into the place of those that served."""
        if not self.pending:
            return
        for key, (is_there, put) in list(self.pending.items()):
            if is_there() and self.pending.pop(key, None):  # None: another thread puts it
                put()
