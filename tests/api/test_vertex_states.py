"""States of every kind, policies, and random numbers that depend on neither."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import vgraph
from tests.api.recursion import DAG, States, evaluate
from vgraph.errors import FunctionError

F64 = torch.float64


def compare(model: vgraph.VertexFunction, cell: Any, inputs: dict[str, Tensor], *names: str) -> None:
    """Outputs and gradients are those of the recursion, under both policies."""
    tensors = [t for t in (*inputs.values(), *model.parameters()) if t.requires_grad]
    for model.policy in ("frontier", "serial"):
        out, wanted = model(DAG, **inputs), evaluate(DAG, cell)
        for name, expected in zip(names, wanted, strict=True):
            torch.testing.assert_close(out[name], expected, rtol=1e-10, atol=1e-12)
            assert out[name].dtype == expected.dtype
        sums = [sum((t**2).sum() for t in ts if t.requires_grad) for ts in ([out[n] for n in names], wanted)]
        if tensors:
            one, two = (torch.autograd.grad(s, tensors, allow_unused=True) for s in sums)  # type: ignore[arg-type]
            torch.testing.assert_close(one, two, rtol=1e-10, atol=1e-12)


class Matrices(vgraph.VertexFunction):
    def forward(self, v: vgraph.Vertex) -> None:
        a = torch.tanh(v.pull("a") @ (v.pull("a") + 0.3 * v.gather()["a"].sum()))
        v.scatter(a=a)
        v.push(a=a)


def test_matrices() -> None:
    a = torch.randn(7, 2, 2, dtype=F64, requires_grad=True)

    def cell(vertex: int, kids: list[States], _: list[int]) -> States:
        inner = a[vertex] + 0.3 * sum((k[0] for k in kids), torch.zeros(2, 2, dtype=F64))
        return (torch.tanh(a[vertex] @ inner),)

    compare(Matrices(), cell, {"a": a}, "a")
    compare(Matrices(states={"a": (2, 2)}), cell, {"a": a}, "a")


class Scalars(vgraph.VertexFunction):
    """One number a vertex, (vertices,), beside a vector and a count."""

    def __init__(self) -> None:
        super().__init__()
        self.W = nn.Linear(3, 3)

    def forward(self, v: vgraph.Vertex) -> None:
        child = v.gather()
        s = torch.tanh(v.pull("s") + child["s"].sum())
        n = 1 + child["n"].max()
        h = torch.tanh(self.W(child["h"].mean()) + s.unsqueeze(-1))
        v.scatter(s=s, n=n, h=h)
        v.push(s=s, n=n, h=h)


def test_scalars_vectors_and_counts() -> None:
    model = Scalars().double()
    s = torch.randn(7, dtype=F64, requires_grad=True)

    def cell(vertex: int, kids: list[States], _: list[int]) -> States:
        own = torch.tanh(s[vertex] + sum(k[0] for k in kids))
        n = 1 + max((k[1] for k in kids), default=torch.zeros(1, dtype=F64))
        mean = sum((k[2] for k in kids), torch.zeros(3, dtype=F64)) / max(len(kids), 1)
        return own, n, torch.tanh(model.W(mean) + own)

    compare(model, cell, {"s": s}, "s", "n", "h")


class Heights(vgraph.VertexFunction):
    """Whole numbers only: no parameter, no gradient."""

    def forward(self, v: vgraph.Vertex) -> None:
        height = v.gather()["height"].max() + (v.in_degree > 0)
        v.scatter(height=height)
        v.push(height=height, size=v.in_degree)


def test_whole_numbers() -> None:
    out = Heights()(DAG)
    assert out["height"].dtype == torch.int64
    assert out["height"].tolist() == [0, 0, 1, 1, 2, 2, 0]


class Mixed(vgraph.VertexFunction):
    """States that are not gathered, or not pushed; one of another dtype."""

    def __init__(self) -> None:
        super().__init__()
        self.W = nn.Linear(3, 3)

    def forward(self, v: vgraph.Vertex) -> None:
        child = v.gather()
        x = v.pull("x")
        h = torch.tanh(self.W(x) + child["low"].sum().to(x.dtype))
        v.scatter(h=h, low=h.to(torch.float32), unused=x * 2)
        v.push(twice=2 * h, kept=child["low"].sum())


def test_states_of_another_dtype_and_unused_ones() -> None:
    model = Mixed().double()
    x = torch.randn(7, 3, dtype=F64, requires_grad=True)

    def cell(vertex: int, kids: list[States], _: list[int]) -> States:
        kept = sum((k[2] for k in kids), torch.zeros(3))
        h = torch.tanh(model.W(x[vertex]) + kept.to(F64))
        return 2 * h, kept, h.to(torch.float32)

    for model.policy in ("frontier", "serial"):
        out, wanted = model(DAG, x=x), evaluate(DAG, cell)
        torch.testing.assert_close(out["twice"], wanted[0], rtol=1e-6, atol=1e-6)
        torch.testing.assert_close(out["kept"], wanted[1])
        grads = [torch.autograd.grad(t[0].sum() + t[1].sum(), x)[0] for t in ((out["twice"], out["kept"]), wanted)]
        torch.testing.assert_close(*grads, rtol=1e-5, atol=1e-6)


class Concatenates(vgraph.VertexFunction):
    """The width of its state cannot be read off a matrix, but off the parameters."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.W = nn.Linear(8, 5)

    def forward(self, v: vgraph.Vertex) -> None:
        h = torch.tanh(self.W(torch.cat([v.pull("x"), v.gather()["h"].sum()], -1)))
        v.scatter(h=h)
        v.push(h=h)


def test_widths_found_and_given() -> None:
    x = torch.randn(7, 3, requires_grad=True)
    found, given = Concatenates(), Concatenates(states={"h": 5})
    given.load_state_dict(found.state_dict())
    assert torch.equal(found(DAG, x=x)["h"], given(DAG, x=x)["h"])
    with pytest.raises(FunctionError, match=r"given as \(4,\), but scattered as \(5,\)"):
        bad = Concatenates(states={"h": 4})
        bad.W = nn.Linear(7, 5)
        bad(DAG, x=x)


def test_width_that_cannot_be_found() -> None:
    class Grows(vgraph.VertexFunction):
        def forward(self, v: vgraph.Vertex) -> None:
            v.scatter(h=torch.cat([v.pull("x"), v.gather()["h"].sum()], -1))

    with pytest.raises(FunctionError, match="cannot be inferred") as caught:
        Grows()(DAG, x=torch.randn(7, 3))
    assert "states=" in str(caught.value)


def test_shapes_of_several_states_are_found_one_by_one() -> None:
    """A matrix tells one width, then a cat tells which of the others are numbers; one is asked for late."""

    class Several(vgraph.VertexFunction):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(8, 5)

        def forward(self, v: vgraph.Vertex) -> None:
            child = v.gather()
            count = child["count"].sum() + 1
            h = torch.tanh(self.linear(torch.cat([v.pull("x"), child["h"].mean()], -1)))
            best = torch.maximum(child["best"].max(), h.sum(-1))
            v.scatter(h=h, count=count, best=best)
            v.push(all=torch.cat([h, count.unsqueeze(-1), best.unsqueeze(-1)], -1))

    out = Several()(DAG, x=torch.randn(7, 3))["all"]
    assert out.shape == (7, 7) and out[0, 5] == 1


class AllStates(vgraph.VertexFunction):
    """Layers whose states are gathered by going through them."""

    def __init__(self) -> None:
        super().__init__(states={"h0": 2, "h1": 2})
        self.layers = nn.ModuleList([nn.Linear(2, 2), nn.Linear(2, 2)])

    def forward(self, v: vgraph.Vertex) -> None:
        x, kids = v.pull("x"), {name: rows.sum() for name, rows in v.gather().items()}
        for i, layer in enumerate(self.layers):
            x = torch.tanh(layer(x) + kids[f"h{i}"])
            v.scatter(**{f"h{i}": x})
            v.push(**{f"h{i}": x})


def test_given_states_are_listed_from_the_first_evaluation_on() -> None:
    model, x = AllStates().double(), torch.randn(7, 2, dtype=F64, requires_grad=True)

    def cell(vertex: int, kids: list[States], _: list[int]) -> States:
        sums = [sum((k[i] for k in kids), torch.zeros(2, dtype=F64)) for i in range(2)]
        first = torch.tanh(model.layers[0](x[vertex]) + sums[0])
        second = torch.tanh(model.layers[1](first) + sums[1])
        return first, second

    compare(model, cell, {"x": x}, "h0", "h1")


# ---------------------------------------------------------------- random numbers
class Dropped(vgraph.VertexFunction):
    def __init__(self, p: float = 0.4) -> None:
        super().__init__()
        self.W, self.U, self.drop = nn.Linear(3, 8), nn.Linear(8, 8), nn.Dropout(p)

    def forward(self, v: vgraph.Vertex) -> None:
        child = self.drop(v.gather()["h"])  # every slot has numbers of its own
        noise = torch.randn_like(v.pull("x")) + torch.rand_like(v.pull("x"))
        h = torch.tanh(self.W(v.pull("x") + 0.1 * noise) + self.U(child.sum()))
        h = functional.dropout(h, 0.3, self.training)
        v.scatter(h=h)
        v.push(h=h)


def run(model: nn.Module, seed: int, graph: vgraph.Graph = DAG) -> tuple[Tensor, ...]:
    x = torch.linspace(-1, 1, 3 * graph.num_nodes(), dtype=F64).view(-1, 3).requires_grad_()
    torch.manual_seed(seed)
    out = model(graph, x=x)["h"]
    return out.detach(), *torch.autograd.grad(out.sum(), (x, *model.parameters()))


@pytest.mark.parametrize("threads", [1, 2])
def test_dropout_depends_on_the_seed_alone(threads: int) -> None:
    model = Dropped().double()
    wanted = run(model, 7)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        for model.policy in ("frontier", "serial"):
            got = run(model, 7)
            assert torch.equal(got[0] == 0, wanted[0] == 0)
            torch.testing.assert_close(got, wanted, rtol=1e-12, atol=1e-14)
    finally:
        torch.set_num_threads(before)
    assert not torch.equal(run(model, 8)[0], wanted[0])
    model.eval()
    assert not (run(model, 7)[0] == 0).any()


@pytest.mark.parametrize("kernels", ["0", "1"])
@pytest.mark.parametrize("policy", ["frontier", "serial"])
def test_masks_are_bitwise_the_same(policy: str, kernels: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VGRAPH_KERNELS", kernels)

    class Masks(vgraph.VertexFunction):
        def forward(self, v: vgraph.Vertex) -> None:
            slots = functional.dropout(v.pull_edge("one"), 0.5)
            h = functional.dropout(v.pull("x"), 0.5) + slots.sum() + 0 * v.gather()["h"].sum()
            v.scatter(h=h)
            v.push(h=h, u=torch.rand_like(h))

    graph = vgraph.batch([DAG] * 5)
    inputs = {"x": torch.ones(35, 6), "one": torch.ones(50, 6)}
    outs: list[dict[str, Tensor]] = []
    for how in ("frontier", policy):
        torch.manual_seed(3)
        model = Masks()
        model.policy = how
        outs.append(model(graph, **inputs))
    for name in ("h", "u"):
        assert torch.equal(outs[0][name], outs[1][name])
    rows = outs[0]["u"]
    assert len({tuple(row.tolist()) for row in rows}) == 35  # no two vertices share their numbers


def test_recomputed_backward_sees_the_same_mask() -> None:
    model = Dropped().double()
    x = torch.randn(7, 3, dtype=F64, requires_grad=True)

    def seeded(t: Tensor) -> Tensor:
        torch.manual_seed(5)
        return model(DAG, x=t)["h"]

    assert torch.autograd.gradcheck(seeded, (x,))
    assert torch.autograd.gradgradcheck(seeded, (x,), fast_mode=True)


def test_dropout_statistics() -> None:
    graph = vgraph.graph(([], []), num_nodes=20_000)

    class Map(vgraph.VertexFunction):
        def forward(self, v: vgraph.Vertex) -> None:
            v.push(h=functional.dropout(v.pull("x"), 0.3))

    out = Map()(graph, x=torch.ones(20_000, 4))["h"]
    kept = out != 0
    assert abs(kept.double().mean().item() - 0.7) < 0.01
    torch.testing.assert_close(out[kept], torch.full_like(out[kept], 1 / 0.7))
    assert (kept.double().mean(0) - 0.7).abs().max() < 0.02


# ---------------------------------------------------------------- policies on real shapes
def test_serial_equals_frontier_on_a_batch() -> None:
    torch.manual_seed(1)
    trees: list[vgraph.Graph] = []
    for size in range(1, 12):
        parents = [int(torch.randint(i + 1, size, ())) for i in range(size - 1)]
        trees.append(vgraph.graph((list(range(size - 1)), parents), num_nodes=size))
    graph = vgraph.batch(trees)
    model = Dropped().double().eval()
    found = [run(model, 0, graph) for model.policy in ("frontier", "serial")]
    torch.testing.assert_close(*found, rtol=1e-10, atol=1e-12)


class OneMatrix(vgraph.VertexFunction):
    """Two heads and one matrix for both."""

    def __init__(self) -> None:
        super().__init__()
        self.map = nn.Linear(2, 2, dtype=F64)

    def forward(self, v: vgraph.Vertex) -> None:
        h = torch.tanh(v.pull("x") + self.map(v.gather()["h"].unflatten(-1, (2, 2))).flatten(1).sum())
        v.scatter(h=h)
        v.push(h=h)


def test_one_matrix_for_all_heads() -> None:
    torch.manual_seed(0)
    model, x = OneMatrix(), torch.randn(7, 4, dtype=F64, requires_grad=True)

    def cell(vertex: int, kids: list[States], _: list[int]) -> States:
        given = sum([model.map(k[0].view(2, 2)).flatten() for k in kids], torch.zeros(4, dtype=F64))
        return (torch.tanh(x[vertex] + given),)

    compare(model, cell, {"x": x}, "h")


class Attention(vgraph.VertexFunction):
    """Two heads, a matrix each for the children, and torch's own attention over the heads."""

    def __init__(self) -> None:
        super().__init__()
        self.by_head = nn.Parameter(torch.randn(2, 2, 2, dtype=F64))

    def forward(self, v: vgraph.Vertex) -> None:
        each = torch.einsum("ehi,hij->ehj", v.gather()["h"].unflatten(-1, (2, 2)), self.by_head)
        given, x = each.flatten(1).sum(), v.pull("x")
        heads = functional.scaled_dot_product_attention(*(t.view(-1, 2, 2) for t in (x, given, given)))
        h = torch.tanh(x + heads.flatten(1))
        v.scatter(h=h)
        v.push(h=h)


def test_attention_over_heads(caplog: pytest.LogCaptureFixture) -> None:
    torch.manual_seed(0)
    model, x = Attention(), torch.randn(7, 4, dtype=F64, requires_grad=True)

    def cell(vertex: int, kids: list[States], _: list[int]) -> States:
        each = [torch.einsum("hi,hij->hj", k[0].unflatten(-1, (2, 2)), model.by_head) for k in kids]
        given = sum(each, torch.zeros(2, 2, dtype=F64))
        heads = functional.scaled_dot_product_attention(x[vertex].view(2, 2), given, given)
        return (torch.tanh(x[vertex] + heads.flatten()),)

    compare(model, cell, {"x": x}, "h")
    assert "one vertex at a time" not in caplog.text


def test_dtypes_of_a_looked_up_function_change() -> None:
    """A state that is wide stays so of itself: what it begins with is asked anew where the trace is new."""
    array = np.ones(4)

    class Scales(vgraph.VertexFunction):
        def forward(self, v: Any) -> None:
            h = (v.pull("x") + v.gather()["h"].sum()) * torch.from_numpy(array)
            v.scatter(h=h)
            v.push(h=h)

    scales = Scales()
    for dtype in (np.float32, np.float64, np.float32, np.float64):
        array = np.ones(4, dtype)
        assert scales(DAG, x=torch.ones(7, 4))["h"].dtype is torch.from_numpy(array).dtype
