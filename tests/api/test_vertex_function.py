"""Vertex functions against recursions written by hand: graphs, and what a vertex can say."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import vgraph
from tests.api.recursion import (
    DAG,
    F64,
    WIDTH,
    ChildSum,
    States,
    check_equal,
    evaluate,
    features,
    recursive_tree_lstm,
)
from vgraph.errors import (
    ChildIndexError,
)

# ---------------------------------------------------------------- graphs
STAR = vgraph.graph((list(range(1, 9)), [0] * 8))
GRAPHS = {
    "dag with shared children": DAG,
    "star": STAR,
    "chain": vgraph.graph((list(range(6)), list(range(1, 7)))),
    "one vertex": vgraph.graph(([], []), num_nodes=1),
    "no edges": vgraph.graph(([], []), num_nodes=5),
    "several roots": vgraph.graph(([0, 0, 1, 2], [1, 2, 3, 4]), num_nodes=6),
    "batch": vgraph.batch([DAG, STAR, vgraph.graph(([0, 1], [2, 2]))]),
    "multi-edge": vgraph.graph(([0, 0, 0, 1], [1, 1, 1, 2])),
    "in-degrees to ten": vgraph.graph(
        ([s for d in range(11) for s in range(d)], [11 + d for d in range(11) for _ in range(d)]),
        num_nodes=22,
    ),
}


@pytest.mark.parametrize("name", GRAPHS)
@pytest.mark.parametrize("direction", ["forward", "reverse"])
@pytest.mark.parametrize("policy", ["frontier", "serial"])
def test_tree_lstm_equals_recursion(name: str, direction: str, policy: str) -> None:
    graph = GRAPHS[name]
    model = ChildSum(direction=direction, policy=policy).double()
    x = features(graph)
    out = model(graph, x=x)
    wanted = recursive_tree_lstm(model, graph, x, reverse=direction == "reverse")
    check_equal(model, (out["h"], out["c"]), wanted, (x,))


def test_derivatives_of_first_and_second_order() -> None:
    model = ChildSum(2).double()
    x = features(width=2)
    assert torch.autograd.gradcheck(lambda t: tuple(model(DAG, x=t).values()), (x,))
    assert torch.autograd.gradgradcheck(lambda t: model(DAG, x=t)["h"], (x,))


def test_empty_graph() -> None:
    model = ChildSum()
    out = model(vgraph.graph(([], []), num_nodes=0), x=torch.zeros(0, WIDTH, requires_grad=True))
    assert out["h"].shape == (0, WIDTH)
    out["h"].sum().backward()
    assert model.W.weight.grad is not None and not model.W.weight.grad.any()


def test_ten_thousand_children() -> None:
    count = 10_000
    graph = vgraph.graph((torch.arange(count), torch.full((count,), count)))
    model = ChildSum(2).double()
    x = features(graph, 2)
    got = model(graph, x=x)["h"]
    leaf = recursive_tree_lstm(model, vgraph.graph(([], []), num_nodes=1), x[:1])
    torch.testing.assert_close(got[:1], leaf[0])
    i, o, u = (model.W(x[-1]) + model.U(got[:-1].sum(0))).chunk(3, -1)
    f = torch.sigmoid(model.Wf(x[-1]) + model.Uf(got[:-1]))
    c = torch.sigmoid(i) * torch.tanh(u) + (f * model(graph, x=x)["c"][:-1]).sum(0)
    torch.testing.assert_close(got[-1], torch.sigmoid(o) * torch.tanh(c))
    got.sum().backward()


@pytest.mark.parametrize(("kernels", "count"), [("1", 20_000), ("0", 3_000)])
def test_long_chain(kernels: str, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three times as many frontiers as Python calls within calls."""
    monkeypatch.setenv("VGRAPH_KERNELS", kernels)

    class Decay(vgraph.VertexFunction):
        def forward(self, v: vgraph.Vertex) -> None:
            s = v.pull("x") + 0.5 * v.gather()["s"].sum()
            v.scatter(s=s)
            v.push(s=s)

    graph = vgraph.graph((torch.arange(count - 1), torch.arange(1, count)))
    x = torch.ones(count, 1, dtype=F64, requires_grad=True)
    out = Decay()(graph, x=x)["s"]
    (grad,) = torch.autograd.grad(out[-1].sum(), x)
    torch.testing.assert_close(out[:3, 0], torch.tensor([1.0, 1.5, 1.75], dtype=F64))
    torch.testing.assert_close(grad[-3:, 0], torch.tensor([0.25, 0.5, 1.0], dtype=F64))


# ---------------------------------------------------------------- what a vertex can say
def test_pull_of_every_kind_and_in_degree() -> None:
    class Everything(vgraph.VertexFunction):
        def forward(self, v: vgraph.Vertex) -> None:
            slots = v.gather()["h"] * v.pull_edge("w") + v.pull("x") + v.pull_graph("g")
            h = torch.tanh(slots.sum() + v.pull("x") * v.in_degree.unsqueeze(-1))
            v.scatter(h=h)
            v.push(h=h, at_graph=v.pull_graph("g") * 2)

    graph = vgraph.batch([DAG, STAR])
    x = features(graph)
    w = torch.rand(graph.num_edges(), 1, dtype=F64, requires_grad=True)
    g = torch.randn(2, WIDTH, dtype=F64, requires_grad=True)
    graph_of = [0] * DAG.num_nodes() + [1] * STAR.num_nodes()

    def cell(vertex: int, children: list[States], edges: list[int]) -> States:
        h = x[vertex] * len(edges)
        for (child,), e in zip(children, edges, strict=True):
            h = h + child * w[e] + x[vertex] + g[graph_of[vertex]]
        return torch.tanh(h), g[graph_of[vertex]] * 2

    def only_state(vertex: int, children: list[States], edges: list[int]) -> States:
        return cell(vertex, [c[:1] for c in children], edges)

    model = Everything()
    out = model(graph, x=x, w=w, g=g)
    check_equal(model, (out["h"], out["at_graph"]), evaluate(graph, only_state), (x, w, g))


def test_features_are_found_in_keywords_before_frames() -> None:
    graph = vgraph.graph(([0, 1], [2, 2]))
    graph.ndata["x"] = torch.ones(3, 1)
    graph.edata["w"] = torch.full((2, 1), 3.0)

    class Sum(vgraph.VertexFunction):
        def forward(self, v: vgraph.Vertex) -> None:
            s = v.pull("x") + (v.gather()["s"] * v.pull_edge("w")).sum()
            v.scatter(s=s)
            v.push(s=s)

    model = Sum()
    assert model(graph)["s"].flatten().tolist() == [1, 1, 7]
    assert model(graph, x=torch.zeros(3, 1))["s"].flatten().tolist() == [0, 0, 0]
    assert model(graph, w=torch.zeros(2, 1))["s"].flatten().tolist() == [1, 1, 1]


def test_at_gives_a_feature_to_some_vertices() -> None:
    class Leaves(vgraph.VertexFunction):
        def __init__(self) -> None:
            super().__init__()
            self.W = nn.Linear(2, WIDTH)

        def forward(self, v: vgraph.Vertex) -> None:
            h = torch.tanh(self.W(v.pull("x")) + v.gather()["h"].sum())
            v.scatter(h=h)
            v.push(h=h)

    model, ids = Leaves().double(), torch.tensor([4, 0, 1])
    rows = torch.randn(3, 2, dtype=F64, requires_grad=True)

    def whole() -> Tensor:
        return torch.zeros(DAG.num_nodes(), 2, dtype=F64).index_copy(0, ids, rows)

    for _ in range(2):  # one after the other, and once more
        out, wanted = model(DAG, x=vgraph.at(rows, ids)), model(DAG, x=whole())
        check_equal(model, (out["h"],), (wanted["h"],), (rows,))
    nobody = vgraph.at(rows[:0], ids[:0])
    torch.testing.assert_close(model(DAG, x=nobody)["h"], model(DAG, x=whole() * 0)["h"])


class Several(vgraph.VertexFunction):
    """Features of some vertices, of some others, of graphs and of all, which meet."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.A, self.B = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, v: vgraph.Vertex) -> None:
        one, two = v.pull("one"), v.pull("two")
        h = self.A(one) * self.B(two) + torch.cat([two, v.pull_graph("whole")], -1)[..., 1:-1].sum(-1, keepdim=True)
        h = torch.tanh(torch.where(v.pull_graph("whole") > one, h, two * 2) + v.pull("all") + v.gather()["h"].sum())
        v.scatter(h=h)
        v.push(h=h)


@pytest.mark.parametrize("policy", ["frontier", "serial"])
def test_features_of_different_vertices_meet(policy: str) -> None:
    """As when each is given for all vertices, with zeros."""
    model, count = Several(policy=policy).double(), DAG.num_nodes()
    places = {"one": torch.tensor([4, 0, 1]), "two": torch.tensor([5, 4])}
    given = {name: torch.randn(len(ids), WIDTH, dtype=F64, requires_grad=True) for name, ids in places.items()}
    others = {"all": features(), "whole": torch.randn(1, WIDTH, dtype=F64, requires_grad=True)}
    dense = {n: torch.zeros(count, WIDTH, dtype=F64).index_copy(0, ids, given[n]) for n, ids in places.items()}
    some = {name: vgraph.at(given[name], ids) for name, ids in places.items()}
    got, wanted = (model(DAG, **others, **rows)["h"] for rows in (some, dense))
    check_equal(model, (got,), (wanted,), (*given.values(), *others.values()))


def test_encoder_and_decoder() -> None:
    class Chain(vgraph.VertexFunction):
        def __init__(self, **options: Any) -> None:
            super().__init__(**options)
            self.cell = nn.GRUCell(WIDTH, WIDTH)

        def forward(self, v: vgraph.Vertex) -> None:
            h = self.cell(v.pull("x"), v.gather()["h"].sum())
            v.scatter(h=h)
            v.push(h=h)

    lengths = (3, 1, 4)
    chains = [vgraph.graph((list(range(n - 1)), list(range(1, n))), num_nodes=n) for n in lengths]
    graph = vgraph.batch(chains)
    encode, decode = Chain().double(), Chain(direction="reverse").double()
    x = features(graph)
    got = decode(graph, x=encode(graph, x=x)["h"])["h"]
    wanted: list[Tensor] = []
    for rows in x.split(lengths):
        h, inner = x.new_zeros(WIDTH), []
        for row in rows:
            h = encode.cell(row, h)
            inner.append(h)
        h, outer = x.new_zeros(WIDTH), []
        for row in inner[::-1]:
            h = decode.cell(row, h)
            outer.append(h)
        wanted += outer[::-1]
    check_equal(nn.ModuleList([encode, decode]), (got,), (torch.stack(wanted),), (x,))


def test_function_that_gathers_nothing() -> None:
    class Map(vgraph.VertexFunction):
        def forward(self, v: vgraph.Vertex) -> None:
            v.scatter(unused=v.pull("x") * 2)
            v.push(y=torch.tanh(v.pull("x")), n=v.in_degree)

    x = features()
    out = Map()(DAG, x=x)
    check_equal(nn.Module(), (out["y"],), (torch.tanh(x),), (x,))
    assert out["n"].tolist() == DAG.in_degrees().tolist()


def test_function_that_pushes_nothing() -> None:
    class Silent(vgraph.VertexFunction):
        def forward(self, v: vgraph.Vertex) -> None:
            v.scatter(s=v.pull("x") + v.gather()["s"].sum())

    assert Silent()(DAG, x=features()) == {}


def test_gather_of_one_child() -> None:
    class Binary(vgraph.VertexFunction):
        def __init__(self, **how: Any) -> None:
            super().__init__()
            self.how = how

        def forward(self, v: vgraph.Vertex) -> None:
            left, right = v.gather(0, **self.how)["h"], v.gather(1, **self.how)["h"]
            h = torch.tanh(v.pull("x") + 2 * left - 3 * right)
            v.scatter(h=h)
            v.push(h=h)

    x = features()

    def cell(vertex: int, kids: list[States], _: list[int]) -> States:
        one = torch.full_like(x[vertex], 0.5) if kids else torch.zeros_like(x[vertex])
        left = kids[0][0] if kids else one
        right = kids[1][0] if len(kids) > 1 else one
        return (torch.tanh(x[vertex] + 2 * left - 3 * right),)

    given = Binary(default=0.5)
    for given.policy in ("frontier", "serial"):
        check_equal(given, (given(DAG, x=x)["h"],), evaluate(DAG, cell), (x,))
    with pytest.raises(ChildIndexError, match=r"gather\(1\).*vertex 2 has 1 child\b") as caught:
        Binary()(DAG, x=x)
    assert "default=" in str(caught.value) and f"{__file__}:" in str(caught.value)
    tree = vgraph.graph(([0, 1, 2, 3], [2, 2, 4, 4]))
    check_equal(given, (Binary()(tree, x=x[:5])["h"],), (given(tree, x=x[:5])["h"],), (x,))


def test_functional_layers_inside() -> None:
    class Layers(vgraph.VertexFunction):
        def __init__(self) -> None:
            super().__init__()
            self.words = nn.Embedding(5, WIDTH)
            self.norm = nn.LayerNorm(WIDTH)
            self.mlp = nn.Sequential(nn.Linear(WIDTH, 8), nn.GELU(), nn.Linear(8, WIDTH))

        def forward(self, v: vgraph.Vertex) -> None:
            x = self.words(v.pull("word"))
            weight = functional.softmax(self.mlp(v.gather()["h"]), dim=-1)
            h = self.norm(x + (weight * v.gather()["h"]).sum())
            v.scatter(h=h)
            v.push(h=h)

    model = Layers().double()
    word = torch.randint(0, 5, (7,))

    def cell(vertex: int, kids: list[States], _: list[int]) -> States:
        h = model.words(word[vertex])
        for (kid,) in kids:
            h = h + functional.softmax(model.mlp(kid), dim=-1) * kid
        return (model.norm(h),)

    check_equal(model, (model(DAG, word=word)["h"],), evaluate(DAG, cell), ())
