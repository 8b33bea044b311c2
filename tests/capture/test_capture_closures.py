"""What closures hold: tensors of one memory, and what is made of a parameter outside the function."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import vgraph
import vgraph.function as fn
from vgraph.capture.capture import Bound, watch_runs

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


@pytest.mark.parametrize("name", OF_A_PARAMETER)
def test_a_view_made_elsewhere_is_an_input_of_its_own(name: str) -> None:
    """Even where the function makes the same view itself: at the next call another tensor is in its place."""
    g, layer = vgraph.graph((torch.from_numpy(src), torch.from_numpy(dst))), nn.Linear(4, 3, dtype=torch.float64)
    g.ndata["x"] = x = torch.randn(3, 4, dtype=torch.float64)
    for made in (layer.weight.t(), OF_A_PARAMETER[name](layer) * 5, layer.weight.t()):
        g.update_all(lambda e, made=made: {"m": layer(e.src["x"]) * (e.dst["x"] @ made)}, fn.sum("m", "out"))
        wanted = torch.zeros(3, 3, dtype=torch.float64)
        wanted = wanted.index_add(0, torch.from_numpy(dst), layer(x[src]) * (x[dst] @ made))
        torch.testing.assert_close(g.ndata["out"], wanted)


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


# ---------------------------------------------------------------- functions that are read, not called
def _holder(x: float) -> Callable[..., float]:
    def holder(scale: float = 2.0, *, other: float = 2.0) -> float:
        """two"""
        return x * scale * other

    return holder


OF_A_FUNCTION: dict[str, tuple[Callable[[Any], float], Callable[[Any], Any]]] = {
    "a default": (lambda f: f.__defaults__[0], lambda f: setattr(f, "__defaults__", (7.0,))),
    "a keyword's": (lambda f: f.__kwdefaults__["other"], lambda f: f.__kwdefaults__.update(other=7.0)),
    "a cell": (lambda f: f.__closure__[0].cell_contents, lambda f: setattr(f.__closure__[0], "cell_contents", 7.0)),
    "its name": (lambda f: 2.0 if f.__name__ == "holder" else 7.0, lambda f: setattr(f, "__name__", "other")),
    "its text": (lambda f: 2.0 if f.__doc__ == "two" else 7.0, lambda f: setattr(f, "__doc__", "seven")),
    "its annotations": (
        lambda f: 7.0 if "new" in f.__annotations__ else 2.0,
        lambda f: f.__annotations__.update(new=1),
    ),
}


@pytest.mark.parametrize("name", OF_A_FUNCTION)
def test_what_a_function_carries(name: str) -> None:
    (read, change), holder = OF_A_FUNCTION[name], _holder(2.0)
    g = vgraph.graph(([0, 1], [1, 2]))
    g.ndata["h"] = torch.ones(3, 1)
    for wanted in (2.0, 7.0):
        g.update_all(lambda edges: {"m": edges.src["h"] * read(holder)}, fn.sum("m", "out"))
        assert g.ndata["out"][1].item() == wanted
        change(holder)
