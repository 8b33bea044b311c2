"""The line of the user's program that is running: what every error and every recorded operation points to.

Frames of vgraph, of torch and of the threads that either starts are passed over.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
import threading
from pathlib import Path

import torch


def folder_of(file: str | None) -> str:
    """How files that lie beside this one, or below, begin: ``torch_geometric`` is no part of ``torch``."""
    assert file is not None
    return str(Path(file).resolve().parent) + os.sep


PACKAGE = folder_of(__file__)
_LAYERS, _COMMANDS = PACKAGE + "nn" + os.sep, PACKAGE + "cli" + os.sep
_PASSED_OVER = (
    PACKAGE,
    folder_of(torch.__file__),
    contextlib.__file__,
    functools.__file__,  # of cached properties, up to Python 3.11
    threading.__file__,
    folder_of(threading.__file__) + "concurrent" + os.sep,
    "<frozen",
    "<string",
    "<vgraph",
)


def user_line() -> str:
    """``file:line`` of the innermost frame of the user's program, as errors name it.

    Returns:
        The line; empty within a command, whose user wrote none, and while Dynamo traces, which sees no frames.
    """
    return _innermost(layers=False)


def recorded_line() -> str:
    """The same, or a line of ``vgraph.nn``: where an operation comes from.

    Layers are made of public names, as a user's functions are, and their lines tell what they compute.
    """
    return _innermost(layers=True)


def _innermost(*, layers: bool) -> str:
    is_traced = torch.compiler.is_dynamo_compiling()
    frame = None if is_traced else sys._getframe(2)  # pyright: ignore[reportPrivateUsage]
    while frame is not None:
        name = frame.f_code.co_filename
        if name not in _passed:
            if is_user_file(name, layers=layers):
                return f"{name}:{frame.f_lineno}"
            if name.startswith(_COMMANDS):
                return ""
            if not name.startswith(_LAYERS):
                _passed.add(name)
        frame = frame.f_back
    return ""


_passed = set[str]()  # files that were looked at and passed over


def is_user_file(name: str, *, layers: bool = False) -> bool:
    """Whether a code object's file is the user's: neither torch's nor vgraph's, or one of vgraph's layers."""
    return (layers and name.startswith(_LAYERS)) or not name.startswith(_PASSED_OVER)
