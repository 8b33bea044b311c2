"""Guards: what a captured function read, where it stood, and what of it must not change.

Takes: what walk.py finds. Gives: a Walk, from which check.py makes a function. Runs once per function.
"""

from __future__ import annotations

import re
import types
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from torch import Tensor

from vgraph.capture.guards.watchable import is_of
from vgraph.capture.record.aliases import memory_of

ROWS, COUNT, MADE = "rows", "a number of rows", "a tensor that it has made"  # what a function may keep
MISSES = (AttributeError, KeyError, IndexError, TypeError, ValueError)  # where a way is gone


@dataclass(frozen=True, eq=False)
class Made:
    """Tensors that a recording made, by ids; and by their memory, which a parameter made of one shares with it."""

    ids: frozenset[int] = frozenset()
    memory: frozenset[object] = frozenset()

    def __contains__(self, value: object) -> bool:
        return id(value) in self.ids or (
            bool(self.memory) and issubclass(type(value), Tensor) and memory_of(cast("Tensor", value)) in self.memory
        )


def code_of(thing: object) -> types.CodeType | None:
    """The code of a Python function or method. No other object is asked: it may answer anything, or raise."""
    while is_of(thing, types.MethodType):
        thing = thing.__func__
    return thing.__code__ if is_of(thing, types.FunctionType) else None


_ATTRIBUTE = re.compile(r"\{\}\.(?!__)\w+")  # of a class, as a step's text


@dataclass(eq=False)
class Step:
    """One way from a parent's value to this one, as source text over the parent's variable."""

    parent: Step | None
    text: str
    slot: tuple[str, Any] | None = None  # how to put another value here: (kind, key)
    code: types.CodeType | None = None  # of the function that stands here
    onward: dict[str, Step] = field(default_factory=dict[str, "Step"])

    def to(self, text: str, slot: tuple[str, object] | None = None) -> Step:
        """The step from here by this text; the same one whenever it is asked for, so that a check goes there once."""
        if text not in self.onward:
            self.onward[text] = Step(self, text, slot)
        return self.onward[text]


def item(key: object) -> str:
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
        if not kind and _ATTRIBUTE.fullmatch(step.text):
            return repr(step.text[3:])
        step = step.parent
    return step.text


NumberKey = tuple[str, types.CodeType | None, int]


@dataclass(eq=False)
class Numbers:
    """Python numbers by path, and what the paths begin with beside the roots; holds no tensor."""

    values: dict[str, tuple[complex, Step]] = field(default_factory=dict[str, tuple[complex, Step]])
    constants: list[object] = field(default_factory=list[object])
    asks_types: bool = False  # the user's code asks for types: a number must stay a number

    def key(self, path: str) -> NumberKey:
        """The path, the code of the function that it leads through, and which constant it begins with."""
        step = self._function(path)
        return path, None if step is None else step.code, self._begin(path)

    def _begin(self, path: str) -> int:
        """The id of the constant that the path begins with, for they are counted anew in every walk; 0: a root."""
        step = self.values[path][1]
        while step.parent is not None:
            step = step.parent
        return id(self.value_at(step, ())) if step.text.startswith("k[") else 0

    def _function(self, path: str) -> Step | None:
        """Where the innermost function stands that the path leads through."""
        step: Step | None = self.values[path][1]
        while step is not None and step.code is None:
            step = step.parent
        return step

    def leads_there(self, path: str, roots: Sequence[object]) -> bool:
        """Whether these roots have, on the way, the function that the path led through."""
        step = self._function(path)
        found = None if step is None else self.value_at(step, roots)
        return step is None or code_of(found) is step.code

    def value_at(self, step: Step, roots: Sequence[object]) -> Any:
        """What stands at a step now; None where the way there is gone."""
        try:
            return eval(path_of(step), {"r": roots, "k": self.constants})
        except MISSES:
            return None


@dataclass(eq=False)
class Walk:
    """Everything reachable: tensors and numbers by where they stand, and what must not change."""

    tensors: dict[int, tuple[Tensor, Step]] = field(default_factory=dict[int, tuple[Tensor, Step]])
    checks: list[tuple[Step, str, Any]] = field(default_factory=list[tuple[Step, str, Any]])
    numbers: Numbers = field(default_factory=Numbers)
    kept: list[tuple[Step, str]] = field(default_factory=list[tuple[Step, str]])  # where ROWS, a COUNT ... stand
