"""What a vertex function refuses, and what it runs one vertex at a time."""

from __future__ import annotations

import copy
import logging
import traceback
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

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
)
from vgraph.errors import (
    ChildIndexError,
    CycleError,
    DTypeError,
    FeatureError,
    FunctionError,
    NameLookupError,
)


# ---------------------------------------------------------------- bad input
class Vanilla(vgraph.VertexFunction):
    def forward(self, v: vgraph.Vertex) -> None:
        s = v.pull("x") + v.gather()["s"].sum()
        v.scatter(s=s)
        v.push(s=s)


def test_cycle_is_named() -> None:
    graph = vgraph.graph(([0, 1, 2, 3], [1, 2, 1, 0]))
    with pytest.raises(CycleError, match="vertices 1, 2 form a cycle") as caught:
        Vanilla()(graph, x=torch.zeros(4, 1))
    assert caught.value.cycle == [1, 2]


@pytest.mark.parametrize(
    ("x", "error", "fact"),
    [
        (None, NameLookupError, "no vertex feature 'x'"),
        (torch.zeros(6, WIDTH), FeatureError, r"'x' has shape \(6, 4\) for 7 rows"),
        (torch.zeros(()), FeatureError, r"shape \(\)"),
        (torch.zeros(7, WIDTH, device="meta"), FeatureError, "is on meta, the graph on cpu"),
        (torch.zeros(7, WIDTH, dtype=F64), DTypeError, "'x' is torch.float64, .* torch.float32"),
        (torch.zeros(7, WIDTH).long(), DTypeError, "'x' is torch.int64, .* torch.float32"),
        ([[0.0]] * 7, FeatureError, "'x' is a list"),
    ],
)
def test_bad_feature(x: Any, error: type[Exception], fact: str) -> None:
    model, before = ChildSum(), dict(DAG.ndata)
    with pytest.raises(error, match=fact) as caught:
        model(DAG, **({} if x is None else {"x": x}))
    assert "cure:" in str(caught.value)
    assert f"  at {Path(__file__).parent}" in str(caught.value)  # where it is pulled, or called
    assert dict(DAG.ndata) == before
    model(DAG, x=torch.zeros(7, WIDTH))


def test_bad_feature_after_a_good_one() -> None:
    model = ChildSum()
    model(DAG, x=torch.zeros(7, WIDTH))
    with pytest.raises(DTypeError):
        model(DAG, x=torch.zeros(7, WIDTH, dtype=F64))
    with pytest.raises(FeatureError):
        model(DAG, x=torch.zeros(8, WIDTH))


@pytest.mark.parametrize(
    ("ids", "fact"),
    [([0, 0], "not distinct"), ([0, 7], "not distinct"), ([-1, 0], "not distinct"),
     ([0], "2 rows for ids"), ([0.0, 1.0], "torch.float")],
)  # fmt: skip
def test_bad_at(ids: Any, fact: str) -> None:
    with pytest.raises((FeatureError, DTypeError), match=fact):
        Vanilla()(DAG, x=vgraph.at(torch.zeros(2, 1), torch.tensor(ids)))


def bad(body: Any) -> vgraph.VertexFunction:
    class Bad(vgraph.VertexFunction):
        def forward(self, v: vgraph.Vertex) -> None:
            body(v)

    return Bad()


def scatters_slots(v: vgraph.Vertex) -> None:
    v.scatter(h=v.gather()["h"] + v.pull("x"))


def scatters_shared(v: vgraph.Vertex) -> None:
    v.scatter(h=torch.ones(WIDTH))


def pushes_shared(v: vgraph.Vertex) -> None:
    v.push(h=torch.ones(7, WIDTH))


def pushes_a_number(v: vgraph.Vertex) -> None:
    v.push(h=1.0)  # type: ignore[arg-type]


def pushes_other_rows(v: vgraph.Vertex) -> None:
    v.push(h=v.pull("x").reshape(-1))


def pushes_twice(v: vgraph.Vertex) -> None:
    v.push(h=v.pull("x"))
    v.push(h=v.pull("x"))


def never_scattered(v: vgraph.Vertex) -> None:
    v.push(h=v.pull("x") + v.gather()["past"].sum())


def mean_of_all(v: vgraph.Vertex) -> None:
    v.push(h=v.pull("x") - v.pull("x").mean())


def mean_of_rows(v: vgraph.Vertex) -> None:
    v.push(h=v.pull("x") - v.pull("x").mean(0))


def softmax_of_rows(v: vgraph.Vertex) -> None:
    v.push(h=torch.softmax(v.pull("x"), 0))


def median_of_all(v: vgraph.Vertex) -> None:
    v.push(h=v.pull("x") - v.pull("x").median())


def norm_of_all(v: vgraph.Vertex) -> None:
    v.push(h=v.pull("x") / torch.linalg.vector_norm(v.pull("x")))


def pairs(v: vgraph.Vertex) -> None:
    v.push(h=v.pull("x") @ v.pull("x").t() @ v.pull("x"))


def distances(v: vgraph.Vertex) -> None:
    v.push(h=torch.cdist(v.pull("x"), v.pull("x")).sum(-1, keepdim=True))


def cumsum_of_slots(v: vgraph.Vertex) -> None:
    h = v.pull("x") + v.gather()["h"].cumsum(0).sum()
    v.scatter(h=h)


def sum_of_slots_by_dim(v: vgraph.Vertex) -> None:
    h = v.pull("x") + v.gather()["h"].sum(0)
    v.scatter(h=h)


def number_of_rows(v: vgraph.Vertex) -> None:
    v.push(h=v.pull("x") / v.pull("x").shape[0])


def rolled(v: vgraph.Vertex) -> None:
    v.push(h=torch.roll(v.pull("x"), 1, 0))


def first_row(v: vgraph.Vertex) -> None:
    v.push(h=v.pull("x") - v.pull("x")[0])


@pytest.mark.parametrize(
    ("body", "fact"),
    [
        (scatters_slots, "scatter(h=...) has one row a slot"),
        (scatters_shared, "scatter(h=...) does not have one row a vertex"),
        (pushes_shared, "push(h=...) does not have one row a vertex"),
        (pushes_a_number, "push(h=...) does not have one row a vertex"),
        (pushes_other_rows, "push(h=...) does not have one row a vertex"),
        (pushes_twice, "push(h=...) is called twice"),
        (never_scattered, "'past' is gathered but never scattered"),
        (mean_of_all, "mean over the dim of rows mixes vertices"),
        (mean_of_rows, "mean over the dim of rows mixes vertices"),
        (softmax_of_rows, "softmax over the dim of rows mixes vertices"),
        (median_of_all, "mixes vertices"),
        (norm_of_all, "mixes vertices"),
        (pairs, "mixes vertices"),
        (distances, "mixes vertices"),
        (cumsum_of_slots, "mixes"),
        (sum_of_slots_by_dim, "sum over the dim of rows mixes slots"),
        (number_of_rows, "mixes vertices"),
        (rolled, "mixes vertices"),
        (first_row, "mixes vertices"),
    ],
)
def test_bad_function(body: Any, fact: str) -> None:
    model = bad(body)
    for _ in range(2):  # a refusal is not remembered as something else
        with pytest.raises((FunctionError, NameLookupError)) as caught:
            model(DAG, x=torch.randn(7, WIDTH))
        assert fact in str(caught.value)
        assert f"{__file__}:" in str(caught.value)
        assert "cure:" in str(caught.value)


class Normed(vgraph.VertexFunction):
    def __init__(self, norm: nn.Module) -> None:
        super().__init__()
        self.norm = norm

    def forward(self, v: vgraph.Vertex) -> None:
        h = self.norm(v.pull("x")) + v.gather()["h"].sum()
        v.scatter(h=h)
        v.push(h=h)


@pytest.mark.parametrize("tracked", [True, False])
def test_batch_norm_in_training_is_refused(tracked: bool) -> None:
    norm = nn.BatchNorm1d(WIDTH, track_running_stats=tracked)
    state = copy.deepcopy(norm.state_dict())
    with pytest.raises(FunctionError, match="LayerNorm"):
        Normed(norm)(DAG, x=torch.randn(7, WIDTH))
    for name, value in norm.state_dict().items():
        assert torch.equal(value, state[name])


def test_batch_norm_in_eval_and_layer_norm() -> None:
    x = torch.randn(7, WIDTH)
    for norm in (nn.BatchNorm1d(WIDTH).eval(), nn.LayerNorm(WIDTH), nn.GroupNorm(2, WIDTH)):
        got = Normed(norm)(DAG, x=x)["h"]
        (wanted,) = evaluate(DAG, lambda v, kids, _, n=norm: (n(x[v : v + 1])[0] + sum(k[0] for k in kids),))
        torch.testing.assert_close(got, wanted)


def test_recurrent_cells_of_torch(caplog: pytest.LogCaptureFixture) -> None:
    class Lstm(vgraph.VertexFunction):
        def __init__(self) -> None:
            super().__init__()
            self.cell = nn.LSTMCell(WIDTH, 5)

        def forward(self, v: vgraph.Vertex) -> None:
            child = v.gather()
            h, c = self.cell(v.pull("x"), (child["h"].sum(), child["c"].mean()))
            v.scatter(h=h, c=c)
            v.push(h=h, c=c)

    model, x = Lstm().double(), features()

    def cell(vertex: int, kids: list[States], _: list[int]) -> States:
        past = [sum((k[i] for k in kids), x.new_zeros(5)) for i in range(2)]
        return model.cell(x[vertex], (past[0], past[1] / max(len(kids), 1)))

    with caplog.at_level(logging.INFO, "vgraph"):
        out = model(DAG, x=x)
    assert not caplog.text
    check_equal(model, (out["h"], out["c"]), evaluate(DAG, cell), (x,))


class Inverse(vgraph.VertexFunction):
    """torch.linalg.inv checks its data, so it is not captured at all."""

    def forward(self, v: vgraph.Vertex) -> None:
        a = torch.linalg.inv(v.pull("a") + 0.1 * v.gather()["a"].sum())
        v.scatter(a=a)
        v.push(a=a)


class Exponential(vgraph.VertexFunction):
    """torch.linalg.matrix_exp is captured, but nothing is known of it."""

    def forward(self, v: vgraph.Vertex) -> None:
        a = torch.linalg.matrix_exp(0.3 * (v.pull("a") + 0.1 * v.gather()["a"].sum()))
        v.scatter(a=a)
        v.push(a=a)


@pytest.mark.parametrize("kind", [Inverse, Exponential])
def test_undescribed_operator_runs_one_vertex_at_a_time(
    kind: type[vgraph.VertexFunction], caplog: pytest.LogCaptureFixture
) -> None:
    eye = 3 * torch.eye(2, dtype=F64)
    a = (torch.randn(7, 2, 2, dtype=F64) * 0.3 + eye).requires_grad_()
    model = kind(states={"a": (2, 2)})
    with caplog.at_level(logging.INFO, "vgraph"):
        out = model(DAG, a=a)["a"]
        model(DAG, a=a)
    assert caplog.text.count("one vertex at a time") == 1
    assert f"{__file__}:" in caplog.text
    zero = torch.zeros(2, 2, dtype=F64)

    def cell(vertex: int, kids: list[States], _: list[int]) -> States:
        inner = a[vertex] + 0.1 * sum((k[0] for k in kids), zero)
        inverse = kind is Inverse
        return (torch.linalg.inv(inner) if inverse else torch.linalg.matrix_exp(0.3 * inner),)

    check_equal(model, (out,), evaluate(DAG, cell), (a,))


# ---------------------------------------------------------------- what falls back
class Branching(vgraph.VertexFunction):
    def __init__(self) -> None:
        super().__init__()
        self.W = nn.Linear(WIDTH, WIDTH)

    def forward(self, v: vgraph.Vertex) -> None:
        h = self.W(v.pull("x")) + v.gather()["h"].sum()
        if v.pull("x").sum(-1).item() > 0:
            h = torch.tanh(h)
        v.scatter(h=h)
        v.push(h=h)


def test_data_dependent_branch_falls_back(caplog: pytest.LogCaptureFixture) -> None:
    model, x = Branching().double(), features()

    def cell(vertex: int, kids: list[States], _: list[int]) -> States:
        h = model.W(x[vertex]) + sum(k[0] for k in kids)
        return (torch.tanh(h) if x[vertex].sum() > 0 else h,)

    with caplog.at_level(logging.INFO, "vgraph"):
        for _ in range(2):
            check_equal(model, (model(DAG, x=x)["h"],), evaluate(DAG, cell), (x,))
    assert caplog.text.count("one vertex at a time") == 1
    assert f"{__file__}:" in caplog.text
    assert model(vgraph.graph(([], []), num_nodes=0), x=x[:0])["h"].shape == (0, WIDTH)


def test_error_in_the_users_function_keeps_its_line() -> None:
    class Raises(vgraph.VertexFunction):
        wrong = True

        def forward(self, v: vgraph.Vertex) -> None:
            h = v.pull("x") + v.gather()["h"].sum()
            if self.wrong:
                raise RuntimeError("my own mistake")
            v.scatter(h=h)
            v.push(h=h)

    model, x = Raises(), torch.ones(7, 1)
    with pytest.raises(RuntimeError, match="my own mistake") as caught:
        model(DAG, x=x)
    assert "my own mistake" in traceback.format_tb(caught.tb)[-1]
    model.wrong = False
    assert torch.equal(model(DAG, x=x)["h"], Vanilla()(DAG, x=x)["s"])


@pytest.mark.parametrize("width", [3, 13])
def test_error_of_torch_names_the_users_line(width: int) -> None:
    model = ChildSum()
    with pytest.raises(RuntimeError, match="cannot be multiplied") as caught:
        model(DAG, x=torch.ones(7, width))
    assert any("self.W(x) + self.U" in line for line in traceback.format_tb(caught.tb))
    model(DAG, x=torch.ones(7, WIDTH))


@pytest.mark.parametrize("k", [-1, 1.0, True])
def test_gather_of_no_such_child(k: Any) -> None:
    with pytest.raises(ChildIndexError, match="no such child"):
        bad(lambda v: v.gather(k)["h"])(DAG)


def test_gather_of_one_child_falls_back() -> None:
    class Left(Branching):
        def forward(self, v: vgraph.Vertex) -> None:
            h = self.W(v.pull("x")) + v.gather(1)["h"]
            v.scatter(h=h)
            v.push(h=h * float(h.detach().sum(-1)))

    with pytest.raises(ChildIndexError, match=r"gather\(1\).*vertex 2 has 1 child\b"):
        Left()(DAG, x=torch.randn(7, WIDTH))


def test_no_such_direction_or_policy() -> None:
    with pytest.raises(FunctionError, match="'up'"):
        ChildSum(direction="up")
    with pytest.raises(NameLookupError, match="greedy"):
        ChildSum(policy="greedy")(DAG, x=torch.randn(7, WIDTH))


def test_no_forward() -> None:
    with pytest.raises(FunctionError, match="has no forward"):
        vgraph.VertexFunction()(DAG)


def test_one_type_of_several_falls_back() -> None:
    class Word(vgraph.VertexFunction):
        def forward(self, v: vgraph.Vertex) -> None:
            x = v.pull("x") * (10 if v.pull("x").sum(-1).item() > 2.5 else 1)
            v.scatter(s=x)
            v.push(s=x)

    class Product(vgraph.VertexFunction):
        def forward(self, v: vgraph.Vertex) -> None:
            v.scatter(s=v.gather()["s"].prod())
            v.push(s=v.gather()["s"].prod(), count=v.in_degree)

    tree = vgraph.graph(([0, 1, 2, 3], [2, 2, 4, 4]))
    tree.ndata["type"] = torch.tensor([0, 0, 1, 0, 1])
    x = torch.tensor([[2.0], [3.0], [0.0], [1.0], [0.0]], requires_grad=True)
    out = vgraph.ByType({0: Word(), 1: Product()}, key="type")(tree, x=x)
    assert out["s"].flatten().tolist() == [2, 30, 60, 1, 60]
    assert out["count"].tolist() == [0, 0, 2, 0, 2]
    (grad,) = torch.autograd.grad(out["s"][4].sum(), x)
    assert grad.flatten().tolist() == [30, 20, 0, 60, 0]
