"""Record a function: one run on examples, with its derivative, while what it reads and runs is noted.

Takes: the user's functions, what features look like, the modes of a call. Gives: a Recorded. Runs once per function,
and at every call where each is checked (capture_check.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from vgraph.capture.body import Body
from vgraph.capture.errors import CaptureError, RunsDifferError
from vgraph.capture.guards.code_watch import Reading, unwatched, watch_code
from vgraph.capture.guards.compile_guards import StandIns, stand_ins
from vgraph.capture.guards.hooks import SeenHooks
from vgraph.capture.guards.tracer_leaks import KeptError, drop_kept, refuse_kept
from vgraph.capture.guards.walk import walk_roots
from vgraph.capture.guards.watched import Numbers
from vgraph.capture.record.modes import Modes, ambient
from vgraph.capture.session import Spec, Specs
from vgraph.capture.trace import ALL, Trace, trace


@dataclass(frozen=True, eq=False)
class Recorded:
    """What one run showed."""

    body: Body
    specs: dict[str, Spec]  # of the features that it read
    found: Trace
    scalars: StandIns
    reading: Reading


def _reason(error: CaptureError, roots: Sequence[object], reading: Reading) -> CaptureError:
    """Why a recording failed, whose rows are taken out of lists and dicts.

    Two runs may differ by what no guard can watch, which the walk raises, or by rows that the first run has kept.
    """
    try:
        if isinstance(error, RunsDifferError):
            refuse_kept(walk_roots(roots, reading), roots)
        else:
            drop_kept(roots, reading)
    except KeptError as kept:
        return kept
    return error


def record_function(
    roots: Sequence[object],
    specs: Specs,
    device: torch.device,
    make_body: Callable[[], Body],
    modes: Modes,
    standing_in: tuple[Numbers, frozenset[str]],
) -> Recorded:
    """Runs the functions once; ``standing_in``: the numbers that are tensors meanwhile.

    Raises:
        CaptureError: they cannot be captured.
    """
    read: dict[str, Spec] = {}

    def spec_of(name: str) -> Spec:
        if name not in read:
            read[name] = specs(name)
        return read[name]

    with ambient(*modes), watch_code(SeenHooks()) as reading:
        try:
            body = make_body()
            with stand_ins(roots, *standing_in) as scalars:
                # Its derivative in the same recording, so that what has none falls back before it runs.
                found = trace(body, spec_of, (), ALL if modes[0] else None, device)
        except CaptureError as error:
            with unwatched():
                known = _reason(error, roots, reading)
            known.seen = read, reading
            if known is error:
                raise
            raise known from None
    return Recorded(body, read, found, scalars, reading)
