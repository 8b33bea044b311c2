"""Programs written for DGL: their imports lead here when asked, and never by themselves. ``pyg``: those for PyG.

Takes: nothing. Gives: modules under the name ``dgl``. Runs once per process.
``python -m vgraph.compat script.py`` runs a program so; docs/coming_from/dgl.md says how, and what is absent.
"""

from __future__ import annotations

import importlib.util
import logging
import sys
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

from vgraph.compat import pyg
from vgraph.compat.modules import HIDDEN, MODULES, lookup, names_of
from vgraph.errors import FunctionError, VGraphError

__all__ = ["install", "installed", "pyg"]

logger = logging.getLogger("vgraph")
_STARTED = Path(__file__).parent / "started"  # has the ``dgl`` of processes that this one starts


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
            raise _MissingNameError(f"{self.__name__} has no {name!r} in vgraph", cure=_cure(self.__name__)) from None
        setattr(self, name, found)
        return found

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *names_of(self.__name__)})


class _MissingNameError(VGraphError, AttributeError):
    """A name of DGL that vgraph does not have."""


class _MissingModuleError(VGraphError, ModuleNotFoundError):
    """A module of DGL that vgraph does not have, or a name imported from one."""


class _Missing(MetaPathFinder):
    """Is asked for what is not among the modules; it says so instead of Python."""

    def find_spec(self, fullname: str, path: object, target: ModuleType | None = None) -> None:
        module, _, name = fullname.rpartition(".")
        if module in MODULES and installed():
            # without ``name=`` of ModuleNotFoundError, which makes ``from module import name`` forget what was said
            raise _MissingModuleError(f"{module} has no {name!r} in vgraph", cure=_cure(module))


def _cure(module: str) -> str:
    page = "guides/processes" if module.startswith("dgl.distributed") else "coming_from/dgl"
    return f"docs/{page}.md; `python -m vgraph.compat --check PATH` lists all that a program lacks, before it runs"


def install() -> None:
    """Puts modules under the name ``dgl`` for this process; a DGL that is installed is hidden.

    Raises:
        FunctionError: the real DGL is imported already.

    Source: none (the import system's ``sys.modules``).

    Example:
        >>> import vgraph.compat
        >>> vgraph.compat.install()
        >>> import dgl.function as fn
        >>> fn.sum is vgraph.function.sum
        True
    """
    if installed():
        return
    if "dgl" in sys.modules:
        fact = "the real dgl is imported already"
        raise FunctionError(fact, cure="call vgraph.compat.install() before anything imports dgl")
    spec = importlib.util.find_spec("dgl")
    if spec is not None and spec.origin != str(_STARTED / "dgl.py"):
        logger.warning("vgraph.compat: the installed dgl is hidden from this process")
    made = {name: _Stand(name) for name in MODULES}
    for name, module in made.items():
        parent, _, last = name.rpartition(".")
        if parent and name not in HIDDEN:
            setattr(made[parent], last, module)
        sys.modules[name] = module
    sys.meta_path.insert(0, _Missing())
    if str(_STARTED) not in sys.path:  # after the program's own folder
        sys.path.insert(1, str(_STARTED))
    importlib.import_module("vgraph.compat.graph_index").keep_internals()


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
