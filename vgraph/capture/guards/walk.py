"""Walk: everything that a captured function can read, found by walking as the function does.

Takes: functions, and the code that ran while they were recorded. Gives: a Walk. Runs once per function.
The walk goes through closures, modules, classes and globals, but only along names that the code speaks. It knows
what can be watched and what never changes; all else is an UnwatchableError.
"""

from __future__ import annotations

import builtins
import enum
import functools
import logging
import sys
import types
import weakref
from collections import defaultdict, deque
from collections.abc import Callable, Collection, Mapping, Sequence
from importlib.util import resolve_name
from typing import Any, cast

import numpy as np
from torch import Size, Tensor, nn

from vgraph.capture.errors import CaptureError, UnwatchableError
from vgraph.capture.guards.code_names import Words
from vgraph.capture.guards.code_watch import Reading, is_users
from vgraph.capture.guards.purity import library_of
from vgraph.capture.guards.walk_objects import visit_class, visit_instance, visit_layer
from vgraph.capture.guards.walk_state import WalkState
from vgraph.capture.guards.watchable import (
    CONSTANTS,
    CONTAINERS,
    FACTS_OF_TENSORS,
    FIXED,
    LIBRARIES,
    NUMBERS,
    OF_AUTOGRAD,
    OF_LOGGERS,
    SAME,
    SINGLES,
    SNAPSHOTS,
    hashes_itself,
    is_library,
    is_of,
    is_plain,
    is_structural,
)
from vgraph.capture.guards.watched import COUNT, MADE, ROWS, Made, Step, Walk, item, path_of
from vgraph.capture.record.modes import hidden_switch
from vgraph.capture.record.row_counts import RowCount, counts_rows
from vgraph.capture.rows.row_tensor import RowTensor

_MOST_ITEMS, _MOST_DEPTH = 256, 12
_TENSOR_NAMES = frozenset(dir(Tensor)) - {"__class__", "__dict__", "__doc__"}

_OF_FUNCTIONS = frozenset(
    "__defaults__ __kwdefaults__ __name__ __qualname__ __doc__ __module__ __annotations__ __globals__".split()
)
_OF_ITEMS = ("__len__", "__iter__", "__getitem__")
_DEFAULTS = ("__defaults__", "__kwdefaults__")
_OF_SIGNATURES = (*_DEFAULTS, "__annotations__")
_OF_IMPORTS = frozenset("__loader__ __spec__ __builtins__".split())  # how a Python module came here


class Walker(WalkState):
    """One walk: what to do with a thing of each kind. See ``WalkState`` for its arguments."""

    # ------------------------------------------------------------ by kind
    def visit(self, value: Any, step: Step, depth: int = 0, names: set[str] | None = None) -> None:
        """``names``: the attributes that are read of it, if it is a Python module; None: any that the code speaks."""
        kind: type = type(value)
        if hashes_itself(kind) or (issubclass(kind, type) and hashes_itself(value)):
            self.refuse(value, step, f"it reads a {kind.__name__}, whose class has a hash of its own, or none")
            return
        if self.note_kept(value, step):
            return
        if issubclass(kind, Tensor):
            self._visit_tensor(value, step, depth)
        elif kind in NUMBERS:
            self.walk.numbers.values[path_of(step)] = (value, step)
        elif value is None or kind in SINGLES:
            self.check(step, "is", value)
        elif kind is range or issubclass(kind, np.generic):
            # 7, 7.0 and 7 + 0j are equal, as 0.0 and -0.0 are, and ranges over the same numbers with other ends
            self.check(step, "type", kind)
            self.check(step, "repr", repr(value))
        elif kind in CONSTANTS:
            self.check(step, "same", value)
        elif id(value) in self.seen:
            self.check(step, "twin", self.seen[id(value)][1])
        elif depth > _MOST_DEPTH:
            self.refuse(value, step, "it reads Python objects nested too deeply to watch")
        else:
            self.seen[id(value)] = (value, step)
            self._visit_object(value, step, depth, names)

    def note_kept(self, value: object, step: Step) -> bool:
        """Whether it is something of the recording's examples, of which no later call has any use."""
        kind: type = type(value)
        if issubclass(kind, RowTensor):
            what = ROWS
        elif issubclass(kind, RowCount) or (issubclass(kind, Size) and counts_rows(cast("Size", value))):
            what = COUNT
        elif value in self.made:
            what = MADE
        else:
            return False
        self.walk.kept.append((step, what))
        return True

    def _visit_tensor(self, value: Tensor, step: Step, depth: int) -> None:
        """A tensor reached on two ways is one input, as long as both lead to the same."""
        if id(value) in self.walk.tensors:
            self.check(step, "twin", self.walk.tensors[id(value)][1])
        else:
            self.walk.tensors[id(value)] = (value, step)
            for name in sorted(self.own & FACTS_OF_TENSORS.keys()):
                if (
                    name in OF_AUTOGRAD and value.grad_fn is not None and not self.lenient
                ):  # a recording sees a leaf in its place
                    raise CaptureError(f"it asks for {name} of a tensor that autograd made")
                fact = step.to(FACTS_OF_TENSORS[name])
                self.check(fact, "same", eval(fact.text.format("x"), {"x": value}))
            if value.__dict__ or self.misses:
                among = None if self.everything else self.own
                self.visit_attributes(value.__dict__, step.to("{}.__dict__"), depth, among=among)

    def _visit_object(self, value: Any, step: Step, depth: int, names: set[str] | None) -> None:
        kind: type = type(value)  # and not ``__class__``, which an object may make up

        def of(*kinds: Any) -> bool:
            return issubclass(kind, kinds)

        if of(types.ModuleType):
            self.visit_python_module(value, step, depth, names)
        elif of(types.FunctionType, types.MethodType, functools.partial):
            self.visit_function(value, step, depth)
        elif of(type):
            self.check(step, "is", value)
            if is_structural(value):
                self.refuse(value, step, f"it reads {value.__name__}, a protocol that asks for attributes by itself")
                return
            visit_class(self, value, depth)
        elif of(nn.Module):
            visit_layer(self, value, step, depth)
        elif of(tuple, list, dict, set, frozenset, deque, types.MappingProxyType):
            self._visit_container(value, step, depth)
        elif of(types.BuiltinFunctionType):
            self._visit_builtin(value, step, depth)
        elif of(enum.Enum):
            self.check(step, "is", value)
            self.visit(value._value_, step.to("{}._value_"), depth + 1)
            self.visit_attributes(vars(value), step.to("{}.__dict__"), depth)
            visit_class(self, kind, depth)
        elif kind is weakref.ref:
            self.visit(value(), step.to("{}()"), depth + 1)
        elif of(*FIXED) or (of(logging.Logger) and self.own.isdisjoint(OF_LOGGERS)):
            self.check(step, "is", value)
        elif of(*SAME) or (kind is slice and is_plain((value.start, value.stop, value.step))):
            self.check(step, "type", kind)
            self.check(step, "same", SNAPSHOTS[kind](value) if kind in SNAPSHOTS else value)
        else:
            visit_instance(self, value, step, depth)

    # ------------------------------------------------------------ functions
    def visit_function(self, value: Callable[..., object], step: Step, depth: int) -> None:
        """A function, a method of something, or a partial one."""
        self.check_names(value, step)
        if isinstance(value, types.MethodType):
            self.visit(value.__self__, step.to("{}.__self__"), depth + 1)
            self.visit(value.__func__, step.to("{}.__func__"), depth + 1)
        elif isinstance(value, functools.partial):
            self.check(step, "type", type(value))
            for name in ("func", "args", "keywords"):
                self.visit(getattr(value, name), step.to(f"{{}}.{name}"), depth + 1)
            self._visit_attributes_of_partial(value, step, depth)
        else:
            self._visit_plain_function(value, step, depth)

    def _visit_attributes_of_partial(self, value: functools.partial[object], step: Step, depth: int) -> None:
        """Who asks one for its ``__dict__`` makes it, and ``functools.partial`` unfolds only one that has none."""
        if type(value) is not functools.partial:
            self.visit_attributes(vars(value), step.to("{}.__dict__"), depth)
            return
        table = cast("tuple[object, object, object, dict[str, object] | None]", value.__reduce__()[2])[3]
        there = step.to("{}.__reduce__()[2][3]")
        if table is not None:
            self.visit_attributes(table, there, depth)
        elif self.misses:
            self.check(there, "is", None)

    def _visit_plain_function(self, value: types.FunctionType, step: Step, depth: int) -> None:
        for name in _OF_FUNCTIONS & self.own:  # which the code reads without calling it
            self.visit(getattr(value, name), step.to(f"{{}}.{name}"), depth + 1)
        if "__closure__" in self.own:
            self._visit_cells(value, step, depth)
        if value.__code__ in self.reading.codes:
            self._visit_code(value, step, depth)
        elif is_users(value.__code__):  # it did not run
            self.check(step.to("{}.__code__"), "is", value.__code__)
            self.visit_attributes(value.__dict__, step.to("{}.__dict__"), depth)
            if self.everything:
                self._visit_signature(value, step, depth)
            self._note_closed_over(value, step)
        else:
            self.check(step, "is", value)
            if not is_library(value):  # a library's function around one of the user's
                self._visit_cells(value, step, depth)

    def _visit_code(self, function: types.FunctionType, step: Step, depth: int) -> None:
        code = step.code = function.__code__
        self.check(step.to("{}.__code__"), "is", code)
        self.reached.add(code)
        self._visit_cells(function, step, depth)
        if is_users(code) and (function.__dict__ or self.misses):
            self.visit_attributes(function.__dict__, step.to("{}.__dict__"), depth)
        self._visit_signature(function, step, depth)
        self._visit_globals(function.__globals__, self.words[code], step.to("{}.__globals__"), depth, is_users(code))
        for name, level in sorted(self.words[code].imports):
            self._visit_import("." * level + name, function.__globals__, depth)

    def _visit_signature(self, function: types.FunctionType, step: Step, depth: int) -> None:
        """Defaults that there are; or all that ``inspect.signature`` tells, where the user's code may ask for it."""
        everything = self.everything and is_users(function.__code__)
        for name in _OF_SIGNATURES if everything else _DEFAULTS:
            if everything or getattr(function, name):
                self.visit(getattr(function, name), step.to(f"{{}}.{name}"), depth + 1)

    def _visit_cells(self, function: types.FunctionType, step: Step, depth: int) -> None:
        closure, code = step.to("{}.__closure__"), function.__code__
        for index, cell in enumerate(function.__closure__ or ()):
            try:
                content = cell.cell_contents
            except ValueError:
                self.check(closure.to(f"{{}}[{index}]"), "same", types.CellType())  # empty ones are alike
                continue
            inner = closure.to(f"{{}}[{index}].cell_contents", ("cell", index))
            self.visit(content, inner, depth + 1, self.whole.of(code.co_freevars[index]))

    def _note_closed_over(self, function: types.FunctionType, step: Step) -> None:
        """What a function keeps that was made for later."""
        defaults = (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values())
        cells = (cell for cell in function.__closure__ or () if cell != types.CellType())
        for value in (*defaults, *(cell.cell_contents for cell in cells)):
            self.note_kept(value, step)

    def _visit_globals(self, table: dict[str, object], words: Words, step: Step, depth: int, of_user: bool) -> None:
        """What is not there hides nothing yet; what layers of libraries read is known but for what may be patched."""
        for name in sorted((words.stored - words.globals) & table.keys()):
            self.note_kept(table[name], step.to(item(name), ("item", name)))
        for name in sorted(words.globals):
            found: object = table.get(name, step)
            if found is step:
                if of_user:
                    self.check(step, "lacks", name)
                    self._visit_builtin_name(name)
            elif of_user or not is_of(found, (type, types.FunctionType)) or self.ran(found):
                self.visit(found, step.to(item(name), ("item", name)), depth + 1, words.of(name))

    def _visit_builtin_name(self, name: str) -> None:
        found = vars(builtins).get(name)
        if found is not None:
            self.check(self.anchor(vars(builtins)).to(item(name)), "is", found)

    def _visit_import(self, name: str, table: dict[str, Any], depth: int) -> None:
        """Modules that the code imports while it runs."""
        whole = resolve_name(name, table.get("__package__") or "") if name.startswith(".") else name
        step = self.anchor(sys.modules)
        for one in dict.fromkeys((whole, whole.partition(".")[0])):
            module: object = sys.modules.get(one)
            if module is None:
                self.check(step, "lacks", one)
            else:
                self.visit(module, step.to(item(one)), depth + 1)

    def _visit_builtin(self, value: types.BuiltinFunctionType, step: Step, depth: int) -> None:
        """A function of a module in C, which has the module's name whatever it is bound to; or a method of a thing."""
        owner = value.__self__
        if isinstance(owner, (type, types.ModuleType)) or isinstance(getattr(value, "__module__", None), str):
            self.check(step, "same", value)
        else:
            self.check(step, "type", type(value))
            self.visit(owner, step.to("{}.__self__"), depth + 1)
            self.check(step.to("{}.__name__"), "same", value.__name__)

    # ------------------------------------------------------------ what holds other things
    def visit_python_module(self, value: types.ModuleType, step: Step, depth: int, names: set[str] | None) -> None:
        self.check(step, "is", value)
        if library_of(value.__name__) not in LIBRARIES:
            self.check(step, "type", type(value))  # a module may be given another class, with properties
            visit_class(self, type(value), depth)
            skip = _OF_IMPORTS - self.own
            self.visit_attributes(value.__dict__, step.to("{}.__dict__"), depth, among=names, skip=skip)
            return
        for name in sorted(self.own if names is None else names):
            found = getattr(value, name, step)
            if found is not step:
                self._visit_of_library(found, step.to(f"{{}}.{name}"), depth + 1, name)

    def _visit_of_library(self, value: object, step: Step, depth: int, name: str) -> None:
        """What a library's module holds: others may have put something else there."""
        if is_of(value, (type, types.FunctionType)):
            self.check(step, "is", value)
        elif type(value) in NUMBERS:
            self.check(step, "same", value)
        else:
            self.visit(value, step, depth, self.whole.of(name))

    def _visit_container(self, value: Any, step: Step, depth: int) -> None:
        kind: type = type(value)
        if (
            any(isinstance(getattr(kind, name, None), types.FunctionType) for name in _OF_ITEMS)
            and kind not in CONTAINERS
        ):
            self.refuse(value, step, f"it reads a {kind.__name__}, which answers for its items itself")
            return
        count = len(value)
        if count > _MOST_ITEMS:
            self.refuse(value, step, f"it reads a {kind.__name__} of {count} items, too many to watch")
            return
        self.check(step, "type", kind)
        if issubclass(kind, (dict, types.MappingProxyType)):
            self._visit_mapping(value, step, depth)
        elif issubclass(kind, (set, frozenset)):
            if not all(is_plain(thing) for thing in value):
                self.refuse(value, step, f"it reads a {kind.__name__} of objects, whose changes cannot be watched")
            self._check_items(step, value)
        else:
            self.check(step, "len", count)
            if issubclass(kind, deque):
                self.check(step.to("{}.maxlen"), "same", value.maxlen)
            for key, inner in enumerate(value):
                slot = None if issubclass(kind, tuple) else ("item", key)
                self.visit(inner, step.to(item(key), slot), depth + 1)
        if kind not in CONTAINERS:
            visit_instance(self, value, step, depth)

    def _check_items(self, step: Step, value: Collection[object]) -> None:
        self.check(step, "items", tuple(value))
        if not all(is_of(thing, str) for thing in value):
            self.check(step, "types", tuple(map(type, value)))

    def _visit_mapping(self, value: Mapping[object, object], step: Step, depth: int) -> None:
        if not all(is_plain(key) for key in value):
            self.refuse(value, step, f"it reads a {type(value).__name__} by objects, whose changes cannot be watched")
            return
        self._check_items(step, value)
        if isinstance(value, defaultdict):
            self.visit(value.default_factory, step.to("{}.default_factory"), depth + 1)
        for key in list(value):
            text = item(key) if isinstance(key, (str, int)) else f"{{}}[{self.anchor(key).text}]"
            self.visit(value[key], step.to(text, ("item", key)), depth + 1)

    # ------------------------------------------------------------ what everything reads
    def finish(self) -> Walk:
        """After all roots: torch's switches and methods; and that all code that ran was met on the way."""
        for function, args in self.reading.asked:
            asked = ", ".join(map(repr, args))
            # as it is around the call: inside the function, it may have been asked within a context of its own
            self.check(self.anchor(function).to(f"{{}}({asked})"), "same", function(*args))
        hidden = hidden_switch({function for function, _ in self.reading.asked}, self.own)
        if hidden and not self.lenient:
            raise UnwatchableError(hidden)
        for name in sorted(self.methods & _TENSOR_NAMES):
            if getattr(Tensor, name) is getattr(Tensor, name):
                self.check(self.anchor(Tensor).to(f"{{}}.{name}"), "is", getattr(Tensor, name))
        if self.tells_apart:
            self._keep_apart()
        if not self.lenient:
            self._refuse_unreached()
        return self.walk

    def _keep_apart(self) -> None:
        """Things of which each is another one stay so; classes and modules are compared one by one."""
        found = [*self.seen.values(), *self.walk.tensors.values()]
        things = [step for thing, step in found if not is_of(thing, (type, types.ModuleType))]
        if len(things) > 1:
            self.check(things[0], "apart", things)

    def _refuse_unreached(self) -> None:
        reached = set(self.reached)
        waiting = list(reached)
        while waiting:
            inner = [c for c in waiting.pop().co_consts if isinstance(c, types.CodeType) and c not in reached]
            reached.update(inner)
            waiting += inner
        for code in self.reading.codes:
            if is_users(code) and code not in reached:
                raise UnwatchableError(f"it calls {code.co_name}, which is found in a way that cannot be watched")


def walk_roots(
    roots: Sequence[object],
    reading: Reading,
    *,
    everything: bool = False,
    lenient: bool = False,
    made: Made | None = None,
) -> Walk:
    """What the functions reach from their closures, modules and globals, limited to names they speak.

    ``made``: what the recording made.
    """
    if reading.impure and not lenient:
        raise UnwatchableError(f"it calls {reading.impure}, which answers differently every time")
    walker = Walker(reading, everything=everything, lenient=lenient)
    walker.made = made or Made()
    for index, root in enumerate(roots):
        walker.visit(root, Step(None, f"r[{index}]"))
    return walker.finish()
