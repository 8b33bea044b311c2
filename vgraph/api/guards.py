"""Guards: what a captured function read, checked and fetched anew at every call.

Takes: functions, and the code that ran while they were recorded. Gives: one generated check; tempo: once a function.
The check walks the same way through closures, modules and globals as the function did, compares every
Python value that it read, and returns the tensors that it reached. See docs/adr/0003-capture.md.
"""

from __future__ import annotations

import enum
import random
import sys
import types
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from vgraph.api.tracer import CaptureError

_TORCH = str(Path(torch.__file__).resolve().parent)
_TORCH_NN = str(Path(_TORCH) / "nn")
_VGRAPH = str(Path(__file__).resolve().parents[1])
_VGRAPH_NN = (str(Path(_VGRAPH) / "nn"), str(Path(_VGRAPH) / "function.py"))
_STDLIB = str(Path(random.__file__).resolve().parent)
_LIBRARIES = frozenset({*sys.stdlib_module_names, "torch", "numpy", "scipy", "networkx", "vgraph"})
_MOST_ITEMS, _MOST_DEPTH = 256, 12


# ---------------------------------------------------------------- which code ran
@dataclass
class Reading:
    """The Python code that ran, and the first impure builtin that it called."""

    codes: set[types.CodeType] = field(default_factory=set[types.CodeType])
    impure: str = ""


@contextmanager
def watch_code() -> Generator[Reading]:
    """Notes every Python function that runs, outside the libraries."""
    reading, before = Reading(), sys.getprofile()

    def note(frame: types.FrameType, event: str, arg: Any) -> None:
        if event == "call":
            if _is_importing(frame):
                return
            if _is_watched(frame.f_code.co_filename):
                reading.codes.add(frame.f_code)
            elif frame.f_code.co_filename == random.__file__ and not reading.impure:
                caller = frame.f_back
                if caller is not None and caller.f_code in reading.codes:
                    reading.impure = f"random.{frame.f_code.co_name}"
        elif (
            event == "c_call"
            and not reading.impure
            and _is_impure(arg)
            and frame.f_code in reading.codes
        ):
            reading.impure = (
                f"{getattr(arg, '__module__', '') or type(arg.__self__).__name__}.{arg.__name__}"
            )

    sys.setprofile(note)
    try:
        yield reading
    finally:
        sys.setprofile(before)


def _is_importing(frame: types.FrameType | None) -> bool:
    """Whether a module is being loaded below our own frames (torch loads parts of itself lazily)."""
    while frame is not None and not frame.f_code.co_filename.startswith(_VGRAPH):
        if frame.f_code.co_name == "<module>":
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


def _is_impure(function: Any) -> bool:
    owner = getattr(function, "__self__", None)
    if isinstance(owner, (random.Random, np.random.Generator, np.random.RandomState)):
        return True
    return getattr(function, "__module__", None) == "time" and function.__name__ not in ("sleep",)


# ---------------------------------------------------------------- what it could reach
@dataclass(eq=False)
class _Step:
    """One way from a parent's value to this one, as source text over the parent's variable."""

    parent: _Step | None
    text: str
    slot: tuple[str, Any] | None = None  # how to put another value here: (kind, key)
    variable: str = ""


@dataclass(eq=False)
class Walk:
    """Everything reachable: tensors and numbers by where they stand, and what must not change."""

    tensors: dict[int, tuple[Tensor, _Step]] = field(
        default_factory=dict[int, tuple[Tensor, _Step]]
    )
    numbers: dict[str, tuple[Any, _Step]] = field(default_factory=dict[str, tuple[Any, _Step]])
    checks: list[tuple[_Step, str, Any]] = field(default_factory=list[tuple[_Step, str, Any]])
    cells: list[Any] = field(default_factory=list[Any])


class _Walker:
    def __init__(self, reading: Reading, *, everything: bool) -> None:
        self.walk, self.codes = Walk(), reading.codes
        self.names = {name for code in reading.codes for name in code.co_names}
        self.everything = everything or "getattr" in self.names or "__dict__" in self.names
        self.seen: set[int] = set()

    def check(self, step: _Step, kind: str, value: Any) -> None:
        self.walk.checks.append((step, kind, value))

    def visit(self, value: Any, step: _Step, depth: int = 0) -> None:
        if isinstance(value, Tensor):
            self.walk.tensors.setdefault(id(value), (value, step))
        elif value is None or isinstance(value, (bool, str, bytes, enum.Enum, np.generic)):
            self.check(step, "same", value)
        elif isinstance(value, (int, float, complex)):
            self.walk.numbers[_path(step)] = (value, step)
        elif isinstance(value, (torch.dtype, torch.device, torch.Size, range, slice)):
            self.check(step, "same", value)
        elif id(value) in self.seen:
            self.check(step, "is", value) if isinstance(value, type) else None
        else:
            self.seen.add(id(value))
            self._visit_object(value, step, depth)

    def _visit_object(self, value: Any, step: _Step, depth: int) -> None:
        if depth > _MOST_DEPTH:
            raise CaptureError("it reads Python objects nested too deeply to watch")
        if isinstance(value, (np.ndarray, bytearray, memoryview, random.Random, Iterator)):
            raise CaptureError(
                f"it reads a {type(value).__name__}, whose changes cannot be watched"
            )
        if isinstance(value, types.FunctionType):
            self._visit_function(value, step, depth)
        elif isinstance(value, types.MethodType):
            self.visit(value.__self__, _Step(step, "{}.__self__"), depth + 1)
            self._visit_function(value.__func__, _Step(step, "{}.__func__"), depth + 1)
        elif isinstance(value, types.ModuleType):
            if value.__name__.partition(".")[0] not in _LIBRARIES:
                self._visit_names(value.__dict__, _Step(step, "{}.__dict__"), depth)
        elif isinstance(value, (tuple, list, dict, set, frozenset)):
            self._visit_container(value, step, depth)
        elif isinstance(value, nn.Module):
            self._visit_module(value, step, depth)
        elif hasattr(value, "__dict__") and not isinstance(value, type):
            self.check(step, "type", type(value))
            self._visit_class(value, step, depth)
            self._visit_names(value.__dict__, _Step(step, "{}.__dict__"), depth)
        elif callable(value) and hasattr(value, "func"):  # functools.partial
            for name in ("func", "args", "keywords"):
                self.visit(getattr(value, name), _Step(step, f"{{}}.{name}"), depth + 1)

    def _visit_function(self, function: types.FunctionType, step: _Step, depth: int) -> None:
        code = function.__code__
        if code not in self.codes:
            return
        self.check(_Step(step, "{}.__code__"), "is", code)
        closure = _Step(step, "{}.__closure__")
        for index, cell in enumerate(function.__closure__ or ()):
            try:
                content = cell.cell_contents
            except ValueError:
                continue
            self.visit(
                content, _Step(closure, f"{{}}[{index}].cell_contents", ("cell", index)), depth + 1
            )
        if function.__defaults__:
            self.visit(function.__defaults__, _Step(step, "{}.__defaults__"), depth + 1)
        if function.__kwdefaults__:
            self.visit(function.__kwdefaults__, _Step(step, "{}.__kwdefaults__"), depth + 1)
        spoken = set(code.co_names)
        table = _Step(step, "{}.__globals__")
        for name in sorted(spoken & function.__globals__.keys()):
            found = function.__globals__[name]
            self.visit(found, _Step(table, f"{{}}[{name!r}]", ("item", name)), depth + 1)

    def _visit_container(self, value: Any, step: _Step, depth: int) -> None:
        if len(value) > _MOST_ITEMS:
            raise CaptureError(
                f"it reads a {type(value).__name__} of {len(value)} items, too many to watch"
            )
        self.check(step, "type", type(value))
        if isinstance(value, (set, frozenset)):
            self.check(step, "same", frozenset(value))  # pyright: ignore[reportUnknownArgumentType]
            return
        self.check(step, "len", len(value))
        items: Any = value.items() if isinstance(value, dict) else enumerate(value)  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
        for key, item in items:
            if isinstance(key, (str, int, bool, float)):
                slot = None if isinstance(value, tuple) else ("item", key)
                self.visit(item, _Step(step, f"{{}}[{key!r}]", slot), depth + 1)

    def _visit_module(self, module: nn.Module, step: _Step, depth: int) -> None:
        self.check(step, "type", type(module))
        table = _Step(step, "{}.__dict__")
        inside = module.__dict__
        self.check(_Step(table, "{}['training']"), "same", module.training)
        for hooks in ("_forward_hooks", "_forward_pre_hooks"):
            self.check(_Step(table, f"{{}}[{hooks!r}]"), "len", len(inside[hooks]))
        for group in ("_parameters", "_buffers"):
            for name, tensor in inside[group].items():
                if tensor is None:
                    self.check(
                        _Step(_Step(table, f"{{}}[{group!r}]"), f"{{}}[{name!r}]"), "same", None
                    )
                else:
                    self.visit(
                        tensor,
                        _Step(_Step(table, f"{{}}[{group!r}]"), f"{{}}[{name!r}]"),
                        depth + 1,
                    )
        is_container = type(module).__module__.startswith("torch.nn.modules.container")
        children = _Step(table, "{}['_modules']")
        if is_container:
            self.check(children, "len", len(inside["_modules"]))
        for name, child in inside["_modules"].items():
            if child is not None and (is_container or self.everything or name in self.names):
                self.visit(child, _Step(children, f"{{}}[{name!r}]"), depth + 1)
        self._visit_class(module, step, depth)
        self._visit_names(inside, table, depth, skip=_MODULE_INTERNALS)

    def _visit_class(self, value: Any, step: _Step, depth: int) -> None:
        """Plain class attributes that the code may read through an instance."""
        for kind in type(value).__mro__:
            if kind.__module__.partition(".")[0] in _LIBRARIES or kind is object:
                continue
            for name in self.names & kind.__dict__.keys():
                found = kind.__dict__[name]
                if isinstance(found, (bool, int, float, str, Tensor, list, tuple, dict)):
                    known = self._constant(kind)
                    self.visit(found, _Step(None, f"{known}.__dict__[{name!r}]"), depth + 1)

    def _constant(self, thing: Any) -> str:
        self.walk.cells.append(thing)
        return f"k[{len(self.walk.cells) - 1}]"

    def _visit_names(
        self, table: dict[str, Any], step: _Step, depth: int, skip: frozenset[str] = frozenset()
    ) -> None:
        for name in list(table):
            if (
                name in skip
                or not isinstance(name, str)
                or not (self.everything or name in self.names)
            ):
                continue
            self.visit(table[name], _Step(step, f"{{}}[{name!r}]", ("item", name)), depth + 1)


_MODULE_INTERNALS = frozenset(nn.Module().__dict__)


def _path(step: _Step) -> str:
    text = "{}" if step.parent is None else _path(step.parent)
    return step.text.format(text) if step.parent is not None else step.text


def walk_roots(roots: Sequence[Any], reading: Reading, *, everything: bool = False) -> Walk:
    """What the functions reach from their closures, modules and globals, limited to names they speak."""
    if reading.impure:
        raise CaptureError(f"it calls {reading.impure}, which answers differently every time")
    walker = _Walker(reading, everything=everything)
    for index, root in enumerate(roots):
        walker.visit(root, _Step(None, f"r[{index}]"))
    return walker.walk


# ---------------------------------------------------------------- the check as source
@dataclass(eq=False)
class _Source:
    constants: list[Any]
    lines: list[str] = field(default_factory=list[str])
    count: int = 0

    def variable(self, step: _Step) -> str:
        """The variable that holds this step's value, assigned at its first use."""
        if not step.variable:
            holder = "" if step.parent is None else self.variable(step.parent)
            step.variable = f"n{self.count}"
            self.count += 1
            text = step.text if step.parent is None else step.text.format(holder)
            self.lines.append(f"{step.variable} = {text}")
        return step.variable

    def constant(self, value: Any) -> str:
        self.constants.append(value)
        return f"k[{len(self.constants) - 1}]"

    def require(self, condition: str) -> None:
        self.lines.append(f"if not ({condition}): return None")


def make_check(
    walk: Walk, lifted: Sequence[Tensor], constants: set[int], scalars: dict[int, str]
) -> Callable[[Sequence[Any]], tuple[Tensor, ...] | None]:
    """``check(roots)``: the lifted tensors of now, or None where something else changed.

    ``constants``: positions in ``lifted`` made inside the function; ``scalars``: id of a stand-in
    tensor to the path of the number that it stood for.
    """
    source = _Source(list(walk.cells))
    for step, kind, value in walk.checks:
        name = source.variable(step)
        if kind == "len":
            source.require(f"len({name}) == {value}")
        elif kind == "type":
            source.require(f"type({name}) is {source.constant(value)}")
        elif kind == "is" or value is None or isinstance(value, bool):
            source.require(f"{name} is {source.constant(value)}")
        else:
            source.require(f"{name} == {source.constant(value)}")
    moving = set(scalars.values())
    for path, (value, step) in walk.numbers.items():
        name = source.variable(step)
        source.require(f"type({name}) is {type(value).__name__}")
        if path not in moving and value == value:
            source.require(f"{name} == {value!r}")
    given = [
        _fetch(source, walk, tensor, index in constants, scalars)
        for index, tensor in enumerate(lifted)
    ]
    body = "\n        ".join([*source.lines, f"return ({', '.join(given)}{',' if given else ''})"])
    text = f"def check(r):\n    try:\n        {body}\n    except _misses:\n        return None\n"
    misses = (AttributeError, KeyError, IndexError, TypeError, ValueError)
    space: dict[str, Any] = {
        "k": source.constants,
        "_misses": misses,
        "tensor": torch.tensor,
        "float64": torch.float64,
    }
    exec(compile(text, "<vgraph guards>", "exec"), space)
    return space["check"]


def _fetch(
    source: _Source, walk: Walk, tensor: Tensor, constant: bool, scalars: dict[int, str]
) -> str:
    if constant:
        return source.constant(tensor)
    if id(tensor) in scalars:
        value, step = walk.numbers[scalars[id(tensor)]]
        dtype = ", dtype=float64" if isinstance(value, float) else ""
        return f"tensor({source.variable(step)}{dtype})"
    if id(tensor) not in walk.tensors:
        raise CaptureError(
            "it reads a tensor that cannot be found again from its closure, module or globals"
        )
    name = source.variable(walk.tensors[id(tensor)][1])
    shape, dtype = source.constant(tensor.shape), source.constant(tensor.dtype)
    source.require(f"{name}.shape == {shape} and {name}.dtype is {dtype}")
    source.require(f"{name}.requires_grad is {tensor.requires_grad}")
    return name


# ---------------------------------------------------------------- numbers that move
@contextmanager
def stand_ins(
    roots: Sequence[Any], walk: Walk | None, paths: frozenset[str]
) -> Generator[dict[int, str]]:
    """Puts a 0-dim tensor in place of each number for the time of a recording: id -> path."""
    restore: list[Callable[[], None]] = []
    made: dict[int, str] = {}
    keep: list[Tensor] = []
    try:
        for path in sorted(paths & walk.numbers.keys()) if walk else ():
            assert walk is not None
            value, step = walk.numbers[path]
            holder = _holder(roots, walk, step)
            if holder is None:
                continue
            tensor = torch.tensor(
                value, dtype=torch.float64 if isinstance(value, float) else torch.int64
            )
            put, back = holder
            put(tensor)
            restore.append(back)
            keep.append(tensor)
            made[id(tensor)] = path
        yield made
    finally:
        for back in restore:
            back()


def _holder(
    roots: Sequence[Any], walk: Walk, step: _Step
) -> tuple[Callable[[Any], None], Callable[[], None]] | None:
    """How to write and restore the value at a step; None where it cannot be written."""
    if step.slot is None or step.parent is None:
        return None
    kind, key = step.slot
    container: Any = eval(_path(step.parent), {"r": roots, "k": walk.cells})
    if kind == "cell":
        cell, old = container[key], container[key].cell_contents
        return (lambda new: setattr(cell, "cell_contents", new)), (
            lambda: setattr(cell, "cell_contents", old)
        )
    old = container[key]
    return (lambda new: container.__setitem__(key, new)), (lambda: container.__setitem__(key, old))
