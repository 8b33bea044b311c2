"""Capture errors: why a function cannot be captured.

Takes: a reason, the user's line. Gives: errors, on which callers run it otherwise. Runs once per function.
"""

from __future__ import annotations

from typing import Any


class CaptureError(Exception):
    """The function cannot be captured; the reason, the user's line, and a cure if it has one of its own."""

    is_kept = True  # the next call, if nothing has changed, need not try
    seen: Any = None  # of the recording up to then: features' specs, and the Reading

    def __init__(self, reason: str, line: str = "", cure: str = "") -> None:
        super().__init__(reason)
        self.reason, self.line, self.cure = reason, line, cure

    def told(self) -> str:
        """All three in one line, for a log."""
        return f"{self.reason} {self.line}{f'; {self.cure}' if self.cure else ''}"


class RunsDifferError(CaptureError):
    """Two runs on examples of two sizes did not do the same."""


class UnwatchableError(CaptureError):
    """The function reads something whose changes no guard can see."""


class UnderivableError(CaptureError):
    """A further derivative of the function has been asked for, and no recording can hold it."""


class OutsideWriteError(CaptureError):
    """The function writes in place to something that is not its own."""


class HookError(CaptureError):
    """The function has a hook, of a module or a tensor, that a capture would run at another time than the call."""


class BackwardHookError(HookError):
    """A hook that is to run in the backward."""
