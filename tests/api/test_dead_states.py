"""States on which no output depends: derivatives of every order are those of the function without them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import vgraph
from tests.fusion.fuzz import compile_fast
from vgraph.capture.capture import forget

WEIGHT = torch.tensor(0.7, dtype=torch.float64, requires_grad=True)


def unread(v: Any, x: Tensor) -> dict[str, Tensor]:
    v.gather()["h"]
    return {"h": torch.tanh(x)}


def of_a_dead_one(v: Any, x: Tensor) -> dict[str, Tensor]:
    k = v.gather()
    k["s"]
    return {"h": torch.tanh(x), "s": torch.tanh(x + k["h"].min())}


def self_feeding(v: Any, x: Tensor) -> dict[str, Tensor]:
    return {"h": torch.tanh(x), "s": v.gather()["s"].sum() * 0.5 + x}


def a_ring(v: Any, x: Tensor) -> dict[str, Tensor]:
    k = v.gather()
    return {"h": torch.tanh(x), "s": k["t"].sum() + x, "t": torch.sin(k["s"].max() * WEIGHT)}


def detached(v: Any, x: Tensor) -> dict[str, Tensor]:
    k = v.gather()
    s = k["s"].sum() * 0.5 + x
    return {"h": torch.tanh(x) * (1 + 0 * s.detach()), "s": s}


def beside_a_live_one(v: Any, x: Tensor) -> dict[str, Tensor]:
    k = v.gather()
    k["u"]
    h = torch.tanh(x + 0 * k["h"].sum().detach())
    return {"h": h, "s": torch.sin(k["s"].sum() + k["h"].sum()), "u": h * WEIGHT}


def by_the_first(v: Any, x: Tensor) -> dict[str, Tensor]:
    s = v.gather(0)["s"]
    return {"h": torch.tanh(x) + 0 * v.gather(0, default=1.0)["h"].detach(), "s": torch.tanh(x + s)}


FUNCTIONS = [unread, of_a_dead_one, self_feeding, a_ring, detached, beside_a_live_one, by_the_first]


class Dead(vgraph.VertexFunction):
    def __init__(self, states: Any, **options: Any) -> None:
        super().__init__(**options)
        self.given = states

    def forward(self, v: Any) -> None:
        found = self.given(v, v.pull("x"))
        v.scatter(**found)
        v.push(h=found["h"])


@pytest.mark.parametrize("kernels", ["1", "0"])
@pytest.mark.parametrize("direction", ["forward", "reverse"])
@pytest.mark.parametrize("given", FUNCTIONS)
def test_derivatives(given: Any, direction: str, kernels: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VGRAPH_KERNELS", kernels)
    forget()
    with compile_fast():
        derivatives_are_right(given, direction)


def derivatives_are_right(given: Any, direction: str) -> None:
    g = vgraph.graph(([0, 1, 4], [1, 3, 2]), num_nodes=5)
    function = Dead(given, direction=direction)
    found, wanted = (torch.linspace(-1, 1, 15, dtype=torch.float64).view(5, 3).requires_grad_() for _ in range(2))
    results, expected = function(g, x=found)["h"], torch.tanh(wanted)
    torch.testing.assert_close(results, expected)
    for _ in range(3):
        (results,) = torch.autograd.grad(results.square().sum(), found, create_graph=True)
        (expected,) = torch.autograd.grad(expected.square().sum(), wanted, create_graph=True)
        torch.testing.assert_close(results, expected)
    with torch.no_grad():
        torch.testing.assert_close(function(g, x=found)["h"], torch.tanh(wanted))


@pytest.mark.parametrize("given", FUNCTIONS)
def test_results_are_the_callers_own(given: Any) -> None:
    g = vgraph.graph(([0, 1, 4], [1, 3, 2]), num_nodes=5)
    x = torch.linspace(-1, 1, 15, dtype=torch.float64).view(5, 3).requires_grad_()
    h = Dead(given)(g, x=x)["h"]
    h += 1
    (slope,) = torch.autograd.grad(h.sum(), x)
    torch.testing.assert_close(slope, 1 - torch.tanh(x).square())
