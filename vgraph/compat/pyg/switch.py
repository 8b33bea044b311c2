"""Whether PyG's layers and samplers are accelerated: one by one, or all of the process for a while.

Takes: layers, samplers. Gives: answers. Read at every call.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

_FLAG = "_vgraph_accelerates"
_everywhere: list[object] = []  # one for each context of ``everywhere`` that is open


def switch_on(one: object) -> None:
    """For this layer or sampler and its copies."""
    vars(one)[_FLAG] = True


@contextmanager
def everywhere() -> Generator[None]:
    """For every layer and sampler, while it lasts."""
    _everywhere.append(None)
    try:
        yield
    finally:
        _everywhere.pop()


def is_everywhere() -> bool:
    """Whether every layer and sampler is accelerated."""
    return bool(_everywhere)


def is_accelerated(one: object) -> bool:
    """Whether propagate of this layer is captured; whether this sampler draws by vgraph's."""
    return bool(_everywhere or vars(one).get(_FLAG))
