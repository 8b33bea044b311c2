"""Ways to change what a captured function reads: the next call sees each, and ordinary functions stay guarded."""

from __future__ import annotations

import argparse
import array
import collections
import contextvars
import enum
import functools
import os
import random
import sys
import threading
import types
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import vgraph
import vgraph.function as fn
from vgraph.capture.capture import Bound, forget, num_captures, watch_runs
from vgraph.capture.record.modes import without_whole_layers

Case = tuple[Callable[[Tensor], Any], Callable[[], Any]]  # what is computed of rows, and what is changed


@pytest.fixture(autouse=True)
def _nothing_is_known() -> Iterator[None]:
    forget()
    yield
    forget()


def a_graph() -> vgraph.Graph:
    g = vgraph.graph(([0, 1], [1, 2]))
    g.ndata["h"] = torch.tensor([[1.0, 2.0], [3.0, -4.0], [5.0, 6.0]])
    return g


def sent(function: Callable[[Tensor], Any]) -> tuple[Tensor, Any]:
    """What arrives at the second vertex, and what ran."""
    g = a_graph()
    with watch_runs() as runs:
        g.update_all(lambda edges: {"m": function(edges.src["h"])}, fn.sum("m", "o"))
    return g.ndata["o"][1], runs[-1][1]


def is_guarded(what: Any) -> bool:
    return isinstance(what, Bound) and not what.captured.unwatchable


# ---------------------------------------------------------------- values that objects hold
class Colour(enum.Enum):
    RED = 1.0


class Doubled:
    """A descriptor with a state of its own."""

    factor = 2.0

    def __get__(self, owner: Any, kind: Any = None) -> float:
        return owner.base * self.factor


class Holder:
    doubled = Doubled()

    def __init__(self) -> None:
        self.base = 1.0


class Numbers(list[float]):
    bias = 0.0


def _with_attribute(t: Tensor) -> Tensor:
    return t * _with_attribute.scale  # type: ignore[attr-defined]


_with_attribute.scale = 1.0  # type: ignore[attr-defined]


def _namespace(kind: Any) -> Case:
    space = kind(scale=1.0)
    return lambda t: t * space.scale, lambda: setattr(space, "scale", 7.0)


def _item(container: Any, key: Any = 0) -> Case:
    return lambda t: t * container[key], lambda: container.__setitem__(key, 7.0)


def _weak() -> Case:
    reference = weakref.ref(holder := Holder())
    return lambda t: t * reference().base, lambda: setattr(holder, "base", 7.0)  # type: ignore[union-attr]


def _descriptor() -> Case:
    holder = Holder()
    return lambda t: t * holder.doubled, lambda: setattr(Holder.__dict__["doubled"], "factor", 7.0)


def _range() -> Case:
    ranges = [range(0, 3, 2)]
    return lambda t: t * ranges[0].stop, lambda: ranges.__setitem__(0, range(0, 4, 2))  # over the same numbers


def _class_pattern() -> Case:
    holder = Holder()

    def use(t: Tensor) -> Tensor:
        match holder:
            case Holder(base=1.0):
                return t
            case _:
                return t * 7

    holder.base = 1.0
    return use, lambda: setattr(holder, "base", 7.0)


def _list_with_attribute() -> Case:
    numbers = Numbers([1.0])
    return lambda t: t * numbers[0] + numbers.bias, lambda: setattr(numbers, "bias", 7.0)


def _empty_cell() -> Case:
    def fill() -> None:
        nonlocal late
        late = 7.0

    def use(t: Tensor) -> Tensor:
        try:
            return t * late
        except NameError:
            return t

    return use, fill
    late = 1.0  # a variable of this function that is never assigned


def _appears() -> Case:
    holder = Holder()
    return lambda t: t * 7 if hasattr(holder, "extra") else t, lambda: setattr(holder, "extra", 1)


def _enumeration() -> Case:
    return lambda t: t * Colour.RED.weight, lambda: setattr(Colour.RED, "weight", 7.0)  # type: ignore[attr-defined]


Colour.RED.weight = 1.0  # type: ignore[attr-defined]
VALUES: dict[str, Callable[[], Case]] = {
    "argparse.Namespace": lambda: _namespace(argparse.Namespace),
    "SimpleNamespace": lambda: _namespace(types.SimpleNamespace),
    "deque": lambda: _item(collections.deque([1.0])),
    "UserList": lambda: _item(collections.UserList([1.0])),
    "UserDict": lambda: _item(collections.UserDict(a=1.0), "a"),
    "OrderedDict": lambda: _item(collections.OrderedDict(a=1.0), "a"),
    "array": lambda: _item(array.array("d", [1.0])),
    "a list with attributes": _list_with_attribute,
    "a function's attribute": lambda: (_with_attribute, lambda: setattr(_with_attribute, "scale", 7.0)),
    "a function's name": lambda: (lambda t: t * len(_negated.__name__), lambda: setattr(_negated, "__name__", "n")),
    "a weak reference": _weak,
    "a descriptor's state": _descriptor,
    "a class pattern": _class_pattern,
    "the end of a range": _range,
    "an empty cell": _empty_cell,
    "an attribute that appears": _appears,
    "an enumeration": _enumeration,
}


@pytest.mark.guards
@pytest.mark.parametrize("name", VALUES)
def test_values_are_guarded(name: str) -> None:
    function, change = VALUES[name]()
    h = a_graph().ndata["h"][0]
    first, what = sent(function)
    assert is_guarded(what), what.captured.unwatchable
    assert torch.equal(first, function(h))
    again = num_captures()
    sent(function)
    assert num_captures() == again
    change()
    second, what = sent(function)
    assert is_guarded(what) and torch.equal(second, function(h)) and not torch.equal(first, second)
    _with_attribute.scale = Colour.RED.weight = 1.0  # type: ignore[attr-defined]
    Holder.__dict__["doubled"].factor = 2.0


# ---------------------------------------------------------------- what no guard can watch
_local, _variable = threading.local(), contextvars.ContextVar("scale", default=1.0)
_generator, _array = np.random.default_rng(0), np.ones(1)


class _Level(int):
    """A number with a class of its own."""


_levels = [_Level(1)]


def _set_local() -> None:
    _local.scale = 7.0


UNWATCHABLE: dict[str, Case] = {
    "ContextVar": (lambda t: t * _variable.get(), lambda: _variable.set(7.0)),
    "thread local": (lambda t: t * getattr(_local, "scale", 1.0), _set_local),
    "environment": (
        lambda t: t * float(os.environ.get("VGRAPH_TEST_SCALE", "1")),
        lambda: os.environ.__setitem__("VGRAPH_TEST_SCALE", "7"),
    ),
    "NumPy's generator": (lambda t: t * float(_generator.random()), lambda: None),
    "Python's generator": (lambda t: t * random.random(), lambda: None),
    "a number of the user's class": (lambda t: t * _levels[0], lambda: _levels.__setitem__(0, _Level(7))),
    "an array": (lambda t: t * float(_array[0]), lambda: _array.__setitem__(0, 7.0)),
}


@pytest.mark.parametrize("name", UNWATCHABLE)
def test_what_cannot_be_watched_is_never_stale(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VGRAPH_TEST_SCALE", raising=False)
    function, change = UNWATCHABLE[name]
    first, what = sent(function)
    assert not is_guarded(what)
    change()
    assert not torch.equal(first, sent(function)[0])


# ---------------------------------------------------------------- methods and functions that are replaced
class Scale(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(2, 2, bias=False)
        nn.init.eye_(self.inner.weight)

    def helper(self, t: Tensor) -> Tensor:
        return self.inner(t)

    def forward(self, t: Tensor) -> Tensor:
        return functional.relu(self.helper(t)) + t.abs()


def _negated(*args: Any) -> Tensor:
    return -args[-1]


REPLACED: dict[str, Callable[[pytest.MonkeyPatch, Any], Any]] = {
    "forward of the instance": lambda m, own: m.setattr(own, "forward", _negated),
    "forward of a part": lambda m, own: m.setattr(own.inner, "forward", _negated),
    "forward of the class": lambda m, own: m.setattr(type(own), "forward", _negated),
    "forward of the base": lambda m, own: m.setattr(Scale, "forward", _negated),
    "forward of torch's class": lambda m, own: m.setattr(nn.Linear, "forward", _negated),
    "a helper of the instance": lambda m, own: m.setattr(own, "helper", _negated),
    "a helper of the base": lambda m, own: m.setattr(Scale, "helper", _negated),
    "__call__ of torch's class": lambda m, own: m.setattr(nn.Linear, "__call__", _negated),
    "the bases": lambda m, own: setattr(type(own), "__bases__", (type("Other", (Scale,), {"helper": _negated}),)),
    "the class": lambda m, own: m.setattr(own, "__class__", type("Other", (Scale,), {"helper": _negated})),
    "a function of torch": lambda m, own: m.setattr(functional, "relu", _negated),
    "a method of tensors": lambda m, own: m.setattr(Tensor, "abs", _negated),
    "an operator of tensors": lambda m, own: m.setattr(Tensor, "__add__", lambda a, b: torch.mul(a, torch.neg(b))),
    "the parameter's data": lambda m, own: m.setattr(own.inner, "weight", nn.Parameter(torch.zeros(1, 2))),
}


@pytest.mark.guards
@pytest.mark.parametrize("name", REPLACED)
def test_what_is_replaced_is_seen(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    own, h = type("Inherits", (Scale,), {})(), a_graph().ndata["h"][0]
    first, what = sent(own)
    assert is_guarded(what) and torch.equal(first, own(h))
    REPLACED[name](monkeypatch, own)
    before = num_captures()
    second, _ = sent(own)
    assert num_captures() > before
    assert torch.equal(second, own(h)) and not torch.equal(first, second)


def test_hooks_on_all_modules() -> None:
    own, h = type("Inherits", (Scale,), {})(), a_graph().ndata["h"][0]
    first, _ = sent(own)
    handle = nn.modules.module.register_module_forward_hook(lambda module, given, out: out * 2)
    try:
        second, _ = sent(own)
        assert torch.equal(second, own(h)) and not torch.equal(first, second)
    finally:
        handle.remove()
    assert torch.equal(sent(own)[0], first)


def test_a_hook_on_all_modules_that_counts_sees_a_call_once() -> None:
    """It gives what a function of its own returned, so that it has run on examples before it is known to look on."""
    own, seen = nn.Linear(2, 2), list[str]()
    handle = nn.modules.module.register_module_forward_hook(lambda module, *_: seen.append(type(module).__name__))
    try:
        sent(own)
        assert seen == ["Linear"]
        sent(own)
        assert seen == ["Linear"] * 2
    finally:
        handle.remove()


def test_a_global_that_appears(monkeypatch: pytest.MonkeyPatch) -> None:
    def function(t: Tensor) -> Tensor:
        try:
            return t * LATE  # type: ignore[name-defined]
        except NameError:
            return t * max(2.0, 1.0)

    assert sent(function)[0][0] == 2
    monkeypatch.setitem(globals(), "max", lambda *numbers: 3.0)
    assert sent(function)[0][0] == 3
    monkeypatch.setitem(globals(), "LATE", 7.0)
    assert sent(function)[0][0] == 7


@pytest.mark.guards
def test_a_module_that_is_imported_inside(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = types.ModuleType("settings_of_a_test")
    settings.scale = 2.0  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "settings_of_a_test", settings)

    def function(t: Tensor) -> Tensor:
        import settings_of_a_test  # type: ignore[import-not-found]

        return t * settings_of_a_test.scale

    first, what = sent(function)
    assert is_guarded(what) and first[0] == 2
    settings.scale = 7.0  # type: ignore[attr-defined]
    assert sent(function)[0][0] == 7


@pytest.mark.guards
def test_torchs_switches() -> None:
    functions = [
        lambda t: t * 7 if torch.are_deterministic_algorithms_enabled() else t,
        lambda t: t * (7 if torch.get_float32_matmul_precision() == "medium" else 1),
    ]
    for function in functions:
        first, what = sent(function)
        assert is_guarded(what) and first[0] == 1
    precision = torch.get_float32_matmul_precision()
    torch.use_deterministic_algorithms(True)
    torch.set_float32_matmul_precision("medium")
    try:
        assert [float(sent(function)[0][0]) for function in functions] == [7, 7]
    finally:
        torch.use_deterministic_algorithms(False)
        torch.set_float32_matmul_precision(precision)


def test_the_shape_of_a_tensor_that_no_operator_reads() -> None:
    given = [torch.ones(2)]
    function = lambda t: t * given[0].shape[0] if given[0].is_contiguous() else -t  # noqa: E731
    assert sent(function)[0][0] == 2
    given[0] = torch.ones(3)
    assert sent(function)[0][0] == 3
    given[0] = torch.ones(3, 2)[:, 0]
    assert sent(function)[0][0] == -1


# ---------------------------------------------------------------- refusals
@pytest.mark.guards
def test_a_refusal_is_looked_at_again() -> None:
    settings = types.SimpleNamespace(looks=True)

    def function(t: Tensor) -> Tensor:
        return t * t.sum().item() if settings.looks else t * 2

    assert not isinstance(sent(function)[1], Bound)
    settings.looks = False
    found, what = sent(function)
    assert is_guarded(what) and torch.equal(found, a_graph().ndata["h"][0] * 2)


def test_a_function_that_fails_in_ever_new_ways_is_tried_less_and_less_often() -> None:
    settings = types.SimpleNamespace(step=0)

    def function(t: Tensor) -> Tensor:
        return t * (t.sum().item() + settings.step)

    for settings.step in range(60):
        sent(function)
    assert num_captures() < 30


# ---------------------------------------------------------------- vgraph.reduce
def test_what_a_function_given_to_reduce_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    settings: Any = types.ModuleType("settings")
    settings.scale = 1.0
    monkeypatch.setitem(globals(), "settings", settings)
    x = torch.ones(4, 5)
    found: list[float] = []
    for settings.scale in (1.0, 7.0, 1.0):
        found.append(vgraph.reduce(x, (0,), "max", of=lambda a: a * settings.scale)[0].item())
    monkeypatch.setattr(torch, "exp", torch.neg)
    found.append(vgraph.reduce(x, (0,), "max", of=lambda a: torch.exp(a))[0].item())
    assert found == [1, 7, 1, -1]


# ---------------------------------------------------------------- switches that recordings set for themselves
def _asks_for_inference(rows: Tensor) -> Tensor:
    return rows * (7.0 if torch.is_inference_mode_enabled() else 2.0)


def _asks_for_a_library(rows: Tensor) -> Tensor:
    return rows * (7.0 if torch.backends.mkldnn.enabled else 2.0)


@pytest.mark.parametrize("asks", [_asks_for_inference, _asks_for_a_library])
def test_switches_are_seen_as_they_are_around_the_call(asks: Callable[[Tensor], Tensor]) -> None:
    g, rows = a_graph(), torch.ones(3)

    def called() -> Tensor:
        g.apply_edges(lambda edges: {"o": asks(edges.src["h"])})
        return g.edata["o"].clone()

    src = g.edges()[0]
    for _ in range(2):
        assert torch.equal(called(), asks(g.ndata["h"][src]))
        with torch.inference_mode(), without_whole_layers():
            assert torch.equal(called(), asks(g.ndata["h"][src]))
    assert not torch.equal(asks(rows), rows)


def test_what_a_function_of_numbers_imports(monkeypatch: pytest.MonkeyPatch) -> None:
    """Modules that are imported inside are no globals of the function."""
    module: Any = types.ModuleType("vg_factor")
    module.factor = 2.0
    monkeypatch.setitem(sys.modules, "vg_factor", module)

    def scaled(x: Tensor) -> Tensor:
        import vg_factor  # pyright: ignore

        return x * vg_factor.factor

    x = torch.arange(6.0).view(2, 3)
    assert torch.equal(vgraph.reduce(x, 1, "sum", then=scaled), 2 * x.sum(1))
    module.factor = 7.0
    assert torch.equal(vgraph.reduce(x, 1, "sum", then=scaled), 7 * x.sum(1))


IDENTITIES: dict[str, Callable[[Any, Any], bool]] = {
    "is": lambda one, two: one is two,
    "is not": lambda one, two: one is not two,
    "==": lambda one, two: one == two,
    "in a list": lambda one, two: one in [two],
}


@pytest.mark.parametrize(
    "make",
    [object, types.SimpleNamespace, list[int], lambda: torch.ones(1)],
    ids=["object", "namespace", "list", "tensor"],
)
@pytest.mark.parametrize("name", IDENTITIES)
def test_two_things_that_become_one(name: str, make: Callable[[], Any]) -> None:
    ask = IDENTITIES[name]

    class Node:
        pass

    first, second = (Node(), Node()) if make is object else (make(), make())
    pair = types.SimpleNamespace(one=first, two=second)

    def decide(h: Tensor) -> Tensor:
        return h * (2.0 if ask(pair.one, pair.two) else 3.0)

    for two in (second, first, second, first):
        pair.two = two
        torch.testing.assert_close(sent(decide)[0], decide(a_graph().ndata["h"][0]))


@pytest.mark.guards
def test_a_partial_function_is_left_as_it_is() -> None:
    """One whose attributes somebody has asked for is no longer unfolded by ``functools.partial``."""
    scale = functools.partial(lambda h, by=1.0: h * by, by=2.0)
    found, what = sent(lambda h: scale(h))
    assert is_guarded(what) and found.tolist() == [2.0, 4.0]
    assert functools.partial(scale, by=3.0).func is scale.func
    scale.factor = 5.0
    assert sent(lambda h: scale(h) * getattr(scale, "factor", 1.0))[0].tolist() == [10.0, 20.0]
    scale.factor = 7.0
    assert sent(lambda h: scale(h) * getattr(scale, "factor", 1.0))[0].tolist() == [14.0, 28.0]


class Plain:
    """A class without attributes, of which each test makes a class of its own."""


def of_own_class(base: type) -> Any:
    return type("Own", (base,), {})()


def set_x(owner: Any, value: object = 7.0) -> None:
    owner.x = value


APPEARS: dict[str, tuple[Callable[[], Any], Callable[[Any], None]]] = {
    "of the object": (lambda: of_own_class(Plain), set_x),
    "of its class": (lambda: of_own_class(Plain), lambda thing: set_x(type(thing))),
    "of a class": (lambda: type("Own", (), {}), set_x),
    "of a base": (lambda: of_own_class(type("Base", (), {})), lambda thing: set_x(type(thing).__mro__[1])),
    "of a layer": (lambda: of_own_class(nn.Module), set_x),
    "of a layer's class": (lambda: of_own_class(nn.Module), lambda thing: set_x(type(thing))),
    "a buffer": (lambda: of_own_class(nn.Module), lambda thing: thing.register_buffer("x", torch.tensor(7.0))),
    "a parameter": (lambda: of_own_class(nn.Module), lambda thing: set_x(thing, nn.Parameter(torch.tensor(7.0)))),
    "of a tensor": (lambda: torch.ones(1), set_x),
}


@pytest.mark.parametrize("name", APPEARS)
def test_a_name_that_is_asked_for_by_a_string_appears(name: str) -> None:
    """``getattr(thing, "x", 2.0)``: the code speaks no attribute of that name."""
    make, appear = APPEARS[name]
    holder = types.SimpleNamespace(thing=make())

    def scaled(h: Tensor) -> Tensor:
        return h * getattr(holder.thing, "x", 2.0)

    rows = a_graph().ndata["h"]
    for _ in range(2):
        torch.testing.assert_close(sent(scaled)[0], 2.0 * rows[0])
    appear(holder.thing)
    torch.testing.assert_close(sent(scaled)[0].detach(), 7.0 * rows[0])
    holder.thing = make()
    torch.testing.assert_close(sent(scaled)[0].detach(), 2.0 * rows[0])
    appear(holder.thing)
    torch.testing.assert_close(sent(scaled)[0].detach(), 7.0 * rows[0])
