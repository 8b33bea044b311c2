"""Sums over rows in Programs: what is pointwise before them is computed inside, on CPUs and as CUDA."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import vgraph
import vgraph.function as fn
from tests.cuda import shim
from tests.tables import thorough
from vgraph.capture import capture
from vgraph.fusion.cpu import build
from vgraph.fusion.cuda import build as build_cuda
from vgraph.runtime.reductions import row_sums

pytestmark = pytest.mark.skipif(build.find_compiler() is None, reason="there is no C++ compiler")
N, F = 500, 48


class Scaled(nn.Module):
    """Parameters that meet rows one by one: their gradients are sums over rows of products."""

    def __init__(self, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.scale, self.slope = (nn.Parameter(torch.randn(F, dtype=dtype)) for _ in range(2))
        self.number = nn.Parameter(torch.randn((), dtype=dtype))

    def forward(self, nodes: Any) -> dict[str, Tensor]:
        h = nodes.mailbox["m"].sum(1)
        return {"h": torch.tanh(h * self.scale) * self.slope * self.number}


def graph() -> vgraph.Graph:
    made = torch.Generator().manual_seed(0)
    src, dst = torch.randint(0, N, (2, 4 * N), generator=made)
    return vgraph.graph((torch.cat([src, torch.arange(N)]), torch.cat([dst, torch.arange(N)])), num_nodes=N)


def run(model: Scaled, g: vgraph.Graph, x: Tensor) -> list[Tensor]:
    """Results, first and second derivatives."""
    inputs = [x, *model.parameters()]
    with g.local_scope():
        g.ndata["x"] = x
        g.update_all(fn.copy_u("x", "m"), model)
        h = g.ndata["h"]
    first = torch.autograd.grad((h * h).sum(), inputs, create_graph=True)
    second = torch.autograd.grad([(d * d).sum() for d in first], inputs)
    return [h, *first, *second]


@pytest.fixture
def row_sum_launches(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Names of the sums that ran, as loops of their own or in the library."""
    monkeypatch.setenv("VGRAPH_KERNELS", "1")
    monkeypatch.setattr(row_sums, "_FEW", 0)
    monkeypatch.setattr(row_sums, "_ALONE", 0)
    seen: list[str] = []
    call = row_sums.SummedRows.__call__

    def count(self: row_sums.SummedRows, *tensors: Tensor) -> Tensor:
        seen.append(str(self.target))
        return call(self, *tensors)

    monkeypatch.setattr(row_sums.SummedRows, "__call__", count)
    capture.forget()
    yield seen
    capture.forget()


BY_LIBRARY = row_sums.SummedRows.by_library


def refuse(self: row_sums.SummedRows, tensors: tuple[Tensor, ...]) -> Tensor:
    assert not self.target.ops, "torch's operators ran"
    return BY_LIBRARY(self, tensors)


def agree(mine: list[Tensor], exact: list[Tensor], epsilon: float) -> None:
    for a, b in zip(mine, exact, strict=True):
        assert (a.double() - b).abs().max() <= epsilon * b.abs().max()


@pytest.mark.parametrize("dtype", [torch.float32, pytest.param(torch.float64, marks=thorough)])
def test_gradients_of_parameters_are_sums_with_their_producers(
    dtype: torch.dtype, row_sum_launches: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    g, model, x = graph(), Scaled(dtype), torch.randn(N, F, dtype=dtype, requires_grad=True)
    with monkeypatch.context() as patch:
        patch.setattr(row_sums.SummedRows, "by_library", refuse)
        fused = run(model, g, x)
    assert any("mul" in name for name in row_sum_launches), row_sum_launches
    monkeypatch.setenv("VGRAPH_KERNELS", "0")
    capture.forget()
    exact = run(model.double(), g, x.detach().double().requires_grad_())
    agree(fused, exact, 1e-5 if dtype == torch.float32 else 1e-12)


def test_the_gradient_of_one_number_is_the_same_on_any_number_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """And no row an edge is stored for it."""
    monkeypatch.setenv("VGRAPH_KERNELS", "1")
    src, dst = torch.randint(0, 40_000, (2, 60_000))
    g = vgraph.graph((src, dst), num_nodes=40_000)
    g.ndata["x"] = torch.randn(40_000, 3)
    scale = torch.tensor(1.5, requires_grad=True)
    send: Any = lambda e: {"m": torch.tanh(e.src["x"] - e.dst["x"]) * scale}  # noqa: E731
    before, found = torch.get_num_threads(), list[Tensor]()
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            g.update_all(send, fn.sum("m", "o"))
            found += torch.autograd.grad(g.ndata["o"].square().sum() / 40_000, [scale])
    finally:
        torch.set_num_threads(before)
    assert found[0] == found[1] == found[2]
    assert "sum over edges" not in str(vgraph.explain(g, send, fn.sum("m", "o")))
    h, w = g.ndata["x"].double(), torch.tensor(1.5, dtype=torch.float64, requires_grad=True)
    sums = torch.zeros_like(h).index_add(0, dst, torch.tanh(h[src] - h[dst]) * w)
    (exact,) = torch.autograd.grad(sums.square().sum() / 40_000, [w])
    torch.testing.assert_close(found[0].double(), exact, rtol=1e-5, atol=0)


def test_the_library_gives_the_same(row_sum_launches: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Few rows are not worth a launch."""
    g, model, x = graph(), Scaled(torch.float64), torch.randn(N, F, dtype=torch.float64, requires_grad=True)
    loops = run(model, g, x)
    monkeypatch.setattr(row_sums, "_FEW", 1 << 30)
    monkeypatch.setattr(row_sums, "_ALONE", 1 << 30)
    for mine, theirs in zip(loops, run(model, g, x), strict=True):
        torch.testing.assert_close(mine, theirs)
    assert row_sum_launches


def test_as_cuda(row_sum_launches: list[str]) -> None:
    g, model, x = graph(), Scaled(), torch.randn(N, F, requires_grad=True)
    here = run(model, g, x)
    capture.forget()
    shim.launched.clear()
    shim.reduction_sources.clear()
    with shim.in_place_of_cpu():
        there, again = run(model, g, x), run(model, g, x)
    capture.forget()
    assert "kernel0" in shim.launched and shim.reduction_sources and row_sum_launches
    agree(there, [t.double() for t in here], 1e-5)
    assert all(torch.equal(a, b) for a, b in zip(there, again, strict=True))
    nvrtc = build_cuda.find_nvrtc()
    for source in set(shim.reduction_sources):
        for architecture in ("sm_80", "sm_90") if nvrtc is not None else ():
            assert nvrtc is not None
            cubin, said = nvrtc.compile(source, architecture)
            assert cubin[:4] == b"\x7fELF" and said.count("0 bytes spill stores, 0 bytes spill loads") == 2, said


class Weighted(vgraph.VertexFunction):
    """Gradients of ``peep`` and ``scale`` are summed after the frontiers, of what these stored."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.scale, self.peep = nn.Linear(F, F), nn.Parameter(torch.randn(F)), nn.Parameter(torch.randn(F))

    def forward(self, v: Any) -> None:
        child = v.gather()["h"].sum()
        h = torch.tanh(self.inner(child) + v.pull("x") * self.scale + child * self.peep)
        v.scatter(h=h)
        v.push(h=h)


def test_vertex_functions(row_sum_launches: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    g = vgraph.graph((torch.arange(1, 300), torch.arange(1, 300).sub(1).div(2, rounding_mode="floor")), num_nodes=300)
    model, x = Weighted(), torch.randn(300, F)

    def gradients(kind: torch.dtype) -> list[Tensor]:
        there = model.to(kind)
        found = torch.autograd.grad(there(g, x=x.to(kind))["h"].square().sum(), [*there.parameters()])
        return [*found]

    fused = gradients(torch.float32)
    assert len(row_sum_launches) == 2
    monkeypatch.setenv("VGRAPH_KERNELS", "0")
    agree(fused, gradients(torch.float64), 1e-5)


def test_what_lies_in_memory_anyway_is_summed_where_it_lies(row_sum_launches: list[str]) -> None:
    """The gradient that the rows get is stored for them; the bias' sum reads it."""
    bias, x = nn.Parameter(torch.randn(F)), torch.randn(N, F, requires_grad=True)
    g = graph()
    g.ndata["x"] = x
    g.update_all(fn.copy_u("x", "m"), lambda v: {"h": torch.tanh(v.mailbox["m"].sum(1) + bias)})
    want = torch.autograd.grad(g.ndata["h"].square().sum(), [x, bias])
    assert not row_sum_launches and want[1].shape == bias.shape


def test_explain_names_the_sum(row_sum_launches: list[str]) -> None:
    g, model = graph(), Scaled()
    g.ndata["x"] = torch.randn(N, F, requires_grad=True)
    found = vgraph.explain(g, fn.copy_u("x", "m"), model)
    assert "sum_of_mul" in str(found) and "computed inside" in str(found)
