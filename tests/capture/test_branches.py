"""Vertex functions that branch on data: they run vertex by vertex, and give what the recursion gives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import vgraph
from tests.api.recursion import DAG, F64, States, evaluate
from vgraph.errors import FunctionError

LOOKS: dict[str, Callable[[Tensor], Any]] = {
    "x.sum() > 0": lambda x: x.sum() > 0,
    "torch.sum": lambda x: torch.sum(x) > 0,
    "x.mean() > 0": lambda x: x.mean() > 0,
    "x.max() > 1": lambda x: x.max() > 1,
    "(x > 1).any()": lambda x: (x > 1).any(),
    "(x > -1).all()": lambda x: torch.all(x > -1),
    "x.norm() > 1.5": lambda x: x.norm() > 1.5,
    "item": lambda x: x.sum().item() > 0,
    "float": lambda x: float(x.detach().sum(-1)) > 0,
    "argmax": lambda x: int(x.argmax(-1)) == 0,
    "std": lambda x: x.std() > 1,
    "prod": lambda x: x.prod() > 0,
    "median": lambda x: x.median() > 0,
}
Steps = dict[str, tuple[Callable[[Any, Tensor, Tensor], Tensor], Callable[[Tensor, list[Tensor], Tensor], Tensor]]]


def total(kids: list[Tensor], x: Tensor) -> Tensor:
    return sum(kids, torch.zeros_like(x))


STEPS: Steps = {
    "sum": (
        lambda v, x, w: torch.tanh(x + v.gather()["h"].sum() @ w),
        lambda x, kids, w: torch.tanh(x + total(kids, x) @ w),
    ),
    "max": (
        lambda v, x, w: torch.tanh(x * v.gather()["h"].max()) + x,
        lambda x, kids, w: torch.tanh(x * (torch.stack(kids).amax(0) if kids else torch.zeros_like(x))) + x,
    ),
    "softmax": (
        lambda v, x, w: x + (v.gather()["h"].softmax() * v.gather()["h"]).sum(),
        lambda x, kids, w: x + (torch.softmax(torch.stack(kids), 0) * torch.stack(kids)).sum(0) if kids else x * 1,
    ),
    "first": (
        lambda v, x, w: torch.sin(x + 2 * v.gather(0)["h"] - v.gather(1, default=0.5)["h"]),
        lambda x, kids, w: torch.sin(
            x + (2 * kids[0] if kids else 0) - (kids[1] if len(kids) > 1 else 0.5 if kids else 0)
        ),
    ),
    "prod": (
        lambda v, x, w: x * (v.gather()["h"] * 0.5 + 1).prod(),
        lambda x, kids, w: x * (torch.stack(kids) * 0.5 + 1).prod(0) if kids else x * 1,
    ),
    "its own value on slots": (
        lambda v, x, w: x + torch.sigmoid(x + v.gather()["h"]).mean(),
        lambda x, kids, w: x + (torch.sigmoid(x + torch.stack(kids)).mean(0) if kids else 0),
    ),
}


class Branching(vgraph.VertexFunction):
    def __init__(self, look: Any, step: Any, width: int, **options: Any) -> None:
        super().__init__(**options)
        self.look, self.step = look, step
        self.W = nn.Parameter(torch.linspace(-1, 1, width * width, dtype=F64).view(width, width))

    def forward(self, v: Any) -> None:
        x = v.pull("x")
        h = self.step(v, x, self.W)
        if self.look(x):
            h = h * 2 + h.square()
        v.scatter(h=h)
        v.push(h=h)


def recursion(function: Branching, step: Any, x: Tensor, *, reverse: bool = False) -> Tensor:
    def cell(vertex: int, kids: list[States], _: list[int]) -> States:
        h = step(x[vertex], [kid[0] for kid in kids], function.W)
        return (h * 2 + h.square() if function.look(x[vertex]) else h,)

    return evaluate(DAG, cell, reverse=reverse)[0]


def features(width: int) -> Tensor:
    x = torch.randn(7, width, dtype=F64, generator=torch.Generator().manual_seed(3))
    return x.requires_grad_()


def check(function: Branching, step: Any, x: Tensor, *, reverse: bool = False) -> None:
    pairs = [function(DAG, x=x)["h"], recursion(function, step, x, reverse=reverse)]
    torch.testing.assert_close(*pairs)
    slopes = [torch.autograd.grad(h.sin().sum(), (x, function.W), create_graph=True, allow_unused=True) for h in pairs]
    torch.testing.assert_close(slopes[0][0], slopes[1][0])
    for found in zip(*(torch.autograd.grad(s[0].square().sum(), x) for s in slopes), strict=True):
        torch.testing.assert_close(*found)
    with torch.no_grad():
        torch.testing.assert_close(function(DAG, x=x)["h"], pairs[1].detach())


@pytest.mark.parametrize("look", LOOKS)
def test_looks(look: str) -> None:
    step, plain = STEPS["sum"]
    check(Branching(LOOKS[look], step, 3), plain, features(3))


@pytest.mark.parametrize("width", [1, 4])
@pytest.mark.parametrize("direction", ["forward", "reverse"])
@pytest.mark.parametrize("step", STEPS)
def test_steps(step: str, direction: str, width: int) -> None:
    given, plain = STEPS[step]
    function = Branching(LOOKS["x.sum() > 0"], given, width, direction=direction)
    check(function, plain, features(width), reverse=direction == "reverse")


def test_of_what_children_hand_on() -> None:
    class OfChildren(vgraph.VertexFunction):
        def forward(self, v: Any) -> None:
            x, s = v.pull("x"), v.gather()["h"].sum()
            h = x + s if s.sum() > 0 else x - s
            v.scatter(h=h)
            v.push(h=h)

    x = features(3)

    def cell(vertex: int, kids: list[States], _: list[int]) -> States:
        s = total([kid[0] for kid in kids], x[vertex])
        return (x[vertex] + s if s.sum() > 0 else x[vertex] - s,)

    torch.testing.assert_close(OfChildren()(DAG, x=x)["h"], evaluate(DAG, cell)[0])


class Wide(vgraph.VertexFunction):
    """States of other shapes than the features: a matrix, a wider row, a number, a count."""

    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(3, 5, dtype=F64)

    def forward(self, v: Any) -> None:
        x, k = v.pull("x"), v.gather()
        h = torch.tanh(self.up(x) + k["h"].sum())
        if x.sum() > 0:
            h = h * 2
        m = h.unsqueeze(-1) * x.unsqueeze(-2) + k["m"].sum()
        n = k["n"].sum() + x.sum(-1)
        count = k["count"].sum() + 1
        v.scatter(h=h, m=m, n=n, count=count + torch.zeros_like(v.in_degree))
        v.push(h=h, m=m, n=n, count=count + torch.zeros_like(v.in_degree))


def test_states_of_any_shape() -> None:
    x, function = features(3), Wide()

    def cell(vertex: int, kids: list[States], _: list[int]) -> States:
        h = torch.tanh(function.up(x[vertex]) + sum(kid[0] for kid in kids))
        h = h * 2 if x[vertex].sum() > 0 else h
        m = h[:, None] * x[vertex] + sum(kid[1] for kid in kids)
        return h, m, sum(kid[2] for kid in kids) + x[vertex].sum(), torch.tensor(sum(int(k[3]) for k in kids) + 1)

    found, wanted = function(DAG, x=x), evaluate(DAG, cell)
    for name, rows in zip(("h", "m", "n", "count"), wanted, strict=True):
        torch.testing.assert_close(found[name], rows)


class Twice(vgraph.VertexFunction):
    def forward(self, v: Any) -> None:
        h = v.pull("x") + v.gather()["h"].sum()
        h = 2 * h if v.pull("x").sum() > 0 else h
        v.scatter(h=h)
        v.push(h=h)


class Thrice(vgraph.VertexFunction):
    def forward(self, v: Any) -> None:
        h = 3 * v.pull("x") + v.gather()["h"].mean()
        v.scatter(h=h)
        v.push(h=h)


@pytest.mark.parametrize("direction", ["forward", "reverse"])
def test_types(direction: str) -> None:
    x, kinds = features(3), torch.tensor([0, 1, 0, 1, 0, 1, 0])
    functions: Any = {0: Twice(direction=direction), 1: Thrice(direction=direction)}
    found = vgraph.ByType(functions, key="kind", direction=direction)(DAG, x=x, kind=kinds)["h"]

    def cell(vertex: int, kids: list[States], _: list[int]) -> States:
        s = total([kid[0] for kid in kids], x[vertex])
        if kinds[vertex]:
            return (3 * x[vertex] + s / max(len(kids), 1),)
        return ((x[vertex] + s) * (2 if x[vertex].sum() > 0 else 1),)

    wanted = evaluate(DAG, cell, reverse=direction == "reverse")[0]
    torch.testing.assert_close(found, wanted)
    slopes = [torch.autograd.grad(h.sin().sum(), x)[0] for h in (found, wanted)]
    torch.testing.assert_close(*slopes)


def test_a_number_of_all_rows_is_no_value() -> None:
    class OfAll(vgraph.VertexFunction):
        def forward(self, v: Any) -> None:
            v.push(h=v.pull("x") / v.pull("x").sum())

    class Pushed(vgraph.VertexFunction):
        def forward(self, v: Any) -> None:
            v.push(h=v.pull("x").sum())

    for kind in (OfAll, Pushed):
        with pytest.raises(FunctionError, match="sum over the dim of rows mixes vertices"):
            kind()(DAG, x=features(3))
