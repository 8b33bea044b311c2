"""Captured functions: what changes is never answered with a stale result, and little is captured."""

from __future__ import annotations

import gc
import logging
import random
import time
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import vgraph
from tests.api.recursion import DAG
from tests.capture.capturing import Apply, X, call, captures


# ---------------------------------------------------------------- what is captured once
def test_function_written_anew_in_every_forward() -> None:
    class Anew(vgraph.VertexFunction):
        def __init__(self) -> None:
            super().__init__()
            self.W = nn.Linear(3, 3)

        def forward(self, v: vgraph.Vertex) -> None:
            act = lambda t: torch.tanh(self.W(t))  # noqa: E731
            h = act(v.pull("x")) + v.gather()["h"].sum()
            v.scatter(h=h)
            v.push(h=h)

    model = Anew().double()
    with captures(1):
        for _ in range(4):
            model(DAG, x=X)
    with captures(1):
        for scale in torch.rand(5).unbind():
            call(lambda t, s=scale: t * s)
    with captures(1):
        for scale in torch.rand(5).unbind():
            inner = lambda t, s=scale: t * s  # noqa: E731
            call(lambda t: inner(t) + 1)  # noqa: B023
    with captures(1):
        for _ in range(3):  # new instances of one class share what was captured
            Anew().double()(DAG, x=X)


def test_another_graph_is_no_capture() -> None:
    model = Apply(torch.tanh)
    model(DAG, x=X)
    with captures(0):
        model(vgraph.graph(([0, 1], [2, 2])), x=X[:3])
        model(vgraph.graph(([], []), num_nodes=1), x=X[:1])


# ---------------------------------------------------------------- tensors
TENSOR = torch.ones(3, dtype=torch.float64)


def test_tensor_is_read_at_every_call(monkeypatch: pytest.MonkeyPatch) -> None:
    class Holder(nn.Module):
        buffer: Tensor

        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("buffer", torch.ones(3, dtype=torch.float64))

        def forward(self, t: Tensor) -> Tensor:
            return t * self.buffer + weight * TENSOR

    weight = torch.ones(3, dtype=torch.float64, requires_grad=True)
    holder = Holder()
    with captures(1):
        call(holder)
        holder.buffer.mul_(3)
        call(holder)
        holder.buffer = torch.full((3,), 5.0, dtype=torch.float64)
        call(holder)
        monkeypatch.setitem(globals(), "TENSOR", TENSOR * 4)
        call(holder)
        with torch.no_grad():
            weight.mul_(2)
        out = call(holder)
        weight = torch.rand(3, dtype=torch.float64, requires_grad=True)
        other = call(holder)
    assert out.requires_grad
    (grad,) = torch.autograd.grad(other.sum(), weight)
    assert torch.equal(grad, TENSOR * 7)
    weight = torch.rand(3, dtype=torch.float64)
    assert not call(holder).requires_grad
    weight = torch.rand(3, dtype=torch.float32, requires_grad=True)
    call(holder)
    weight = torch.rand(1, dtype=torch.float64, requires_grad=True)
    call(holder)


def test_a_sparse_tensor_is_read() -> None:
    held = [torch.eye(3, dtype=torch.float64).to_sparse()]
    for factor in (1, 2):
        held[0] = held[0] * factor
        call(lambda t: t * held[0].to_dense().sum(0))


def test_looking_into_a_tensor_falls_back(caplog: pytest.LogCaptureFixture) -> None:
    rate = torch.tensor([2.0], dtype=torch.float64)
    looks: list[Callable[[Tensor], Tensor]] = [
        lambda t: t * rate.item(),
        lambda t: t * rate.tolist()[0],
        lambda t: t * float(rate.numpy()[0]),
        lambda t: t * float(np.asarray(rate)[0]),
        lambda t: t * 2 if rate > 1 else t * 3,
    ]
    for look in looks:
        rate.fill_(2.0)
        model = Apply(look)
        with caplog.at_level(logging.INFO, "vgraph"):
            assert torch.equal(model(DAG, x=X)["h"], X * 2)
        rate.fill_(3.0 if look is not looks[-1] else 0.5)
        assert torch.equal(model(DAG, x=X)["h"], X * 3)
    assert caplog.text.count("one vertex at a time") == len(looks)


# ---------------------------------------------------------------- numbers that move
def test_annealed_float_is_captured_a_few_times() -> None:
    leaf = X.clone().requires_grad_()
    with captures(4):
        for step in range(20):
            beta = 1.0 / (step + 1)
            out = Apply(lambda t: torch.tanh(t * beta))(DAG, x=leaf)["h"]  # noqa: B023
            (grad,) = torch.autograd.grad(out.sum(), leaf)
            torch.testing.assert_close(out, torch.tanh(X * beta))
            torch.testing.assert_close(grad, beta * (1 - torch.tanh(X * beta) ** 2))


@pytest.mark.guards
def test_annealed_attribute_in_a_module() -> None:
    class Annealed(vgraph.VertexFunction):
        def __init__(self) -> None:
            super().__init__()
            self.beta, self.W = 1.0, nn.Linear(3, 3)

        def forward(self, v: vgraph.Vertex) -> None:
            h = torch.tanh(self.W(v.pull("x")) * self.beta**2) + v.gather()["h"].sum() * self.beta
            v.scatter(h=h)
            v.push(h=h)

    model = Annealed().double()
    with captures(4):
        for _ in range(12):
            model.beta *= 0.9
            out = model(DAG, x=X)["h"]
            model.policy = "serial" if model.policy == "frontier" else "frontier"
            torch.testing.assert_close(model(DAG, x=X)["h"], out)
            torch.testing.assert_close(out[:2], torch.tanh(model.W(X[:2]) * model.beta**2))
            assert type(model.beta) is float


def test_annealed_float_in_dropout_shapes_and_branches() -> None:
    for step in range(6):
        p = 0.9 - 0.1 * step
        zeros = [
            (Apply(lambda t: functional.dropout(t, p, True))(BIG, x=ONES)["h"] == 0).double().mean()  # noqa: B023
            for _ in range(1)
        ]
        assert abs(zeros[0].item() - p) < 0.03
    for width in range(1, 7):
        call(lambda t: t[:, :1].expand(-1, width) + 1)  # noqa: B023
    for gate in (0.1, 0.9, 0.2, 0.8, 0.3, 0.7):
        call(lambda t: t * 2 if gate > 0.5 else t * gate)  # noqa: B023
    for kind in (1, 2.0, 3, 4.0, 5, 6.0):
        call(lambda t: t * kind if isinstance(kind, int) else t - kind)  # noqa: B023


BIG = vgraph.graph(([], []), num_nodes=2000)
ONES = torch.ones(2000, 3)


# ---------------------------------------------------------------- what answers differently each time
def test_impure_functions_answer_anew(caplog: pytest.LogCaptureFixture) -> None:
    array, numbers = np.ones(3), iter(range(100_000))
    generator = np.random.default_rng(0)
    impure: list[Callable[[Tensor], Tensor]] = [
        lambda t: t * random.random(),
        lambda t: t * random.uniform(1, 2),
        lambda t: t * np.random.rand(),
        lambda t: t * generator.random(),
        lambda t: t * (time.perf_counter() % 1),
        lambda t: t * next(numbers),
    ]
    for function in impure:
        model = Apply(function)
        with caplog.at_level(logging.INFO, "vgraph"):
            one, two = (model(DAG, x=X)["h"] for _ in range(2))
        assert not torch.equal(one, two)
    assert "one vertex at a time" not in caplog.text  # what they do is looked up; test_lookup.py
    reads = Apply(lambda t: t * torch.from_numpy(array))
    assert torch.equal(reads(DAG, x=X)["h"], X)
    array[:] = 2
    assert torch.equal(reads(DAG, x=X)["h"], X * 2)


def test_value_that_changes_while_it_runs() -> None:
    class Counts(vgraph.VertexFunction):
        calls = 0

        def forward(self, v: vgraph.Vertex) -> None:
            self.calls += 1
            v.push(h=v.pull("x") * 0 + self.calls)

    model = Counts()
    first = model(DAG, x=X)["h"]
    assert model(DAG, x=X)["h"].min() > first.max()


# ---------------------------------------------------------------- in place
def test_in_place_on_own_temporaries() -> None:
    def function(t: Tensor) -> Tensor:
        t = t * 1
        t += 2
        t.mul_(3).tanh_()
        other = torch.zeros_like(t)
        other.copy_(t)
        other[:, 0] = 0.5
        return other.clamp_(min=0)

    call(function)
    leaf = X.clone().requires_grad_()
    (got,) = torch.autograd.grad(Apply(function)(DAG, x=leaf)["h"].sum(), leaf)
    (wanted,) = torch.autograd.grad(function(leaf).sum(), leaf)
    torch.testing.assert_close(got, wanted)


def test_a_write_to_what_a_derivative_needs_is_refused() -> None:
    """As torch refuses it: the product's derivative would be taken with what was written afterwards."""

    def function(t: Tensor) -> Tensor:
        factor = torch.full_like(t, 2.0)
        made = t * factor
        factor.zero_()
        return made

    leaf = X.clone().requires_grad_()
    made = Apply(function)(DAG, x=leaf)["h"]
    torch.testing.assert_close(made, 2 * leaf)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        made.sum().backward()


@pytest.mark.parametrize("function", [lambda t: t.add_(1), lambda t: t + TENSOR.add_(1), lambda t: t + WEIGHT.mul_(2)])
def test_writing_to_what_is_not_its_own(function: Callable[[Tensor], Tensor]) -> None:
    x, before, weight = X.clone(), TENSOR.clone(), WEIGHT.clone()
    for _ in range(2):
        with torch.no_grad(), pytest.raises(vgraph.VGraphError, match="not its own") as caught:
            Apply(function)(DAG, x=x)
        assert f"{__file__}:" in str(caught.value) and "cure:" in str(caught.value)
    assert torch.equal(x, X) and torch.equal(TENSOR, before) and torch.equal(WEIGHT, weight)


WEIGHT = nn.Parameter(torch.ones(3, dtype=torch.float64))


# ---------------------------------------------------------------- memory
def test_captures_are_bounded() -> None:
    from vgraph.capture import capture

    model = Apply(torch.tanh)
    for width in range(1, 40):
        model(DAG, x=torch.ones(7, width))
    assert all(len(f.entries) <= 16 for f in capture._families.values())  # pyright: ignore
    assert len(capture._families) <= 512  # pyright: ignore


class Token:
    pass


@pytest.mark.parametrize("fails", [False, True])
def test_captured_function_keeps_no_old_step_alive(fails: bool) -> None:
    def step() -> weakref.ref[Any]:
        hidden = (X.clone().requires_grad_() * 2).tanh()
        token = Token()
        hidden.grad_fn.metadata["token"] = token  # type: ignore[union-attr]

        def function(t: Tensor) -> Tensor:
            return t + hidden * 0 if fails and hidden.sum().item() > 1e9 else t + hidden.sum(0)

        model = Apply(function)
        out = model(DAG, x=X)["h"]
        out.sum().backward()
        return weakref.ref(token)

    gc.disable()
    try:
        refs = [step() for _ in range(3)]
        gc.collect()
        assert [ref() for ref in refs] == [None] * 3
    finally:
        gc.enable()


def test_change_between_forward_and_backward() -> None:
    class Power(vgraph.VertexFunction):
        power = 2

        def forward(self, v: vgraph.Vertex) -> None:
            v.push(h=v.pull("x") ** self.power)

    model, x = Power(), X.clone().requires_grad_()
    (grad,) = torch.autograd.grad(model(DAG, x=x)["h"].sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(grad.sum(), x)
    torch.testing.assert_close(second, torch.full_like(X, 2))

    out = model(DAG, x=x)["h"]
    model.power = 3
    (grad,) = torch.autograd.grad(out.sum(), x)
    torch.testing.assert_close(grad, 2 * X)
