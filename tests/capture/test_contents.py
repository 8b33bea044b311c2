"""What a recording has done to Python objects is undone where it comes to nothing."""

from __future__ import annotations

import array
import gc
import itertools
import queue
import random
import weakref
from collections import Counter, OrderedDict, deque
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest
from torch import nn

from vgraph.capture.guards.contents import Contents

TOTAL = 0


class _Slotted:
    __slots__ = ("first", "second")

    def __init__(self) -> None:
        self.first: Any = 1


class _Counting:
    shared = 1

    def __init__(self) -> None:
        self.own: dict[str, Any] = {"deep": [{"x": 1}]}

    @property
    def counted(self) -> int:
        global TOTAL  # noqa: PLW0603
        TOTAL += 1
        return TOTAL


def _write_to_containers(thing: Any) -> None:
    thing.numbers.append(3)
    thing.numbers[0] = 7
    thing.table["b"], thing.table["a"] = 1, 0
    thing.table["inner"]["c"] = 2
    thing.some.add(5)
    thing.ends.appendleft(0)
    thing.counts["x"] += 1


def _containers() -> Any:
    inner = {"c": 1}
    return SimpleNamespace(
        numbers=[1, 2], table={"a": 1, "inner": inner}, some={1}, ends=deque([1, 2], 2), counts=Counter("xx")
    )


def _closure() -> tuple[Callable[[], None], Callable[[], object]]:
    count, empty = 0, None
    del empty

    def write() -> None:
        nonlocal count, empty
        count += 1
        empty = count

    def read() -> object:
        try:
            return count, empty
        except NameError:
            return count

    return write, read


def test_containers() -> None:
    thing = _containers()
    write = lambda: _write_to_containers(thing)  # noqa: E731
    before = Contents([write])
    write()
    assert thing != _containers()
    before.put_back()
    assert thing == _containers() and list(thing.table) == ["a", "inner"]


def test_variables_of_closures_and_modules() -> None:
    write, read = _closure()
    counting, was, start = _Counting(), read(), TOTAL
    before = Contents([write, lambda: counting.counted])
    write()
    assert counting.counted == start + 1 and read() != was
    before.put_back()
    assert read() == was and start == TOTAL


def test_attributes_of_objects_classes_and_modules_of_torch() -> None:
    slotted, counting, layer = _Slotted(), _Counting(), nn.Linear(2, 2)
    weight = layer.weight

    def write() -> None:
        slotted.first, slotted.second, counting.new = 2, 3, 4  # pyright: ignore[reportAttributeAccessIssue]
        _Counting.shared = 2
        _Counting.appeared = 3  # type: ignore[attr-defined]
        counting.own["deep"][0]["x"] = 2
        layer.register_buffer("more", weight.detach())
        layer.weight = nn.Parameter(weight + 1)
        layer.mode = "other"  # pyright: ignore[reportAttributeAccessIssue]

    before = Contents([write])
    write()
    before.put_back()
    assert slotted.first == 1 and not hasattr(slotted, "second") and vars(counting).keys() == {"own"}
    assert _Counting.shared == 1 and not hasattr(_Counting, "appeared") and counting.own == {"deep": [{"x": 1}]}
    assert layer.weight is weight and not hasattr(layer, "more") and not hasattr(layer, "mode")


def test_large_containers_are_left_alone() -> None:
    """They hold data, which would take long to copy at every recording."""
    many = list(range(5000))
    before = Contents([lambda: many])
    many[0] = 5
    before.put_back()
    assert many[0] == 5


def test_an_ordered_dict_keeps_its_order() -> None:
    table = OrderedDict(a=1, b=2, c=3)
    contents = Contents([table])
    table.move_to_end("a")
    table["d"] = 4
    del table["b"]
    contents.put_back()
    assert list(table.items()) == [("a", 1), ("b", 2), ("c", 3)] and list(reversed(table)) == ["c", "b", "a"]
    table.move_to_end("a")
    assert list(table) == ["b", "c", "a"]


class _Lazy:
    """A thing whose attributes cannot be asked for."""

    __slots__ = ("value",)
    asked: ClassVar[list[str]] = []

    def __getattribute__(self, name: str) -> Any:
        _Lazy.asked.append(name)
        raise RuntimeError(name)


def test_no_code_of_the_program_runs() -> None:
    lazy = _Lazy()
    Contents([lazy]).put_back()
    assert not _Lazy.asked


def test_generators_of_random_numbers() -> None:
    own, numpys = random.Random(3), np.random.default_rng(3)
    contents = Contents([SimpleNamespace(own=own, numpys=numpys)])
    drawn = own.random(), numpys.random()
    contents.put_back()
    assert (own.random(), numpys.random()) == drawn


def test_what_was_empty_is_empty_again() -> None:
    thing, layer = _Slotted(), nn.Linear(2, 2)
    holds = SimpleNamespace(a={}, b=[], c=set[int](), d=deque[int](), e=OrderedDict[str, int](), thing=thing)

    def write() -> None:
        holds.a["x"], holds.e["x"], thing.second = 1, 2, 3
        holds.b.append(1), holds.c.add(1), holds.d.append(1)
        layer.register_forward_hook(lambda *_: None)

    before = Contents([write])
    write()
    before.put_back()
    assert not any((holds.a, holds.b, holds.c, holds.d, holds.e, layer._forward_hooks)) and not hasattr(thing, "second")


def test_small_arrays() -> None:
    numbers, text, plain, fixed = np.zeros((2, 2)), bytearray(b"ab"), array.array("d", [1.0]), np.zeros(2)
    fixed.flags.writeable = False
    holds = SimpleNamespace(numbers=numbers, text=text, plain=plain, one=np.array(1.0), fixed=fixed)
    before = Contents([lambda: holds])
    numbers[0, 1], plain[0], holds.one[()] = 7.0, 7.0, 7.0
    text.extend(b"cd")
    plain.append(8.0)
    before.put_back()
    assert not numbers.any() and text == b"ab" and plain.tolist() == [1.0] and holds.one == 1.0


class _Loading(nn.Module):
    def __init__(self, kept: object) -> None:
        super().__init__()
        self.batches, self.other = kept, 1.0

    def draw(self) -> object:
        return self.batches

    def plain(self) -> object:
        return self.other


@pytest.mark.parametrize(
    "make", [lambda: iter([1]), lambda: itertools.count(), lambda: (i for i in "ab"), queue.Queue, lambda: zip([1])]
)
def test_an_iterator_is_found_where_functions_may_come_to_it(make: Callable[[], object]) -> None:
    held, table, words = make(), {"first": [make()]}, _Loading(None)
    words.extra = make()  # pyright: ignore[reportAttributeAccessIssue]  # a name that nothing speaks
    assert Contents([lambda: held]).iterator() == Contents([lambda: table["first"]]).iterator() == type(held).__name__
    assert Contents([_Loading(make()).draw]).iterator() == type(held).__name__
    assert not Contents([words.draw]).iterator() and not Contents([lambda: words.other]).iterator()


class _Doubling:
    """What a list, a set, a deque or a dict below says that it has is not what lies there."""

    asked: ClassVar[list[str]] = []

    def __len__(self) -> int:
        self.asked.append("len")
        return 0

    def __iter__(self) -> Any:
        self.asked.append("iter")
        return iter([1, 2, 3])

    def __getitem__(self, key: Any) -> Any:
        self.asked.append("item")
        return 7

    def clear(self) -> None:
        self.asked.append("clear")

    keys = values = items = extend = update = __setitem__ = clear


@pytest.mark.parametrize("base", [list, set, deque, dict, OrderedDict, tuple, frozenset])
def test_containers_are_noted_as_they_lie(base: Any) -> None:
    kind, is_dict = type("Below", (_Doubling, base), {}), issubclass(base, dict)
    given: Any = {"a": 5, "b": 6} if is_dict else [5, 6]
    thing = base.__new__(kind, given) if issubclass(base, (tuple, frozenset)) else kind()
    if is_dict:
        for key, value in given.items():
            base.__setitem__(thing, key, value)
    elif base not in (tuple, frozenset):
        base.__init__(thing, given)
    _Doubling.asked.clear()
    before = Contents([SimpleNamespace(held=thing)])
    if issubclass(base, (list, deque, dict)):
        base.__setitem__(thing, "a" if is_dict else 0, 8)
    before.put_back()
    assert not _Doubling.asked
    assert (dict(base.items(thing)) if is_dict else sorted(base.__iter__(thing))) == given


@pytest.mark.parametrize("slots", [(), ("first",)])
def test_a_class_that_was_looked_at_is_let_go(slots: tuple[str, ...]) -> None:
    """Its bases, and the slots that it has, name the class itself: who keeps one of them keeps it for ever."""
    kind = type("Local", (), {"__slots__": (*slots, "__weakref__")})
    Contents([kind()])
    seen = weakref.ref(kind)
    del kind
    gc.collect()
    assert seen() is None
