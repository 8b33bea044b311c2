"""Whether PyG's layers are accelerated: one by one, or all of the process for a while.

Takes: layers. Gives: answers. Read at every call.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from torch import nn

_FLAG = "_vgraph_accelerates"
_everywhere: list[object] = []  # one for each context of ``everywhere`` that is open


def switch_on(layer: nn.Module) -> None:
    """For this layer and its copies."""
    layer.__dict__[_FLAG] = True


@contextmanager
def everywhere() -> Generator[None]:
    """For every layer, while it lasts."""
    _everywhere.append(None)
    try:
        yield
    finally:
        _everywhere.pop()


def is_everywhere() -> bool:
    """Whether every layer is accelerated."""
    return bool(_everywhere)


def is_accelerated(layer: object) -> bool:
    """Whether propagate of this layer is captured."""
    return bool(_everywhere or vars(layer).get(_FLAG))
