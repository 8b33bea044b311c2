"""Linear sums: a derivative visits in-edges no more where the function itself can make what it needs of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import vgraph
from vgraph.api.messages.update_all import capture_update
from vgraph.capture import capture
from vgraph.passes.linear_sums import visits_in_edges

VERTICES, EDGES, HEADS, WIDTH = 12, 50, 2, 3
Message = Callable[[Any], dict[str, Tensor]]


@pytest.fixture(autouse=True)
def forget_captures() -> Iterator[None]:
    capture.forget()
    yield
    capture.forget()


def a_graph(dtype: torch.dtype = torch.float64) -> vgraph.Graph:
    """The last two vertices send nothing, the last three receive nothing."""
    made = torch.Generator().manual_seed(3)
    src = torch.randint(0, VERTICES - 2, (EDGES,), generator=made)
    dst = torch.randint(0, VERTICES - 3, (EDGES,), generator=made)
    g = vgraph.graph((src, dst), num_nodes=VERTICES)
    for name, shape in {"h": (HEADS, WIDTH), "b": (HEADS, WIDTH), "l": (HEADS, 1), "r": (HEADS, 1)}.items():
        g.ndata[name] = torch.randn(VERTICES, *shape, dtype=dtype, generator=made).requires_grad_()
    g.edata["w"] = torch.rand(EDGES, 1, 1, dtype=dtype, generator=made)
    return g


def total(nodes: Any) -> dict[str, Tensor]:
    return {"o": nodes.mailbox["m"].sum(1)}


def softmax(nodes: Any) -> dict[str, Tensor]:
    return {"o": (torch.softmax(nodes.mailbox["e"], 1) * nodes.mailbox["m"]).sum(1)}


def thinned(nodes: Any) -> dict[str, Tensor]:
    return {"o": (F.dropout(torch.softmax(nodes.mailbox["e"], 1), 0.4) * nodes.mailbox["m"]).sum(1)}


def spread(nodes: Any) -> dict[str, Tensor]:
    return {"o": nodes.mailbox["m"].var(1, correction=0)}


def additive(edges: Any) -> dict[str, Tensor]:
    return {"m": edges.src["h"], "e": F.leaky_relu(edges.src["l"] + edges.dst["r"], 0.2)}


def bounded(edges: Any) -> dict[str, Tensor]:
    return {"m": edges.src["h"], "e": -0.7 * torch.tanh(edges.src["l"] - edges.dst["r"])}


def gated(edges: Any) -> dict[str, Tensor]:
    return {"m": torch.sigmoid(edges.src["b"] + edges.dst["b"]) * edges.src["h"]}


def scaled(edges: Any) -> dict[str, Tensor]:
    return {"m": edges.src["h"] * edges.dst["l"] * edges.data["w"] / 3.0}


def halved(edges: Any) -> dict[str, Tensor]:
    return {"m": torch.relu(edges.dst["b"] - edges.src["h"])}


def by_feature(edges: Any) -> dict[str, Tensor]:
    return {"m": edges.src["h"], "e": edges.src["h"] * edges.dst["b"]}


CASES: dict[str, tuple[Message, Callable[[Any], dict[str, Tensor]]]] = {
    "additive": (additive, softmax),
    "dropout": (additive, thinned),
    "bounded": (bounded, softmax),
    "by feature": (by_feature, softmax),
    "gated": (gated, total),
    "relu": (halved, total),
}


def several(edges: Any) -> dict[str, Tensor]:
    """Scores of every feature at both ends: what a vertex gets back is a matrix a head, and not made."""
    return {"m": edges.src["h"], "e": F.leaky_relu(edges.src["b"] + edges.dst["b"]).sum(-1, keepdim=True)}


def weighed(edges: Any) -> dict[str, Tensor]:
    return {"m": edges.src["h"] * edges.data["w"], "e": edges.src["l"] * edges.dst["r"]}


OTHERS = {
    "several": (several, softmax),
    "scaled": (scaled, total),
    "weighed": (weighed, softmax),
    "var": (gated, spread),
}


def gradients(g: vgraph.Graph, message: Message, reduce: Any) -> list[Tensor]:
    torch.manual_seed(5)
    g.update_all(message, reduce)
    inputs = [g.ndata[name] for name in "hblr"] + [t for t in g.edata.values() if t.requires_grad]
    weights = torch.linspace(-1, 1, g.ndata["o"].numel(), dtype=inputs[0].dtype).view(g.ndata["o"].shape)
    return [t for t in torch.autograd.grad((g.ndata["o"] * weights).sum(), inputs, allow_unused=True) if t is not None]


@pytest.mark.parametrize("kernels", ["0", "1"])
@pytest.mark.parametrize(
    ("name", "edge_grad"), [*((name, False) for name in (*CASES, *OTHERS)), ("scaled", True), ("weighed", True)]
)
def test_gradients_are_those_of_one_edge_after_the_other(
    name: str, edge_grad: bool, kernels: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VGRAPH_KERNELS", kernels)
    g, found = a_graph(), list[list[Tensor]]()
    g.edata["w"].requires_grad_(edge_grad)
    for hoists in "01":
        monkeypatch.setenv("VGRAPH_HOIST", hoists)
        capture.forget()
        found.append(gradients(g, *(CASES | OTHERS)[name]))
    assert len(found[0]) >= 2
    for plain, summed in zip(*found, strict=True):
        torch.testing.assert_close(summed, plain, rtol=1e-11, atol=1e-12)


def visits(g: vgraph.Graph, message: Message, reduce: Any) -> bool:
    bound, _ = capture_update(g, message, reduce)
    (pair,) = bound.captured.pairs.values()
    program = pair.backward.program
    return visits_in_edges(program.ops, program.outputs)


@pytest.mark.parametrize("name", CASES)
def test_the_derivative_does_not_visit_in_edges(name: str) -> None:
    assert not visits(a_graph(), *CASES[name])


def test_nothing_is_kept_where_in_edges_are_visited_anyway() -> None:
    g = a_graph()
    assert visits(g, several, softmax)
    assert visits(g, weighed, softmax) is False
    g.edata["w"].requires_grad_()
    assert visits(g, weighed, softmax), "the edges' own gradient takes a loop over them"
    bound, _ = capture_update(g, weighed, softmax)
    (pair,) = bound.captured.pairs.values()
    saved = [v for v in pair.forward.program.outputs[1:] if v is not None]
    assert len(saved) <= 3, "the largest score, the sum of weights and the output"


@pytest.mark.parametrize("kernels", ["0", "1"])
def test_vertices_that_nothing_reaches_have_no_gradient(kernels: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever comes back to them: the root of zero has an infinite derivative."""
    monkeypatch.setenv("VGRAPH_KERNELS", kernels)
    g = a_graph()
    for name in "hblr":
        g.ndata[name] = (g.ndata[name].detach().abs() + 0.5).requires_grad_()
    for message, reduce in (CASES["additive"], CASES["gated"]):
        g.update_all(message, reduce)
        inputs = [g.ndata[name] for name in "hblr"]
        for grad in torch.autograd.grad(g.ndata["o"].sqrt().sum(), inputs, allow_unused=True):
            assert grad is None or grad.isfinite().all()
    wild = g.ndata["h"].detach().clone()
    wild[-2:] = torch.inf  # these send nothing
    g.ndata["h"] = wild.requires_grad_()
    g.update_all(additive, softmax)
    grads = torch.autograd.grad(g.ndata["o"].sum(), [wild, g.ndata["l"], g.ndata["r"]])
    assert all(grad.isfinite().all() for grad in grads)


def test_second_derivatives() -> None:
    g = a_graph()
    h, left, right = (g.ndata[name] for name in "hlr")

    def run(h: Tensor, left: Tensor, right: Tensor) -> Tensor:
        g.ndata.update({"h": h, "l": left, "r": right})
        g.update_all(bounded, softmax)
        return g.ndata["o"]

    assert torch.autograd.gradcheck(run, (h, left, right), fast_mode=True)
    assert torch.autograd.gradgradcheck(run, (h, left, right), fast_mode=True)
