"""Guards: what a captured function can read, found by walking as the function does.

Takes: functions, and the code that ran while they were recorded. Gives: a Walk; tempo: once a function.
The walk goes through closures, modules, classes and globals, but only along names that the code speaks.
"""

from __future__ import annotations

import enum
import functools
import random
import sys
import types
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from vgraph.api.reading import Reading, global_names, is_users
from vgraph.api.rows import RowTensor
from vgraph.api.tracer import CaptureError

_LIBRARIES = frozenset({*sys.stdlib_module_names, "torch", "numpy", "scipy", "networkx", "vgraph"})
_REFLECTION = frozenset({"getattr", "__dict__", "vars", "attrgetter", "hasattr", "__getattr__"})
_MOST_ITEMS, _MOST_DEPTH = 256, 12


@dataclass(eq=False)
class Step:
    """One way from a parent's value to this one, as source text over the parent's variable."""

    parent: Step | None
    text: str
    slot: tuple[str, Any] | None = None  # how to put another value here: (kind, key)
    variable: str = ""
    code: types.CodeType | None = None  # of the function that stands here

    def to(self, text: str, slot: tuple[str, Any] | None = None) -> Step:
        return Step(self, text, slot)


def _item(key: Any) -> str:
    """The text of ``[key]`` behind a parent."""
    return "{}[" + repr(key).replace("{", "{{").replace("}", "}}") + "]"


def path_of(step: Step) -> str:
    """The whole way from a root, as one expression."""
    return step.text if step.parent is None else step.text.format(path_of(step.parent))


def spoken_as(step: Step) -> str:
    """The name by which the user's code reads what stands here, or what holds it."""
    while step.parent is not None:
        kind, key = step.slot or ("", None)
        if kind == "item" and isinstance(key, str):
            return repr(key)
        function = step.parent.parent
        if kind == "cell" and isinstance(key, int) and function is not None and function.code is not None:
            return repr(function.code.co_freevars[key])
        step = step.parent
    return step.text


@dataclass(eq=False)
class Numbers:
    """Python numbers by path, and what the paths begin with beside the roots; holds no tensor."""

    values: dict[str, tuple[Any, Step]] = field(default_factory=dict[str, tuple[Any, Step]])
    constants: list[Any] = field(default_factory=list[Any])
    asks_types: bool = False  # the user's code asks for types: a number must stay a number

    def key(self, path: str) -> tuple[str, types.CodeType | None]:
        """The path, and the code of the function that it leads through."""
        step: Step | None = self.values[path][1]
        while step is not None and step.code is None:
            step = step.parent
        return path, None if step is None else step.code

    def leads_there(self, path: str, roots: Sequence[Any]) -> bool:
        """Whether these roots have, on the way, the function that the path led through."""
        step: Step | None = self.values[path][1]
        while step is not None and step.code is None:
            step = step.parent
        if step is None:
            return True
        try:
            found: Any = eval(path_of(step), {"r": roots, "k": self.constants})
        except (AttributeError, KeyError, IndexError, TypeError, ValueError):
            return False
        return getattr(found, "__code__", None) is step.code


@dataclass(eq=False)
class Walk:
    """Everything reachable: tensors and numbers by where they stand, and what must not change."""

    tensors: dict[int, tuple[Tensor, Step]] = field(default_factory=dict[int, tuple[Tensor, Step]])
    checks: list[tuple[Step, str, Any]] = field(default_factory=list[tuple[Step, str, Any]])
    numbers: Numbers = field(default_factory=Numbers)
    kept: list[Step] = field(default_factory=list[Step])  # where rows of the recording itself stand


class _Walker:
    def __init__(self, reading: Reading, *, everything: bool) -> None:
        self.walk, self.codes = Walk(), reading.codes
        self.names = {name for code in reading.codes for name in code.co_names}
        own = {name for code in reading.codes if is_users(code) for name in code.co_names}
        self.walk.numbers.asks_types = not own.isdisjoint({"isinstance", "type"})
        self.everything = everything or not own.isdisjoint(_REFLECTION)
        self.kinds: set[type] = set()
        self.seen: dict[int, tuple[Any, Step]] = {}  # the values too, so that ids stay unique

    def check(self, step: Step, kind: str, value: Any) -> None:
        self.walk.checks.append((step, kind, value))

    def visit(self, value: Any, step: Step, depth: int = 0) -> None:
        if isinstance(value, Tensor):
            self._visit_tensor(value, step)
        elif value is None or isinstance(value, (bool, str, bytes, enum.Enum, np.generic)):
            self.check(step, "same", value)
        elif isinstance(value, (int, float, complex)):
            self.walk.numbers.values[path_of(step)] = (value, step)
        elif isinstance(value, (torch.dtype, torch.device, torch.Size, range, slice)):
            self.check(step, "same", value)
        elif id(value) in self.seen:
            self.check(step, "twin", self.seen[id(value)][1])
        else:
            self.seen[id(value)] = (value, step)
            self._visit_object(value, step, depth)

    def _visit_tensor(self, value: Tensor, step: Step) -> None:
        """A tensor reached on two ways is one input, as long as both lead to the same."""
        if isinstance(value, RowTensor):
            self.walk.kept.append(step)
        elif id(value) in self.walk.tensors:
            self.check(step, "twin", self.walk.tensors[id(value)][1])
        else:
            self.walk.tensors[id(value)] = (value, step)

    def _visit_object(self, value: Any, step: Step, depth: int) -> None:
        if depth > _MOST_DEPTH:
            raise CaptureError("it reads Python objects nested too deeply to watch")
        if isinstance(value, _UNWATCHABLE):
            kind = type(value).__name__
            raise CaptureError(f"it reads a {kind}, whose changes cannot be watched")
        for kinds, visit in _VISITS:
            if isinstance(value, kinds):
                visit(self, value, step, depth)
                return
        if _is_library(type(value)) and type(value).__eq__ is not object.__eq__:
            self.check(step, "same", value)
        else:
            self._visit_instance(value, step, depth)

    def visit_method(self, value: types.MethodType, step: Step, depth: int) -> None:
        self.visit(value.__self__, step.to("{}.__self__"), depth + 1)
        self.visit(value.__func__, step.to("{}.__func__"), depth + 1)

    def visit_python_module(self, value: types.ModuleType, step: Step, depth: int) -> None:
        if value.__name__.partition(".")[0] not in _LIBRARIES:
            self._visit_names(value.__dict__, step.to("{}.__dict__"), depth)

    def visit_partial(self, value: Any, step: Step, depth: int) -> None:
        for name in ("func", "args", "keywords"):
            self.visit(getattr(value, name), step.to(f"{{}}.{name}"), depth + 1)

    def visit_type(self, value: type, step: Step, depth: int) -> None:
        self.check(step, "is", value)
        self._visit_class(value, depth)

    def visit_builtin(self, value: Any, step: Step, depth: int) -> None:
        owner = value.__self__
        if owner is None or isinstance(owner, (type, types.ModuleType)):
            self.check(step, "same", value)
        else:
            self.visit(owner, step.to("{}.__self__"), depth + 1)
            self.check(step.to("{}.__name__"), "same", value.__name__)

    def _visit_instance(self, value: Any, step: Step, depth: int) -> None:
        kind: type = type(value)
        self.check(
            step,
            "is" if callable(value) and _is_library(kind) else "type",
            value if callable(value) and _is_library(kind) else kind,
        )
        inside = getattr(value, "__dict__", {})
        self._visit_class(kind, depth)
        if inside or hasattr(value, "__dict__"):
            self._visit_names(inside, step.to("{}.__dict__"), depth)
            self._check_shadows(kind, inside, step.to("{}.__dict__"))
        for owner in kind.__mro__:
            for name, found in owner.__dict__.items():
                is_slot = isinstance(found, types.MemberDescriptorType) and self._speaks(name)
                if is_slot and not _is_library(owner) and hasattr(value, name):
                    self.visit(getattr(value, name), step.to(f"{{}}.{name}"), depth + 1)

    def _check_shadows(self, kind: type, inside: dict[str, Any], table: Step) -> None:
        """What is read from the class must not be hidden later by an attribute of the instance."""
        for owner in kind.__mro__:
            for name, found in () if _is_library(owner) else owner.__dict__.items():
                if self._speaks(name) and name not in inside and _is_data(found):
                    self.check(table, "lacks", name)

    def _speaks(self, name: str) -> bool:
        return self.everything or name in self.names

    def visit_function(self, function: types.FunctionType, step: Step, depth: int) -> None:
        code = function.__code__
        if code not in self.codes:  # it did not run, or is a library's, of which we note no more
            self.check(step, "is", function) if not is_users(code) else None
            return
        self.check(step.to("{}.__code__"), "is", code)
        step.code = code
        closure = step.to("{}.__closure__")
        for index, cell in enumerate(function.__closure__ or ()):
            try:
                content = cell.cell_contents
            except ValueError:
                continue
            inner = closure.to(f"{{}}[{index}].cell_contents", ("cell", index))
            self.visit(content, inner, depth + 1)
        if function.__defaults__:
            self.visit(function.__defaults__, step.to("{}.__defaults__"), depth + 1)
        if function.__kwdefaults__:
            self.visit(function.__kwdefaults__, step.to("{}.__kwdefaults__"), depth + 1)
        table = step.to("{}.__globals__")
        for name in sorted(global_names(code) & function.__globals__.keys()):
            found = function.__globals__[name]
            self.visit(found, table.to(_item(name), ("item", name)), depth + 1)

    def visit_container(self, value: Any, step: Step, depth: int) -> None:
        if len(value) > _MOST_ITEMS:
            kind, count = type(value).__name__, len(value)
            raise CaptureError(f"it reads a {kind} of {count} items, too many to watch")
        self.check(step, "type", type(value))
        if isinstance(value, (set, frozenset)):
            self.check(step, "same", frozenset(value))  # pyright: ignore[reportUnknownArgumentType]
            return
        if isinstance(value, dict):
            self.check(step, "keys", tuple(value))
        else:
            self.check(step, "len", len(value))
        items: Any = value.items() if isinstance(value, dict) else enumerate(value)
        for key, item in items:
            is_plain = isinstance(key, (str, int))
            text = _item(key) if is_plain else f"{{}}[{self._constant(key)}]"
            slot = None if isinstance(value, tuple) else ("item", key)
            self.visit(item, step.to(text, slot), depth + 1)

    def visit_module(self, module: nn.Module, step: Step, depth: int) -> None:
        self.check(step, "type", type(module))
        table, inside = step.to("{}.__dict__"), module.__dict__
        self.check(table.to("{}['training']"), "same", module.training)
        for hooks in ("_backward_hooks", "_backward_pre_hooks"):
            if inside[hooks]:
                raise CaptureError(f"{type(module).__name__} has backward hooks")
            self.check(table.to(_item(hooks)), "empty", None)
        for hooks in ("_forward_hooks", "_forward_pre_hooks"):
            if inside[hooks]:
                self.visit(inside[hooks], table.to(_item(hooks)), depth + 1)
            else:
                self.check(table.to(_item(hooks)), "empty", None)
        for group in ("_parameters", "_buffers"):
            for name, tensor in inside[group].items():
                if _is_library(type(module)) or _iterates(self.names) or self._speaks(name):
                    holder = table.to(_item(group))
                    self.visit(tensor, holder.to(_item(name)), depth + 1)
        self._visit_children(module, table, depth)
        self._visit_class(type(module), depth)
        self._visit_names(inside, table, depth, skip=_MODULE_INTERNALS)
        self._check_shadows(type(module), inside, table)

    def _visit_children(self, module: nn.Module, table: Step, depth: int) -> None:
        children, inside = table.to("{}['_modules']"), module.__dict__["_modules"]
        is_container = type(module).__module__.startswith("torch.nn.modules.container")
        if is_container or _iterates(self.names):
            self.check(children, "len", len(inside))
        for name, child in inside.items():
            if is_container or _iterates(self.names) or self._speaks(name):
                self.visit(child, children.to(_item(name)), depth + 1)

    def _visit_class(self, kind: type, depth: int) -> None:
        """Methods that ran and plain attributes that the code speaks, of the class and its bases."""
        for owner in kind.__mro__:
            if _is_library(owner) or owner in self.kinds:
                continue
            self.kinds.add(owner)
            table = Step(None, f"{self._constant(owner)}.__dict__")
            for name, found in owner.__dict__.items():
                inner, text = found, _item(name)
                if isinstance(found, (staticmethod, classmethod)):
                    inner, text = found.__func__, f"{text}.__func__"
                elif isinstance(found, property):
                    inner, text = found.fget, f"{text}.fget"
                if isinstance(inner, types.FunctionType):
                    if inner.__code__ in self.codes:
                        self.visit(inner, table.to(text), depth + 1)
                elif self._speaks(name) and _is_data(found):
                    self.visit(found, table.to(text), depth + 1)

    def _constant(self, thing: Any) -> str:
        constants = self.walk.numbers.constants
        constants.append(thing)
        return f"k[{len(constants) - 1}]"

    def _visit_names(self, table: dict[str, Any], step: Step, depth: int, skip: frozenset[str] = frozenset()) -> None:
        if self.everything:
            self.check(step, "keys", tuple(table))
        for name in list(table):
            if name not in skip and self._speaks(name):
                self.visit(table[name], step.to(_item(name), ("item", name)), depth + 1)


_MODULE_INTERNALS = frozenset(nn.Module().__dict__)
_UNWATCHABLE = (np.ndarray, bytearray, memoryview, random.Random, Iterator)
_VISITS: tuple[tuple[Any, Any], ...] = (
    (types.FunctionType, _Walker.visit_function),
    (types.MethodType, _Walker.visit_method),
    (types.ModuleType, _Walker.visit_python_module),
    (types.BuiltinFunctionType, _Walker.visit_builtin),
    ((tuple, list, dict, set, frozenset), _Walker.visit_container),
    (nn.Module, _Walker.visit_module),
    (functools.partial, _Walker.visit_partial),
    (type, _Walker.visit_type),
)


def _iterates(names: set[str]) -> bool:
    """Whether code reaches modules and parameters without speaking their names."""
    return not names.isdisjoint({"children", "modules", "parameters", "named_children"})


def _is_library(kind: type) -> bool:
    return kind is object or kind.__module__.partition(".")[0] in _LIBRARIES


def _is_data(value: Any) -> bool:
    """Whether a class attribute is a value rather than a way to compute one."""
    return not (hasattr(value, "__get__") or isinstance(value, type))


def walk_roots(roots: Sequence[Any], reading: Reading, *, everything: bool = False) -> Walk:
    """What the functions reach from their closures, modules and globals, limited to names they speak."""
    if reading.impure:
        raise CaptureError(f"it calls {reading.impure}, which answers differently every time")
    walker = _Walker(reading, everything=everything)
    for index, root in enumerate(roots):
        walker.visit(root, Step(None, f"r[{index}]"))
    return walker.walk
