"""Numbers of rows in a user's Python: what compares them is noticed, whatever stands on the other side."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

import vgraph

# Each is another one for 20 edges than for 20,000; for both numbers on which functions are recorded it is the same.
DECISIONS: dict[str, Callable[[int], bool]] = {
    "n > 5_000": lambda n: n > 5_000,
    "5_000 < n": lambda n: 5_000 < n,  # noqa: SIM300
    "5_000.0 < n": lambda n: 5_000.0 < n,  # noqa: SIM300
    "n >= 5_000.5": lambda n: n >= 5_000.5,
    "0.5 * n": lambda n: 0.5 * n > 5_000,
    "n * 0.5": lambda n: n * 0.5 > 5_000,
    "1.0 + n": lambda n: 1.0 + n > 5_000,
    "1e5 / n": lambda n: 1e5 / n < 20,
    "1e5 // n": lambda n: 1e5 // n < 20,
    "2.0 ** -n": lambda n: 2.0**-n == 0,
    "pow": lambda n: pow(n, 2, 30_000) == 400 and n < 5_000,
    "divmod": lambda n: divmod(n, 5_000)[0] > 0,
    "math.log": lambda n: math.log(n) > 8.5,
    "math.sqrt": lambda n: math.sqrt(n) > 70,
    "math.isqrt": lambda n: math.isqrt(n) > 70,
    "math.floor": lambda n: math.floor(n) > 5_000,
    "float": lambda n: float(n) > 5_000,
    "complex": lambda n: complex(n).real > 5_000,
    "int": lambda n: int(n) > 5_000,
    "max": lambda n: max(5_000.0, n) > 5_000.0,
    "sorted": lambda n: sorted([n, 5_000.5])[0] == 5_000.5,
    "range": lambda n: 5_000 in range(n),
    "a list": lambda n: len([0] * n) > 5_000,
    "text": lambda n: len(f"{n}") > 4,
    "%d": lambda n: len("%d" % n) > 4,  # noqa: UP031
    "bit_length": lambda n: n.bit_length() > 12,
    "numerator": lambda n: n.numerator > 5_000,
    "Fraction": lambda n: Fraction(n) > 5_000,
    "deepcopy": lambda n: copy.deepcopy(n) > 5_000,
    "a NumPy function": lambda n: bool(np.log(n) > 8.5),
    "a NumPy number": lambda n: bool(np.float64(5_000) < n),
    "an array": lambda n: np.zeros(n).shape[0] > 5_000,
    "a tensor": lambda n: bool(torch.tensor(5_000.0) < n),
    "a shape": lambda n: torch.Size([n, 2]).numel() > 10_000,
}


def _graph(num_edges: int) -> vgraph.Graph:
    g = vgraph.graph((torch.arange(num_edges) % 7, torch.arange(num_edges) % 10), num_nodes=10)
    g.ndata["h"] = torch.ones(10, 1, dtype=torch.float64)
    return g


def _total(g: vgraph.Graph, message: Callable[[Any], dict[str, Tensor]]) -> float:
    g.update_all(message, lambda nodes: {"out": nodes.mailbox["m"].sum(1)})
    return float(g.ndata["out"].sum())


@pytest.mark.parametrize("first", [20, 20_000])
@pytest.mark.parametrize("name", DECISIONS)
def test_a_decision_is_made_at_every_call(name: str, first: int) -> None:
    decide = DECISIONS[name]

    def message(edges: Any) -> dict[str, Tensor]:
        h = edges.src["h"]
        return {"m": h * (2.0 if decide(h.shape[0]) else 1.0)}

    for count in (first, 20_020 - first, first):
        assert _total(_graph(count), message) == count * (2 if decide(count) else 1)


@pytest.mark.parametrize("name", ["5_000.0 < n", "math.log", "a NumPy function"])
def test_as_functions_that_are_looked_up_make_them(name: str) -> None:
    decide, scale = DECISIONS[name], np.full(3, 1.0)

    def message(edges: Any) -> dict[str, Tensor]:
        h = edges.src["h"]
        return {"m": h * (2.0 if decide(h.shape[0]) else 1.0) * float(scale[0])}

    for count in (20, 20_000, 20):
        scale[0] += 1
        assert _total(_graph(count), message) == count * scale[0] * (2 if decide(count) else 1)


SIZES: dict[str, Callable[[Tensor, int], Tensor]] = {
    "view": lambda h, n: h.view(n, 1, -1).view(n, -1),
    "a shape": lambda h, n: h.flatten().reshape(h.shape),
    "zeros": lambda h, n: torch.zeros(n, 1, dtype=h.dtype) + h,
    "full": lambda h, n: torch.full((n, 1), 2.0, dtype=h.dtype) * h,
    "new_ones": lambda h, n: h.new_ones(size=(n, 1)) * h,
    "einsum": lambda h, n: torch.einsum("nd,nd->nd", h, h.new_ones(n, 1)),
    "an assertion": lambda h, n: h if n == h.shape[0] and isinstance(n, int) else 0 * h,
    "twice as many": lambda h, n: torch.cat([h, h], 1).view(2 * n, 1).view(n, 2)[:, :1],
    "unflatten": lambda h, n: h.flatten().unflatten(0, (n, 1)),
    "pad": lambda h, n: torch.nn.functional.pad(h, (0, 1))[:n, :1],
}


@pytest.mark.parametrize("name", SIZES)
def test_a_size_of_torchs_is_followed(name: str, caplog: pytest.LogCaptureFixture) -> None:
    def message(edges: Any) -> dict[str, Tensor]:
        h = edges.src["h"]
        return {"m": SIZES[name](h, h.shape[0])}

    with caplog.at_level("INFO", "vgraph"):
        for count in (20, 2000):
            g = _graph(count)
            g.ndata["h"] = torch.arange(10, dtype=torch.float64).unsqueeze(1)
            h = g.ndata["h"][g.edges()[0]]
            assert _total(g, message) == float(SIZES[name](h, count).sum())
    assert "uncaptured" not in caplog.text


def test_within_torchs_own_python(caplog: pytest.LogCaptureFixture) -> None:
    attention = torch.nn.MultiheadAttention(4, 2, add_zero_attn=True, batch_first=True, dtype=torch.float64)
    g = vgraph.graph((torch.arange(12) % 5, torch.arange(12) % 3), num_nodes=5)
    g.ndata["h"] = torch.linspace(-1, 1, 5 * 3 * 4, dtype=torch.float64).view(5, 3, 4)

    def message(edges: Any) -> dict[str, Tensor]:
        h = edges.src["h"]
        return {"m": attention(h, h, h)[0]}

    g.update_all(message, lambda nodes: {"out": nodes.mailbox["m"].sum(1)})
    h = g.ndata["h"][g.edges()[0]]
    wanted = torch.zeros_like(g.ndata["h"]).index_add(0, g.edges()[1], attention(h, h, h)[0])
    torch.testing.assert_close(g.ndata["out"], wanted)


def test_within_a_recomputed_part(caplog: pytest.LogCaptureFixture) -> None:
    def part(h: Tensor, n: int) -> Tensor:
        return h.view(n, 1, -1).sin().view(n, -1)

    def message(edges: Any) -> dict[str, Tensor]:
        h = edges.src["h"]
        return {"m": checkpoint(part, h, h.shape[0], use_reentrant=False)}

    with caplog.at_level("INFO", "vgraph"):
        for count in (20, 2000):
            g = _graph(count)
            g.ndata["h"] = h = torch.linspace(0, 1, 10, dtype=torch.float64).unsqueeze(1).requires_grad_()
            g.update_all(message, lambda nodes: {"out": nodes.mailbox["m"].sum(1)})
            found = torch.autograd.grad(g.ndata["out"].sum(), h)[0]
            torch.testing.assert_close(found, torch.autograd.grad(h[g.edges()[0]].sin().sum(), h)[0])
    assert "uncaptured" not in caplog.text
