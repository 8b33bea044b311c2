"""Wrong widths: what a layer within a vertex function refuses, told in the user's words.

Takes: an error of torch and the function in which it came up. Gives: the layer by its name, the rows that it was given,
and how many the call has. Runs where a call fails; torch tells the sizes of the examples of a recording.
"""

from __future__ import annotations

import re
from types import FrameType, TracebackType

import torch
from torch import Tensor, nn

from vgraph.errors import ShapeError, VGraphError
from vgraph.user_line import is_user_file

_OF_SHAPES = ("shape", "size", "input_size", "expected input")  # in the words of torch


def in_users_words(error: RuntimeError, function: nn.Module, num_rows: int) -> ShapeError | None:
    """What to say where a layer of the function was given rows that it does not take; None: as torch says it."""
    text = str(error)
    if isinstance(error, VGraphError) or not any(word in text for word in _OF_SHAPES):
        return None
    found, line = _layer_and_line(error.__traceback__, function)
    if found is None:
        return None
    name, layer, given = found
    words = re.sub(r"\s*\([^)]*\)", "", text.partition("\n")[0])  # without the sizes of examples
    rows = f"{_shown(given)} for each of {num_rows} vertices"
    fact = f"{type(function).__name__}'s {name}, {layer}, is given {rows}: {words}"
    cure = "give features of the width that the layer was made for, or make the layer for theirs"
    return ShapeError(fact, cure=cure, line=line or None).with_traceback(error.__traceback__)


def _shown(given: tuple[int, ...]) -> str:
    return f"{given[0]} numbers" if len(given) == 1 else f"shape {given}"


_Layer = tuple[str, nn.Module, tuple[int, ...]]


def _layer_and_line(trace: TracebackType | None, function: nn.Module) -> tuple[_Layer | None, str]:
    """The layer of torch in which the error came up, what a row of its input is like, and the user's line."""
    names = {id(layer): name for name, layer in function.named_modules() if name}
    found, line = None, ""
    while trace is not None:
        frame = trace.tb_frame
        if is_user_file(frame.f_code.co_filename, layers=False):
            line = f"{frame.f_code.co_filename}:{trace.tb_lineno}"
        layer, given = frame.f_locals.get("self"), _given(frame)
        if isinstance(layer, nn.Module) and id(layer) in names and given is not None:
            found = names[id(layer)], layer, given
        trace = trace.tb_next
    is_of_torch = found is not None and type(found[1]).__module__.startswith("torch.nn")
    return (found if is_of_torch else None), line


def _given(frame: FrameType) -> tuple[int, ...] | None:
    """The shape of a row of the first tensor that a layer's forward was given."""
    if frame.f_code.co_name != "forward":
        return None
    values = (frame.f_locals.get(name) for name in frame.f_code.co_varnames[1 : frame.f_code.co_argcount])
    first = next((value for value in values if isinstance(value, Tensor)), None)
    return None if first is None or first.dim() < 1 else tuple(torch.Size(first.shape)[1:])
