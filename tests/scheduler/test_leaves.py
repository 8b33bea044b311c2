"""Leaves run code of their own: nothing is computed from absent children, and the numbers stay."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import pytest
import torch
from torch import nn

import vgraph
from tests.runtime.engine_models import GRAPHS, MODELS, WIDTH, binary_tree, chain, features, outcome
from tests.tables import table
from vgraph import compiler
from vgraph.capture import capture
from vgraph.ir.program import op_name
from vgraph.ir.schedule import INNER_PART, LEAVES_PART, Phase


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


FEW_FRONTIERS = [name for name in GRAPHS if name != "star"]  # 301 of one vertex each say no more than 40


@pytest.mark.parametrize(
    ("name", "graph", "policy"),
    [*product(MODELS, GRAPHS, ["frontier"]), *table([*MODELS], FEW_FRONTIERS, ["serial"])],
)
def test_leaves_change_nothing(name: str, graph: str, policy: str, monkeypatch: pytest.MonkeyPatch) -> None:
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


SOME_MODELS, SOME_GRAPHS = ["gru", "child-sum", "n-ary"], ["trees", "dag", "points"]


@pytest.mark.parametrize(
    ("name", "graph", "kernels"),
    [*product(SOME_MODELS, SOME_GRAPHS, ["0"]), *table(SOME_MODELS, SOME_GRAPHS, ["1"])],
)
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


class Embedded(vgraph.VertexFunction):
    def __init__(self, bias: bool) -> None:
        super().__init__()
        self.W = torch.nn.Linear(WIDTH, WIDTH, bias=bias)

    def forward(self, v: vgraph.Vertex) -> None:
        h = torch.tanh(self.W(v.pull("x")) + v.gather()["h"].sum())
        v.scatter(h=h)
        v.push(h=h)


def test_products_of_what_leaves_were_given_run_with_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is computed of zeros; the gradient row of all other vertices, which nobody reads, is not summed."""
    monkeypatch.setenv("VGRAPH_KERNELS", "1")
    seen = phases_seen(monkeypatch)
    g, model = binary_tree(6), Embedded(bias=False)
    rows = torch.randn(6, WIDTH, requires_grad=True)
    outcome(model, g, rows, (g.in_degrees() == 0).nonzero().squeeze(1))
    assert "mm" in names(seen, LEAVES_PART)
    once = [str(op.target) for phase in seen if not phase.is_loop for op in phase.ops]
    assert not {"aten.full.default", "aten.slice.Tensor"} & set(once), once
    assert "leaf_rows[@x|leaves]" in once and not any("segment_sum[@x" in target for target in once)


def test_a_bias_of_leaves_reaches_all_vertices() -> None:
    """What is made of zeros at other vertices is the bias."""

    g, model = binary_tree(6), Embedded(bias=True).double()
    leaves = (g.in_degrees() == 0).nonzero().squeeze(1)
    rows = torch.randn(6, WIDTH, dtype=torch.float64, requires_grad=True)
    whole = torch.zeros(g.num_nodes(), WIDTH, dtype=torch.float64).index_copy(0, leaves, rows)
    found = [model(g, x=x)["h"] for x in (vgraph.at(rows, leaves), whole)]
    wanted = (rows, *model.parameters())
    grads = [torch.autograd.grad(h.square().sum(), wanted) for h in found]
    torch.testing.assert_close(found[0], found[1], rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(grads[0], grads[1], rtol=1e-10, atol=1e-12)


def test_leaves_in_another_order_are_any_vertices() -> None:
    g, model = binary_tree(5), MODELS["child-sum"]().double()
    rows, order = torch.randn(5, WIDTH, dtype=torch.float64), torch.tensor([3, 0, 4, 1, 2])
    one = model(g, x=vgraph.at(rows, torch.arange(5)))["h"]
    two = model(g, x=vgraph.at(rows[order], order))["h"]
    torch.testing.assert_close(one, two, rtol=1e-10, atol=1e-12)


def test_what_depends_on_the_degree_is_known_at_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    """``gather(k, default=...)`` asks for the degree; at leaves its answer is a constant, as is what follows."""
    monkeypatch.setenv("VGRAPH_DEGREES", "0")
    seen = phases_seen(monkeypatch)
    g, model = binary_tree(6), MODELS["tree-fc"]()
    outcome(model, g, features(g, torch.float32))
    leaves = names(seen, LEAVES_PART)
    assert not {"addmm", "mm", "cat"} & set(leaves), leaves
    once = [str(op.target) for phase in seen if not phase.is_loop for op in phase.ops]
    assert once.count("inner_rows") == 2


CASES = [(g, n, "0") for g in ("binary", "chains", "mixed", "points") for n in ("tree-fc", "n-ary", "masked")]


@pytest.mark.parametrize(("graph", "name", "kernels"), [*CASES, ("binary", "masked", "1"), ("chains", "tree-fc", "1")])
def test_one_in_degree_changes_nothing(graph: str, name: str, kernels: str, monkeypatch: pytest.MonkeyPatch) -> None:
    g = {**GRAPHS, "binary": lambda: vgraph.batch([binary_tree(n) for n in (5, 2, 9)]), "mixed": mixed}[graph]()
    model = (Masked() if name == "masked" else MODELS[name]()).double()
    x = features(g)
    monkeypatch.setenv("VGRAPH_KERNELS", kernels)
    got = outcome(model, g, x)
    monkeypatch.setenv("VGRAPH_DEGREES", "0")
    capture.forget()
    plain = outcome(model, g, x)
    monkeypatch.setenv("VGRAPH_LEAVES", "0")
    capture.forget()
    for one, two, three in zip(got, plain, outcome(model, g, x), strict=True):
        torch.testing.assert_close(one, two, rtol=1e-12, atol=1e-13)
        torch.testing.assert_close(one, three, rtol=1e-10, atol=1e-12)


def mixed() -> vgraph.Graph:
    return vgraph.batch([binary_tree(4), chain(3)])


class Masked(vgraph.VertexFunction):
    """Leaves take their feature, others one layer over two children: Tree-FC with a mask."""

    def __init__(self) -> None:
        super().__init__(states={"h": WIDTH})
        self.W = nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, v: vgraph.Vertex) -> None:
        both = torch.cat([v.gather(k, default=0.5)["h"] for k in range(2)], -1)
        h = torch.where((v.in_degree == 0).unsqueeze(-1), v.pull("x"), torch.tanh(self.W(both)))
        v.scatter(h=h)
        v.push(h=h)


@pytest.mark.parametrize("spread", [True, False])
def test_masks_are_chosen_once(spread: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    g, model = vgraph.batch([binary_tree(5), binary_tree(3)]), Masked()
    ids = (g.in_degrees() == 0).nonzero().squeeze(1)
    rows = torch.randn(len(ids), WIDTH)
    whole = torch.zeros(g.num_nodes(), WIDTH).index_copy(0, ids, rows)
    wanted = outcome(model, g, whole.requires_grad_())
    seen, real = list[Phase](), compiler.split_leaves

    def watched(program, phases, zeros=frozenset(), degree=None, *unread):
        found = real(program, phases, zeros, degree, *unread)
        seen.extend(found[0] if degree == 2 else ())
        return found

    monkeypatch.setattr(compiler, "split_leaves", watched)
    capture.forget()
    given = (whole.detach().requires_grad_(), None) if spread else (rows.requires_grad_(), ids)
    got = outcome(model, g, *given)
    inside = [*names(seen, INNER_PART), *names(seen, LEAVES_PART)]
    assert "tanh" in inside and "tanh_backward" in inside and "where" not in inside
    torch.testing.assert_close(got[0], wanted[0])
    torch.testing.assert_close(got[1], wanted[1] if spread else wanted[1][ids])
    for one, two in zip(got[2:], wanted[2:], strict=True):
        torch.testing.assert_close(one, two)


def test_leaves_store_nothing_that_the_backward_does_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = phases_seen(monkeypatch)
    g, model = binary_tree(6), MODELS["child-sum"]().double()
    x = features(g)
    outcome(model, g, x)
    assert "expand" not in names(seen, LEAVES_PART), "sums of absent children are multiplied at inner vertices only"
    assert torch.autograd.gradgradcheck(lambda rows: model(g, x=rows)["h"].sum(), (x,))
