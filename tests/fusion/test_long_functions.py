"""Functions of any length: no stack grows with them, neither Python's nor a kernel's, and no table ends."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

import vgraph
import vgraph.function as fn
from tests.tables import table
from vgraph import compiler
from vgraph.capture import capture
from vgraph.fusion import grouping
from vgraph.fusion.cpu import build
from vgraph.fusion.cpu.emit import emit_kernels

LENGTH = 180
WEIGHT = torch.eye(3, dtype=torch.float64) + 0.001

# Each keeps (rows, 3) and its numbers bounded, however often it is done.
STEPS: dict[str, Callable[[Tensor], Tensor]] = {
    "pointwise": lambda x: torch.sin(x) + 0.1,
    "product of sums": lambda x: x * (x + 1) * 0.3,
    "linear map": lambda x: x @ WEIGHT,
    "view": lambda x: x.unsqueeze(-1).squeeze(-1),
    "choice": lambda x: torch.where(x > 0, x, -x),
    "sum over features": lambda x: x - x.sum(1, keepdim=True) * 0.1,
    "in place": lambda x: x.clone().add_(1).mul_(0.5),
}


class Repeated(vgraph.VertexFunction):
    def __init__(self, step: Callable[[Tensor], Tensor], times: int = LENGTH) -> None:
        super().__init__()
        self.step, self.times = step, times

    def forward(self, v: vgraph.Vertex) -> None:
        h = v.gather()["h"].sum() + v.pull("x")
        for _ in range(self.times):
            h = self.step(h)
        v.scatter(h=h)
        v.push(h=h)


def diamond() -> vgraph.Graph:
    return vgraph.graph(([0, 1, 0, 2], [1, 3, 2, 3]))


def rows() -> Tensor:
    return torch.rand(4, 3, dtype=torch.float64).requires_grad_()


def by_vertex(step: Callable[[Tensor], Tensor], x: Tensor, times: int = LENGTH) -> Tensor:
    return Repeated(step, times)(diamond(), x=x)["h"]


def by_message(step: Callable[[Tensor], Tensor], x: Tensor, times: int = LENGTH) -> Tensor:
    g = diamond()
    g.ndata["x"] = x

    def message(edges: Any) -> dict[str, Tensor]:
        h = edges.src["x"] * edges.dst["x"]
        for _ in range(times):
            h = step(h)
        return {"m": h}

    g.update_all(message, fn.sum("m", "o"))
    return g.ndata["o"]


def by_hand(way: Any, step: Callable[[Tensor], Tensor], x: Tensor, times: int = LENGTH) -> Tensor:
    src, dst = diamond().edges()

    def repeated(h: Tensor) -> Tensor:
        for _ in range(times):
            h = step(h)
        return h

    if way is by_message:
        return torch.zeros_like(x).index_add(0, dst, repeated(x[src] * x[dst]))
    states = list[Tensor]()
    for v in range(4):
        children = [states[int(u)] for u, w in zip(src, dst, strict=True) if int(w) == v]
        states.append(repeated(sum(children, torch.zeros(3, dtype=x.dtype))[None] + x[v : v + 1])[0])
    return torch.stack(states)


@pytest.fixture
def uncompiled(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """All but the compiler runs; what it would be given."""
    sources: list[str] = []
    monkeypatch.setenv("VGRAPH_KERNELS", "1")
    monkeypatch.setattr(compiler, "load_native", lambda: None)
    monkeypatch.setitem(compiler.TARGETS, "cpu", lambda specs: sources.append(emit_kernels(specs)))
    capture.forget()
    yield sources
    capture.forget()


@pytest.fixture
def few_frames() -> Iterator[None]:
    """So few that a function which calls itself for every operator does not come to its end."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(len(inspect.stack(0)) + LENGTH)
    yield
    sys.setrecursionlimit(before)


@pytest.mark.parametrize(("name", "way"), table([*STEPS], [by_vertex, by_message]))
def test_pythons_stack_does_not_grow(way: Any, name: str, uncompiled: list[str], few_frames: None) -> None:
    x, step = rows(), STEPS[name]
    out = way(step, x)
    out.sum().backward()
    found, x.grad = x.grad, None
    expected = by_hand(way, step, x)
    expected.sum().backward()
    torch.testing.assert_close(out, expected, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(found, x.grad, rtol=1e-9, atol=1e-9)


needs_compiler = pytest.mark.skipif(build.find_compiler() is None, reason="there is no C++ compiler")


def mixed(edges: Any) -> dict[str, Tensor]:
    """Reads both ends, has factors that are reduced, and views."""
    score = (edges.src["x"] * edges.dst["x"]).sum(1, keepdim=True)
    return {"m": torch.tanh(edges.src["x"]) * score.sigmoid(), "score": score}


def reduced(nodes: Any) -> dict[str, Tensor]:
    weights = nodes.mailbox["score"].softmax(1)
    return {"o": (weights * nodes.mailbox["m"]).sum(1) + nodes.mailbox["m"].amax(1) * nodes.data["x"].exp()}


def grads_of(run: Callable[[Tensor], Tensor]) -> tuple[Tensor, Tensor]:
    torch.manual_seed(0)
    x = rows()
    out = run(x)
    out.square().sum().backward()
    assert x.grad is not None
    return out.detach(), x.grad


def run_mixed(x: Tensor) -> Tensor:
    g = diamond()
    g.ndata["x"] = x
    g.update_all(mixed, reduced)
    return g.ndata["o"]


@needs_compiler
@pytest.mark.parametrize("most", [2])
@pytest.mark.parametrize("run", [run_mixed, lambda x: by_vertex(STEPS["product of sums"], x, 3)])
def test_kernels_of_few_ops_each_agree(run: Any, most: int, monkeypatch: pytest.MonkeyPatch, kernels: None) -> None:
    """A long function has several kernels: those of a short one are cut here."""
    whole = grads_of(run)
    monkeypatch.setattr(grouping, "_MOST_OPS", most)
    capture.forget()
    cut = grads_of(run)
    for one, other in zip(whole, cut, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("way", [by_vertex, by_message])
def test_no_kernel_grows_with_the_function(way: Any, uncompiled: list[str]) -> None:
    """Compilers take far more than twice as long for a kernel of twice as many operators."""
    x = rows()
    way(STEPS["pointwise"], x, 600).sum().backward()
    bodies = [body for source in uncompiled for body in source.split("static int64_t body")[1:]]
    assert len(bodies) > 4
    assert max(body.count("\n") for body in bodies) < 2000


class Wide(vgraph.VertexFunction):
    """One kernel in a loop that reads as many features as it has."""

    def __init__(self, num_features: int) -> None:
        super().__init__()
        self.num_features = num_features

    def forward(self, v: vgraph.Vertex) -> None:
        h = v.gather()["h"].sum()
        for i in range(self.num_features):
            h = torch.maximum(h, v.pull(f"x{i}"))
        v.scatter(h=h)
        v.push(h=h)


@needs_compiler
def test_a_kernel_in_a_loop_has_any_number_of_arguments(kernels: None) -> None:
    features = {f"x{i}": torch.randn(4, 1) for i in range(255)}
    out = Wide(len(features))(diamond(), **features)["h"]
    own = torch.cat(list(features.values()), 1).amax(1)
    states = list[Tensor]()
    for v, children in enumerate(([], [0], [0], [1, 2])):
        states.append(torch.maximum(own[v], sum((states[u] for u in children), torch.tensor(0.0))))
    assert out.flatten().tolist() == torch.stack(states).tolist()
