"""The arguments of everything that vgraph has under a name of DGL, as a table that two libraries are compared by.

This file imports ``dgl`` alone: run by a Python that has DGL 1.1.3 it prints ``signatures_1_1_3.json``.
"""

from __future__ import annotations

import importlib
import inspect
import json
import sys
from pathlib import Path
from typing import Any

import dgl

MODULES = (
    "dgl", "dgl.nn", "dgl.nn.functional", "dgl.function", "dgl.ops", "dgl.data", "dgl.data.utils", "dgl.dataloading",
    "dgl.sampling", "dgl.transforms", "dgl.utils",
)  # fmt: skip
Arguments = list[list[Any]]


def arguments(function: Any) -> Arguments | None:
    """Name and default of every argument but the first of a method and the open ones."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return None
    return [[p.name, plain(p.default)] for p in parameters if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]


def plain(default: Any) -> Any:
    """A default as JSON has it; "everything" and "here" are none."""
    if default is inspect.Parameter.empty:
        return "required"
    if (isinstance(default, str) and default == "__ALL__") or str(default) == "cpu":
        return None
    if callable(default):  # a layer's activation
        return getattr(default, "__name__", type(default).__name__)
    return default if isinstance(default, (str, int, float, bool, type(None))) else str(default)


def found(owner: str, name: str) -> dict[str, Arguments | None]:
    """What is called by this name: of a class its constructor and ``forward``."""
    thing = getattr(dgl.DGLGraph if owner == "g" else importlib.import_module(owner), name)
    if inspect.isclass(thing):
        calls = {"": thing.__init__, ".forward": getattr(thing, "forward", None)}
        return {f"{owner}.{name}{end}": (arguments(f) or [])[1:] for end, f in calls.items() if f is not None}
    if not callable(thing):
        return {}
    known = arguments(thing)
    return {f"{owner}.{name}": known[1:] if owner == "g" and known else known}


def everything() -> dict[str, Arguments | None]:
    made: dict[str, Arguments | None] = {}
    for owner in MODULES:
        place = importlib.import_module(owner)
        for name in dir(place):
            origin = getattr(getattr(place, name), "__module__", None) or ""
            if not name.startswith("_") and origin.startswith("dgl"):
                made.update(found(owner, name))
    for name in dir(dgl.DGLGraph):
        if not name.startswith("_") and not isinstance(inspect.getattr_static(dgl.DGLGraph, name), property):
            made.update(found("g", name))
    return made


def of_names(path: str) -> dict[str, Any]:
    """The same for the names in a file."""
    known: dict[str, Any] = {}
    for full in json.loads(Path(path).read_text(encoding="utf-8")):
        owner, _, name = full.removesuffix(".forward").rpartition(".")
        try:
            known.update(found(owner, name))
        except AttributeError:
            known[full] = "missing"
    return known


def main() -> None:
    made = of_names(sys.argv[1]) if len(sys.argv) > 1 else everything()
    lines = (f"{json.dumps(key)}: {json.dumps(made[key])}" for key in sorted(made) if made[key] is not None)
    print("{\n" + ",\n".join(lines) + "\n}")


if __name__ == "__main__":
    main()
