"""Generated kernels agree with torch's operators: outputs, gradients and second derivatives."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import pytest
import torch
from torch import Tensor, nn

import vgraph
import vgraph.function as fn
from vgraph import compiler
from vgraph.capture import capture
from vgraph.fusion.cpu import build
from vgraph.runtime.compiled import CompiledProgram

NUM_NODES, NUM_EDGES = 23, 90

needs_compiler = pytest.mark.skipif(build.find_compiler() is None, reason="there is no C++ compiler")


@pytest.fixture(autouse=True)
def forget_captures() -> Iterator[None]:
    """Programs compiled under one setting are not those of another."""
    capture.forget()
    yield
    capture.forget()


def make_graph(width: int, dtype: torch.dtype) -> tuple[vgraph.Graph, list[Tensor]]:
    src = torch.randint(0, NUM_NODES, (NUM_EDGES,))
    dst = torch.randint(0, NUM_NODES - 3, (NUM_EDGES,))  # the last vertices have no in-edges
    g = vgraph.graph((src, dst), num_nodes=NUM_NODES)
    features = [torch.randn(NUM_NODES, width, dtype=dtype, requires_grad=True) for _ in range(3)]
    features.append(torch.randn(NUM_EDGES, 1, dtype=dtype, requires_grad=True))
    g.ndata["h"], g.ndata["a"], g.ndata["b"] = features[:3]
    g.edata["w"] = features[3]
    return g, features


PAIRS: dict[str, tuple[Any, Any]] = {
    "copy-sum": (fn.copy_u("h", "m"), fn.sum("m", "o")),
    "weighted-mean": (fn.u_mul_e("h", "w", "m"), fn.mean("m", "o")),
    "gated": (
        lambda e: {"m": torch.sigmoid(e.src["a"] + e.dst["b"]) * e.src["h"]},
        lambda n: {"o": n.mailbox["m"].sum(1)},
    ),
    "softmax": (
        lambda e: {"m": e.src["h"], "s": (e.src["a"] * e.dst["b"]).sum(-1, keepdim=True)},
        lambda n: {"o": (torch.softmax(n.mailbox["s"], 1) * n.mailbox["m"]).sum(1)},
    ),
    "std": (
        lambda e: {"m": e.src["h"] - e.dst["b"]},
        lambda n: {"o": torch.sqrt(torch.relu((n.mailbox["m"] ** 2).mean(1) - n.mailbox["m"].mean(1) ** 2) + 1e-6)},
    ),
    "max-tanh": (
        lambda e: {"m": torch.tanh(e.src["h"] * e.data["w"])},
        lambda n: {"o": n.mailbox["m"].max(1).values + n.mailbox["m"].exp().sum(1)},
    ),
    "powers": (
        lambda e: {
            "m": (e.src["h"] ** 2 + 1) ** 0.5 + (e.dst["b"] ** 3).clamp_min(-1) + torch.maximum(e.src["a"], e.dst["b"])
        },
        lambda n: {"o": (n.mailbox["m"] ** 2 + 1).pow(-1).sum(1)},
    ),
    "chunks": (
        lambda e: {"m": torch.cat([e.src["h"], e.dst["b"]], -1)},
        lambda n: {"o": n.mailbox["m"].sum(1).chunk(2, -1)[0] * torch.sigmoid(n.mailbox["m"].mean(1).chunk(2, -1)[1])},
    ),
}


class ChildSum(vgraph.VertexFunction):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.W, self.U = nn.Linear(width, 3 * width), nn.Linear(width, 3 * width, bias=False)
        self.Uf = nn.Linear(width, width)

    def forward(self, v: vgraph.Vertex) -> None:
        child, x = v.gather(), v.pull("x")
        i, o, u = (self.W(x) + self.U(child["h"].sum())).chunk(3, -1)
        f = torch.sigmoid(x + self.Uf(child["h"]))
        c = torch.sigmoid(i) * torch.tanh(u) + (f * child["c"]).sum()
        h = torch.sigmoid(o) * torch.tanh(c)
        v.scatter(h=h, c=c)
        v.push(h=h)


def both_ways(monkeypatch: pytest.MonkeyPatch, run: Callable[[], list[Tensor]]) -> tuple[list[Tensor], list[Tensor]]:
    found = []
    for setting in ("0", "1"):
        monkeypatch.setenv("VGRAPH_KERNELS", setting)
        capture.forget()
        found.append(run())
    return found[0], found[1]


def with_gradients(output: Tensor, inputs: list[Tensor]) -> list[Tensor]:
    """The output, first gradients, and the gradients of their squares."""
    weights = torch.linspace(-1, 1, output.numel(), dtype=output.dtype).view(output.shape)
    used = [t for t in inputs if t.requires_grad]
    if output.dtype == torch.float32:  # second derivatives are compared where rounding cannot hide errors
        first = torch.autograd.grad((output * weights).sum(), used, allow_unused=True)
        return [output, *(g for g in first if g is not None)]
    first = torch.autograd.grad((output * weights).sum(), used, create_graph=True, allow_unused=True)
    kept = [g for g in first if g is not None]
    second = torch.autograd.grad(sum((g * g).sum() for g in kept), used, allow_unused=True)
    return [output, *kept, *(g for g in second if g is not None)]


def bound(dtype: torch.dtype) -> float:
    return 1e-10 if dtype == torch.float64 else 2e-4


@needs_compiler
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("name", PAIRS)
def test_messages_agree(name: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    g, features = make_graph(5, dtype)

    def run() -> list[Tensor]:
        g.update_all(*PAIRS[name])
        return with_gradients(g.ndata["o"], features)

    for plain, fused in zip(*both_ways(monkeypatch, run), strict=True):
        assert torch.allclose(plain, fused, rtol=bound(dtype), atol=bound(dtype))


@needs_compiler
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("width", [1, 3, 33])
def test_tree_lstm_agrees(width: int, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    trees = [
        vgraph.graph(([0, 1, 2, 3, 4], [2, 2, 5, 5, 5]), num_nodes=6),
        vgraph.graph(([], []), num_nodes=1),
    ]
    g, cell = vgraph.batch(trees), ChildSum(width).to(dtype)
    x = torch.randn(7, width, dtype=dtype, requires_grad=True)
    run = lambda: with_gradients(cell(g, x=x)["h"], [x, *cell.parameters()])  # noqa: E731
    for plain, fused in zip(*both_ways(monkeypatch, run), strict=True):
        assert torch.allclose(plain, fused, rtol=bound(dtype), atol=bound(dtype))


@needs_compiler
def test_functions_of_the_prelude_are_accurate(monkeypatch: pytest.MonkeyPatch) -> None:
    """exp, log, tanh and sigmoid in float32 within 2.5 units in the last place of the exact value."""
    monkeypatch.setenv("VGRAPH_KERNELS", "1")
    x = torch.cat([torch.linspace(-104, 89, 20001), torch.linspace(-2, 2, 20001), torch.logspace(-38, 38, 20001)])
    g = vgraph.graph((torch.arange(len(x)), torch.arange(len(x))))
    g.ndata["x"] = x[:, None]
    for name in ("exp", "log", "tanh", "sigmoid"):
        function = getattr(torch, name)
        g.update_all(lambda e, f=function: {"m": f(e.src["x"])}, fn.sum("m", "y"))
        exact = function(x.double())
        error = (g.ndata["y"][:, 0].double() - exact).abs()
        step = torch.nextafter(exact.float().abs(), torch.tensor(torch.inf)).double() - exact.float().abs().double()
        usable = exact.isfinite() & (exact.float().abs() > 2e-38) & exact.float().isfinite()
        assert (error / step)[usable].max() < 2.5, name


@needs_compiler
def test_special_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VGRAPH_KERNELS", "1")
    x = torch.tensor([0.0, -0.0, torch.inf, -torch.inf, torch.nan, 1e30, -1e30])
    g = vgraph.graph((torch.arange(7), torch.arange(7)))
    g.ndata["x"] = x[:, None]
    for name in ("exp", "log", "tanh", "sigmoid", "relu", "sqrt", "abs", "neg"):
        function = getattr(torch, name)
        g.update_all(lambda e, f=function: {"m": f(e.src["x"])}, fn.sum("m", "y"))
        assert torch.equal(g.ndata["y"][:, 0].nan_to_num(7.5), function(x).nan_to_num(7.5)), name


@needs_compiler
@pytest.mark.parametrize("threads", [1, 2])
def test_two_runs_are_bitwise_equal(threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VGRAPH_KERNELS", "1")
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        g, features = make_graph(64, torch.float32)
        runs = []
        for _ in range(2):
            g.update_all(*PAIRS["gated"])
            runs.append(with_gradients(g.ndata["o"], features))
        assert all(torch.equal(a, b) for a, b in zip(*runs, strict=True))
    finally:
        torch.set_num_threads(before)


@needs_compiler
def test_programs_run_on_operators_where_there_are_no_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """What another device than the CPU runs: the same Program without kernels."""
    monkeypatch.setenv("VGRAPH_KERNELS", "1")
    made: list[CompiledProgram] = []
    run = CompiledProgram.__call__

    def both(self: CompiledProgram, inputs: Any, call_context: Any) -> Any:
        assert self.has_kernels
        with mock.patch.dict(compiler.TARGETS, clear=True):
            plain = self.make_for("cpu", self.inner_degree)
        assert not plain.has_kernels
        made.append(self)
        ours, theirs = run(self, inputs, call_context), run(plain, inputs, call_context)
        for one, other in zip(ours.outputs, theirs.outputs, strict=True):
            assert (one is None) == (other is None)
            assert one is None or other is None or torch.allclose(one, other, rtol=1e-10, atol=1e-10)
        return ours

    monkeypatch.setattr(CompiledProgram, "__call__", both)
    g, features = make_graph(5, torch.float64)
    g.update_all(*PAIRS["softmax"])
    g.ndata["o"].sum().backward()
    assert len(made) == 2
    assert features[0].grad is not None


@needs_compiler
def test_sums_over_all_edges_go_along_with_those_of_sources(monkeypatch: pytest.MonkeyPatch) -> None:
    """The gradient of a matrix takes no loop over edges of its own, where the backward has one."""
    g, (h, *_) = make_graph(8, torch.float64)
    g.edata["f"], matrix = torch.randn(NUM_EDGES, 3, dtype=torch.float64), torch.randn(3, 8, dtype=torch.float64)
    matrix.requires_grad_()

    def message(edges: Any) -> dict[str, Tensor]:
        return {"m": torch.relu(edges.src["h"] + edges.data["f"] @ matrix)}

    def run() -> list[Tensor]:
        g.update_all(message, fn.sum("m", "o"))
        return with_gradients(g.ndata["o"], [h, matrix])

    for plain, fused in zip(*both_ways(monkeypatch, run), strict=True):
        torch.testing.assert_close(fused, plain)
    told = str(vgraph.explain(g, message, fn.sum("m", "o"))).partition("backward:")[2]
    assert "sources and their out-edges" in told and "outer_sum" in told and "in-edges" not in told
