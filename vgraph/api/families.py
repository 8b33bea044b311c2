"""Families: what was captured of functions with one code, and which of their numbers move.

Takes: functions, numbers that recordings read. Gives: a Family; tempo: every call, and once a function.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from vgraph.api.guards import Numbers, spoken_as
from vgraph.api.tracer import CaptureError

_MOST_NUMBERS = 1024
_MOST_REFUSALS = 3  # functions of one code differ by what they close over
_CHANGES_TO_MOVE = 2  # a number that changed this often becomes an input
_MOST_CHANGES = 16  # recordings of a number that cannot become one
_MOST_DEPTH = 3  # functions within functions that tell one from another


class RestlessError(CaptureError):
    """A number changes again and again, and what a function does depends on its value."""


def without_frames(error: CaptureError) -> CaptureError:
    """The same error, to be kept or raised again: frames hold all the tensors of a step."""
    return type(error)(error.reason, error.line)


def function_key(function: Any, depth: int = 0) -> Any:
    """What a function and its copies made anew in every forward have in common.

    That is their code, and that of functions that they close over, as a decorated one does; names, as built-ins
    close over features' names, tell them apart.
    """
    code = getattr(function, "__code__", None)
    if code is None:
        if isinstance(function, functools.partial):
            return functools.partial, function_key(function.func, depth)  # pyright: ignore[reportUnknownMemberType]
        return type(function)
    cells = function.__closure__
    if cells is None or depth == _MOST_DEPTH:
        return code
    inner = [_content_key(cell, depth + 1) for cell in cells]
    return code if all(key is None for key in inner) else (code, *inner)


def _content_key(cell: Any, depth: int) -> Any:
    try:
        content = cell.cell_contents
    except ValueError:  # not assigned yet
        return None
    if isinstance(content, str):
        return content
    if isinstance(content, types.BuiltinFunctionType):  # itself may be bound to something large
        return content.__name__
    return function_key(content, depth) if hasattr(content, "__code__") else None


def name_of(key: Any) -> str:
    """What a function with this key is called."""
    while isinstance(key, tuple):
        key = key[-1] if key[0] is functools.partial else key[0]  # pyright: ignore[reportUnknownVariableType]
    return str(getattr(key, "co_name", key))  # pyright: ignore[reportUnknownArgumentType]


@dataclass(eq=False)
class Family:
    """Everything captured of functions with one code, and which of their numbers move."""

    entries: list[Any] = field(default_factory=list[Any])
    refused: list[CaptureError] = field(default_factory=list[CaptureError])
    changes: dict[Any, int] = field(default_factory=dict[Any, int])
    fixed: set[Any] = field(default_factory=set[Any])  # numbers that a shape or a branch needs
    numbers: dict[Any, Numbers] = field(default_factory=dict[Any, Numbers])
    num_captures: int = 0
    has_fallback: bool = True  # that is faster than to record at every call

    def refuse(self, error: CaptureError) -> None:
        """Remembers why a function is not captured."""
        if len(self.refused) < _MOST_REFUSALS:
            self.refused.append(without_frames(error))

    def check(self) -> None:
        """Raises what was remembered, where so many of these functions could not be captured."""
        if len(self.refused) >= _MOST_REFUSALS:
            raise without_frames(self.refused[0])

    def moving_numbers(self, roots: Sequence[Any]) -> tuple[Numbers, frozenset[str]]:
        """Numbers that these functions read and that changed often enough."""
        for numbers in dict.fromkeys(reversed(self.numbers.values())):
            moving = frozenset(
                path for path in self._changed(numbers, roots, _CHANGES_TO_MOVE)
                if numbers.key(path) not in self.fixed
            )  # fmt: skip
            if moving and not numbers.asks_types:
                return numbers, moving
        return Numbers(), frozenset()

    def check_restless(self, roots: Sequence[Any], moving: frozenset[str]) -> None:
        """Raises where these functions would be recorded at every call; ``moving``: numbers that are inputs."""
        for numbers in dict.fromkeys(reversed(self.numbers.values())) if self.has_fallback else ():
            for path in self._changed(numbers, roots, _MOST_CHANGES):
                if path not in moving:
                    name = spoken_as(numbers.values[path][1])
                    fact = f"the number {name} changes from call to call, and what it does depends on the value"
                    raise RestlessError(fact)

    def _changed(self, numbers: Numbers, roots: Sequence[Any], least: int) -> list[str]:
        return [
            path for path in numbers.values
            if self.changes.get(numbers.key(path), 0) >= least and numbers.leads_there(path, roots)
        ]  # fmt: skip

    def note_numbers(self, numbers: Numbers) -> None:
        """Counts what has changed since the last recording."""
        for path, (value, _) in numbers.values.items():
            key = numbers.key(path)
            before = self.numbers.pop(key, None)
            if before is not None and before.values[path][0] != value:
                self.changes[key] = self.changes.get(key, 0) + 1
            self.numbers[key] = numbers
        while len(self.numbers) > _MOST_NUMBERS:
            forgotten = next(iter(self.numbers))
            del self.numbers[forgotten]
            self.changes.pop(forgotten, None)
            self.fixed.discard(forgotten)
