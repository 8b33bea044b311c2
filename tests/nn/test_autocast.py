"""Layers under autocast: sums have 32 bits, products run where rows are few, results are near those in doubles."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import vgraph
from vgraph.capture import capture
from vgraph.fusion.cpu.build import find_compiler
from vgraph.nn import GATConv, GATv2Conv, GraphConv

HUB = 3000  # edges: sums in bfloat16 would end at 256 of equal numbers
LAYERS: dict[str, tuple[Callable[[], nn.Module], float]] = {
    "sums before the product": (lambda: GraphConv(8, 16, norm="none", activation=torch.relu), 0.02),
    "product before the sums": (lambda: GraphConv(24, 8), 0.02),
    "attention": (lambda: GATConv(8, 4, 2, activation=F.elu), 0.1),  # gradients of scores all but cancel
}


@pytest.fixture(autouse=True)
def kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VGRAPH_KERNELS", "1")
    capture.forget()


def hubs() -> vgraph.Graph:
    """Everything reaches vertex 0, and vertex 1 reaches everything."""
    every, one = torch.arange(HUB), torch.ones(HUB, dtype=torch.long)
    return vgraph.graph((torch.cat([every, one]), torch.cat([0 * one, every])), num_nodes=HUB)


def outcome(layer: nn.Module, g: vgraph.Graph, rows: Tensor) -> list[Tensor]:
    """The result, and gradients of it."""
    rows = rows.detach().requires_grad_()
    out = layer(g, rows)
    grads = torch.autograd.grad(out.double().square().mean(), [rows, *layer.parameters()])
    return [out, *grads]


@pytest.mark.skipif(find_compiler() is None, reason="there is no C++ compiler")
@pytest.mark.parametrize("name", LAYERS)
def test_near_what_doubles_give(name: str) -> None:
    make, bound = LAYERS[name]
    g, layer = hubs(), make()
    rows = torch.rand(HUB, 24 if name.startswith("product") else 8)
    with torch.autocast("cpu", torch.bfloat16):
        found = outcome(layer, g, rows)
        steps = vgraph.explain(layer, g, rows.requires_grad_()).functions[0]
    wanted = outcome(layer.double(), g, rows.double())
    assert found[0].dtype == torch.float32
    for one, two in zip(found, wanted, strict=True):
        assert (one.double() - two).norm() < bound * two.norm()
        torch.testing.assert_close(one.double()[0], two[0], rtol=0.05, atol=bound * two.abs().max().item())
    ran = [step for program in steps.programs for phase in program.phases for step in phase.steps]
    assert not any("mm" in step.operators and (step.kernel is not None or "edge" in step.over) for step in ran)
    assert not any("no expression" in step.why for step in ran)


def test_attention_of_sums_rounds_nothing_on_edges(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VGRAPH_KERNELS", "0")
    g, layer, rows = vgraph.graph(([0, 1, 2, 3], [1, 1, 1, 0]), num_nodes=4), GATv2Conv(8, 4, 2), torch.rand(4, 8)
    g = vgraph.add_self_loop(g)
    seen = list[torch.dtype]()
    layer.attn_drop.register_forward_hook(lambda module, given, out: seen.append(out.dtype))
    with torch.autocast("cpu", torch.bfloat16):
        found = outcome(layer, g, rows)
    assert found[0].dtype == torch.float32 and set(seen) == {torch.float32}
    for one, two in zip(found, outcome(layer.double(), g, rows.double()), strict=True):
        assert (one.double() - two).norm() < 0.03 * two.norm()
    assert layer.bfloat16()(g, rows.bfloat16()).dtype == torch.bfloat16


class Sum(vgraph.VertexFunction):
    """The children's states, side by side, times a matrix: at leaves zeros, which autocast rounds."""

    def __init__(self) -> None:
        super().__init__(states={"h": 4})
        self.W = nn.Linear(8, 4)

    def forward(self, v: vgraph.Vertex) -> None:
        h = torch.relu(self.W(torch.cat([v.gather(0)["h"], v.gather(1)["h"]], -1)) + v.pull("x"))
        v.scatter(h=h)
        v.push(h=h)


def test_zeros_of_leaves_are_not_multiplied(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VGRAPH_KERNELS", "0")
    tree, function = vgraph.graph(([0, 1, 2, 4], [4, 4, 5, 5])), Sum()
    rows = torch.rand(6, 4, requires_grad=True)
    with torch.autocast("cpu", torch.bfloat16):
        found = function(tree, x=rows)["h"]
        (steps,) = vgraph.explain(function, tree, x=rows).functions
    found.sum().backward()
    torch.testing.assert_close(found.double(), function.double()(tree, x=rows.double())["h"], rtol=0.02, atol=0.02)
    phases = [phase for program in steps.programs for phase in program.phases]
    at_leaves = [step for phase in phases if "leaves" in phase.how for step in phase.steps]
    assert at_leaves
    assert not any({"mm", "addmm", "expand"} & set(step.operators) for step in at_leaves)
    over = {step.over for phase in phases for step in phase.steps if {"mm", "addmm"} & set(step.operators)}
    assert over == {"vertices", "inner"}
