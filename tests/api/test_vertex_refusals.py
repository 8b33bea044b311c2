"""What a vertex function refuses, and what it runs one vertex at a time."""

from __future__ import annotations

import copy
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
    evaluate,
)
from vgraph.errors import (
    CycleError,
    DTypeError,
    FeatureError,
    FunctionError,
    GraphError,
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
    assert caught.value.cycle == [1, 2] and __file__ in str(caught.value)


@pytest.mark.parametrize(
    ("x", "error", "fact"),
    [
        (None, NameLookupError, "no vertex feature 'x'"),
        (torch.zeros(6, WIDTH), FeatureError, r"'x' has shape \(6, 4\) for 7 rows"),
        (torch.zeros(()), FeatureError, r"shape \(\)"),
        (torch.zeros(7, WIDTH, device="meta"), FeatureError, "is on meta, the graph on cpu"),
        (torch.zeros(7, WIDTH, dtype=F64), DTypeError, "'x' is torch.float64, .* torch.float32"),
        (
            torch.zeros(7, WIDTH).long(),
            DTypeError,
            r"'x' is torch.int64, .* torch.float32(?![\s\S]*convert the module)",
        ),
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


@pytest.mark.parametrize(
    "make",
    [
        lambda: vgraph.heterograph({("a", "to", "b"): ([0], [1])}),
        lambda: vgraph.heterograph({("a", "one", "a"): ([0], [1]), ("a", "two", "a"): ([1], [2])}),
        lambda: vgraph.create_block(([0, 1], [0, 0])),
    ],
)
def test_graphs_of_several_types(make: Any) -> None:
    with pytest.raises(GraphError, match=r"of several types[\s\S]*cure: vgraph.to_homogeneous") as caught:
        ChildSum()(make(), x=torch.ones(2, WIDTH))
    assert __file__ in str(caught.value)


def test_a_state_is_looked_for_without_gathering_it() -> None:
    class Looks(vgraph.VertexFunction):
        def forward(self, v: vgraph.Vertex) -> None:
            child = v.gather()
            h = v.pull("x") + child["h"].sum() + (100 if "other" in child else 0)
            v.scatter(h=h)
            v.push(h=h)

    assert Looks()(vgraph.graph(([0], [1])), x=torch.ones(2))["h"].tolist() == [1.0, 2.0]


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
     ([0], "rows of shape"), ([0.0, 1.0], "torch.float")],
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


def median_of_slots(v: vgraph.Vertex) -> None:
    v.scatter(h=v.gather()["h"].median() + v.pull("x"))


def sum_of_norm_of_slots(v: vgraph.Vertex) -> None:
    v.scatter(h=v.gather()["h"].norm().sum() + v.pull("x"))


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


def joins_slots(v: vgraph.Vertex) -> None:
    slots = v.gather()["h"]
    v.scatter(h=torch.cat([slots, slots]).sum())


def joins_rows_and_slots(v: vgraph.Vertex) -> None:
    v.scatter(h=torch.cat([v.pull("x"), v.gather()["h"]]).sum())


def turns_rows(v: vgraph.Vertex) -> None:
    v.scatter(h=(v.gather()["h"] @ v.pull("x").T).sum())


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
        (scatters_slots, "scatter(h=...) is made of slots and does not have one row a vertex"),
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
        (joins_slots, "rows were joined, cut, turned or made fewer"),
        (joins_rows_and_slots, "rows were joined, cut, turned or made fewer"),
        (median_of_slots, "scatter(h=...) is made of slots and does not have one row a vertex"),
        (sum_of_norm_of_slots, "rows were joined, cut, turned or made fewer"),
        (turns_rows, "rows were joined, cut, turned or made fewer"),
    ],
)
def test_bad_function(body: Any, fact: str) -> None:
    model = bad(body)
    for _ in range(2):  # a refusal is not remembered as something else
        with pytest.raises((FunctionError, NameLookupError, FeatureError)) as caught:
            model(DAG, x=torch.randn(7, WIDTH))
        assert fact in str(caught.value)
        assert f"{__file__}:" in str(caught.value)
        assert "cure:" in str(caught.value)


@pytest.mark.parametrize("body", [scatters_slots, median_of_slots, sum_of_norm_of_slots, sum_of_slots_by_dim])
def test_what_is_not_reduced_is_told_by_what_it_would_be(body: Any) -> None:
    with pytest.raises((FunctionError, FeatureError), match=r"reduce.* without a dim"):
        bad(body)(DAG, x=torch.randn(7, WIDTH))


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


def arange_of_rows(v: vgraph.Vertex) -> None:
    v.push(h=v.pull("x") + torch.arange(v.pull("x").shape[0]).unsqueeze(-1))


def test_numbers_of_rows_are_refused() -> None:
    with pytest.raises(FunctionError, match="arange in Bad mixes vertices"):
        bad(arange_of_rows)(DAG, x=torch.randn(7, WIDTH))


# ---------------------------------------------------------------- what newcomers write
class Returns(vgraph.VertexFunction):
    def __init__(self, how: Any = tuple) -> None:
        super().__init__()
        self.how = how

    def forward(self, v: vgraph.Vertex) -> Any:
        return self.how([v.pull("x")])


class Forgets(vgraph.VertexFunction):
    def __init__(self) -> None:
        pass

    def forward(self, v: vgraph.Vertex) -> None:
        v.push(h=v.pull("x"))


@pytest.mark.parametrize("how", [tuple, list, lambda rows: rows[0], lambda rows: {"h": rows[0]}])
def test_forward_that_returns_rows(how: Any) -> None:
    with pytest.raises(FunctionError, match="forward returns a tensor, which nobody sees") as caught:
        Returns(how)(DAG, x=torch.zeros(7, WIDTH))
    assert f"{__file__}:" in str(caught.value) and "v.push(h=rows)" in str(caught.value)


def test_init_that_forgets_its_base() -> None:
    with pytest.raises(FunctionError, match="Forgets was not initialised") as caught:
        Forgets()(DAG, x=torch.zeros(7, WIDTH))
    assert "super().__init__()" in str(caught.value)


@pytest.mark.parametrize("graph", [[DAG, DAG], None, torch.zeros(7, WIDTH)])
def test_called_on_what_is_no_graph(graph: Any) -> None:
    with pytest.raises(FunctionError, match="Vanilla is called on a") as caught:
        Vanilla()(graph, x=torch.zeros(7, WIDTH))
    assert ("vgraph.batch" in str(caught.value)) is isinstance(graph, list)


@pytest.mark.parametrize("width", ["4", 4.0, (4, "a"), -1, None])
def test_states_that_are_no_shapes(width: Any) -> None:
    with pytest.raises(FunctionError, match="the width of the state 'h' is"):
        vgraph.VertexFunction(states={"h": width})
