"""A function that runs again on a graph: nothing is looked for, and whatever has changed is seen all the same."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import vgraph
import vgraph.function as fn
from vgraph.api.messages import propagate
from vgraph.capture import capture


def graph(**features: Tensor) -> vgraph.Graph:
    g = vgraph.graph(([0, 1, 2, 2], [1, 2, 0, 1]), num_nodes=4)
    g.ndata.update(features)
    return g


def rows(*, grad: bool = True, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.arange(8, dtype=dtype).reshape(4, 2).add(1).requires_grad_(grad)


def summed(g: vgraph.Graph, h: Tensor) -> Tensor:
    src, dst = g.edges()
    return torch.zeros_like(h).index_add(0, dst, h[src])


@pytest.fixture
def never_found(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """From its call on nothing may be looked for."""
    monkeypatch.delenv("VGRAPH_CAPTURE", raising=False)  # where all is recorded again, all is looked for

    def refuse(*_: Any, **__: Any) -> Any:
        raise AssertionError("it was looked for")

    return lambda: monkeypatch.setattr(propagate, "find_captured", refuse)


@pytest.mark.guards
def test_nothing_is_looked_for(never_found: Callable[[], None]) -> None:
    g, h = graph(h=rows()), rows()
    g.update_all(fn.copy_u("h", "m"), fn.sum("m", "s"))
    g.apply_edges(fn.u_add_v("h", "h", "e"))
    never_found()
    g.ndata["h"] = h
    g.update_all(fn.copy_u("h", "m"), fn.sum("m", "s"))
    g.apply_edges(fn.u_add_v("h", "h", "e"))
    assert torch.equal(g.ndata["s"], summed(g, h))
    (g.ndata["s"].square().sum() + g.edata["e"].sum()).backward()
    wanted = rows()
    src, dst = g.edges()
    (summed(g, wanted).square().sum() + (wanted[src] + wanted[dst]).sum()).backward()
    assert torch.equal(h.grad, wanted.grad)


@pytest.mark.parametrize("change", ["dtype", "width", "no grad", "no_grad", "strided", "lost"])
def test_features_of_another_kind(change: str) -> None:
    g = graph(h=rows())
    message, reduce = fn.copy_u("h", "m"), fn.sum("m", "s")
    for _ in range(2):
        g.update_all(message, reduce)
    if change == "lost":
        del g.ndata["h"]
        with pytest.raises(vgraph.VGraphError, match="h"):
            g.update_all(message, reduce)
        return
    h = {
        "dtype": rows(dtype=torch.float64),
        "width": torch.ones(4, 3, requires_grad=True),
        "no grad": rows(grad=False),
        "no_grad": rows(),
        "strided": torch.ones(2, 4).t().clone(memory_format=torch.preserve_format).requires_grad_(),
    }[change]
    g.ndata["h"] = h
    with torch.set_grad_enabled(change != "no_grad"):
        g.update_all(message, reduce)
    made = g.ndata["s"]
    assert torch.equal(made, summed(g, h)) and made.dtype == h.dtype
    assert made.requires_grad == (change not in ("no grad", "no_grad"))


def test_functions_of_one_code() -> None:
    """What they close over tells them apart, be there more of them than are kept."""
    g = graph(**{str(i): rows(grad=False) * (i + 1) for i in range(6)})
    for _ in range(3):
        for i in range(6):
            g.update_all(fn.copy_u(str(i), "m"), fn.sum("m", f"s{i}"))
            assert torch.equal(g.ndata[f"s{i}"], summed(g, rows(grad=False)) * (i + 1))


def test_what_functions_read() -> None:
    g, h = graph(h=rows(grad=False)), rows(grad=False)
    for factor in (2.0, 2.0, 3.0, torch.tensor(4.0), torch.tensor(5.0), 2):

        def message(edges: Any, factor: Any = factor) -> dict[str, Tensor]:
            return {"m": edges.src["h"] * factor}

        g.update_all(message, fn.sum("m", "s"))
        assert torch.equal(g.ndata["s"], summed(g, h) * factor)


def test_modes_of_torch() -> None:
    g = graph(h=rows(grad=False))

    def message(edges: Any) -> dict[str, Tensor]:
        return {"m": edges.src["h"] + torch.ones(2)}

    def made() -> torch.dtype:
        g.update_all(message, fn.sum("m", "s"))
        return g.ndata["s"].dtype

    assert [made(), made()] == [torch.float32] * 2
    torch.set_default_dtype(torch.float64)
    try:
        assert made() == torch.float64
    finally:
        torch.set_default_dtype(torch.float32)
    assert made() == torch.float32
    with torch.inference_mode():
        assert made() == torch.float32 and g.ndata["s"].is_inference()


def test_second_derivatives() -> None:
    """They are recorded from the functions of the call, which is not that of the first recording."""
    g = graph(h=rows(dtype=torch.float64))

    def run(h: Tensor) -> Tensor:
        g.ndata["h"] = h
        g.update_all(lambda e: {"m": e.src["h"] ** 3 * e.dst["h"]}, fn.sum("m", "s"))
        return g.ndata["s"]

    h = rows(dtype=torch.float64)
    for _ in range(2):
        run(h)
    assert torch.autograd.gradcheck(run, h) and torch.autograd.gradgradcheck(run, h)


def test_captures_that_were_forgotten() -> None:
    g = graph(h=rows(grad=False))
    g.update_all(fn.copy_u("h", "m"), fn.sum("m", "s"))
    capture.forget()
    before = capture.num_captures()
    g.update_all(fn.copy_u("h", "m"), fn.sum("m", "s"))
    assert capture.num_captures() == before + 1


def test_who_watches_sees_it() -> None:
    g = graph(h=rows(grad=False))
    for _ in range(2):
        g.update_all(fn.copy_u("h", "m"), fn.sum("m", "s"))
    with capture.watch_runs() as runs:
        g.update_all(fn.copy_u("h", "m"), fn.sum("m", "s"))
    assert len(runs) == 1


def test_what_a_transform_has_left() -> None:
    """It stands for a tensor, and has no memory of its own."""
    left = list[Tensor]()

    def keep(x: Tensor) -> Tensor:
        left.append(x * 2)
        return x.sum()

    torch.func.grad(keep)(torch.ones(4, 2))
    g = graph(h=rows())
    for _ in range(2):
        g.update_all(fn.copy_u("h", "m"), fn.sum("m", "s"))
    g.ndata["h"] = left[0]
    g.update_all(fn.copy_u("h", "m"), fn.sum("m", "s"))
    assert torch.equal(g.ndata["s"].detach(), summed(g, torch.full((4, 2), 2.0)))


def test_transforms_are_refused() -> None:
    g = graph(h=rows(grad=False))
    for _ in range(2):
        g.update_all(fn.copy_u("h", "m"), fn.sum("m", "s"))

    def loss(h: Tensor) -> Tensor:
        g.ndata["h"] = h
        g.update_all(fn.copy_u("h", "m"), fn.sum("m", "s"))
        return g.ndata["s"].sum()

    with pytest.raises(vgraph.VGraphError, match=r"torch\.func"):
        torch.func.grad(loss)(rows(grad=False))


def test_no_feature_is_held() -> None:
    g = graph()
    for _ in range(3):
        h = rows()
        weight = torch.ones(2, requires_grad=True)
        g.ndata["h"] = h
        g.update_all(lambda e, weight=weight: {"m": e.src["h"] * weight}, fn.sum("m", "s"))
        g.ndata["s"].sum().backward()
    held = weakref.ref(h), weakref.ref(weight), weakref.ref(g.ndata["s"])
    del h, weight
    g.ndata.clear()
    gc.collect()
    assert [one() for one in held] == [None] * 3


def test_a_gradient_that_is_not_there() -> None:
    """Of a single output that has a cotangent of none, as a function gives whose backward returns None."""

    class Dropped(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return x.clone()

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Any:
            return None

    g, h = graph(), rows()
    g.ndata["h"] = h
    g.update_all(fn.copy_u("h", "m"), fn.sum("m", "s"))
    (Dropped.apply(g.ndata["s"]).sum() + h.sum()).backward()
    assert torch.equal(h.grad, torch.ones(4, 2))
