"""Pickles: the part of pickle's language that data need, run without calling what a file chooses.

Takes: the bytes of a pickle. Gives: numbers, text, lists, dicts, and what the names that are known make. Runs once per
file. ``pickle.loads`` calls whatever a file names, and believes the sizes that it names.
"""

from __future__ import annotations

import pickletools
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple


class Function(NamedTuple):
    """What may be called for one of the names."""

    run: Callable[..., object]


class Machine:
    """A stack machine for data in pickle's language; ``names``: what a file may name, and what each means.

    ``Function``s may be called; anything else is a value.
    """

    known_ops: Mapping[str, Callable[[Any, Any], None]]

    def __init__(self, names: Mapping[str, object]) -> None:
        self.names = names
        self.stack: list[object] = []
        self.marks: list[list[object]] = []
        self.memo: dict[int, object] = {}

    def read(self, program: bytes) -> object:
        for op, argument, place in pickletools.genops(program):
            known = self.known_ops.get(op.name)
            if known is None:
                raise ValueError(f"{op.name} at byte {place} is no part of data")
            if op.name == "STOP":
                break
            try:
                known(self, argument)
            except IndexError:
                raise ValueError(f"{op.name} at byte {place} finds nothing to work on") from None
        return self.stack.pop()

    def push(self, value: object) -> None:
        self.stack.append(value)

    def to_mark(self) -> list[object]:
        items, self.stack = self.stack, self.marks.pop()
        return items

    def mark(self, _: object) -> None:
        self.marks.append(self.stack)
        self.stack = []

    def put(self, key: int | None) -> None:
        self.memo[len(self.memo) if key is None else key] = self.stack[-1]

    def get(self, key: int) -> None:
        if key not in self.memo:
            raise ValueError(f"it reads {key} before it is written")
        self.push(self.memo[key])

    def make_tuple(self, count: int | None) -> None:
        items = self.to_mark() if count is None else [self.stack.pop() for _ in range(count)][::-1]
        self.push(tuple(items))

    def append(self, items: list[object]) -> None:
        last = self.stack[-1]
        if type(last) is not list:
            raise ValueError("it appends to what is no list")
        last.extend(items)

    def set_items(self, items: list[object]) -> None:
        last = self.stack[-1]
        if not isinstance(last, dict):
            raise ValueError("it sets items of what is no dict")
        last.update(zip(items[::2], items[1::2], strict=True))

    def add_items(self, _: object) -> None:
        items = self.to_mark()
        last = self.stack[-1]
        if type(last) is not set:
            raise ValueError("it adds items to what is no set")
        last.update(items)

    def name(self, words: str | None) -> None:
        if words is None:
            last = self.stack.pop()
            words = f"{self.stack.pop()} {last}"
        if words not in self.names:
            raise ValueError(f"it names {words!r}, which no data need")
        self.push(self.names[words])

    def call(self, _: object) -> None:
        arguments, function = self.stack.pop(), self.stack.pop()
        if not isinstance(function, Function) or type(arguments) is not tuple:
            raise ValueError("it calls what is no function of data")
        self.push(function.run(*arguments))

    def build(self, _: object) -> None:
        """Attributes: of an OrderedDict (which modules' states have) they are left out."""
        self.stack.pop()
        if type(self.stack[-1]) is not OrderedDict:
            raise ValueError("it sets attributes of what has none")


_PUSHED = "BININT BININT1 BININT2 LONG1 LONG4 BINFLOAT BINUNICODE SHORT_BINUNICODE BINBYTES SHORT_BINBYTES".split()
OPS: dict[str, Callable[[Machine, Any], None]] = {
    **dict.fromkeys(_PUSHED, Machine.push),
    **{name: lambda reader, _: None for name in ("PROTO", "FRAME", "STOP")},
    "NONE": lambda reader, _: reader.push(None),
    "NEWTRUE": lambda reader, _: reader.push(True),
    "NEWFALSE": lambda reader, _: reader.push(False),
    "EMPTY_DICT": lambda reader, _: reader.push({}),
    "EMPTY_LIST": lambda reader, _: reader.push([]),
    "EMPTY_SET": lambda reader, _: reader.push(set()),
    "EMPTY_TUPLE": lambda reader, _: reader.push(()),
    "TUPLE1": lambda reader, _: reader.make_tuple(1),
    "TUPLE2": lambda reader, _: reader.make_tuple(2),
    "TUPLE3": lambda reader, _: reader.make_tuple(3),
    "TUPLE": lambda reader, _: reader.make_tuple(None),
    "MARK": Machine.mark,
    "BINPUT": Machine.put,
    "LONG_BINPUT": Machine.put,
    "MEMOIZE": Machine.put,
    "BINGET": Machine.get,
    "LONG_BINGET": Machine.get,
    "APPEND": lambda reader, _: reader.append([reader.stack.pop()]),
    "APPENDS": lambda reader, _: reader.append(reader.to_mark()),
    "SETITEM": lambda reader, _: reader.set_items([reader.stack.pop(), reader.stack.pop()][::-1]),
    "SETITEMS": lambda reader, _: reader.set_items(reader.to_mark()),
    "ADDITEMS": Machine.add_items,
    "GLOBAL": Machine.name,
    "STACK_GLOBAL": lambda reader, _: reader.name(None),
    "REDUCE": Machine.call,
    "BUILD": Machine.build,
}
Machine.known_ops = OPS
