"""Hoisting: the laws hold, and are applied where they should be."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import vgraph
from vgraph.capture import capture
from vgraph.ir.moves import Gather
from vgraph.ir.program import Op, op_name
from vgraph.ir.space import EDGE

NUM_VERTICES, NUM_EDGES, WIDTH = 9, 40, 6


@pytest.fixture(autouse=True)
def forget_captures() -> Iterator[None]:
    capture.forget()
    yield
    capture.forget()


def make_graph() -> tuple[vgraph.Graph, list[Tensor]]:
    src, dst = torch.randint(0, NUM_VERTICES - 1, (NUM_EDGES,)), torch.randint(0, NUM_VERTICES - 2, (NUM_EDGES,))
    g = vgraph.graph((src, dst), num_nodes=NUM_VERTICES)
    h = torch.rand(NUM_VERTICES, WIDTH, dtype=torch.float64).add(0.5).requires_grad_()
    w = torch.randn(NUM_EDGES, 3, dtype=torch.float64, requires_grad=True)
    g.ndata["h"], g.edata["w"] = h, w
    return g, [h, w]


class Message(nn.Module):
    """Two layers on both ends and the edge."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(2 * WIDTH + 3, 5), nn.Linear(5, WIDTH)

    def forward(self, edges: Any) -> dict[str, Tensor]:
        rows = torch.cat([edges.src["h"], edges.dst["h"], edges.data["w"]], -1)
        return {"m": self.second(torch.relu(self.first(rows)))}


class Gated(Message):
    """Two products of the same rows, whose gradients are added and sliced."""

    def __init__(self) -> None:
        super().__init__()
        self.other = nn.Linear(2 * WIDTH + 3, 5)

    def forward(self, edges: Any) -> dict[str, Tensor]:
        rows = torch.cat([edges.src["h"], edges.dst["h"], edges.data["w"]], -1)
        return {"m": torch.sigmoid(self.first(rows)) * torch.tanh(self.other(rows))}


class Difference(Message):
    """Gradients of either end are slices of one product, one of them turned round."""

    def forward(self, edges: Any) -> dict[str, Tensor]:
        rows = torch.cat([edges.dst["h"] - edges.src["h"], edges.dst["h"] + edges.src["h"], edges.data["w"]], -1)
        return {"m": self.second(torch.tanh(self.first(rows)))}


def results(message: Callable[[Any], Any], inputs: list[Tensor], g: vgraph.Graph) -> list[Tensor]:
    g.update_all(message, lambda nodes: {"o": nodes.mailbox["m"].sum(1)})
    out = g.ndata["o"]
    weights = torch.linspace(-1, 1, out.numel(), dtype=out.dtype).view(out.shape)
    first = torch.autograd.grad((out * weights).sum(), inputs, create_graph=True, allow_unused=True)
    kept = [t for t in first if t is not None]
    second = torch.autograd.grad(sum((t * t).sum() for t in kept), inputs, allow_unused=True)
    return [out, *kept, *(t for t in second if t is not None)]


@pytest.mark.parametrize(("make", "kernels"), [(Message, "0"), (Message, "1"), (Gated, "0"), (Difference, "0")])
def test_edge_network_is_the_same_without_hoisting(
    make: type[Message], kernels: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VGRAPH_KERNELS", kernels)
    g, features = make_graph()
    message = make().double()
    found: list[list[Tensor]] = []
    for setting in ("0", "1"):
        monkeypatch.setenv("VGRAPH_HOIST", setting)
        capture.forget()
        found.append(results(message, [*features, *message.parameters()], g))
    for plain, hoisted in zip(*found, strict=True):
        assert torch.allclose(plain, hoisted, rtol=1e-10, atol=1e-10)


def recorded_ops(run: Callable[[], Any], monkeypatch: pytest.MonkeyPatch) -> list[Op]:
    """The ops of every Program that a call compiles."""
    from vgraph import compiler

    ops: list[Op] = []
    build = compiler.build_phases

    def watch(program: Any, **options: Any) -> Any:
        ops.extend(program.ops)
        return build(program, **options)

    monkeypatch.setattr(compiler, "build_phases", watch)
    run()
    return ops


@pytest.mark.parametrize("make", [Message, Gated])
def test_no_product_over_edges_but_the_edges_own(make: type[Message], monkeypatch: pytest.MonkeyPatch) -> None:
    g, features = make_graph()
    message = make().double()
    g.edata["w"] = features[1].detach()

    def run() -> None:
        g.update_all(message, lambda nodes: {"o": nodes.mailbox["m"].sum(1)})
        g.ndata["o"].sum().backward()

    ops = recorded_ops(run, monkeypatch)
    products = [op for op in ops if op_name(op.target) in ("mm", "addmm")]
    over_edges = [op for op in products if op.results[0].space == EDGE]
    assert products
    assert all(op.args[-2].row_shape == (3,) for op in over_edges), "only the edge's own three features"


def test_isolated_vertices_have_no_gradient(monkeypatch: pytest.MonkeyPatch) -> None:
    """The root of zero has an infinite derivative; where no edge asks for it, the gradient is zero."""
    monkeypatch.setenv("VGRAPH_KERNELS", "0")
    g, _ = make_graph()
    h = torch.zeros(NUM_VERTICES, WIDTH, dtype=torch.float64)
    h[: NUM_VERTICES - 1] = 1.0
    g.ndata["h"] = h.requires_grad_()
    g.update_all(lambda e: {"m": torch.sqrt(e.src["h"])}, lambda n: {"o": n.mailbox["m"].sum(1)})
    (grad,) = torch.autograd.grad(g.ndata["o"].sum(), h)
    assert torch.equal(grad[NUM_VERTICES - 1], torch.zeros(WIDTH, dtype=torch.float64))
    assert bool(grad.isfinite().all())


@pytest.mark.parametrize("end", ["src", "dst"])
@pytest.mark.parametrize("function", [torch.log, torch.reciprocal, lambda t: t.pow(-0.5)])
def test_what_is_infinite_where_no_edge_is_counts_for_nothing(end: str, function: Callable[[Tensor], Tensor]) -> None:
    """On edges such rows never are; over vertices they are, and a gradient of weights is a sum over all of them."""
    src, dst = torch.tensor([1, 2, 3]), torch.tensor([0, 0, 2])
    ends = {"src": src, "dst": dst}
    scale = torch.ones(4, 2, dtype=torch.float64)
    scale[~torch.isin(torch.arange(4), ends[end])] = 0.0
    h = torch.randn(4, WIDTH, dtype=torch.float64)
    weight = torch.randn(2, WIDTH, dtype=torch.float64, requires_grad=True)

    g = vgraph.graph((src, dst), num_nodes=4)
    g.ndata["scale"], g.ndata["h"] = scale, h

    def rows(edges: Any) -> dict[str, Tensor]:
        mine, other = (edges.src, edges.dst) if end == "src" else (edges.dst, edges.src)
        return {"m": (function(mine["scale"]) @ weight) * other["h"]}

    g.update_all(rows, lambda nodes: {"m": nodes.mailbox["m"].sum(1)})
    (found,) = torch.autograd.grad(g.ndata["m"].square().sum(), weight)
    other = h[dst if end == "src" else src]
    sums = torch.zeros_like(h).index_add(0, dst, (function(scale[ends[end]]) @ weight) * other)
    (wanted,) = torch.autograd.grad(sums.square().sum(), weight)
    torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize("given", [torch.float32, torch.bfloat16, torch.int64])
@pytest.mark.parametrize("multiplies", [True, False])
def test_joined_rows_of_several_dtypes_are_those_of_the_widest(given: torch.dtype, multiplies: bool) -> None:
    """As ``torch.cat`` makes them, before they are multiplied or added up."""
    g, _ = make_graph()
    g.ndata["n"], g.edata["w"] = (torch.randn(n, 2).mul(100).to(given) for n in (NUM_VERTICES, NUM_EDGES))
    weight = torch.randn(WIDTH + 4, 3, dtype=torch.float64, requires_grad=True)

    def message(edges: Any) -> dict[str, Tensor]:
        rows = torch.cat([edges.src["h"], edges.src["n"], edges.data["w"]], 1)
        return {"m": rows @ weight if multiplies else rows}

    g.update_all(message, lambda nodes: {"out": nodes.mailbox["m"].sum(1)})
    src, dst = g.edges()
    rows = torch.cat([g.ndata["h"][src], g.ndata["n"][src], g.edata["w"]], 1)
    rows = rows @ weight if multiplies else rows
    wanted = rows.new_zeros(NUM_VERTICES, rows.shape[1]).index_add(0, dst, rows)
    torch.testing.assert_close(g.ndata["out"], wanted)
    over = [g.ndata["h"], *([weight] if multiplies else [])]
    both = (torch.autograd.grad(out.square().sum(), over) for out in (g.ndata["out"], wanted))
    torch.testing.assert_close(*both)


def test_rows_that_every_edge_has_anyway_are_summed_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """A maximum reads the products of all edges, so that their sum asks for no rows besides; alone it would."""
    g, (h, _) = make_graph()
    layer = nn.Linear(2 * WIDTH, 5).double()

    def send(edges: Any) -> dict[str, Tensor]:
        return {"m": layer(torch.cat([edges.src["h"], edges.dst["h"]], -1))}

    def gathered(reduce: Callable[[Any], dict[str, Tensor]]) -> set[int]:
        capture.forget()
        with monkeypatch.context() as patch:
            ops = recorded_ops(lambda: g.update_all(send, reduce), patch)
        found = [op for op in ops if op.results[0].space == EDGE and op.target == Gather("src")]
        assert found
        return {v.row_shape[0] for op in found for v in op.operands() if isinstance(v.row_shape[0], int)}

    def both(nodes: Any) -> dict[str, Tensor]:
        return {"o": nodes.mailbox["m"].sum(1), "p": nodes.mailbox["m"].amax(1)}

    assert gathered(lambda nodes: {"o": nodes.mailbox["m"].sum(1)}) == {WIDTH}
    assert gathered(both) == {5}
    sums = g.ndata["o"]
    src, dst = g.edges()
    exact = torch.zeros_like(sums).index_add(0, dst, layer(torch.cat([h[src], h[dst]], -1)))
    torch.testing.assert_close(sums, exact, rtol=1e-12, atol=1e-12)
