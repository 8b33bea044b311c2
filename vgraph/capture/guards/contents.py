"""Contents: what the Python objects held that a function can write to, for a recording that comes to nothing.

Takes: functions, before they are recorded. Gives: a way to put everything back, so that the run that takes the
recording's place finds what the recording has found. Runs once per recording.

Functions and classes of installed packages are not followed; what their objects hold is, where a program has them.
An iterator cannot be put back: who finds one before a recording must not record.
"""

from __future__ import annotations

import array
import functools
import queue
import random
import sys
import types
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import chain, islice
from typing import cast
from weakref import WeakKeyDictionary

import numpy as np
from torch import Tensor, nn

from vgraph.capture.guards.watchable import is_library, is_of, is_open

_MOST_ITEMS = 1000  # of one container: what holds more is data
_MOST_THINGS = 100_000  # that are looked at
_ABSENT = object()
_DICTS: tuple[type[dict[object, object]], ...] = (OrderedDict, dict)  # the first has an order of its own besides
_PutBack = Callable[[], None]
_WITHOUT_CONTENTS = (type(None), Tensor, types.ModuleType, str, int, float)
_CONTAINERS = (dict, list, set, deque)
_Items = list[tuple[object, object]]
_Container = dict[object, object] | list[object] | set[object] | deque[object]
_Held = list[object] | set[object] | deque[object] | tuple[object, ...] | frozenset[object]
_FIXED = (tuple, frozenset)
_QUEUES = (queue.Queue, queue.SimpleQueue)
_OF_MODULES = frozenset({"_modules", "_parameters", "_buffers"})  # which no program speaks to read what they hold


class Contents:
    """Of every dict, list, set, array, closure and object that some functions can reach, as it is now.

    ``among``: the attributes that are followed; None: all.
    """

    def __init__(self, roots: Sequence[object], among: frozenset[str] | None = None) -> None:
        self._roots, self._among, self._iterator = roots, among, ""
        self._put_back: list[_PutBack] = []
        self._empty: list[_Container] = []  # most of what a layer has: there are ten kinds of hooks
        self._seen: dict[int, object] = {}  # the things too, so that ids stay unique
        left = deque[object](roots)  # what is near comes first, as there is an end to it
        while left and len(self._seen) < _MOST_THINGS:
            thing = left.popleft()
            if id(thing) in self._seen or is_of(thing, _WITHOUT_CONTENTS):
                continue
            self._seen[id(thing)] = thing
            if is_of(thing, _CONTAINERS) and _is_plain(type(thing)) and not thing:
                self._empty.append(cast("_Container", thing))
            else:
                left.extend(self._note(thing))

    def put_back(self) -> None:
        """Lets everything hold what it held; none of the program's own code runs."""
        for container in filter(None, self._empty):
            container.clear()
        for put_back in self._put_back:
            put_back()

    def iterator(self) -> str:
        """The kind of an iterator, or a queue, that functions can reach by names that they speak; "": there is none."""
        if not self._iterator or self._among is not None:
            return self._iterator
        functions = (thing for thing in self._seen.values() if is_of(thing, types.FunctionType))
        words = (word for function in functions if _is_of_program(function) for word in _words_in(function.__code__))
        return Contents(self._roots, frozenset(words) | _OF_MODULES).iterator()

    def _follows(self, name: str) -> bool:
        return self._among is None or name in self._among

    def _note(self, thing: object) -> Iterable[object]:
        """Remembers what a thing holds, and gives what that leads to."""
        if is_of(thing, types.FunctionType):
            return self._of_function(thing) if _is_of_program(thing) else ()
        if is_of(thing, types.MethodType):
            return thing.__self__, thing.__func__
        if is_of(thing, functools.partial):
            return thing.func, *thing.args, *thing.keywords.values()
        if is_of(thing, _FIXED):
            items = _lying_in(cast("_Held", thing))
            return items if type(thing) is tuple or type(thing) is frozenset else chain(items, self._of_object(thing))
        if is_of(thing, _CONTAINERS):
            items = self._of_container(cast("_Container", thing))
            return items if _is_plain(type(thing)) else chain(items, self._of_object(thing))
        if is_of(thing, (staticmethod, classmethod)):
            return (thing.__func__,)
        if is_of(thing, property):
            return thing.fget, thing.fset
        if is_of(thing, type):
            return self._of_class(thing) if _is_of_program(thing) else ()
        if is_of(thing, nn.Module) or not is_library(type(thing)) or is_open(type(thing)):
            return self._of_object(thing)
        self._note_numbers(thing)
        return ()

    def _note_numbers(self, thing: object) -> None:
        """What holds numbers, or gives the next one."""
        if is_of(thing, random.Random):
            self._put_back.append(functools.partial(thing.setstate, thing.getstate()))
        elif is_of(thing, np.random.Generator):
            self._put_back.append(functools.partial(setattr, thing.bit_generator, "state", thing.bit_generator.state))
        elif type(thing) is np.ndarray and thing.size <= _MOST_ITEMS and thing.flags.writeable:
            self._put_back.append(functools.partial(np.copyto, thing, thing.copy()))
        elif is_of(thing, (bytearray, array.array)) and len(thing) <= _MOST_ITEMS:
            self._put_back.append(functools.partial(thing.__setitem__, slice(None), thing[:]))
        elif hasattr(type(thing), "__next__") or is_of(thing, _QUEUES):
            self._iterator = type(thing).__name__

    def _of_function(self, function: types.FunctionType) -> Iterator[object]:
        for cell in function.__closure__ or ():
            before = _contents_of(cell)
            self._put_back.append(functools.partial(_fill, cell, before))
            yield before
        names = {name: function.__globals__.get(name, _ABSENT) for name in _names_in(function.__code__)}
        self._put_back.append(functools.partial(_put_items, function.__globals__, names))
        yield from names.values()
        yield from function.__defaults__ or ()
        yield from (function.__kwdefaults__ or {}).values()

    def _of_container(self, container: _Container) -> Iterable[object]:
        if is_of(container, dict):
            items = _items_of(container)
            if len(items) > _MOST_ITEMS:
                return ()
            self._put_back.append(functools.partial(_put_dict, container, items))
            return [value for _, value in items]
        values = tuple(islice(_lying_in(container), _MOST_ITEMS + 1))
        if len(values) > _MOST_ITEMS:
            return ()
        self._put_back.append(functools.partial(_put_values, container, values))
        return values

    def _of_class(self, kind: type) -> Iterator[object]:
        table = _attributes_of(kind)
        self._put_back.append(functools.partial(_put_attributes, kind, table))
        yield from (value for name, value in table.items() if self._follows(name))
        yield from kind.__bases__

    def _of_object(self, thing: object) -> Iterator[object]:
        """Attributes and slots, as they lie: none of the program's own code runs."""
        yield type(thing)
        with suppress(AttributeError):  # there are slots alone
            table: dict[str, object] = object.__getattribute__(thing, "__dict__")
            if self._among is None:
                yield table
            else:
                yield from (value for name, value in table.items() if name in self._among)
        for slot in _slots_of(type(thing)):
            value = _held_in(slot, thing)
            self._put_back.append(functools.partial(_put_slot, slot, thing, value))
            if self._follows(slot.__name__):
                yield value


_names = WeakKeyDictionary[type, tuple[str, ...]]()  # of slots themselves none: they would keep their class for ever


def _slots_of(kind: type) -> list[types.MemberDescriptorType]:
    """Those of a class and its bases."""
    found = (vars(base).get(name) for base in kind.__mro__ for name in _names_of_slots(base))
    return [slot for slot in found if is_of(slot, types.MemberDescriptorType)]


def _names_of_slots(kind: type) -> tuple[str, ...]:
    """Those of a class without its bases, which gets no other slot later."""
    names = _names.get(kind) if type(kind) is type else None  # others may hash as they like
    if names is None:
        names = tuple(name for name, value in vars(kind).items() if is_of(value, types.MemberDescriptorType))
        if type(kind) is type:
            _names[kind] = names
    return names


def _is_plain(kind: type) -> bool:
    """Whether a container answers for itself, and not by code of the program's, as a class of its own may."""
    return kind is OrderedDict or kind is dict or kind is list or kind is set or kind is deque


def _is_of_program(thing: types.FunctionType | type) -> bool:
    """Whether a function or a class is neither of torch and Python nor of another package that is installed."""
    module = sys.modules.get(thing.__module__)
    return not is_library(thing) and "site-packages" not in (getattr(module, "__file__", None) or "")


def _names_in(code: types.CodeType) -> Iterator[str]:
    """The names that a function speaks, and functions within it."""
    yield from code.co_names
    for constant in code.co_consts:
        if is_of(constant, types.CodeType):
            yield from _names_in(constant)


def _words_in(code: types.CodeType) -> Iterator[str]:
    """The names that a function speaks, and those that it has in quotes."""
    yield from _names_in(code)
    for constant in code.co_consts:
        if is_of(constant, str):
            yield constant


def _held_in(slot: types.MemberDescriptorType, thing: object) -> object:
    try:
        return slot.__get__(thing)
    except AttributeError:  # it is empty
        return _ABSENT


def _contents_of(cell: types.CellType) -> object:
    try:
        return cell.cell_contents
    except ValueError:  # it is empty
        return _ABSENT


# ---------------------------------------------------------------- one thing is put back, if it has changed
def _fill(cell: types.CellType, before: object) -> None:
    if before is _ABSENT:
        del cell.cell_contents
    else:
        cell.cell_contents = before


def _put_items(table: dict[str, object], items: dict[str, object]) -> None:
    for name, value in items.items():
        if value is _ABSENT:
            table.pop(name, None)
        elif table.get(name, _ABSENT) is not value:
            table[name] = value


def _put_dict(table: dict[object, object], items: _Items) -> None:
    if _ids_of(_items_of(table)) == _ids_of(items):
        return
    kind = _kind_of_dict(table)
    kind.clear(table)
    for key, value in items:
        kind.__setitem__(table, key, value)


def _kind_of_dict(table: dict[object, object]) -> type[dict[object, object]]:
    return next(kind for kind in _DICTS if is_of(table, kind))


def _items_of(table: dict[object, object]) -> _Items:
    """As they lie, and so many that more than are noted are seen."""
    return list(islice(_kind_of_dict(table).items(table), _MOST_ITEMS + 1))


def _ids_of(items: _Items) -> list[tuple[int, int]]:
    return [(id(key), id(value)) for key, value in items]


def _lying_in(held: _Held) -> Iterator[object]:
    """What lies there, whatever a class below says."""
    if is_of(held, list):
        return list.__iter__(held)
    if is_of(held, deque):
        return deque.__iter__(held)
    if is_of(held, set):
        return set.__iter__(held)
    return tuple.__iter__(held) if is_of(held, tuple) else frozenset.__iter__(held)


def _put_values(container: list[object] | set[object] | deque[object], values: tuple[object, ...]) -> None:
    if list(map(id, _lying_in(container))) == list(map(id, values)):
        return
    if is_of(container, list):
        list.__setitem__(container, slice(None), values)
    elif is_of(container, deque):
        deque.clear(container)
        deque.extend(container, values)
    else:
        set.clear(container)
        set.update(container, values)


def _attributes_of(kind: type) -> dict[str, object]:
    """A class's own attributes but for special ones, some of which Python makes when they are first asked for."""
    return {name: value for name, value in vars(kind).items() if not name.startswith("__")}


def _put_attributes(kind: type, table: dict[str, object]) -> None:
    for name in _attributes_of(kind).keys() - table.keys():
        delattr(kind, name)
    for name, value in table.items():
        if vars(kind).get(name, _ABSENT) is not value:
            setattr(kind, name, value)


def _put_slot(slot: types.MemberDescriptorType, thing: object, value: object) -> None:
    held = _held_in(slot, thing)
    if held is value:
        return
    if value is _ABSENT:
        slot.__delete__(thing)
    else:
        slot.__set__(thing, value)
