"""Leaves run code of their own: nothing is computed from absent children, and the numbers stay."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import nn

import vgraph
from tests.runtime.engine_models import GRAPHS, MODELS, WIDTH, binary_tree, chain, features, outcome
from vgraph import compiler
from vgraph.api import capture
from vgraph.ir.schedule import INNER_PART, LEAVES_PART, Phase
from vgraph.ir.tdl import op_name


@pytest.fixture(autouse=True)
def forget_captures(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("VGRAPH_KERNELS", "0")
    capture.forget()
    yield
    capture.forget()


def phases_seen(monkeypatch: pytest.MonkeyPatch) -> list[Phase]:
    """The phases of Programs compiled from now on."""
    seen: list[Phase] = []
    real = compiler._compile_phases

    def watched(program, phases, *rest, **options):
        seen.extend(phases)
        return real(program, phases, *rest, **options)

    monkeypatch.setattr(compiler, "_compile_phases", watched)
    return seen


def names(phases: list[Phase], part: str) -> list[str]:
    return [op_name(op.target) if hasattr(op.target, "overloadpacket") else str(op.target) for phase in phases
            if phase.is_loop and phase.part == part for op in phase.ops]  # fmt: skip


def test_leaves_multiply_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = phases_seen(monkeypatch)
    g, model = binary_tree(6), MODELS["child-sum"]()
    outcome(model, g, features(g, torch.float32))
    inner, leaves = names(seen, INNER_PART), names(seen, LEAVES_PART)
    assert inner.count("addmm") + inner.count("mm") == 4, "two products forward, two backward"
    assert "addmm" not in leaves and "mm" not in leaves
    once = [str(op.target) for phase in seen if not phase.is_loop for op in phase.ops]
    assert once.count("inner_rows") == 2, "the gradient of U sums over vertices that have children"


@pytest.mark.parametrize("policy", ["frontier", "serial"])
@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize("name", MODELS)
def test_leaves_change_nothing(name: str, graph: str, policy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if graph == "star" and policy == "serial":
        pytest.skip("301 frontiers say no more than 40")
    g, model = GRAPHS[graph](), MODELS[name]().double()
    model.policy, x = policy, features(g)
    got = outcome(model, g, x)
    monkeypatch.setenv("VGRAPH_LEAVES", "0")
    capture.forget()
    for one, two in zip(got, outcome(model, g, x), strict=True):
        torch.testing.assert_close(one, two, rtol=1e-10, atol=1e-12)


class Noisy(vgraph.VertexFunction):
    """At a leaf nothing but the noise differs from vertex to vertex."""

    def __init__(self) -> None:
        super().__init__()
        self.U, self.drop = nn.Linear(WIDTH, WIDTH), nn.Dropout(0.5)

    def forward(self, v: vgraph.Vertex) -> None:
        h = self.drop(torch.tanh(self.U(v.gather()["h"].sum()) + 3.0))
        v.scatter(h=h)
        v.push(h=h)


def test_random_numbers_are_drawn_for_every_leaf() -> None:
    g = vgraph.graph((range(40), [40] * 40))
    h = Noisy()(g)["h"][:40]
    assert len({tuple(row) for row in h.ne(0).tolist()}) > 10, "the leaves share their noise"


def test_a_function_without_features_has_alike_leaves() -> None:
    class Depth(vgraph.VertexFunction):
        def forward(self, v: vgraph.Vertex) -> None:
            depth = v.gather()["depth"].max() + torch.ones(1)
            v.scatter(depth=depth)
            v.push(depth=depth, leaf=(v.in_degree == 0).float())

    found = Depth()(vgraph.batch([chain(3), binary_tree(2), chain(1)]))
    assert found["depth"].flatten().tolist() == [1, 2, 3, 1, 1, 2, 1]
    assert found["leaf"].tolist() == [1, 0, 0, 1, 1, 0, 1]


def test_types_keep_their_own_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    g = GRAPHS["dag"]()
    g.ndata["kind"] = torch.arange(g.num_nodes()) % 2
    parts = {0: MODELS["gru"]().double(), 1: MODELS["gru"]().double()}
    model, x = vgraph.ByType(parts, key="kind"), features(g)
    got = outcome(model, g, x)
    monkeypatch.setenv("VGRAPH_LEAVES", "0")
    capture.forget()
    for one, two in zip(got, outcome(model, g, x), strict=True):
        torch.testing.assert_close(one, two, rtol=1e-10, atol=1e-12)


def test_second_derivatives_at_leaves() -> None:
    g, model = binary_tree(4), MODELS["child-sum"]().double()
    x = features(g)
    assert torch.autograd.gradgradcheck(lambda x: model(g, x=x)["h"], (x,))


@pytest.mark.parametrize("kernels", ["0", "1"])
@pytest.mark.parametrize("graph", ["trees", "dag", "points"])
@pytest.mark.parametrize("name", ["gru", "child-sum", "n-ary"])
def test_features_of_leaves_alone(name: str, graph: str, kernels: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """``at`` with just the leaves, in order, takes a way of its own; numbers and gradients are those of any ``at``."""
    g, model = GRAPHS[graph](), MODELS[name]().double()
    leaves = (g.in_degrees() == 0).nonzero().squeeze(1)
    rows = torch.randn(leaves.shape[0], WIDTH, dtype=torch.float64, requires_grad=True)
    got = outcome(model, g, rows, leaves)
    monkeypatch.setenv("VGRAPH_LEAVES", "0")
    monkeypatch.setenv("VGRAPH_KERNELS", kernels)
    capture.forget()
    for one, two in zip(got, outcome(model, g, rows, leaves), strict=True):
        torch.testing.assert_close(one, two, rtol=1e-10, atol=1e-12)


def test_leaves_in_another_order_are_any_vertices() -> None:
    g, model = binary_tree(5), MODELS["child-sum"]().double()
    rows, order = torch.randn(5, WIDTH, dtype=torch.float64), torch.tensor([3, 0, 4, 1, 2])
    one = model(g, x=vgraph.at(rows, torch.arange(5)))["h"]
    two = model(g, x=vgraph.at(rows[order], order))["h"]
    torch.testing.assert_close(one, two, rtol=1e-10, atol=1e-12)


def test_what_depends_on_the_degree_is_known_at_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    """``gather(k, default=...)`` asks for the degree; at leaves its answer is a constant, as is what follows."""
    seen = phases_seen(monkeypatch)
    g, model = binary_tree(6), MODELS["tree-fc"]()
    outcome(model, g, features(g, torch.float32))
    leaves = names(seen, LEAVES_PART)
    assert not {"addmm", "mm", "cat"} & set(leaves), leaves
    once = [str(op.target) for phase in seen if not phase.is_loop for op in phase.ops]
    assert once.count("inner_rows") == 2
