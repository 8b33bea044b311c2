"""Python values, modules and modes that change are never answered with a stale result."""

from __future__ import annotations

import functools
import random
import sys
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import vgraph
import vgraph.function as fn
from tests.api.capturing import Apply, X, call
from tests.api.recursion import DAG
from vgraph.api.capture import Bound, watch_runs

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


# ---------------------------------------------------------------- what closures hold
src, dst = np.array([0, 1, 2]), np.array([1, 2, 0])  # as many scripts have them


def test_an_attribute_is_no_global() -> None:
    """``edges.src`` does not read the script's own ``src``."""
    g = vgraph.graph((torch.from_numpy(src), torch.from_numpy(dst)))
    g.ndata["h"] = torch.randn(3, 2)
    with watch_runs() as runs:
        g.update_all(lambda edges: {"m": edges.src["h"] - edges.dst["h"]}, fn.sum("m", "out"))
    assert [type(what) for _, what, _ in runs] == [Bound]
    torch.testing.assert_close(g.ndata["out"][dst], g.ndata["h"][src] - g.ndata["h"][dst])


Mapped = Callable[[nn.Linear], Tensor]
OF_A_PARAMETER: dict[str, Mapped] = {
    "a copy of it": lambda layer: layer.weight.t() * 2,
    "a product with it": lambda layer: layer.weight.t() @ layer.weight @ layer.weight.t(),
    "a view of it": lambda layer: layer.weight.t(),
}


@pytest.mark.parametrize("name", OF_A_PARAMETER)
@pytest.mark.parametrize("kernels", ["0", "1"])
def test_a_parameter_and_what_is_made_of_it(name: str, kernels: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both are inputs: what was made outside hands its gradient on outside, once."""
    monkeypatch.setenv("VGRAPH_KERNELS", kernels)
    g, layer = vgraph.graph((torch.from_numpy(src), torch.from_numpy(dst))), nn.Linear(4, 3, dtype=torch.float64)
    x = torch.randn(3, 4, dtype=torch.float64, requires_grad=True)

    def message(ends: Any, made: Tensor) -> Tensor:
        return layer(ends.src["x"]) * (ends.dst["x"] @ made)

    def gradients(out: Tensor) -> tuple[Tensor, ...]:
        first = torch.autograd.grad(out.square().sum(), [layer.weight, layer.bias, x], create_graph=True)
        return (*first, *torch.autograd.grad(sum(t.sin().sum() for t in first), [layer.weight, x], retain_graph=True))

    made = OF_A_PARAMETER[name](layer)
    g.ndata["x"] = x
    with watch_runs() as runs:
        g.update_all(lambda edges: {"m": message(edges, made)}, fn.sum("m", "out"))
    assert [type(what) for _, what, _ in runs] == [Bound]
    by_hand = message(SimpleNamespace(src={"x": x[src]}, dst={"x": x[dst]}), made)
    wanted = torch.zeros(3, 3, dtype=torch.float64).index_add(0, torch.from_numpy(dst), by_hand)
    torch.testing.assert_close(gradients(g.ndata["out"]), gradients(wanted), rtol=1e-9, atol=1e-9)


class OfAParameter(vgraph.VertexFunction):
    """A parameter, and a matrix that is made of it before the function is called."""

    def __init__(self) -> None:
        super().__init__()
        self.map = nn.Linear(2, 2, dtype=torch.float64)
        self.made: Tensor = (self.map.weight * 2).t() @ self.map.weight

    def forward(self, v: vgraph.Vertex) -> None:
        h = torch.tanh(v.pull("x") + self.map(v.gather()["h"].sum()) @ self.made)
        v.scatter(h=h)
        v.push(h=h)


@pytest.mark.parametrize("policy", ["frontier", "serial"])
def test_a_vertex_function_and_what_is_made_of_its_parameter(policy: str) -> None:
    model, x = OfAParameter(), torch.randn(3, 2, dtype=torch.float64)
    model.policy = policy
    g = vgraph.graph(([0, 1], [1, 2]))
    out, h = model(g, x=x)["h"], torch.zeros(3, 2, dtype=torch.float64)
    rows = []
    for row in x:
        h = torch.tanh(row + model.map(rows[-1] if rows else torch.zeros(2, dtype=torch.float64)) @ model.made)
        rows.append(h)
    both = (out, torch.stack(rows))
    found, wanted = (torch.autograd.grad(t.square().sum(), [*model.map.parameters()], retain_graph=True) for t in both)
    torch.testing.assert_close(out, torch.stack(rows))
    torch.testing.assert_close(found, wanted)


def _with_view(made: Tensor) -> tuple[Tensor, Tensor]:
    return made, made.view(made.shape)


PAIRS: dict[str, Callable[[Tensor], tuple[Tensor, Tensor]]] = {
    "one twice": lambda w: (w, w),
    "a view and itself": lambda w: (w.view_as(w), w),
    "itself and a view": lambda w: (w, w.view_as(w)),
    "two views": lambda w: (w.view(4, 4), w.squeeze()),
    "detached and itself": lambda w: (w.detach(), w),
    "itself and its data": lambda w: (w, w.data),
    "made, and a view of that": lambda w: _with_view(w * 2),
    "two": lambda w: (w, (w * 2).detach()),
}


def test_tensors_over_the_same_elements() -> None:
    """Each is an input of its own: one recording must not take the second for the first in a later call."""
    g = vgraph.graph((torch.from_numpy(src), torch.from_numpy(dst)))
    w, x = nn.Parameter(torch.randn(4, 4, dtype=torch.float64)), torch.randn(3, 4, dtype=torch.float64)
    g.ndata["x"] = x

    def message(sent: Tensor, received: Tensor, one: Tensor, two: Tensor) -> Tensor:
        return (sent @ one) * torch.tanh(received @ two)

    for name in (*PAIRS, *reversed(PAIRS)):
        one, two = PAIRS[name](w)
        g.update_all(lambda e, a=one, b=two: {"m": message(e.src["x"], e.dst["x"], a, b)}, fn.sum("m", "out"))
        by_hand = message(x[src], x[dst], one, two)
        found = torch.autograd.grad(g.ndata["out"].square().sum(), w, retain_graph=True)
        torch.testing.assert_close(found, torch.autograd.grad(by_hand.square().sum(), w), msg=name)
