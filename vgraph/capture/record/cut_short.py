"""Cut short: what a recording changes of its thread and of torch, put back where Ctrl-C comes in the midst of it.

Takes: a recording as a function. Gives: what it gives. Runs once per recording.
A ``with`` statement alone does not do it. Ctrl-C may come when ``__enter__``, written in Python, has set a mode and has
not returned, and then nobody leaves it; or in the midst of ``__exit__``. And a context that is a generator is left when
its frame is freed, which the error may hold for long: grad mode would change in the midst of something else.
"""

from __future__ import annotations

import gc
import sys
import types
from collections.abc import Callable, Iterator
from typing import TypeVar

from vgraph.capture.record.function_mode import leave_function_modes, num_function_modes
from vgraph.capture.record.modes import Switches
from vgraph.capture.record.profiler import stop_watching
from vgraph.capture.record.tracer import leave_dispatch_modes, num_dispatch_modes

T = TypeVar("T")


def as_it_was(run: Callable[[], T]) -> T:
    """What ``run`` gives; where it raises, the thread has the modes that it had before."""
    before, collects, watcher = Switches(), gc.isenabled(), sys.getprofile()
    modes = num_dispatch_modes(), num_function_modes()

    def put_back() -> None:
        stop_watching(watcher)
        leave_dispatch_modes(modes[0])
        leave_function_modes(modes[1])
        before.put_back()
        (gc.enable if collects else gc.disable)()

    try:
        return run()
    except BaseException as error:
        if not isinstance(error, Exception):
            _leave_contexts(error)
        try:
            put_back()
        except BaseException:  # Ctrl-C once more
            put_back()
        raise


def _leave_contexts(error: BaseException) -> None:
    """Frees what the frames hold that the error has left: a context that is a generator is left now, not later."""
    for frame in list(_frames(error)):
        try:
            frame.clear()
        except RuntimeError:  # it runs
            continue


def _frames(error: BaseException | None) -> Iterator[types.FrameType]:
    while error is not None:
        step = error.__traceback__
        while step is not None:
            yield step.tb_frame
            step = step.tb_next
        error = error.__context__
