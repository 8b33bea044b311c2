"""Collection: Python's search for garbage, put off while something runs that it would only hold up.

Takes: a block of code. Gives: the same, without a collection. Runs once per recording, and once per search for a plan.
"""

from __future__ import annotations

import gc
from collections.abc import Generator
from contextlib import contextmanager


@contextmanager
def uncollected(*, ages: bool = False) -> Generator[None]:
    """No collection meanwhile: its callbacks and finalizers are not the block's doing, and it takes long.

    Args:
        ages: all that is alive afterwards counts as old, for a block that leaves many objects and no cycles: the next
            object would start a collection of them. What a program has made for a moment would then be found late, so
            that it is not for a recording, which happens in the midst of a program.

    Yields:
        Nothing.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            if ages and not gc.get_freeze_count():  # to unfreeze would thaw what a program has frozen
                gc.freeze()
                gc.unfreeze()
            gc.enable()
