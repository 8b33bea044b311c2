"""Whatever vectors a processor has, and whatever a row's length: kernels compute what torch's operators do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import vgraph
from tests.tables import table
from vgraph.capture.capture import forget
from vgraph.fusion.widths import numbers_of, vector_bytes

Messages = Callable[[Any], dict[str, Tensor]]

CAPABILITIES = {"AVX512": 64, "AVX2": 32, "DEFAULT": 16}
LENGTHS = [1, 3, 5, 8, 21, 64, 150]
HEADS = [2, 3, 4, 7, 8, 16, 21, 32, 40]
N, E = 40, 300


def gated(edges: Any) -> dict[str, Tensor]:
    x = edges.src["x"]
    return {
        "m": torch.sigmoid(x + edges.dst["x"]) * torch.where(edges.src["i"] > 25, torch.relu(x), x.clamp(-0.5, 0.5))
    }


def total(nodes: Any) -> dict[str, Tensor]:
    return {"h": nodes.mailbox["m"].sum(1)}


def scores(edges: Any) -> dict[str, Tensor]:
    return {"m": edges.src["x"], "s": (edges.src["x"] * edges.dst["x"]).sum(-1, keepdim=True)}


def attention(nodes: Any) -> dict[str, Tensor]:
    weights = torch.softmax(nodes.mailbox["s"], 1)
    return {"h": (weights * nodes.mailbox["m"]).sum(1)}


def largest(nodes: Any) -> dict[str, Tensor]:
    return {"h": nodes.mailbox["m"].amax(1) + nodes.mailbox["m"].std(1, correction=0)}


FUNCTIONS: dict[str, tuple[Messages, Messages]] = {
    "gated": (gated, total),
    "attention": (scores, attention),
    "largest": (gated, largest),
}


def results(function: str, length: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    torch.manual_seed(0)
    g = vgraph.graph((torch.randint(0, N, (E,)), torch.arange(E) % N), num_nodes=N)
    x = torch.randn(N, length, dtype=dtype).requires_grad_()
    g.ndata["x"], g.ndata["i"] = x, torch.randint(0, 50, (N, length))
    message, reduce = FUNCTIONS[function]
    g.update_all(message, reduce)
    (g.ndata["h"] ** 2).sum().backward()
    assert x.grad is not None
    return g.ndata["h"].detach(), x.grad


@pytest.mark.parametrize("capability", CAPABILITIES)
def test_vectors_are_as_long_as_the_processors(capability: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: capability)
    assert (vector_bytes(), numbers_of(8)) == (CAPABILITIES[capability], CAPABILITIES[capability] // 8)


@pytest.mark.parametrize(("capability", "function", "length"), table([*CAPABILITIES], [*FUNCTIONS], LENGTHS))
def test_every_length_in_every_vector(
    capability: str, function: str, length: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: capability)
    forget()  # what is captured keeps its kernels
    for dtype, tolerance in ((torch.float32, 1e-4), (torch.float64, 1e-10)):
        found = results(function, length, dtype)
        with monkeypatch.context() as patch:
            patch.setenv("VGRAPH_KERNELS", "0")
            forget()
            expected = results(function, length, dtype)
        torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(
    ("capability", "heads", "length", "dtype"),
    table([*CAPABILITIES], HEADS, [16, 4, 8, 2, 20], [torch.float32, torch.float64, torch.int64]),
)
def test_sums_of_several_rows(
    capability: str, heads: int, length: int, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sum, a mean and a maximum over the products of each head, of every edge."""
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: capability)
    forget()
    torch.manual_seed(0)
    src, dst = torch.randint(0, N, (E,)), torch.arange(E) % N
    x = torch.randint(-9, 9, (N, heads, length)).to(dtype)
    g = vgraph.graph((src, dst), num_nodes=N)
    g.ndata["x"] = x
    g.update_all(
        lambda edges: {"s": (edges.src["x"] * edges.dst["x"]).sum(-1)},
        lambda nodes: {"total": nodes.mailbox["s"].sum(1), "most": nodes.mailbox["s"].amax(1)},
    )
    products = (x[src] * x[dst]).sum(-1)
    most = torch.stack([products[dst == v].amax(0) for v in range(N)])
    assert torch.equal(g.ndata["total"], torch.zeros(N, heads, dtype=dtype).index_add(0, dst, products))
    assert torch.equal(g.ndata["most"], most)
    if dtype.is_floating_point:
        g.update_all(
            lambda edges: {"s": (edges.src["x"] * edges.dst["x"]).mean(-1)},
            lambda nodes: {"mean": nodes.mailbox["s"].sum(1)},
        )
        torch.testing.assert_close(g.ndata["mean"] * length, g.ndata["total"], rtol=1e-4, atol=1e-4)


def test_more_sums_of_rows_than_are_taken_at_once() -> None:
    x = torch.randint(-9, 9, (N, 4, 16)).float()
    src, dst = torch.randint(0, N, (E,)), torch.arange(E) % N
    g = vgraph.graph((src, dst), num_nodes=N)
    g.ndata["x"] = x
    numbers = range(1, 13)
    g.update_all(
        lambda edges: {f"m{n}": (edges.src["x"] * edges.dst["x"] * n).sum(-1) for n in numbers},
        lambda nodes: {f"h{n}": nodes.mailbox[f"m{n}"].sum(1) for n in numbers},
    )
    wanted = torch.zeros(N, 4).index_add(0, dst, (x[src] * x[dst]).sum(-1))
    assert all(torch.equal(g.ndata[f"h{n}"], wanted * n) for n in numbers)
