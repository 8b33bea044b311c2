"""Refusals: a function that could not be captured is tried again when something that it read has changed.

Takes: what was read before a recording failed. Gives: whether a call is as that one was. Runs once per refusal, then
every call of such functions.
"""

from __future__ import annotations

import types
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from vgraph.capture.errors import CaptureError
from vgraph.capture.features import Features
from vgraph.capture.guards.compile_guards import Check, StandIns, make_check
from vgraph.capture.guards.walk import walk_roots
from vgraph.capture.guards.watched import MISSES, path_of
from vgraph.capture.record.modes import Modes
from vgraph.capture.session import Spec

MOST_ATTEMPTS = 4  # that fail, until further ones wait longer and longer


def without_frames(error: CaptureError) -> CaptureError:
    """The same error, to be kept or raised again: frames hold all the tensors of a step."""
    return type(error)(error.reason, error.line, error.cure)


@dataclass(eq=False)
class Patience:
    """What fails again and again is tried less and less often."""

    times: int = 0
    wait: int = 0
    error: CaptureError | None = None

    def note(self, error: CaptureError) -> None:
        """One more attempt has failed."""
        self.error, self.times = without_frames(error), self.times + 1
        self.wait = 0 if self.times < MOST_ATTEMPTS else 2**self.times

    def check(self) -> None:
        """Raises the last error again, where it is too early for another attempt."""
        if self.wait and self.error is not None:
            self.wait -= 1
            raise without_frames(self.error)


@dataclass(eq=False)
class Refusal:
    """Why a function is not captured, and what it had read when that was found."""

    error: CaptureError
    modes: Modes
    specs: Mapping[str, Spec]  # of the features that it had read
    check: Check
    codes: tuple[tuple[types.CodeType, types.CodeType], ...]  # the way to each function that ran, and its code
    anchors: list[object]
    wait: int = 0  # so many calls of it are refused before another attempt

    def is_of(self, roots: Sequence[object]) -> bool:
        """Whether these are the same functions, whatever they read."""
        space = {"r": roots, "k": self.anchors}
        try:
            return all(eval(way, space) is code for way, code in self.codes)
        except MISSES:
            return False

    def holds(self, modes: Modes, roots: Sequence[object], features: Features) -> bool:
        """Whether nothing that it had read is another now; what cannot be watched is as long as it keeps its type."""
        return (
            modes == self.modes
            and features.of_kind(self.specs, self.specs) is not None
            and self.check(roots) is not None
        )


def make_refusal(error: CaptureError, modes: Modes, roots: Sequence[object]) -> Refusal | None:
    """What to remember of an error; None where the recording had not begun, or another may end otherwise."""
    if error.seen is None or not error.is_kept:
        return None
    specs, reading = error.seen
    walk = walk_roots(roots, reading, lenient=True)
    codes = tuple(
        (compile(path_of(step), "<vgraph guards>", "eval"), value)
        for step, _, value in walk.checks
        if isinstance(value, types.CodeType)
    )
    check = make_check(walk, [], set(), StandIns())
    return Refusal(without_frames(error), modes, specs, check, codes, walk.numbers.constants)
