"""Dtypes: what is stored in 16 bits is computed in 32, and autocast does what it does to torch's own operators."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import vgraph
import vgraph.function as fn
from tests.fusion.fuzz import running
from vgraph.api.messages.update_all import capture_update
from vgraph.capture import capture
from vgraph.fusion.cpu import build
from vgraph.ir.program import op_name
from vgraph.ir.space import SHARED

NUM_NODES, NUM_EDGES = 40, 400

Feature = Callable[[str], Tensor]
pytestmark = [
    pytest.mark.skipif(build.find_compiler() is None, reason="there is no C++ compiler"),
    pytest.mark.usefixtures("kernels"),
]


def a_graph(idtype: torch.dtype = torch.int64) -> vgraph.Graph:
    src, dst = torch.randint(NUM_NODES, (NUM_EDGES,)), torch.randint(NUM_NODES - 2, (NUM_EDGES,))
    dst[: NUM_EDGES // 2] = 0  # a hub
    return vgraph.graph((src.to(idtype), dst.to(idtype)), num_nodes=NUM_NODES)


MESSAGES: dict[str, Callable[[Any, Any, Any], Tensor]] = {
    "weighted": lambda a, b, w: a * w,
    "gated": lambda a, b, w: torch.sigmoid(a + b) * a,
    "narrowed": lambda a, b, w: (a * b).sum(-1, keepdim=True) * w,
}


@pytest.mark.parametrize("idtype", [torch.int32, torch.int64])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
@pytest.mark.parametrize("name", MESSAGES)
def test_sums_are_as_exact_as_their_dtype(name: str, dtype: torch.dtype, idtype: torch.dtype) -> None:
    g, message = a_graph(idtype), MESSAGES[name]
    a, b, w = (torch.randn(n, k).to(dtype) for n, k in ((NUM_NODES, 5), (NUM_NODES, 5), (NUM_EDGES, 1)))
    g.ndata["a"], g.ndata["b"], g.edata["w"] = a, b, w

    def send(edges: Any) -> dict[str, Tensor]:
        return {"m": message(edges.src["a"], edges.dst["b"], edges.data["w"])}

    bound, _ = capture_update(g, send, reduce)
    assert any(unit.kernel is not None for code in bound.plain(()).codes for unit in code.units)
    g.update_all(send, reduce)
    src, dst = (ids.long() for ids in g.edges())
    rows = message(a.double()[src], b.double()[dst], w.double())
    exact = torch.zeros(NUM_NODES, rows.shape[1], dtype=torch.float64).index_add(0, dst, rows)
    size = torch.zeros_like(exact).index_add(
        0, dst, rows.abs() + (a.double()[src] * b.double()[dst]).abs().sum(-1, True)
    )
    slack = 8 * torch.finfo(dtype).eps * (1 + math.log2(NUM_EDGES)) * size
    assert g.ndata["o"].dtype == dtype
    assert bool(((g.ndata["o"].double() - exact).abs() <= slack + 1e-12).all())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_gradients_of_stored_halves(dtype: torch.dtype) -> None:
    g = a_graph()
    x, w = torch.randn(NUM_NODES, 5).to(dtype), torch.rand(NUM_EDGES, 1).to(dtype)
    seen: list[Tensor] = []
    for kind in (dtype, torch.float64):
        rows = x.to(kind).requires_grad_()
        g.ndata["h"], g.edata["w"] = rows, w.to(kind)
        g.update_all(fn.u_mul_e("h", "w", "m"), fn.sum("m", "o"))
        seen += torch.autograd.grad(g.ndata["o"].sum(), rows)
    degree = float(g.out_degrees().max())
    slack = 8 * torch.finfo(dtype).eps * (1 + math.log2(degree)) * seen[1].abs()
    assert bool(((seen[0].double() - seen[1]).abs() <= slack + 1e-12).all())


@pytest.mark.parametrize("given", [torch.float32, torch.float64])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_what_is_converted_and_never_stored_is_rounded(dtype: torch.dtype, given: torch.dtype) -> None:
    g = a_graph()
    g.ndata["x"] = x = torch.randn(NUM_NODES, 5, dtype=given, requires_grad=True)

    def send(edges: Any) -> dict[str, Tensor]:
        return {"m": edges.src["x"].to(dtype).to(given) * edges.dst["x"]}

    bound, _ = capture_update(g, send, reduce)
    assert any(unit.kernel is not None for code in bound.plain(()).codes for unit in code.units)
    g.update_all(send, reduce)
    src, dst = g.edges()
    exact = torch.zeros(NUM_NODES, 5, dtype=given).index_add(0, dst, x[src].to(dtype).to(given) * x[dst])
    both = [torch.autograd.grad((o * torch.arange(5)).sum(), x)[0] for o in (g.ndata["o"], exact)]
    torch.testing.assert_close(g.ndata["o"], exact, rtol=1e-5, atol=1e-4)
    # torch rounds the gradient of each edge, vgraph that of each node
    torch.testing.assert_close(*both, rtol=4 * torch.finfo(dtype).eps, atol=64 * torch.finfo(dtype).eps)


class Twice(nn.Module):
    """A layer that a message uses at both ends of an edge."""

    def __init__(self) -> None:
        super().__init__()
        self.lin = nn.Linear(6, 8)

    def message(self, edges: Any) -> dict[str, Tensor]:
        return {"m": torch.tanh(self.lin(edges.src["h"])) * self.lin(edges.dst["h"])}


def reduce(nodes: Any) -> dict[str, Tensor]:
    return {"o": nodes.mailbox["m"].sum(1)}


def test_autocast_gives_the_dtypes_of_torch_and_casts_parameters_once() -> None:
    layer, g = Twice(), a_graph()
    g.ndata["h"] = x = torch.randn(NUM_NODES, 6)
    with torch.autocast("cpu", torch.bfloat16):
        bound, _ = capture_update(g, layer.message, reduce)
        g.update_all(layer.message, reduce)
        rows = torch.tanh(layer.lin(x[g.edges()[0]])) * layer.lin(x[g.edges()[1]])
    plain = torch.zeros(NUM_NODES, 8).index_add(0, g.edges()[1], rows.float())
    out = g.ndata["o"]
    assert out.dtype == rows.dtype == torch.bfloat16
    slack = 8 * torch.finfo(torch.bfloat16).eps * (1 + math.log2(NUM_EDGES))
    assert bool(((out.float() - plain).abs() <= slack * rows.float().abs().sum(0)).all())
    casts = [
        op for program in bound.captured.pairs.values() for op in program.forward.program.ops if _casts_parameter(op)
    ]
    assert len(casts) == 2, [str(op.target) for op in casts]  # weight and bias, which are used twice
    g.update_all(layer.message, reduce)
    assert g.ndata["o"].dtype == torch.float32  # outside of autocast another capture holds


def _casts_parameter(op: Any) -> bool:
    return op_name(op.target) == "_to_copy" and next(op.operands()).space == SHARED


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_gradients_of_matrices_in_halves(dtype: torch.dtype, caplog: pytest.LogCaptureFixture) -> None:
    """Outer products of rows on edges are added in 32 bits, in a kernel."""
    g = a_graph()
    x, weight = torch.randn(NUM_NODES, 6).to(dtype), torch.randn(6, 5).to(dtype)
    seen: list[list[Tensor]] = []
    with caplog.at_level("INFO", "vgraph"):
        for kind in (dtype, torch.float64):
            rows, matrix = x.to(kind).requires_grad_(), weight.to(kind).requires_grad_()
            g.ndata["h"] = rows
            g.update_all(lambda e, matrix=matrix: {"m": torch.relu(e.src["h"] + e.dst["h"]) @ matrix}, reduce)
            seen.append(list(torch.autograd.grad(g.ndata["o"].sum(), [rows, matrix])))
    assert not caplog.records
    slack = 8 * torch.finfo(dtype).eps
    for found, exact in zip(*seen, strict=True):
        assert found.dtype == dtype
        torch.testing.assert_close(found.double(), exact, rtol=slack, atol=slack * float(exact.abs().max()))


@pytest.mark.parametrize("way", ["kernels", "cuda-shim"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("name", ["amax", "amin", "maximum"])
def test_extremes_are_found_again(name: str, dtype: torch.dtype, way: str) -> None:
    """A backward computes a message again, in 32 bits, and looks for its maximum, which lies in memory in 16."""
    rows = (torch.randperm(24).float() / 24 + 0.03).view(24, 1).to(dtype).requires_grad_()
    g = vgraph.graph((torch.arange(24), torch.arange(24) // 4), num_nodes=24)

    def send(edges: Any) -> dict[str, Tensor]:
        return {"m": torch.tanh(edges.src["h"] * 1.1 + edges.dst["b"]) * 3.3}

    def reduce(nodes: Any) -> dict[str, Tensor]:
        m = nodes.mailbox["m"]
        if name == "maximum":
            return {"o": torch.maximum(m.sum(1), nodes.data["h"]) * 1.0}
        return {"o": m.amax(1) if name == "amax" else m.amin(1)}

    def gradient(rows: Tensor) -> Tensor:
        g.ndata["h"], g.ndata["b"] = rows, torch.linspace(0.1, 0.7, 24).view(24, 1).to(dtype).to(rows.dtype)
        g.update_all(send, reduce)
        return torch.autograd.grad(g.ndata["o"].sum(), [rows])[0]

    with running(way):
        capture.forget()
        found = gradient(rows)
        capture.forget()
    exact = gradient(rows.detach().double().requires_grad_())
    assert torch.allclose(found.double(), exact, rtol=16 * torch.finfo(dtype).eps)
