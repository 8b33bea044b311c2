"""Programs written for DGL: their imports lead here when asked, and never by themselves. ``pyg``: those for PyG.

Takes: nothing. Gives: modules under the name ``dgl``. Runs once per process.
``python -m vgraph.compat script.py`` runs a program so; docs/compat.md lists what it finds.
"""

from __future__ import annotations

import importlib.util
import logging
import sys
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from vgraph.compat import pyg
from vgraph.compat.modules import HIDDEN, MODULES, lookup, names_of
from vgraph.errors import FunctionError, VGraphError

__all__ = ["install", "installed", "pyg"]

logger = logging.getLogger("vgraph")


class _Stand(ModuleType):
    """A module whose names are looked up elsewhere when they are asked for."""

    def __init__(self, name: str) -> None:
        super().__init__(name, f"vgraph in place of {name}")
        self.__path__ = []
        self.__spec__ = ModuleSpec(name, None, is_package=True)
        self.__version__ = lookup("dgl", "__version__")

    def __getattr__(self, name: str) -> Any:
        if name == "__all__":  # for ``from dgl.nn import *``
            return names_of(self.__name__)
        if name.startswith("__"):
            raise AttributeError(name)
        try:
            found = lookup(self.__name__, name)
        except LookupError:
            page = "distributed" if self.__name__.startswith("dgl.distributed") else "compat"
            cure = f"docs/{page}.md lists the names that there are"
            raise _MissingNameError(f"{self.__name__} has no {name!r} in vgraph", cure=cure) from None
        setattr(self, name, found)
        return found

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *names_of(self.__name__)})


class _MissingNameError(VGraphError, AttributeError):
    """A name of DGL that vgraph does not have."""


def install() -> None:
    """Puts modules under the name ``dgl`` for this process; a DGL that is installed is hidden.

    Raises:
        FunctionError: the real DGL is imported already.

    Source: none (the import system's ``sys.modules``).

    Example:
        >>> import vgraph.compat
        >>> vgraph.compat.install()
        >>> import dgl.function as fn
        >>> fn.__name__
        'vgraph.function'
    """
    if installed():
        return
    if "dgl" in sys.modules:
        fact = "the real dgl is imported already"
        raise FunctionError(fact, cure="call vgraph.compat.install() before anything imports dgl")
    if importlib.util.find_spec("dgl") is not None:
        logger.warning("vgraph.compat: the installed dgl is hidden from this process")
    made: dict[str, ModuleType] = {}
    for name, (sources, is_same) in MODULES.items():
        made[name] = importlib.import_module(sources[0]) if is_same else _Stand(name)
    for name, module in made.items():
        parent, _, last = name.rpartition(".")
        if parent and name not in HIDDEN:
            setattr(made[parent], last, module) if isinstance(made[parent], _Stand) else None
        sys.modules[name] = module


def installed() -> bool:
    """Whether ``import dgl`` leads to vgraph.

    Returns:
        True after ``install``.

    Source: none (the import system's ``sys.modules``).

    Example:
        >>> import vgraph.compat
        >>> vgraph.compat.install()
        >>> vgraph.compat.installed()
        True
    """
    return isinstance(sys.modules.get("dgl"), _Stand)
