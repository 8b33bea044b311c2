"""Families: what was captured of functions with one code, and which of their numbers move.

Takes: functions, numbers that recordings read. Gives: a Family. Runs at every call, and once per function.
"""

from __future__ import annotations

import functools
import types
import weakref
from collections.abc import Callable, Hashable, MutableMapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar
from weakref import WeakKeyDictionary

from vgraph.capture.errors import CaptureError
from vgraph.capture.features import Features
from vgraph.capture.guards.watchable import hashes_itself, is_of
from vgraph.capture.guards.watched import NumberKey, Numbers, code_of, spoken_as
from vgraph.capture.lookup.lookup import Traces
from vgraph.capture.record.modes import Modes
from vgraph.capture.refusals import MOST_ATTEMPTS, Patience, Refusal, without_frames

T = TypeVar("T")  # a capture
Owners = tuple[Callable[[], object], ...]  # weak references to those that functions are bound to
_MOST_NUMBERS = 1024
_MOST_REFUSALS = 16  # that are kept: functions of one code differ by what they close over
_MOST_LOOKED_UP = 3  # functions of one code, until the next one is expected to be
_CHANGES_TO_MOVE = 2  # a number that changed this often becomes an input
_MOST_CHANGES = 16  # recordings of a number that cannot become one
_MOST_DEPTH = 3  # functions within functions that tell one from another


class RestlessError(CaptureError):
    """A number changes again and again, and what a function does depends on its value."""

    is_kept = False  # it is found before a recording


def function_key(function: object, depth: int = 0) -> Hashable:
    """What a function and its copies made anew in every forward have in common.

    That is their code, and that of functions that they close over, as a decorated one does; names, as built-ins
    close over features' names, tell them apart.
    """
    code = code_of(function)
    if code is None:
        is_partial = isinstance(function, functools.partial)
        return (functools.partial, function_key(function.func, depth)) if is_partial else class_key(type(function))
    cells: tuple[types.CellType, ...] | None = getattr(function, "__closure__", None)
    if cells is None or depth == _MOST_DEPTH:
        return code
    inner: tuple[Hashable, ...] = ()
    has_key = False
    for cell in cells:
        try:
            content = cell.cell_contents
        except ValueError:  # not assigned yet
            content = None
        key = content if type(content) is str else _content_key(content, depth + 1)
        inner += (key,)
        has_key = has_key or key is not None
    return (code, *inner) if has_key else code


def class_key(kind: type) -> Hashable:
    """The class; or its id, where it has a hash of its own, or none."""
    return id(kind) if hashes_itself(kind) else kind


def _content_key(content: object, depth: int) -> Hashable:
    if is_of(content, str):
        return content
    if is_of(content, types.BuiltinFunctionType):  # itself may be bound to something large
        return content.__name__
    return function_key(content, depth) if code_of(content) is not None else None


def name_of(key: object) -> str:
    """What a function with this key is called."""
    while isinstance(key, tuple):
        key = key[-1] if key[0] is functools.partial else key[0]
    return str(getattr(key, "co_name", key))


def _owner(root: object) -> object:
    """Who it is from call to call: a bound method is made anew whenever it is looked at, a built-in at every call.

    Built-ins of one family are alike: they read nothing but features, whose names are part of its key.
    """
    if isinstance(root, types.MethodType):
        return root.__self__
    return None if getattr(root, "__module__", None) == "vgraph.function" else root


def _weak(thing: object) -> Callable[[], object]:
    try:
        return weakref.ref(thing)
    except TypeError:
        return lambda: thing


@dataclass(eq=False)
class Family(Generic[T]):
    """Everything captured of functions with one code, and which of their numbers move."""

    entries: list[T] = field(default_factory=list[T])
    refused: list[Refusal] = field(default_factory=list[Refusal])
    changes: dict[NumberKey, int] = field(default_factory=dict[NumberKey, int])
    fixed: set[NumberKey] = field(default_factory=set[NumberKey])  # numbers that a shape or a branch needs
    numbers: dict[NumberKey, Numbers] = field(default_factory=dict[NumberKey, Numbers])
    num_captures: int = 0
    looked_up: list[tuple[Owners, str]] = field(default_factory=list[tuple[Owners, str]])
    traces: Traces = field(default_factory=Traces)  # of those that are looked up
    patience: MutableMapping[object, Patience] = field(default_factory=lambda: WeakKeyDictionary())  # failed look-ups
    has_fallback: bool = True  # that is faster than to record at every call

    def look_up(self, roots: Sequence[object], reason: str) -> None:
        """From now on these functions' traces are looked up: no guard can watch all that they read."""
        self.looked_up.append((tuple(map(_weak, map(_owner, roots))), reason))

    def why_looked_up(self, roots: Sequence[object]) -> str:
        """What these functions read that no guard can watch, or nothing.

        Where several functions of one code do, the next one is expected to do so, too: it may be made anew in
        every call.
        """
        owners = [_owner(root) for root in roots]
        for known, reason in self.looked_up:
            if all(ref() is owner for ref, owner in zip(known, owners, strict=True)):
                return reason
        return self.looked_up[0][1] if len(self.looked_up) >= _MOST_LOOKED_UP else ""

    def patience_with(self, roots: Sequence[object]) -> Patience:
        """How often look-ups of these functions have failed: of one object's methods, or of all with this code."""
        owner = roots[0].__self__ if isinstance(roots[0], types.MethodType) else self
        try:
            return self.patience.setdefault(owner, Patience())
        except TypeError:  # it has no hash, or cannot be referred to weakly
            return self.patience.setdefault(self, Patience())

    def refuse(self, refusal: Refusal | None, roots: Sequence[object]) -> None:
        """Remembers why these functions are not captured; those that fail again and again wait longer each time."""
        if refusal is not None:
            times = 1 + sum(known.is_of(roots) for known in self.refused)
            refusal.wait = 0 if times < MOST_ATTEMPTS else 2**times
            self.refused = [refusal, *self.refused[: _MOST_REFUSALS - 1]]

    def check(self, modes: Modes, roots: Sequence[object], features: Features) -> None:
        """Raises what was remembered of these functions, unless something that they read is another now."""
        for place, refusal in enumerate(refusal for refusal in self.refused if refusal.is_of(roots)):
            waits = place == 0 and refusal.wait > 0
            refusal.wait -= waits
            if waits or refusal.holds(modes, roots, features):
                raise without_frames(refusal.error)

    def moving_numbers(self, roots: Sequence[object]) -> tuple[Numbers, frozenset[str]]:
        """Numbers that these functions read and that changed often enough."""
        for numbers in dict.fromkeys(reversed(self.numbers.values())):
            moving = frozenset(
                path for path in self._changed(numbers, roots, _CHANGES_TO_MOVE) if numbers.key(path) not in self.fixed
            )
            if moving and not numbers.asks_types:
                return numbers, moving
        return Numbers(), frozenset()

    def check_restless(self, roots: Sequence[object], moving: frozenset[str]) -> None:
        """Raises where these functions would be recorded at every call; ``moving``: numbers that are inputs."""
        for numbers in dict.fromkeys(reversed(self.numbers.values())) if self.has_fallback else ():
            for path in self._changed(numbers, roots, _MOST_CHANGES):
                if path not in moving:
                    name = spoken_as(numbers.values[path][1])
                    fact = f"the number {name} changes from call to call, and what it does depends on the value"
                    raise RestlessError(fact)

    def _changed(self, numbers: Numbers, roots: Sequence[object], least: int) -> list[str]:
        return [
            path
            for path in numbers.values
            if self.changes.get(numbers.key(path), 0) >= least and numbers.leads_there(path, roots)
        ]

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
