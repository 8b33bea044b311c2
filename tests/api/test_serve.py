"""Serving: graphs join and leave between frontiers, with the results of a call."""

from __future__ import annotations

import threading

import pytest
import torch
from torch import nn

import vgraph
from tests.runtime.engine_models import MODELS, WIDTH, binary_tree, chain, features
from vgraph.api import capture
from vgraph.errors import CycleError, FunctionError, NameLookupError

SECONDS = 60


def check(model: vgraph.VertexFunction, graphs: list[vgraph.Graph], server: vgraph.Server, **given) -> None:
    xs = [features(g) for g in graphs]
    futures = [server.submit(g, x=x, **given) for g, x in zip(graphs, xs, strict=True)]
    for g, x, future in zip(graphs, xs, futures, strict=True):
        wanted, found = model(g, x=x, **given), future.result(SECONDS)
        assert found.keys() == wanted.keys()
        for name, tensor in wanted.items():
            torch.testing.assert_close(found[name], tensor, rtol=1e-10, atol=1e-12)
            assert not found[name].requires_grad


@pytest.fixture(params=[0, 128])
def whole(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every graph a frontier at a time, and every graph whole."""
    monkeypatch.setattr("vgraph.api.serve.WHOLE", request.param)


@pytest.mark.usefixtures("whole")
@pytest.mark.parametrize("name", MODELS)
def test_results_are_those_of_a_call(name: str) -> None:
    model = MODELS[name]().double()
    with vgraph.serve(model, most_vertices=20) as server:
        check(model, [binary_tree(n) for n in (1, 2, 30, 4)] + [chain(5)], server)
        check(model, [chain(2)], server)  # the pool has room from before


class Longest(vgraph.VertexFunction):
    """The length of the path below."""

    def forward(self, v: vgraph.Vertex) -> None:
        depth = v.pull("x") + v.gather()["depth"].max()
        v.scatter(depth=depth)
        v.push(depth=depth)


def test_graphs_join_between_frontiers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten frontiers and three, where the second graph comes after the first has begun: not thirteen."""
    gate, entered = threading.Event(), threading.Event()
    with vgraph.serve(Longest(), whole=0) as server:
        real = server._evaluate

        def held(now):
            entered.set()
            assert gate.wait(SECONDS)
            real(now)

        monkeypatch.setattr(server, "_evaluate", held)
        long = server.submit(chain(10), x=torch.ones(10))
        assert entered.wait(SECONDS)  # the first frontier of the long one is being evaluated
        short = server.submit(chain(3), x=torch.ones(3))
        gate.set()
        assert short.result(SECONDS)["depth"].tolist() == [1, 2, 3]
        assert long.result(SECONDS)["depth"].tolist() == list(range(1, 11))
    assert server.num_frontiers == 10


@pytest.mark.parametrize("given", [{"most_vertices": 0}, {"whole": -1}])
def test_numbers_that_leave_nothing_to_run(given: dict[str, int]) -> None:
    with pytest.raises(vgraph.errors.FunctionError, match="leaves no frontier to run"):
        vgraph.serve(Longest(), **given)


def test_shallow_graphs_do_not_wait_for_a_deep_one() -> None:
    """They run whole between its frontiers; a thousand of those are not over before five are."""
    left = list[int]()
    with vgraph.serve(Longest(), whole=8) as server:
        long = server.submit(chain(1000), x=torch.ones(1000))
        for n in (3, 8, 5):
            short = server.submit(chain(n), x=torch.ones(n))
            assert short.result(SECONDS)["depth"].tolist() == list(range(1, n + 1))
            left.append(long.done())
        assert not any(left)
        assert long.result(SECONDS)["depth"].tolist() == list(range(1, 1001))


@pytest.mark.usefixtures("whole")
def test_features_of_edges_graphs_and_some_vertices() -> None:
    class All(vgraph.VertexFunction):
        def forward(self, v: vgraph.Vertex) -> None:
            s = v.pull("x") + (v.gather()["s"] * v.pull_edge("w")).sum() + v.pull_graph("bias")
            v.scatter(s=s)
            v.push(s=s)

    model, tree = All(direction="reverse"), binary_tree(5)
    given = {"w": torch.rand(tree.num_edges(), 1), "bias": torch.rand(1, 1)}
    x = vgraph.at(torch.rand(3, 1), torch.tensor([4, 0, 2]))
    with vgraph.serve(model) as server:
        futures = [server.submit(tree, x=x, **given), server.submit(tree, x=x, **given)]
        for future in futures:
            torch.testing.assert_close(future.result(SECONDS)["s"], model(tree, x=x, **given)["s"])


@pytest.mark.usefixtures("whole")
def test_an_error_reaches_its_graphs_alone() -> None:
    class Picky(vgraph.VertexFunction):
        def __init__(self) -> None:
            super().__init__()
            self.W = nn.Linear(WIDTH, WIDTH)

        def forward(self, v: vgraph.Vertex) -> None:
            h = torch.tanh(self.W(v.pull("x")) + v.gather()["h"].sum())
            v.scatter(h=h)
            v.push(h=h)

    model = Picky().double()
    with vgraph.serve(model) as server:
        server.submit(chain(2), x=features(chain(2))).result(SECONDS)
        model.W.weight = nn.Parameter(torch.zeros(WIDTH, 2, dtype=torch.float64))  # fails in the next frontier
        with pytest.raises(RuntimeError):
            server.submit(chain(2), x=features(chain(2))).result(SECONDS)
        model.W.weight = nn.Parameter(torch.zeros(WIDTH, WIDTH, dtype=torch.float64))
        server.submit(chain(2), x=features(chain(2))).result(SECONDS)


def test_bad_graphs_are_refused_at_once() -> None:
    with vgraph.serve(MODELS["gru"]()) as server:
        with pytest.raises(CycleError):
            server.submit(vgraph.graph(([0, 1], [1, 0])), x=torch.ones(2, WIDTH))
        with pytest.raises(NameLookupError, match="there is no vertex feature 'x'"):
            server.submit(chain(2))
        assert server.submit(vgraph.graph(([], []), num_nodes=0), x=torch.ones(0, WIDTH)).result(SECONDS) == {}
    with pytest.raises(FunctionError, match="the server is closed"):
        server.submit(chain(2), x=torch.ones(2, WIDTH))


def test_types_are_not_served() -> None:
    parts = {0: MODELS["gru"](), 1: MODELS["gru"]()}
    with pytest.raises(FunctionError, match="several types of vertices, which are not served"):
        vgraph.serve(vgraph.ByType(parts, key="kind"))


@pytest.mark.usefixtures("whole")
def test_what_is_not_captured_runs_whole() -> None:
    class Odd(vgraph.VertexFunction):
        def forward(self, v: vgraph.Vertex) -> None:
            h = torch.fft.fft(v.pull("x") + v.gather()["h"].sum()).real
            v.scatter(h=h)
            v.push(h=h)

    x = torch.rand(3, WIDTH)
    with vgraph.serve(Odd()) as server:
        for _ in range(2):
            torch.testing.assert_close(server.submit(chain(3), x=x).result(SECONDS)["h"], Odd()(chain(3), x=x)["h"])


def test_closing_finishes_what_was_submitted() -> None:
    server = vgraph.serve(MODELS["gru"]())
    futures = [server.submit(chain(4), x=torch.ones(4, WIDTH)) for _ in range(5)]
    server.close()
    assert all(future.done() for future in futures)


def test_calls_beside_a_server() -> None:
    """Both threads record the same function at the same time, and neither sees the other's examples."""
    for _ in range(5):
        model = MODELS["attentive"]().double()
        with vgraph.serve(model) as server:
            graphs = [binary_tree(n) for n in (3, 5, 2)]
            xs = [features(g) for g in graphs]
            futures = [server.submit(g, x=x) for g, x in zip(graphs, xs, strict=True)]
            wanted = [model(g, x=x)["y"] for g, x in zip(graphs, xs, strict=True)]
            for future, one in zip(futures, wanted, strict=True):
                torch.testing.assert_close(future.result(SECONDS)["y"], one, rtol=1e-10, atol=1e-12)
        capture.forget()
