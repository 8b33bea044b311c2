"""Random numbers in captured functions: where torch's own lie, for every dtype, interval and way to ask for them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import vgraph
from vgraph.capture.capture import forget

COUNT = 3000
FLOATS = [torch.float64, torch.float32, torch.float16, torch.bfloat16]
INTERVALS = [(0.0, 1.0), (-1.0, 1.0), (-1.0, 0.0), (1000.0, 1001.0), (0.1, 0.2), (3.0, 3.0), (-1e-3, 5.0)]


@pytest.fixture(params=["1", "0"], ids=["kernels", "torch"], autouse=True)
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VGRAPH_KERNELS", request.param)
    forget()


def drawn(function: Callable[[Tensor], Tensor], dtype: torch.dtype) -> Tensor:
    """What a function of edges makes of rows of this dtype, each edge its own."""
    vertices = torch.arange(COUNT)
    g = vgraph.graph((vertices, vertices))
    g.ndata["h"] = torch.ones(COUNT, 16, dtype=dtype)
    g.apply_edges(lambda edges: {"r": function(edges.src["h"])})
    return g.edata["r"]


@pytest.mark.parametrize("dtype", FLOATS)
def test_numbers_are_below_one(dtype: torch.dtype) -> None:
    found = drawn(torch.rand_like, dtype)
    assert found.dtype == dtype
    assert found.min() >= 0
    assert 0.98 < found.max() < 1
    assert abs(found.double().mean() - 0.5) < 0.01


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("interval", INTERVALS)
def test_numbers_lie_in_their_interval(interval: tuple[float, float], dtype: torch.dtype) -> None:
    low, high = (float(torch.tensor(end, dtype=dtype)) for end in interval)
    found = drawn(lambda h: torch.empty_like(h).uniform_(*interval), dtype)
    assert low <= found.min()
    assert found.max() < high or low == high


@pytest.mark.parametrize(
    ("call", "low", "high"),
    [
        (lambda h: h.clone().uniform_(-1.0), -1, 1),
        (lambda h: h.clone().uniform_(to=3.0), 0, 3),
        (lambda h: h.clone().uniform_(-2), -2, 1),
        (lambda h: h.clone().uniform_(), 0, 1),
    ],
)
def test_an_end_may_be_left_out(call: Any, low: float, high: float) -> None:
    found = drawn(call, torch.float32)
    assert low <= found.min() < low + 0.1
    assert high - 0.1 < found.max() < high


def test_moments_may_be_left_out() -> None:
    for call, mean, deviation in (
        (lambda h: h.clone().normal_(2.0), 2, 1),
        (lambda h: h.clone().normal_(std=3.0), 0, 3),
        (lambda h: h.clone().exponential_(), 1, 1),
        (lambda h: h.clone().exponential_(0.5), 2, 2),
    ):
        found = drawn(call, torch.float32)
        assert abs(found.mean() - mean) < 0.1
        assert abs(found.std() - deviation) < 0.1


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
def test_complex_numbers_are_torchs_own(dtype: torch.dtype) -> None:
    found = drawn(torch.randn_like, dtype)
    assert abs(found.imag.var() - 0.5) < 0.05
    assert abs(found.real.var() - 0.5) < 0.05


@pytest.mark.parametrize(
    ("call", "dtype"),
    [
        (torch.rand_like, torch.int64),
        (lambda h: h.clone().uniform_(0, 5), torch.int64),
        (lambda h: h.clone().uniform_(2, 1), torch.float32),
        (lambda h: h.clone().normal_(0, -1), torch.float32),
        (lambda h: h.clone().bernoulli_(1.5), torch.float32),
    ],
)
def test_what_torch_refuses_is_refused(call: Any, dtype: torch.dtype) -> None:
    with pytest.raises(RuntimeError):
        drawn(call, dtype)
