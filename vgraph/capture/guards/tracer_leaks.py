"""What a function keeps: rows, or their number, that it stores in an attribute, a list or a dict for after the call.

Takes: a Walk after a recording. Gives: an error, and containers as they were before. Runs once per function.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from vgraph.capture.errors import CaptureError
from vgraph.capture.guards.code_watch import Reading
from vgraph.capture.guards.walk import walk_roots
from vgraph.capture.guards.watched import Walk, spoken_as


class KeptError(CaptureError):
    """Rows of a recording are of examples: whoever reads them later must find those of the call."""


def refuse_kept(walk: Walk, roots: Sequence[object]) -> None:
    """Raises where the functions have kept what the recording made."""
    if walk.kept:
        what = walk.kept[0][1]
        names = ", ".join(dict.fromkeys(spoken_as(step) for step, each in walk.kept if each == what))
        _drop(walk, roots)
        raise KeptError(f"it keeps {what} for later, in {names}")


def drop_kept(roots: Sequence[object], reading: Reading) -> None:
    """Takes what a recording that failed has left out of lists and dicts; a run will put its own there."""
    with suppress(CaptureError):
        _drop(walk_roots(roots, reading, lenient=True), roots)


def _drop(walk: Walk, roots: Sequence[object]) -> None:
    for step, _ in reversed(walk.kept):
        if step.slot is None or step.parent is None or step.parent.text.endswith("__dict__"):
            continue
        container = walk.numbers.value_at(step.parent, roots)
        if isinstance(container, (list, dict)):
            del container[step.slot[1]]
