"""Kernels for a GPU, run on the CPU by the shim, beside torch's operators."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import vgraph
import vgraph.function as fn
import vgraph.nn as vnn
from tests.cuda import shim
from vgraph.capture import capture
from vgraph.errors import FeatureError
from vgraph.fusion.cpu import build
from vgraph.ir import hubs
from vgraph.runtime.cuda import kernel as device_kernel

pytestmark = pytest.mark.skipif(build.find_compiler() is None, reason="there is no C++ compiler")

LAYERS: dict[str, Callable[[int], nn.Module]] = {
    "gcn": lambda d: vnn.GraphConv(d, 8, allow_zero_in_degree=True),
    "gat": lambda d: vnn.GATConv(d, 6, num_heads=3, allow_zero_in_degree=True),
    "gatv2": lambda d: vnn.GATv2Conv(d, 7, num_heads=2, allow_zero_in_degree=True),
    "sage": lambda d: vnn.SAGEConv(d, 8, "pool"),
}


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    capture.forget()
    shim.launched.clear()
    yield
    capture.forget()


def graph() -> vgraph.Graph:
    """A hub, empty rows, parallel edges."""
    made = torch.Generator().manual_seed(3)
    src, dst = torch.randint(0, 40, (200,), generator=made), torch.randint(0, 30, (200,), generator=made)
    return vgraph.graph((src, torch.cat([dst[:120], torch.full((80,), 7)])), num_nodes=40)


def results(make: Callable[[int], nn.Module], width: int, dtype: torch.dtype, *, second: bool) -> list[Tensor]:
    """Outputs, gradients, gradients of gradients."""
    torch.manual_seed(1)
    layer, rows = make(width).to(dtype), torch.randn(40, width, dtype=dtype, requires_grad=True)
    leaves = [rows, *layer.parameters()]
    output = layer(graph(), rows)
    first = torch.autograd.grad(output.tanh().sum(), leaves, create_graph=second)
    again = torch.autograd.grad(first[0].square().sum(), leaves, allow_unused=True) if second else ()
    return [output, *first, *(g for g in again if g is not None)]


@pytest.mark.parametrize("name", LAYERS)
def test_layers(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Forward, backward and double backward, fp64."""
    monkeypatch.setenv("VGRAPH_KERNELS", "0")
    wanted = results(LAYERS[name], 5, torch.float64, second=True)
    capture.forget()
    monkeypatch.setenv("VGRAPH_KERNELS", "1")
    with shim.in_place_of_cpu():
        found = results(LAYERS[name], 5, torch.float64, second=True)
    assert shim.launched, "no kernel ran"
    for mine, theirs in zip(found, wanted, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", ["gat", "sage"])
def test_hubs_in_chunks(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of more edges than a team takes: sums, maxima and their places from partial results."""
    monkeypatch.setenv("VGRAPH_KERNELS", "0")
    wanted = results(LAYERS[name], 5, torch.float64, second=False)
    capture.forget()
    monkeypatch.setenv("VGRAPH_KERNELS", "1")
    monkeypatch.setattr(hubs, "MOST_EDGES", 8)
    monkeypatch.setattr(hubs, "CHUNK", 3)
    with shim.in_place_of_cpu():
        found = results(LAYERS[name], 5, torch.float64, second=False)
    assert any("_chunk" in name for name in shim.launched)
    for mine, theirs in zip(found, wanted, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-9, atol=1e-9)


TILED: dict[str, tuple[Any, Any]] = {
    "mean": (fn.copy_u("h", "m"), fn.mean("m", "o")),
    "gated": (lambda e: {"m": torch.sigmoid(e.src["h"] + e.dst["h"]) * e.src["h"]}, fn.sum("m", "o")),
    "maximum": (lambda e: {"m": e.src["h"] * e.dst["h"]}, lambda v: {"o": v.mailbox["m"].max(1).values}),
    "attention": (
        lambda e: {"m": e.src["h"], "s": torch.tanh(e.src["h"] + e.dst["h"])},
        lambda v: {"o": (v.mailbox["s"].softmax(1) * v.mailbox["m"]).sum(1)},
    ),
}


@pytest.mark.parametrize("name", TILED)
def test_features_in_tiles(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows longer than the cache holds: some features at a time, forward and backward, the same numbers.

    Attention, too, where every feature has a weight of its own, so that all loops have one shape.
    """
    g = graph()
    g.ndata["h"] = torch.randn(40, 72, dtype=torch.float64, requires_grad=True)
    monkeypatch.setenv("VGRAPH_KERNELS", "1")
    found: list[list[Tensor]] = []
    for cached in (1.0, float("inf")):
        monkeypatch.setattr(device_kernel, "cache_bytes", lambda device, cached=cached: cached)
        shim.launched.clear()
        with shim.in_place_of_cpu():
            g.update_all(*TILED[name])
            found.append([g.ndata["o"], *torch.autograd.grad(g.ndata["o"].square().sum(), [g.ndata["h"]])])
        tiled = {kernel.split("_")[0] for kernel in shim.launched if "_tile" in kernel}
        assert bool(tiled) == (cached == 1.0), shim.launched
    for mine, theirs in zip(*found, strict=True):
        torch.testing.assert_close(mine, theirs)


def test_two_runs_are_bitwise_equal(monkeypatch: pytest.MonkeyPatch) -> None:
    """In whichever order a block's threads come: lanes wait where they read what others wrote."""
    monkeypatch.setenv("VGRAPH_KERNELS", "1")
    runs: list[list[Tensor]] = []
    for backwards in (False, True):
        with shim.in_place_of_cpu(backwards=backwards):
            runs.append(results(LAYERS["gatv2"], 16, torch.float32, second=False))
    assert all(torch.equal(a, b) for a, b in zip(*runs, strict=True))


def test_tensors_on_another_device_than_the_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VGRAPH_KERNELS", "1")
    g = graph()
    g.ndata["h"] = torch.ones(40, 2)
    weights = [torch.ones(2)]

    def message(edges: Any) -> dict[str, Tensor]:
        return {"m": edges.src["h"] * weights[0]}

    g.update_all(message, fn.sum("m", "o"))
    weights[0] = torch.ones(2, device="meta")
    with pytest.raises(FeatureError, match=r"(?s)of shape \(2,\), is on meta, the graph on cpu.*\.to\("):
        g.update_all(message, fn.sum("m", "o"))


def test_dropout_draws_the_numbers_of_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VGRAPH_KERNELS", "1")
    g = graph()
    g.ndata["h"] = torch.ones(40, 4)
    found: list[Tensor] = []
    for place in (nullcontext(), shim.in_place_of_cpu()):
        capture.forget()
        torch.manual_seed(0)
        with place:
            g.update_all(lambda edges: {"m": torch.dropout(edges.src["h"], 0.5, True)}, fn.sum("m", "o"))
        found.append(g.ndata["o"])
    assert torch.equal(*found) and shim.launched
