"""Late: large libraries that load when something of theirs is first asked for, not with ``import vgraph``.

Takes: a module's name. Gives: what stands for it. Runs once per process. Type checkers read a plain import beside it.
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import Any


class _Late(ModuleType):
    def __getattr__(self, name: str) -> Any:
        found = getattr(import_module(self.__name__), name)
        setattr(self, name, found)
        return found


def late(name: str) -> ModuleType:
    """The module of that name, loaded with the first of its attributes that is read.

    >>> late("colorsys").rgb_to_hsv(0, 0, 1)[2]
    1
    """
    return _Late(name)
