"""Serving: graphs join and leave between frontiers, with the results of a call."""

from __future__ import annotations

import threading

import pytest
import torch
from torch import nn

import vgraph
from tests.runtime.engine_models import MODELS, WIDTH, binary_tree, chain, features
from vgraph.capture import capture
from vgraph.errors import ChildIndexError, CycleError, FunctionError, NameLookupError

SECONDS = 240


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
    monkeypatch.setattr("vgraph.api.serving.serve.WHOLE", request.param)


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


@pytest.mark.guards
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


@pytest.mark.guards
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


@pytest.mark.usefixtures("whole")
def test_what_is_wrong_with_one_graph_is_told_to_it_alone() -> None:
    """Graphs that are evaluated together: one has a word that the table does not have, one a child too few."""

    class Words(vgraph.VertexFunction):
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Embedding(5, WIDTH)

        def forward(self, v: vgraph.Vertex) -> None:
            h = torch.tanh(self.table(v.pull("word")) + v.gather(0)["h"] - v.gather(1)["h"])
            v.scatter(h=h)
            v.push(h=h)

    model, tree = Words(), vgraph.graph(([0, 1], [2, 2]))
    words = [torch.tensor(ids) for ids in ([1, 2, 3], [1, 2, 9], [4, 4, 0])]
    gate = threading.Event()
    with vgraph.serve(model) as server:
        first = server.submit(tree, word=words[0])
        first.add_done_callback(lambda _: gate.wait(SECONDS))  # so that the others wait together
        futures = [server.submit(tree, word=ids) for ids in words]
        futures.append(server.submit(chain(3), word=words[0]))
        gate.set()
        with pytest.raises(IndexError):
            futures[1].result(SECONDS)
        with pytest.raises(ChildIndexError, match="vertex 1 has 1 child"):
            futures[3].result(SECONDS)
        for future, ids in ((futures[0], words[0]), (futures[2], words[2])):
            torch.testing.assert_close(future.result(SECONDS)["h"], model(tree, word=ids)["h"])


@pytest.mark.usefixtures("whole")
def test_features_of_any_width_and_dtype() -> None:
    """States have the width of features: graphs of one width share frontiers."""
    g = chain(4)
    xs = [torch.ones(4, width, dtype=dtype) for width in (2, 7) for dtype in (torch.float32, torch.float64)]
    with vgraph.serve(Longest()) as server:
        futures = [server.submit(g, x=x) for x in (*xs, *xs)]
        for x, future in zip((*xs, *xs), futures, strict=True):
            assert torch.equal(future.result(SECONDS)["depth"], Longest()(g, x=x)["depth"])


@pytest.mark.usefixtures("whole")
def test_submitted_in_inference_mode() -> None:
    model = MODELS["gru"]().double()
    with torch.inference_mode(), vgraph.serve(model) as server:
        check(model, [chain(3)], server)


@pytest.mark.usefixtures("whole")
def test_a_branch_on_data_is_served_one_vertex_at_a_time() -> None:
    class Branching(vgraph.VertexFunction):
        def forward(self, v: vgraph.Vertex) -> None:
            h = v.pull("x") + v.gather()["h"].sum()
            h = -h if (h.sum(-1) > 0).all() else h
            v.scatter(h=h)
            v.push(h=h)

    model, xs = Branching(), [torch.randn(3, WIDTH) for _ in range(3)]
    with vgraph.serve(model) as server:
        futures = [server.submit(chain(3), x=x) for x in xs]
        some = server.submit(chain(3), x=vgraph.at(xs[0][:1], torch.tensor([0])))
        for x, future in zip(xs, futures, strict=True):
            assert torch.equal(future.result(SECONDS)["h"], model(chain(3), x=x)["h"])
        assert some.result(SECONDS)["h"].shape == (3, WIDTH)


def test_cancelled_graphs_are_not_evaluated() -> None:
    gate, is_held, here = threading.Event(), threading.Event(), threading.current_thread()
    model, x = MODELS["gru"](), torch.ones(4, WIDTH)

    def hold(_: object) -> None:
        if threading.current_thread() is not here:  # a result that is there already calls it at once
            is_held.set()
            gate.wait(SECONDS)

    with vgraph.serve(model) as server:
        while not is_held.wait(0.1):
            server.submit(chain(4), x=x).add_done_callback(hold)
        futures = [server.submit(chain(4), x=x) for _ in range(3)]
        cancelled = futures[1].cancel()
        gate.set()
        assert all(future.result(SECONDS)["h"].shape == (4, WIDTH) for future in futures[::2])
        assert cancelled and futures[1].cancelled()


def test_many_threads_submit() -> None:
    model = MODELS["child-sum"]().double()
    graphs = [binary_tree(n) for n in (1, 5, 9, 2) * 5]
    with vgraph.serve(model, whole=4) as server:
        threads = [threading.Thread(target=check, args=(model, graphs[at::4], server)) for at in range(4)]
        failed = list[object]()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(threading, "excepthook", failed.append)
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
    assert not failed


def test_bad_graphs_are_refused_at_once() -> None:
    with vgraph.serve(MODELS["gru"]()) as server:
        with pytest.raises(CycleError):
            server.submit(vgraph.graph(([0, 1], [1, 0])), x=torch.ones(2, WIDTH))
        with pytest.raises(NameLookupError, match="there is no vertex feature 'x'"):
            server.submit(chain(2))
        with pytest.raises(FunctionError, match="called on a list"):
            server.submit([chain(2)], x=torch.ones(2, WIDTH))  # pyright: ignore[reportArgumentType]
        empty = server.submit(vgraph.graph(([], []), num_nodes=0), x=torch.ones(0, WIDTH)).result(SECONDS)
        assert empty["h"].shape == (0, WIDTH)
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
