"""Odd graphs, interrupted steps, failing functions, with everything switched on: right or refused, usable after."""

from __future__ import annotations

import signal
import traceback

import pytest
import torch
from torch import nn

import vgraph
from tests.runtime.engine_models import GRAPHS, GRU, MODELS, WIDTH, binary_tree, chain, features, outcome
from vgraph import compiler
from vgraph.memory import arena
from vgraph.memory.arena import ArenaPool
from vgraph.runtime.cpu.frontier_loop import FrontierLoop

pytestmark = pytest.mark.usefixtures("with_kernels")


@pytest.mark.parametrize("name", ["gru", "child-sum", "tree-fc"])
def test_no_vertex_at_all(name: str) -> None:
    g, model = vgraph.graph(([], []), num_nodes=0), MODELS[name]()
    found = outcome(model, g, features(g, torch.float32))
    assert found[0].shape == (0, WIDTH)
    assert all(grad.abs().sum() == 0 for grad in found[1:])


def test_one_vertex_and_no_edges() -> None:
    model = GRU().double()
    x = features(GRAPHS["points"]())
    alone = [model(vgraph.graph(([], []), num_nodes=1), x=row[None])["h"] for row in x]
    torch.testing.assert_close(model(GRAPHS["points"](), x=x)["h"], torch.cat(alone), rtol=1e-10, atol=1e-12)


def test_a_chain_of_a_hundred_thousand() -> None:
    """No recursion anywhere, forward or backward: the gradient of a sum along the chain."""

    class Sum(vgraph.VertexFunction):
        def forward(self, v: vgraph.Vertex) -> None:
            s = v.pull("x") + v.gather()["s"].sum()
            v.scatter(s=s)
            v.push(s=s)

    x = torch.ones(100_000, 1, dtype=torch.float64, requires_grad=True)
    s = Sum()(chain(100_000), x=x)["s"]
    s[-1].backward()
    assert s[-1].item() == 100_000 and x.grad is not None and (x.grad == 1).all()


def test_the_arena_grows_with_the_batch() -> None:
    model = MODELS["child-sum"]().double()
    small, large = binary_tree(3), vgraph.batch([binary_tree(n) for n in (90, 40, 70)])
    for g in (small, large, small):
        x = features(g)
        one = model(g, x=x)["h"]
        two = torch.cat([model(part, x=rows)["h"] for part, rows in zip(parts(g), x.split(sizes(g)), strict=True)])
        torch.testing.assert_close(one, two, rtol=1e-10, atol=1e-12)


def sizes(g: vgraph.Graph) -> list[int]:
    return g.batch_num_nodes().tolist()


def parts(g: vgraph.Graph) -> list[vgraph.Graph]:
    return vgraph.unbatch(g) if len(sizes(g)) > 1 else [g]


def test_an_exception_of_the_user_shows_the_line_and_does_no_harm() -> None:
    class Failing(vgraph.VertexFunction):
        broken = True

        def __init__(self) -> None:
            super().__init__(states={"h": WIDTH})
            self.W = nn.Linear(WIDTH, WIDTH)

        def forward(self, v: vgraph.Vertex) -> None:
            h = torch.tanh(self.W(v.pull("x")) + v.gather()["h"].sum())
            if self.broken:
                raise ZeroDivisionError("mine")  # this line
            v.scatter(h=h)
            v.push(h=h)

    model, g = Failing(), chain(3)
    with pytest.raises(ZeroDivisionError, match="mine") as caught:
        model(g, x=torch.ones(3, WIDTH))
    assert "# this line" in "".join(traceback.format_exception(caught.value))
    model.broken = False
    assert model(g, x=torch.ones(3, WIDTH))["h"].shape == (3, WIDTH)


def test_ctrl_c_in_the_middle_of_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """It arrives between two pieces of the loop; the next step has the arena back and gives the right numbers."""
    model, g = GRU().double(), chain(40)
    x = features(g)
    wanted = outcome(model, g, x)
    real, calls = FrontierLoop.run, list[int]()

    def interrupted(self, *given):
        calls.append(1)
        if len(calls) == 2:
            signal.raise_signal(signal.SIGINT)
        real(self, *given)

    monkeypatch.setattr(FrontierLoop, "run", interrupted)
    with pytest.raises(KeyboardInterrupt):
        outcome(model, g, x)
    for one, two in zip(outcome(model, g, x), wanted, strict=True):
        assert torch.equal(one, two)


def test_two_forwards_before_one_backward() -> None:
    model, g = GRU().double(), binary_tree(9)
    x, y = features(g), features(g)
    one, two = model(g, x=x)["h"], model(g, x=y)["h"]
    (one.sum() + 2 * two.sum()).backward()
    alone = [torch.autograd.grad(model(g, x=t)["h"].sum(), t)[0] for t in (x, y)]
    assert x.grad is not None and y.grad is not None
    torch.testing.assert_close(x.grad, alone[0], rtol=1e-12, atol=1e-14)
    torch.testing.assert_close(y.grad, 2 * alone[1], rtol=1e-12, atol=1e-14)


def test_more_than_memory_holds_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiler, "arenas", ArenaPool())
    model, g = GRU(), binary_tree(50)
    monkeypatch.setattr(arena, "most_bytes", lambda device: 1000)
    with pytest.raises(MemoryError, match=r"[\d,]+ bytes for the values of one call .* of 1,000 bytes"):
        outcome(model, g, features(g, torch.float32))
    monkeypatch.undo()
    assert outcome(GRU(), g, features(g, torch.float32))


@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize("name", MODELS)
def test_nothing_reads_what_nothing_wrote(name: str, graph: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory comes as another step left it, or one that was interrupted: here it comes full of NaN."""
    model, g = MODELS[name]().double(), GRAPHS[graph]()
    x = features(g)
    wanted = outcome(model, g, x)
    take, lend = arena._Rooms.take, arena._Shelf.lend

    def spoilt(rooms, num_bytes):
        found = take(rooms, num_bytes)
        found[:] = 255
        return found

    monkeypatch.setattr(arena, "_LARGE", 1)
    monkeypatch.setattr(arena._Rooms, "take", spoilt)
    monkeypatch.setattr(arena._Shelf, "lend", lambda shelf, buffer: lend(shelf, buffer.fill_(255)))
    for one, two in zip(outcome(model, g, x), wanted, strict=True):
        assert torch.equal(one, two)
