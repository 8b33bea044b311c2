"""What a walk knows and has found: the names that the code speaks, what was seen, the checks so far.

Takes: a Reading. Gives: a growing Walk, and how attributes are visited. Runs once per function.
``walk.py`` says what is done with a thing of each kind, ``walk_objects.py`` with instances, classes and layers.
"""

from __future__ import annotations

import types
from abc import ABC, abstractmethod
from collections.abc import Mapping

from torch import Tensor

from vgraph.capture.errors import UnwatchableError
from vgraph.capture.guards.code_names import joined, words_of
from vgraph.capture.guards.code_watch import Reading, is_users
from vgraph.capture.guards.purity import REFLECTION
from vgraph.capture.guards.watchable import NAMES_OF_THINGS, is_library
from vgraph.capture.guards.watched import Made, Step, Walk, item

_FREE = (Tensor, type(None))  # and no rows of a recording, which tell that a function keeps them for later
_REFLECTING_WRITES = frozenset({"setattr", "__setattr__"})


class WalkState(ABC):
    """What a walk knows and has found.

    ``lenient``: what cannot be watched is watched by its type, to tell when a refusal is out of date.
    """

    def __init__(self, reading: Reading, *, everything: bool = False, lenient: bool = False) -> None:
        self.walk, self.reading, self.lenient = Walk(), reading, lenient
        self.words = {code: words_of(code) for code in list(reading.codes)}
        whole, own = joined(self.words.values()), joined(w for code, w in self.words.items() if is_users(code))
        self.names, self.own, self.whole = whole.names, own.names, whole
        self.methods = own.names | own.operators  # that it may call on tensors
        self.walk.numbers.asks_types = not own.names.isdisjoint({"isinstance", "type", "issubclass"})
        self.everything = everything or reading.reflects or not own.names.isdisjoint(REFLECTION | _REFLECTING_WRITES)
        self.unread = frozenset[str]() if self.everything else frozenset(whole.names - whole.read)
        self.misses = self.everything or own.handles  # the user's code may notice what is not there
        self.tells_apart = own.tells_apart
        self.asks_by_name = self.misses  # of layers, too: they may get attributes that no code speaks
        self.classes: dict[type, list[str]] = {}  # and what of them is read that an instance could hide
        self.reached: set[types.CodeType] = set()
        self.seen: dict[int, tuple[object, Step]] = {}  # the values too, so that ids stay unique
        self.made = Made()  # by the recording
        self._anchors: dict[int, Step] = {}

    def check(self, step: Step, kind: str, value: object) -> None:
        self.walk.checks.append((step, kind, value))

    def speaks(self, name: str) -> bool:
        return self.everything or name in self.names

    def anchor(self, thing: object) -> Step:
        """A step that begins with a thing itself: a class, or what a library keeps for good."""
        if id(thing) not in self._anchors:
            constants = self.walk.numbers.constants
            constants.append(thing)
            self._anchors[id(thing)] = Step(None, f"k[{len(constants) - 1}]")
        return self._anchors[id(thing)]

    def refuse(self, value: object, step: Step, reason: str) -> None:
        """What no guard can see change."""
        if not self.lenient:
            raise UnwatchableError(reason)
        self.check(step, "type", type(value))

    def may_call(self, owner: type, name: str) -> bool:
        """Whether a method of this class is watched though it did not run."""
        return self.speaks(name) and not is_library(owner)

    def ran(self, thing: object) -> bool:
        return getattr(thing, "__code__", None) in self.reading.codes

    # ------------------------------------------------------------ what is reached from here
    @abstractmethod
    def visit(self, value: object, step: Step, depth: int = 0, names: set[str] | None = None) -> None:
        """Adds the checks of a thing; ``names``: the attributes that are read of it, if it is a Python module."""

    def check_names(self, value: object, step: Step) -> None:
        """What a function or a class is called, where the user's code asks for it."""
        for name in sorted(self.own & NAMES_OF_THINGS):
            if hasattr(value, name):
                self.check(step.to(f"{{}}.{name}"), "same", getattr(value, name))

    @abstractmethod
    def note_kept(self, value: object, step: Step) -> bool:
        """Whether it is something of the recording's examples, of which no later call has any use."""

    def visit_attributes(
        self,
        table: Mapping[str, object],
        step: Step,
        depth: int,
        *,
        among: set[str] | None = None,
        skip: frozenset[str] = frozenset(),
        whole: bool = False,
        misses: bool = False,
    ) -> None:
        """Attributes along names that the code speaks; and that none appears that the user's code would notice.

        What code assigns and never reads is free to change: attention that a layer keeps is another one in every call.
        """
        if whole or (self.everything and among is None):
            self.check(step, "items", tuple(table))
        elif self.misses or misses:
            self.check(step, "without", frozenset((self.own if among is None else among) - table.keys()))
        for name in list(table):
            if name in skip or not (whole or (self.speaks(name) if among is None else name in among)):
                continue
            there = step.to(item(name), ("item", name))
            if name in self.unread and not whole and type(table[name]) in _FREE:
                self.note_kept(table[name], there)
            else:
                self.visit(table[name], there, depth + 1, self.whole.of(name))
