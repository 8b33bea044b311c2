"""Python values, modules and modes that change are never answered with a stale result."""

from __future__ import annotations

import functools
import inspect
import math
import random
import sys
import types
from collections import ChainMap, deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import vgraph
import vgraph.function as fn
from tests.api.recursion import DAG
from tests.capture.capturing import Apply, X, call
from vgraph.capture.capture import Bound, watch_runs

# ---------------------------------------------------------------- Python values that change
SCALE: Any = 1.0


@dataclass
class Settings:
    scale: float = 2.0
    deep: Any = None


class Slotted:
    __slots__ = ("scale",)

    def __init__(self, scale: float) -> None:
        self.scale = scale


class Knob:
    scale = 2.0
    shift: Any = 0.0

    @staticmethod
    def fixed(t: Tensor) -> Tensor:
        return t * SCALE

    def method(self, t: Tensor) -> Tensor:
        return t * self.scale + self.shift

    @property
    def doubled(self) -> float:
        return self.scale * 2


def with_default(t: Tensor, scale: float = 2.0) -> Tensor:
    return t * scale


def through_global(t: Tensor) -> Tensor:
    return t * SCALE


VALUES = [2.0, 3, True, -1.5, float("inf"), float("nan"), 2, 0.25]


def test_closure() -> None:
    for value in VALUES:
        call(lambda t, value=value: torch.nan_to_num(t * value))

    def make(value: Any) -> Callable[[Tensor], Tensor]:
        return lambda t: torch.nan_to_num(t * value)

    for value in VALUES:
        call(make(value))


def test_global(monkeypatch: pytest.MonkeyPatch) -> None:
    for value in VALUES:
        monkeypatch.setitem(globals(), "SCALE", value)
        call(lambda t: torch.nan_to_num(through_global(t)))
        call(lambda t: torch.nan_to_num(Knob.fixed(t)))


def test_default_argument(monkeypatch: pytest.MonkeyPatch) -> None:
    call(with_default)
    monkeypatch.setattr(with_default, "__defaults__", (5.0,))
    assert torch.equal(call(with_default), X * 5)

    def keyword(t: Tensor, *, scale: float = 2.0) -> Tensor:
        return t * scale

    call(keyword)
    keyword.__kwdefaults__["scale"] = 4.0
    assert torch.equal(call(keyword), X * 4)


def test_attributes_of_objects_and_classes(monkeypatch: pytest.MonkeyPatch) -> None:
    settings, slotted, knob = Settings(), Slotted(2.0), Knob()
    deep = Settings(deep=Settings())
    functions: list[Callable[[Tensor], Tensor]] = [
        lambda t: t * settings.scale,
        lambda t: t * slotted.scale,
        lambda t: t * deep.deep.scale,
        lambda t: t * Knob.scale,
        lambda t: knob.method(t) * 1,
        lambda t: t * knob.doubled,
        lambda t: t * getattr(settings, "scale"),  # noqa: B009
        functools.partial(with_default, scale=settings.scale),
    ]
    for function in functions:
        assert torch.equal(call(function), X * (4 if function is functions[5] else 2))
    settings.scale = slotted.scale = deep.deep.scale = 3.0
    monkeypatch.setattr(Knob, "scale", 3.0)
    functions[-1] = functools.partial(with_default, scale=settings.scale)
    for function in functions:
        assert torch.equal(call(function), X * (6 if function is functions[5] else 3))
    knob.scale = 5.0  # hides that of the class
    assert torch.equal(call(functions[4]), X * 5)
    assert torch.equal(call(functions[5]), X * 10)
    monkeypatch.setattr(Knob, "method", lambda self, t: t - self.scale)
    assert torch.equal(call(functions[4]), X - 5)


def test_functions_held_by_objects() -> None:
    for function in (torch.tanh, torch.sigmoid, functional.relu, functional.gelu, torch.tanh):
        call(lambda t, f=function: f(t))
        call(function)
    holder = Settings()
    for holder.deep in (torch.exp, functional.silu, lambda t: t + 1, with_default):
        call(lambda t: holder.deep(t) * 1)


def test_containers() -> None:
    numbers, table, nested = [1.0, 2.0], {"a": 1.0, ("b", 1): 2.0}, {"x": [Settings(), (3.0,)]}
    chosen = {"left"}

    def function(t: Tensor) -> Tensor:
        t = t * sum(numbers) * table["a"] * table["b", 1]
        t = t + nested["x"][0].scale * nested["x"][1][0]
        return t if "left" in chosen else -t

    call(function)
    numbers[0] = 5.0
    call(function)
    numbers.append(7.0)
    call(function)
    table["b", 1] = -1.0
    call(function)
    nested["x"][0].scale = 9.0
    call(function)
    nested["x"][1] = (8.0,)
    call(function)
    chosen.clear()
    call(function)


def test_one_object_on_two_ways() -> None:
    one = Settings(2.0)
    pair = [one, one]
    function = lambda t: t * pair[0].scale + pair[1].scale  # noqa: E731
    call(function)
    pair[1] = Settings(7.0)
    assert torch.equal(call(function), X * 2 + 7)


# ---------------------------------------------------------------- modules and modes
class Inner(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.drop = nn.Dropout(0.5)
        self.factor = 1.0

    def forward(self, t: Tensor) -> Tensor:
        t = t * self.factor * SCALE
        return t + 1 if self.training else self.drop(t)


def test_training_of_submodules_and_their_attributes(monkeypatch: pytest.MonkeyPatch) -> None:
    inner = Inner()
    assert torch.equal(call(inner), X + 1)
    inner.training = False
    inner.drop.training = False
    assert torch.equal(call(inner), X)
    inner.drop.train()
    assert not torch.equal(Apply(inner)(DAG, x=X)["h"], X)
    inner.drop.p = 0.0
    assert torch.equal(call(inner), X)
    inner.drop.eval()
    inner.factor = 3.0
    assert torch.equal(call(inner), X * 3)
    monkeypatch.setitem(globals(), "SCALE", 2.0)
    assert torch.equal(call(inner), X * 6)
    inner.register_forward_hook(lambda module, args, out: out - 1)
    assert torch.equal(call(inner), X * 6 - 1)


def test_module_that_is_exchanged() -> None:
    layers = nn.ModuleList([nn.Linear(3, 3), nn.Tanh()]).double()

    def function(t: Tensor) -> Tensor:
        for layer in layers:
            t = layer(t)
        return t

    call(function)
    layers[1] = nn.Sigmoid()
    call(function)
    layers.append(nn.Linear(3, 2).double())
    assert call(function).shape == (7, 2)
    layers[0] = nn.Linear(3, 3, bias=False).double()
    call(function)


def test_dtype_row_shape_and_gradient() -> None:
    model = Apply(lambda t: torch.tanh(t) * t.dim())
    for x in (X, X.float(), X[:, :2], X, X.unsqueeze(-1), X[:, 0]):
        out = model(DAG, x=x)["h"]
        torch.testing.assert_close(out, torch.tanh(x) * x.dim())
        assert out.dtype == x.dtype and not out.requires_grad
        leaf = x.clone().requires_grad_()
        out = model(DAG, x=leaf)["h"]
        assert out.requires_grad
        with torch.no_grad():
            assert not model(DAG, x=leaf)["h"].requires_grad


def test_grad_mode_decides() -> None:
    function = lambda t: t * 2 if torch.is_grad_enabled() else t * 3  # noqa: E731
    assert torch.equal(call(function), X * 2)
    with torch.no_grad():
        assert torch.equal(call(function), X * 3)
    assert torch.equal(call(function), X * 2)


def test_autocast_and_default_dtype() -> None:
    layer = nn.Linear(3, 3)
    x = X.float()
    assert Apply(layer)(DAG, x=x)["h"].dtype == torch.float32
    with torch.autocast("cpu", torch.bfloat16):
        low = Apply(layer)(DAG, x=x)["h"]
    assert low.dtype == torch.bfloat16
    with torch.autocast("cpu", torch.float16):
        assert Apply(layer)(DAG, x=x)["h"].dtype == torch.float16
    assert Apply(layer)(DAG, x=x)["h"].dtype == torch.float32
    low.sum().backward()
    assert layer.weight.grad is not None and layer.weight.grad.dtype == torch.float32
    ones = lambda t: t.float() * torch.ones(3)  # noqa: E731
    assert call(ones).dtype == torch.float32
    torch.set_default_dtype(torch.float64)
    try:
        assert call(ones).dtype == torch.float64
    finally:
        torch.set_default_dtype(torch.float32)


# ---------------------------------------------------------------- what imports run
class Finder:
    """As import hooks are: code that is nobody's function, and could look at anything."""

    @staticmethod
    def find_spec(name: str, path: Any, target: Any = None) -> None:
        getattr(sys, name, None)


def test_import_hooks_are_not_the_functions_doing(monkeypatch: pytest.MonkeyPatch) -> None:
    knob: Any = Knob()
    knob.chance = random.Random(0)  # which a function that looks at anything must not hold

    def lazily(edges: Any) -> dict[str, Tensor]:
        import colorsys

        return {"m": edges.src["x"] * knob.scale * len(colorsys.__name__)}

    monkeypatch.delitem(sys.modules, "colorsys", raising=False)
    monkeypatch.setattr(sys, "meta_path", [Finder, *sys.meta_path])
    g = vgraph.graph(([0, 1], [1, 0]))
    g.ndata["x"] = torch.ones(2)
    with watch_runs() as runs:
        g.update_all(lazily, fn.sum("m", "o"))
    assert [type(what) for _, what, _ in runs] == [Bound]


# ---------------------------------------------------------------- how many rows there are
COUNTS: dict[str, Callable[[Tensor], float]] = {
    "len": lambda rows: 2.0 if len(rows) < 100 else 3.0,
    "int": lambda rows: 2.0 if int(rows.shape[0]) < 100 else 3.0,
    "a key": lambda rows: {5: 2.0}.get(rows.shape[0], 3.0),
    "a member": lambda rows: 2.0 if rows.size(0) in frozenset([5]) else 3.0,
    "a text": lambda rows: 2.0 if f"{rows.shape[0]}" == "5" else 3.0,
    "a repr": lambda rows: 2.0 if str(rows.shape[0]) == "5" else 3.0,
    "a sign": lambda rows: 2.0 if -rows.shape[0] > -100 else 3.0,
    "a bit": lambda rows: 2.0 + (rows.shape[0] >> 6),
    "a remainder": lambda rows: 2.0 + divmod(rows.shape[0], 100)[0] / 195,
    "how often it fits": lambda rows: 2.0 if 100 // rows.shape[0] else 3.0,
    "whether it is odd": lambda rows: 2.0 + rows.shape[0] % 2,
    "how many hundreds": lambda rows: 2.0 if rows.shape[0] // 100 == 0 else 3.0,
    "a bit of a number": lambda rows: 2.0 + (1 & rows.shape[0]),
    "how many bits": lambda rows: float(rows.shape[0].bit_length()),
    "a logarithm": lambda rows: float(math.ceil(math.log2(rows.shape[0]))),
    "itself": lambda rows: 2.0 if +rows.shape[0] < 100 else 3.0,
    "a part": lambda rows: 2.0 if rows.shape[0] * 0.5 < 50 else 3.0,
}


@pytest.mark.parametrize("name", COUNTS)
def test_a_number_of_rows_is_that_of_the_call(name: str) -> None:
    for count in (5, 19_500, 5):
        g = vgraph.graph((torch.arange(count), torch.full((count,), count)))
        g.ndata["h"] = torch.ones(count + 1)
        g.apply_edges(lambda edges: {"m": edges.src["h"] * COUNTS[name](edges.src["h"])})
        assert g.edata["m"].unique().tolist() == [COUNTS[name](torch.ones(count))]


@pytest.mark.parametrize("library", [torch, np, vgraph])
def test_code_beside_a_library_is_watched(library: types.ModuleType) -> None:
    """``torch_geometric`` lies beside ``torch``, and its path begins alike."""
    assert library.__file__ is not None
    where = str(Path(library.__file__).parent) + "_models/layer.py"
    module = types.ModuleType("layer_of_somebody")
    source = "factor = [2.0]\ndef message(edges):\n    return {'m': edges.src['x'] * factor[0]}\n"
    exec(compile(source, where, "exec"), module.__dict__)
    g = vgraph.graph(([0], [1]))
    g.ndata["x"] = torch.ones(2, 1)
    found: list[float] = []
    for factor in (2.0, 3.0):
        module.factor[0] = factor
        g.update_all(module.message, fn.sum("m", "y"))
        found.append(g.ndata["y"][1].item())
    assert found == [2.0, 3.0]


FACTOR: Any = 7.0


@pytest.mark.parametrize(
    ("first", "then"),
    [
        (np.float32(7), 7 + 0j), (np.float32(7), 7), (np.float32(7), np.int64(7)), (np.int64(1), True), (7.0, 7),
        (np.float32(0.0), np.float32(-0.0)), (0.0, -0.0), (complex(0.0, 1.0), complex(-0.0, 1.0)), (0.0, 0),
    ],
)  # fmt: skip
def test_equal_numbers_that_are_not_the_same(first: Any, then: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of another type, or zeros of another sign."""
    g = vgraph.graph(([0, 1], [1, 2]))
    g.ndata["h"] = torch.arange(1, 4).unsqueeze(1)

    def message(edges: Any) -> dict[str, Tensor]:
        rows = edges.src["h"] * FACTOR
        return {"m": torch.copysign(rows + 1, rows) if rows.is_floating_point() else rows}

    for factor in (first, first, then, then):
        monkeypatch.setitem(globals(), "FACTOR", factor)
        g.apply_edges(message)
        wanted = message(types.SimpleNamespace(src={"h": g.ndata["h"][:2]}))["m"]
        assert g.edata["m"].dtype == wanted.dtype
        assert torch.equal(g.edata["m"], wanted)


def holder(x: float = 2.0) -> None: ...


def test_a_signature_that_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    g = vgraph.graph(([0, 1], [1, 2]))
    g.ndata["h"] = torch.ones(3, 1)

    def message(edges: Any) -> dict[str, Tensor]:
        return {"m": edges.src["h"] * inspect.signature(holder).parameters["x"].default}

    for wanted in (2.0, 7.0):
        monkeypatch.setattr(holder, "__defaults__", (wanted,))
        g.apply_edges(message)
        assert torch.equal(g.edata["m"], torch.full((2, 1), wanted))


def test_annotations_of_a_signature_that_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    g = vgraph.graph(([0, 1], [1, 2]))
    g.ndata["h"] = torch.ones(3, 1)

    def message(edges: Any) -> dict[str, Tensor]:
        is_float = inspect.signature(holder).parameters["x"].annotation == "float"
        return {"m": edges.src["h"] * (2.0 if is_float else 7.0)}

    for annotation, wanted in (("float", 2.0), ("int", 7.0)):
        monkeypatch.setitem(holder.__annotations__, "x", annotation)
        g.apply_edges(message)
        assert torch.equal(g.edata["m"], torch.full((2, 1), wanted))


@pytest.mark.guards
def test_a_module_that_is_read_by_a_computed_name_is_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    """How Python has loaded it is no part of what it holds."""
    tools = types.ModuleType("tools_of_a_program")
    tools.__loader__, tools.FACTOR, tools.F = object(), 2.0, torch.nn.functional
    monkeypatch.setitem(globals(), "tools", tools)
    g = vgraph.graph(([0, 1], [1, 2]))
    g.ndata["h"] = torch.ones(3, 1)

    def message(edges: Any) -> dict[str, Tensor]:
        return {"m": tools.F.relu(edges.src["h"]) * getattr(tools, "FACTOR")}  # noqa: B009

    for factor in (2.0, 7.0):
        monkeypatch.setattr(tools, "FACTOR", factor)
        assert "its Python runs at every call" not in str(
            vgraph.explain(g, message, lambda nodes: {"s": nodes.mailbox["m"].sum(1)})
        )
        g.apply_edges(message)
        assert torch.equal(g.edata["m"], torch.full((2, 1), factor))


class _Named(type):
    """Classes are compared by name, and so have no hash."""

    def __eq__(cls, other: object) -> bool:
        return isinstance(other, type) and cls.__name__ == other.__name__

    __hash__ = None  # type: ignore[assignment]  # as a class has that defines __eq__ alone


class _Unhashed(metaclass=_Named):
    scale = 2.0

    def __call__(self, edges: Any) -> dict[str, Tensor]:
        return {"m": edges.src["h"] * self.scale}


class _UnhashedCell(vgraph.VertexFunction, metaclass=_Named):
    scale = 2.0

    def forward(self, v: Any) -> None:
        v.push(h=v.pull("h") * self.scale)


@pytest.mark.guards
def test_classes_without_a_hash(monkeypatch: pytest.MonkeyPatch) -> None:
    thing, by_class, cell = _Unhashed(), {_Unhashed.__name__: _Unhashed}, _UnhashedCell()
    g = vgraph.graph(([0], [1]))
    g.ndata["h"] = torch.ones(2, 1)
    readings: list[Callable[[Any], dict[str, Tensor]]] = [
        thing,
        lambda edges: {"m": edges.src["h"] * thing.scale},
        lambda edges: {"m": edges.src["h"] * by_class["_Unhashed"].scale},
        lambda edges: {"m": edges.src["h"] * (_Unhashed.scale if isinstance(thing, _Unhashed) else 0.0)},
    ]
    for scale in (2.0, 3.0):
        monkeypatch.setattr(_Unhashed, "scale", scale)
        monkeypatch.setattr(_UnhashedCell, "scale", scale)
        for message in readings:
            g.update_all(message, fn.sum("m", "s"))
            assert g.ndata["s"][1] == scale
        assert cell(g, h=torch.ones(2, 1))["h"][0] == scale


class _Scaled(ChainMap[str, float]):
    def __getitem__(self, key: str) -> float:
        return super().__getitem__(key) * 2


class _Recent(dict[str, float]):
    """Counts how often it is read."""

    reads = 0

    def __getitem__(self, key: str) -> float:
        self.reads += 1
        return super().__getitem__(key)


@runtime_checkable
class _Closes(Protocol):
    def close(self) -> None: ...


class _WithScale(types.ModuleType):
    @property
    def scale(self) -> float:
        return 3.0


def _class_of_module(given: Any) -> None:
    given.module.__class__ = _WithScale


CHANGES: dict[str, tuple[Callable[[Any], float], Callable[[Any], object]]] = {
    "a deque's bound": (lambda t: t.last.maxlen, lambda t: setattr(t, "last", deque([1.0, 2.0], maxlen=3))),
    "a dict within a mapping's own kind": (lambda t: t.scaled["x"], lambda t: t.scaled.maps[0].update(x=3.0)),
    "the name of a thing's class": (
        lambda t: float(len(type(t.thing).__name__)),
        lambda t: setattr(t.kind, "__name__", "X"),
    ),
    "what a protocol asks for": (
        lambda t: 3.0 if isinstance(t.thing, _Closes) else 2.0,
        lambda t: setattr(t.thing, "close", 1),
    ),
    "the class of a module": (lambda t: t.module.scale, _class_of_module),
}


@pytest.mark.guards
@pytest.mark.parametrize("name", CHANGES)
def test_less_common_changes(name: str) -> None:
    kind, module = type("Thing", (), {}), types.ModuleType("of_a_user")
    vars(module)["scale"] = 2.0
    given = types.SimpleNamespace(
        last=deque([1.0, 2.0], maxlen=2), scaled=_Scaled({"x": 2.0}), kind=kind, thing=kind(), module=module
    )
    read, change = CHANGES[name]
    g = vgraph.graph(([0], [1]))
    g.ndata["h"] = torch.ones(2, 1)
    before = read(given)
    for _ in range(2):
        g.update_all(lambda edges: {"m": edges.src["h"] * read(given)}, fn.sum("m", "s"))
        assert g.ndata["s"][1] == before
    change(given)
    assert read(given) != before
    g.update_all(lambda edges: {"m": edges.src["h"] * read(given)}, fn.sum("m", "s"))
    assert g.ndata["s"][1] == read(given)


def test_guards_do_not_read_what_counts_its_readings() -> None:
    table, g = _Recent(x=2.0), vgraph.graph(([0], [1]))
    g.ndata["h"] = torch.ones(2, 1)
    for number in range(1, 5):
        g.update_all(lambda edges: {"m": edges.src["h"] * table["x"]}, fn.sum("m", "s"))
        assert table.reads == number
