"""Reading: which Python code runs while a function is recorded, and whether it may answer anew.

Takes: a running function. Gives: the code that it ran and the first impure call. Runs once per function.
"""

from __future__ import annotations

import os
import types
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from vgraph.capture.guards.hooks import RUNS_MODULES, SeenHooks
from vgraph.capture.guards.purity import (
    LIBRARIES,
    PEEKS,
    Question,
    impurity,
    is_pure_module,
    is_reflecting,
    library_of,
    looks_around,
    question_of,
)
from vgraph.capture.record.profiler import replace_profiler
from vgraph.user_line import PACKAGE, folder_of

_TORCH, _STDLIB = folder_of(torch.__file__), folder_of(types.__file__)
_TORCH_NN = str(Path(_TORCH) / "nn") + os.sep
_TORCH_TENSOR = str(Path(_TORCH) / "_tensor.py")
_MACHINERY = str(Path(_TORCH_NN) / "modules" / "module.py")  # what runs around every layer
_WATCHED = (PACKAGE + "nn" + os.sep, *(str(Path(PACKAGE) / name) for name in ("function.py", "api/vertex/by_type.py")))
_INSTALLED = Path(folder_of(np.__file__)).parent
_OTHERS = tuple(str(_INSTALLED / name) + os.sep for name in ("numpy", "scipy", "networkx"))

_QUIET, _OF_TORCH, _LAYER, _USERS = 0, 1, 2, 3  # kinds of code: whose calls say nothing; of torch; watched


@dataclass
class Reading:
    """The Python code that ran, with its globals, and the first call in it that may answer anew every time."""

    codes: dict[types.CodeType, dict[str, object]] = field(default_factory=dict[types.CodeType, dict[str, object]])
    impure: str = ""
    reflects: bool = False  # it reads attributes by names that are computed
    asked: dict[Question, object] = field(default_factory=dict[Question, object])  # torch's switches, and the answers


@contextmanager
def watch_code(hooks: SeenHooks) -> Generator[Reading]:
    """Notes every Python function that runs, outside the libraries, and tells ``hooks`` of modules."""
    reading = Reading()
    known = dict(_of_libraries)  # by id: the hash of code is computed anew from all its parts

    def note(frame: types.FrameType, event: str, arg: Any) -> None:
        kind = known.get(id(frame.f_code))
        if event == "call" and frame.f_code is RUNS_MODULES:
            hooks.begin(frame.f_locals["self"])
        if event == "call":
            if kind is None:
                _note_call(reading, known, frame)
            elif kind < _LAYER:
                _note_library_call(reading, known, frame)
        elif event == "c_call" and kind:
            _note_builtin(reading, kind, arg)
        elif event == "return" and arg is None and kind == _USERS:
            hooks.end(frame.f_code)

    before = replace_profiler(note)
    try:
        yield reading
    finally:
        before.resume()


@contextmanager
def unwatched() -> Generator[None]:
    """Our own work on what was recorded: to watch it would take longer than to do it."""
    before = replace_profiler(None)
    try:
        yield
    finally:
        before.resume()


_of_libraries: dict[int, int] = {}  # ids of their code, and its kind
_alive: list[types.CodeType] = []  # the same code, so that its ids stay its own


def _note_call(reading: Reading, known: dict[int, int], frame: types.FrameType) -> None:
    """``known``: ids of code and its kind."""
    code, kind = frame.f_code, _kind_of(frame.f_code.co_filename)
    if code.co_filename.startswith("<") and library_of(str(frame.f_globals.get("__name__"))) in LIBRARIES:
        kind = _QUIET  # methods of dataclasses
    if kind >= _LAYER:
        if not _is_importing(frame):
            reading.codes[code] = frame.f_globals
            known[id(code)] = kind
        return
    known[id(code)] = _of_libraries[id(code)] = kind
    _alive.append(code)
    _note_library_call(reading, known, frame)


def _note_library_call(reading: Reading, known: dict[int, int], frame: types.FrameType) -> None:
    """What the user's code, or a layer, asks of a library."""
    caller, code = frame.f_back, frame.f_code
    kind = _QUIET if caller is None else known.get(id(caller.f_code), _QUIET)
    if kind < _LAYER or reading.impure or code.co_filename.startswith(PACKAGE):
        return
    module, name = str(frame.f_globals.get("__name__", "")), code.co_name
    peeks = name in PEEKS and code.co_filename == _TORCH_TENSOR
    if peeks or module in ("random", "uuid") or (kind == _USERS and not is_pure_module(module, name)):
        if not _is_importing(frame):
            reading.impure = f"{module.strip('_').removeprefix('torch._')}.{name}"
    elif kind == _USERS and looks_around(module):
        reading.reflects = True


def _note_builtin(reading: Reading, kind: int, function: Callable[..., object]) -> None:
    for question in question_of(function):
        if question not in reading.asked:
            reading.asked[question] = question[0](*question[1])
    if kind == _USERS:
        reading.reflects = reading.reflects or is_reflecting(function)
    if kind >= _LAYER and not reading.impure:
        reading.impure = impurity(function, of_layer=kind == _LAYER)


def _is_importing(frame: types.FrameType | None) -> bool:
    """Whether a module is being loaded below our own frames (torch loads parts of itself lazily)."""
    while frame is not None and not frame.f_code.co_filename.startswith(PACKAGE):
        if frame.f_code.co_name == "<module>" or frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False


def _kind_of(filename: str) -> int:
    """Watched are the user's code, and layers that read settings of their own."""
    if filename.startswith(_TORCH):
        is_layer = filename.startswith(_TORCH_NN) and not filename.endswith("functional.py")
        return _LAYER if is_layer and filename != _MACHINERY else _OF_TORCH
    if filename.startswith(PACKAGE):
        return _LAYER if filename.startswith(_WATCHED) else _QUIET
    of_library = filename.startswith((_STDLIB, "<frozen")) and "site-packages" not in filename
    return _QUIET if of_library or filename.startswith(_OTHERS) else _USERS


def is_watched(code: types.CodeType) -> bool:
    """Whether it is the user's own code, or that of a layer."""
    return _kind_of(code.co_filename) >= _LAYER


def is_users(code: types.CodeType) -> bool:
    """Whether it is the user's own code rather than a layer of torch or vgraph."""
    return _kind_of(code.co_filename) == _USERS
