"""Slots of all in-edges joined: a view where every vertex has as many, and the numbers of a loop over vertices."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import vgraph
from vgraph import compiler
from vgraph.capture import capture
from vgraph.ir.moves import PutSlot, TakeSlot
from vgraph.ir.program import op_name
from vgraph.runtime.compiled import CompiledProgram

needs_compiler = pytest.mark.skipif(not any(map(shutil.which, ("c++", "g++", "clang++"))), reason="needs a compiler")
pytestmark = needs_compiler


class Joined(vgraph.VertexFunction):
    """A layer over the states of all children side by side; ``also``: something else that reads a child."""

    def __init__(self, num_children: int, hidden: int = 6, also: Callable[[Tensor], Tensor] | None = None) -> None:
        super().__init__(states={"h": hidden})
        self.num_children, self.also = num_children, also
        self.W = nn.Linear(num_children * hidden, hidden, dtype=torch.float64)

    def forward(self, v: vgraph.Vertex) -> None:
        children = [v.gather(k, default=0.0)["h"] for k in range(self.num_children)]
        h = torch.tanh(self.W(torch.cat(children, -1)))
        h = torch.where(
            (v.in_degree == 0).unsqueeze(-1), v.pull("x"), h if self.also is None else self.also(children[0]) + h
        )
        v.scatter(h=h)
        v.push(h=h)


def by_hand(cell: Joined, g: vgraph.Graph, x: Tensor) -> Tensor:
    """One vertex after the other, in the order of their numbers."""
    rows, children = list[Tensor](), [list[int]() for _ in range(g.num_nodes())]
    for source, target in zip(*(ends.tolist() for ends in g.edges()), strict=True):
        children[target].append(source)
    for row, kids in zip(x, children, strict=True):
        states = [rows[kid] for kid in kids] + [torch.zeros_like(row)] * (cell.num_children - len(kids))
        h = torch.tanh(cell.W(torch.cat(states)))
        rows.append(row if not kids else h if cell.also is None else cell.also(states[0]) + h)
    return torch.stack(rows)


def a_dag(degree: int, *, uneven: bool = False) -> vgraph.Graph:
    """Seven leaves and 30 vertices of so many in-edges from vertices before; ``uneven``: the last one has one less."""
    ends = [(source, 7 + v) for v in range(30) for source in torch.randint(7 + v, (degree,)).tolist()]
    return vgraph.graph(tuple(zip(*ends[: len(ends) - uneven], strict=True)), num_nodes=37)


def assert_right(cell: Joined, g: vgraph.Graph) -> None:
    x = torch.randn(g.num_nodes(), 6, dtype=torch.float64, requires_grad=True)
    wrt = [x, *cell.parameters()]
    for _ in range(3):  # from the second call on the in-degree is known
        found, wanted = cell(g, x=x)["h"], by_hand(cell, g, x)
        torch.testing.assert_close(found, wanted)
        grads = (torch.autograd.grad(out.sin().sum(), wrt) for out in (found, wanted))
        for one, other in zip(*grads, strict=True):
            torch.testing.assert_close(one, other)
    with torch.no_grad():
        torch.testing.assert_close(cell(g, x=x)["h"], wanted)


@pytest.fixture
def programs(monkeypatch: pytest.MonkeyPatch) -> list[CompiledProgram]:
    """Those that run."""
    monkeypatch.setenv("VGRAPH_KERNELS", "1")
    capture.forget()  # what an earlier test has compiled
    ran, real = list[CompiledProgram](), CompiledProgram._evaluate

    def evaluate(self: CompiledProgram, *given: Any, **named: Any) -> Any:
        ran.append(self)
        return real(self, *given, **named)

    monkeypatch.setattr(CompiledProgram, "_evaluate", evaluate)
    return ran


def moves(program: CompiledProgram) -> list[str]:
    """What its loop over inner vertices does to slots."""
    ops = [op for phase in program.phases if phase.is_loop for op in phase.ops]
    return [str(op.target) for op in ops if isinstance(op.target, TakeSlot | PutSlot) or op_name(op.target) == "cat"]


@pytest.mark.parametrize("degree", [2, 3, 4])
def test_rows_of_all_slots_are_one_row(degree: int, programs: list[CompiledProgram]) -> None:
    torch.manual_seed(degree)
    assert_right(Joined(degree), a_dag(degree))
    last = [program for program in programs if program.inner_degree == degree]
    assert len(last) >= 4, "forward and backward, and without a backward"
    assert all(moves(program) == [] for program in last)


@pytest.mark.parametrize("degree", [2, 3])
def test_a_loop_in_python_gives_the_same(
    degree: int, programs: list[CompiledProgram], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where native code is there and an operator of the loop is none of its own."""
    monkeypatch.setattr(compiler, "plan_loop", lambda *_: None)
    assert_right(Joined(degree), a_dag(degree))
    assert any(program.inner_degree == degree and moves(program) == [] for program in programs)


@pytest.mark.parametrize("native", ["0", "1"])
def test_what_is_read_elsewhere_is_taken_as_before(
    native: str, programs: list[CompiledProgram], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VGRAPH_NATIVE", native)
    assert_right(Joined(2, also=torch.cos), a_dag(2))
    assert any("take_slot[1]" in moves(program) for program in programs if program.inner_degree == 2)


def test_in_degrees_that_differ_leave_slots_as_they_are(programs: list[CompiledProgram]) -> None:
    assert_right(Joined(2), a_dag(2, uneven=True))
    assert all(program.inner_degree is None for program in programs)
    assert any("take_slot[1]" in moves(program) for program in programs)


def test_rows_of_many_frontiers_at_once(programs: list[CompiledProgram]) -> None:
    """A complete tree whose children lie side by side, wide enough for several chunks and for all threads."""
    levels = [torch.arange(2**k - 1, 2 ** (k + 1) - 1) for k in range(12)]
    parents = torch.cat(levels[:-1])
    order = 2 ** len(levels) - 2 - torch.arange(2 ** len(levels) - 1)  # leaves first
    ends = torch.cat([order[2 * parents + 1], order[2 * parents + 2]]), torch.cat([order[parents]] * 2)
    g, cell = vgraph.graph(ends), Joined(2, hidden=48)
    x = torch.randn(g.num_nodes(), 48, dtype=torch.float64, requires_grad=True)
    for _ in range(2):
        out = cell(g, x=x)["h"]
    (slope,) = torch.autograd.grad(out[-1].sum(), x)
    rows = wanted = x.detach()[: 2**11].requires_grad_()
    while len(rows) > 1:  # two leaves side by side are the children of one vertex
        rows = torch.tanh(cell.W(rows.view(-1, 2, 48).flip(1).flatten(1)))
    torch.testing.assert_close(out[-1], rows[0])
    torch.testing.assert_close(slope[: 2**11], torch.autograd.grad(rows.sum(), wanted)[0])
    assert any(program.inner_degree == 2 and moves(program) == [] for program in programs)
