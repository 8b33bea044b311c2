"""Reading: which Python code runs while a function is recorded, and whether it may answer anew.

Takes: a running function. Gives: the code that it ran and the first impure call; tempo: once a function.
"""

from __future__ import annotations

import cProfile
import datetime
import dis
import gc
import os
import random
import sys
import types
import uuid
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

_TORCH = str(Path(torch.__file__).resolve().parent)
_TORCH_NN = str(Path(_TORCH) / "nn")
_TORCH_TENSOR = str(Path(_TORCH) / "_tensor.py")
_VGRAPH = str(Path(__file__).resolve().parents[1])
_VGRAPH_NN = tuple(str(Path(_VGRAPH) / name) for name in ("nn", "function.py", "api/by_type.py"))
_STDLIB = str(Path(random.__file__).resolve().parent)
_RANDOM_FILES = frozenset(file for file in (random.__file__, uuid.__file__) if file)

# What looks into a tensor's memory without any operator that a recording would see.
_PEEKS = frozenset({"tolist", "numpy", "data_ptr", "__array__", "__dlpack__", "untyped_storage"})
_IMPURE_OWNERS = (random.Random, np.random.Generator, np.random.RandomState)
_CLOCKS = frozenset({"now", "utcnow", "today"})


@dataclass
class Reading:
    """The Python code that ran, and the first call in it that may answer anew every time."""

    codes: set[types.CodeType] = field(default_factory=set[types.CodeType])
    impure: str = ""


@contextmanager
def watch_code() -> Generator[Reading]:
    """Notes every Python function that runs, outside the libraries."""
    reading, before = Reading(), sys.getprofile()
    known = dict(_of_libraries)  # by id: the hash of code is computed anew from all its parts

    def note(frame: types.FrameType, event: str, arg: Any) -> None:
        is_watched = known.get(id(frame.f_code))
        if event == "call":
            if is_watched is None:
                _note_call(reading, known, frame)
        elif event == "c_call" and is_watched and not reading.impure:
            reading.impure = _impurity(arg)

    sys.setprofile(note)
    try:
        yield reading
    finally:
        _watch_again(before)


@contextmanager
def uncollected() -> Generator[None]:
    """No collection meanwhile: its callbacks and finalizers are not the function's doing, and it takes long."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


@contextmanager
def unwatched() -> Generator[None]:
    """Our own work on what was recorded: to watch it would take longer than to do it."""
    before = sys.getprofile()
    sys.setprofile(None)
    try:
        yield
    finally:
        _watch_again(before)


def _watch_again(before: Any) -> None:
    """Whoever watched before, be it cProfile, which is no function of frames."""
    if isinstance(before, cProfile.Profile):
        before.enable()
    else:
        sys.setprofile(before)


_of_libraries: dict[int, bool] = {}  # ids of code whose calls say nothing: False
_alive: list[types.CodeType] = []  # the same code, so that its ids stay its own


def _note_call(reading: Reading, known: dict[int, bool], frame: types.FrameType) -> None:
    """``known``: ids of code and whether it is watched."""
    code, file, name = frame.f_code, frame.f_code.co_filename, frame.f_code.co_name
    if _is_watched(file):
        if not _is_importing(frame):
            reading.codes.add(code)
            known[id(code)] = True
    elif file not in _RANDOM_FILES and (file != _TORCH_TENSOR or name not in _PEEKS):
        known[id(code)] = _of_libraries[id(code)] = False
        _alive.append(code)
    elif not reading.impure and not _is_importing(frame):
        caller = frame.f_back
        if caller is not None and caller.f_code in reading.codes:
            reading.impure = f"{Path(file).stem.strip('_')}.{name}"


def _is_importing(frame: types.FrameType | None) -> bool:
    """Whether a module is being loaded below our own frames (torch loads parts of itself lazily)."""
    while frame is not None and not frame.f_code.co_filename.startswith(_VGRAPH):
        if frame.f_code.co_name == "<module>" or frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False


def _is_watched(filename: str) -> bool:
    """The user's code, and layers that read settings of their own."""
    if filename.startswith(_TORCH):
        return filename.startswith(_TORCH_NN) and not filename.endswith("functional.py")
    if filename.startswith((_STDLIB, "<frozen")) and "site-packages" not in filename:
        return False
    return not filename.startswith(_VGRAPH) or filename.startswith(_VGRAPH_NN)


def is_users(code: types.CodeType) -> bool:
    """Whether it is the user's own code rather than a layer of torch or vgraph."""
    return not code.co_filename.startswith((_TORCH, _VGRAPH))


def _impurity(function: Any) -> str:
    """The name of a builtin that may answer anew every time, else nothing."""
    owner, name = getattr(function, "__self__", None), function.__name__
    module = getattr(function, "__module__", None) or type(owner).__name__
    peeks = isinstance(owner, Tensor) and name in _PEEKS
    clock = isinstance(owner, type) and issubclass(owner, datetime.date) and name in _CLOCKS
    waits = module == "time" and name != "sleep"
    reads = function in (open, input, next, os.urandom)
    is_impure = peeks or clock or waits or reads or isinstance(owner, _IMPURE_OWNERS)
    return f"{module}.{name}" if is_impure else ""


def global_names(code: types.CodeType) -> set[str]:
    """Globals that the code, and the functions written within it, may read: ``edges.src`` reads no global ``src``."""
    names = {
        str(op.argval)
        for op in dis.get_instructions(code)
        if op.opname == "LOAD_NAME" or ("LOAD_" in op.opname and "GLOBAL" in op.opname)
    }
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            names |= global_names(constant)
    return names
