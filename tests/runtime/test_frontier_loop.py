"""Loops over frontiers as native code give the numbers of torch's operators, on every graph."""

from __future__ import annotations

import pytest
import torch

import vgraph
from tests.runtime.engine_models import GRAPHS, GRU, MODELS, PLAIN, WIDTH, chain, features, outcome, outcome_with
from vgraph import compiler
from vgraph.fusion.cpu import build
from vgraph.runtime.cpu import frontier_loop
from vgraph.runtime.python_codegen import PhaseCode

pytestmark = pytest.mark.usefixtures("with_kernels")
needs_compiler = pytest.mark.skipif(build.find_compiler() is None, reason="there is no C++ compiler")


def loops_seen(monkeypatch: pytest.MonkeyPatch) -> list[PhaseCode]:
    """The phases that are compiled from now on and loop over frontiers."""
    seen: list[PhaseCode] = []
    real = compiler._compile_phase

    def watched(phase, *rest):
        seen.append(real(phase, *rest))
        return seen[-1]

    monkeypatch.setattr(compiler, "_compile_phase", watched)
    return seen


@needs_compiler
@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize("name", MODELS)
def test_native_loops_agree_with_torch(name: str, graph: str, monkeypatch: pytest.MonkeyPatch) -> None:
    g, model = GRAPHS[graph](), MODELS[name]().double()
    x = features(g)
    wanted = outcome_with(monkeypatch, PLAIN, model, g, x)
    seen = loops_seen(monkeypatch)
    got = outcome(model, g, x)
    if name in ("gru", "child-sum"):
        loops = [code for code in seen if code.loop is not None]
        assert len(loops) in (4, 8), "leaves and inner vertices, forward and backward; again for one in-degree"
    for one, two in zip(got, wanted, strict=True):
        torch.testing.assert_close(one, two, rtol=1e-10, atol=1e-12)


@needs_compiler
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("chunk", [1, 3, 1000])
def test_chunks_and_threads_change_nothing(chunk: int, threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    g, model = GRAPHS["trees"](), MODELS["child-sum"]()
    x = features(g, torch.float32)
    wanted = outcome(model, g, x)
    before = torch.get_num_threads()
    monkeypatch.setattr(frontier_loop, "MOST_ROWS", chunk)
    try:
        torch.set_num_threads(threads)
        got = outcome(model, g, x)
    finally:
        torch.set_num_threads(before)
    for one, two in zip(got, wanted, strict=True):
        torch.testing.assert_close(one, two, rtol=1e-5, atol=1e-6)


@needs_compiler
def test_calls_are_cut_so_that_signals_are_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    g, model = chain(50), GRU().double()
    x = features(g)
    wanted = outcome(model, g, x)
    monkeypatch.setattr(frontier_loop, "CALLS", 7)
    for one, two in zip(outcome(model, g, x), wanted, strict=True):
        assert torch.equal(one, two)


@needs_compiler
def test_a_layout_is_of_the_call_that_asked_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another thread that runs the same function keeps its own layout whenever this one looks away."""
    seen = loops_seen(monkeypatch)
    GRU().double()(chain(3), x=features(chain(3)))
    loop = next(code.loop for code in seen if isinstance(code.loop, frontier_loop.FrontierLoop))
    few, many = loop._lay(2), loop._lay(700)
    sizes = [few, many]

    class OfTwoThreads(frontier_loop.FrontierLoop):
        """What is kept is the other thread's at every second look."""

        @property
        def _layout(self) -> frontier_loop.Layout:
            sizes.reverse()
            return sizes[0]

        @_layout.setter
        def _layout(self, _: frontier_loop.Layout) -> None: ...

    loop.__class__ = OfTwoThreads
    for asked in (2, 700, 700, 2, 31):
        assert loop._lay(asked).num_edges == asked, "scratch has room for the edges of this call"


@needs_compiler
def test_wide_rows_and_many_children() -> None:
    """Rows wider than a panel, deeper than a block, and one vertex with 10,000 children."""

    class Wide(vgraph.VertexFunction):
        def __init__(self) -> None:
            super().__init__()
            self.W, self.U = torch.nn.Linear(WIDTH, 400), torch.nn.Linear(400, 400, bias=False)

        def forward(self, v: vgraph.Vertex) -> None:
            h = torch.tanh(self.W(v.pull("x")) + self.U(v.gather()["h"].mean()))
            v.scatter(h=h)
            v.push(h=h)

    g = vgraph.graph((range(10_000), [10_000] * 10_000))
    model, x = Wide().double(), torch.randn(10_001, WIDTH, dtype=torch.float64)
    found = model(g, x=x)["h"]
    leaves = torch.tanh(model.W(x[:-1]))
    root = torch.tanh(model.W(x[-1]) + model.U(leaves.mean(0)))
    torch.testing.assert_close(found, torch.cat([leaves, root[None]]), rtol=1e-10, atol=1e-12)


@needs_compiler
def test_what_native_code_cannot_run_is_left_to_torch() -> None:
    class Odd(vgraph.VertexFunction):
        def __init__(self) -> None:
            super().__init__()
            self.W = torch.nn.Linear(WIDTH, WIDTH)

        def forward(self, v: vgraph.Vertex) -> None:
            h = torch.cumsum(self.W(v.pull("x") + v.gather()["h"].sum()), -1)  # no kernel has a cumsum
            v.scatter(h=h)
            v.push(h=h)

    g, model = chain(4), Odd().double()
    x = features(g)
    h, rows = torch.zeros(WIDTH, dtype=torch.float64), []
    for row in x:
        h = torch.cumsum(model.W(row + h), -1)
        rows.append(h)
    torch.testing.assert_close(model(g, x=x)["h"], torch.stack(rows), rtol=1e-10, atol=1e-12)
