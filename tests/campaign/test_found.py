"""What fuzzers have found, each as small as it goes: outputs, gradients and second gradients beside plain torch."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import vgraph
from tests.campaign.judging import differences, differentiated
from vgraph.ir.program import Op, Rows, Value
from vgraph.ir.schedule import Phase
from vgraph.ir.space import SHARED, VERTEX
from vgraph.runtime.python_codegen import compile_phase

SRC, DST = torch.tensor([0, 1, 2, 0, 1, 3]), torch.tensor([1, 2, 2, 2, 0, 3])
TABLE = torch.linspace(-1, 1, 10, dtype=torch.float64).view(5, 2).requires_grad_()


def sent(message: Callable[[Any], Tensor], h: Tensor, k: Tensor) -> tuple[Any, Any]:
    """Sums of messages at vertices, by ``update_all`` and by indexing."""

    def found() -> dict[str, Tensor]:
        graph = vgraph.graph((SRC, DST), num_nodes=4)
        graph.ndata["h"], graph.ndata["k"] = h, k
        graph.update_all(lambda edges: {"m": message(edges.src)}, lambda nodes: {"o": nodes.mailbox["m"].sum(1)})
        return {"o": graph.ndata["o"]}

    def wanted() -> dict[str, Tensor]:
        rows = message({"h": h[SRC], "k": k[SRC]})
        return {"o": rows.new_zeros((4, *rows.shape[1:])).index_add(0, DST, rows)}

    return found, wanted


def columns_swapped(at: Any) -> Tensor:
    made = at["h"] * 1.5
    made[..., :1] = at["h"][..., -1:]
    made.copy_(at["h"])
    return made**3


def every_second(at: Any) -> Tensor:
    made = at["h"] + 0
    made[..., ::2] = at["h"][..., 1:]
    made[:, 1] *= at["h"][:, 0].sin()
    return made**3


def turned(at: Any) -> Tensor:
    made = at["h"] + 0
    made.transpose(-1, -2)[..., 0] = at["h"][..., 0, :1]
    made[..., 0, :] *= at["h"][..., -1, :]
    return made.sin()


MESSAGES: list[Callable[[Any], Tensor]] = [
    columns_swapped, every_second, turned,
    lambda at: F.embedding(at["k"], TABLE).sin(),  # two numbers a row, whose second derivative joins both
    lambda at: F.layer_norm(at["h"], (3,)).sin(),  # statistics of each of two parts of a row
    lambda at: (at["h"].tanh() @ TABLE[:3]).cos() @ TABLE.T,  # torch makes one row of each part
    lambda at: F.linear(at["h"], TABLE.T[0, :3]).sin(),
    lambda at: TABLE[at["k"]].tanh() * at["h"][..., :1].unsqueeze(-2)[:, 0],
]  # fmt: skip


@pytest.mark.parametrize("kernels", ["0", "1"])
@pytest.mark.parametrize("number", range(len(MESSAGES)))
def test_messages(number: int, kernels: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VGRAPH_KERNELS", kernels)
    h = torch.randn(4, 2, 3, dtype=torch.float64, requires_grad=True)
    k = torch.tensor([[1, 2], [3, 4], [0, 1], [0, 0]])
    leaves = (h, TABLE)
    found, wanted = (differentiated(run, leaves, 2) for run in sent(MESSAGES[number], h, k))
    assert not differences(found, wanted)


FACTORS: list[Callable[[Tensor], Tensor]] = [
    lambda x: torch.rsub(x, 1, alpha=2), lambda x: torch.rsub(x, x.sin(), alpha=0.5), lambda x: x.sub(0.5, alpha=3),
    lambda x: x.add(x.tanh(), alpha=-2),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(FACTORS)))
def test_factors_of_sums(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VGRAPH_KERNELS", "1")
    graph, h = vgraph.graph((SRC, DST), num_nodes=4), torch.randn(4, 3)
    graph.ndata["h"] = h
    graph.apply_edges(lambda edges: {"m": FACTORS[number](edges.src["h"])})
    torch.testing.assert_close(graph.edata["m"], FACTORS[number](h[SRC]))


def test_a_loop_in_which_nothing_runs() -> None:
    code = compile_phase(Phase((), is_loop=True), (), "nothing", [])
    values = {7: torch.ones(2)}
    code.run(values, {}, [object()])
    assert list(values) == [7] and not code.reads and not code.stores


def normalised(x: Tensor) -> Tensor:
    return F.layer_norm(x, (5,)) + F.group_norm(x.sin(), 1)


@pytest.mark.parametrize("kernels", ["0", "1"])
def test_statistics_of_one_receiver(kernels: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A gather from one vertex is one row that stands for many: its statistics were read beyond their end."""
    monkeypatch.setenv("VGRAPH_KERNELS", kernels)
    h = torch.randn(1, 5, dtype=torch.float64, requires_grad=True)
    graph = vgraph.graph((torch.zeros(4, dtype=torch.int64), torch.zeros(4, dtype=torch.int64)))
    graph.ndata["h"] = h
    graph.update_all(lambda edges: {"m": normalised(edges.dst["h"])}, lambda nodes: {"o": nodes.mailbox["m"].sum(1)})
    found = torch.autograd.grad(graph.ndata["o"].sin().sum(), h)
    torch.testing.assert_close(found, torch.autograd.grad((4 * normalised(h)).sin().sum(), h))


@pytest.mark.parametrize("looks", [False, True])
@pytest.mark.parametrize("reduce", ["median", "nanmedian"])
def test_medians_of_one_receiver(reduce: str, looks: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """One row that stands for several in-edges: torch's median of such rows writes into all of them as it sorts."""
    monkeypatch.setenv("VGRAPH_KERNELS", "0")
    h = torch.arange(15, dtype=torch.float64).view(5, 3)
    graph = vgraph.graph((torch.arange(23) % 5, torch.arange(23) // 5))  # of two in-degrees
    graph.ndata["h"] = h

    def receive(nodes: Any) -> dict[str, Tensor]:
        rows = nodes.mailbox["m"]
        if looks and float(rows.sum()) < 0:  # not captured
            rows = -rows
        return {"o": getattr(rows, reduce)(1).values}

    graph.update_all(lambda edges: {"m": edges.dst["h"]}, receive)
    torch.testing.assert_close(graph.ndata["o"], h)


def test_a_gradient_that_all_rows_share() -> None:
    """In float32 torch runs GELU's derivative by a library that broadcasts nothing."""
    shape = (Rows(VERTEX), 2, 1)
    grad, x = Value(0, SHARED, torch.float32, (2, 1), ""), Value(1, VERTEX, torch.float32, shape, "")
    out = Value(2, VERTEX, torch.float32, shape, "")
    op = Op(torch.ops.aten.gelu_backward.default, (grad, x), {}, (out,), "")
    code = compile_phase(Phase((op,), is_loop=False), {2}, "shared", None)
    given = {0: torch.randn(2, 1), 1: torch.randn(4, 2, 1)}
    env: dict[int, Any] = dict(given)
    code.run(env, {}, [SimpleNamespace(count=lambda kind: 4, num_vertices=4, v0=0, v1=4)])
    torch.testing.assert_close(env[2], torch.ops.aten.gelu_backward(given[0].expand(4, 2, 1).clone(), given[1]))


class _Default(vgraph.VertexFunction):
    """On a chain every child is the first: the third is always the default, and no state is read."""

    def __init__(self) -> None:
        super().__init__(states={"s": 1})
        self.factor = torch.nn.Parameter(torch.tensor([[0.6]], dtype=torch.float64))

    def forward(self, v: vgraph.Vertex) -> None:
        total = torch.tanh(v.gather(2, default=0.7)["s"] @ self.factor)
        v.scatter(s=total + v.pull("x"))
        v.push(s=total)


def test_states_that_nobody_reads_spoil_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VGRAPH_KERNELS", "1")
    model, x = _Default(), torch.zeros(3, 1, dtype=torch.float64)
    given = torch.tensor([[0.0], [0.7], [0.7]], dtype=torch.float64)
    found, wanted = (
        differentiated(lambda run=run: {"s": run()}, [model.factor], 2)
        for run in (
            lambda: model(vgraph.graph(([0, 1], [1, 2])), x=x)["s"],
            lambda: torch.tanh(given @ model.factor),
        )
    )
    assert not differences(found, wanted)


class _ByVector(vgraph.VertexFunction):
    """A state that meets a vector of parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.vector = torch.nn.Parameter(torch.linspace(0.1, 0.4, 4, dtype=torch.float64))

    def forward(self, v: vgraph.Vertex) -> None:
        total = torch.tanh(v.pull("x") + (v.gather()["s"] @ self.vector).sum().unsqueeze(-1))
        v.scatter(s=total)
        v.push(s=total)


def test_a_state_meets_a_vector() -> None:
    x, model = torch.randn(3, 4, dtype=torch.float64), _ByVector()
    found = model(vgraph.graph(([0, 1], [2, 2])), x=x)["s"]
    leaves = x[:2].tanh()
    torch.testing.assert_close(found, torch.cat([leaves, torch.tanh(x[2:] + (leaves @ model.vector).sum())]))


class _Sent(vgraph.VertexFunction):
    def forward(self, v: vgraph.Vertex) -> None:
        total = v.pull("x") + v.gather()["s"].sum()
        v.scatter(s=total)
        v.push(s=total)


class _Normalised(vgraph.VertexFunction):
    """Statistics of each of two parts of a row, whose derivative has two rows a vertex."""

    def forward(self, v: vgraph.Vertex) -> None:
        total = F.layer_norm(v.pull("x") + v.gather()["s"].sum(), (3,))
        v.scatter(s=total)
        v.push(s=total)


def test_types_whose_derivatives_have_several_rows_a_vertex() -> None:
    x = torch.randn(4, 2, 3, dtype=torch.float64, requires_grad=True)
    model = vgraph.ByType({0: _Sent(), 1: _Normalised()}, states={"s": (2, 3)})
    graph = vgraph.graph(([0, 1, 2], [2, 2, 3]))

    def wanted() -> dict[str, Tensor]:
        both = F.layer_norm(x[2:3] + x[:2].sum(0), (3,))
        return {"s": torch.cat([x[:2], both, x[3:] + both])}

    found = differentiated(lambda: dict(model(graph, x=x, type=torch.tensor([0, 0, 1, 0]))), [x], 2)
    assert not differences(found, differentiated(wanted, [x], 2))


class _ThirdChild(vgraph.VertexFunction):
    """Its derivative turns rows of one type, which only undivided loops can do; of leaves and of all others."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.eye(2, dtype=torch.float64))
        self.bias = torch.nn.Parameter(torch.ones(2, dtype=torch.float64))

    def forward(self, v: vgraph.Vertex) -> None:
        total = torch.tanh(F.linear(v.gather(2, default=0.0)["s"], self.weight, self.bias))
        v.scatter(s=total)
        v.push(s=total)


@pytest.mark.parametrize("kernels", ["0", "1"])
def test_loops_over_types_are_divided_together(kernels: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VGRAPH_KERNELS", kernels)
    part = _ThirdChild()
    model = vgraph.ByType({0: _Sent(), 1: part}, states={"s": (2, 2)})
    x = torch.randn(3, 2, 2, dtype=torch.float64, requires_grad=True)
    leaves = [x, part.weight, part.bias]

    def found() -> dict[str, Tensor]:
        return dict(model(vgraph.graph(([0, 1], [1, 2])), x=x, type=torch.tensor([0, 1, 1])))

    def wanted() -> dict[str, Tensor]:
        row = torch.tanh(F.linear(torch.zeros(1, 2, 2, dtype=torch.float64), part.weight, part.bias))
        return {"s": torch.cat([x[:1], row, row])}

    assert not differences(differentiated(found, leaves, 2), differentiated(wanted, leaves, 2))


class _Shifted(vgraph.VertexFunction):
    """What leaves are given is zero until a number is taken from it."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.weight = torch.nn.Parameter(torch.eye(3, dtype=torch.float64))

    def forward(self, v: vgraph.Vertex) -> None:
        total = torch.tanh(F.linear(v.gather()["s"].sum() - 0.7, self.weight))
        v.scatter(s=total)
        v.push(s=total)


@pytest.mark.parametrize("is_typed", [False, True])
@pytest.mark.parametrize("kernels", ["0", "1"])
def test_numbers_added_to_absent_children(is_typed: bool, kernels: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VGRAPH_KERNELS", kernels)
    part = _Shifted(states={"s": 3})
    model = vgraph.ByType({0: part, 1: _Sent()}) if is_typed else part
    x, types = torch.randn(3, 3, dtype=torch.float64), torch.tensor([0, 0, 0])
    graph = vgraph.graph(([0, 1], [2, 2]))

    def wanted() -> dict[str, Tensor]:
        leaf = torch.tanh(F.linear(torch.full((1, 3), -0.7, dtype=torch.float64), part.weight))
        return {"s": torch.cat([leaf, leaf, torch.tanh(F.linear(2 * leaf - 0.7, part.weight))])}

    found = differentiated(lambda: dict(model(graph, x=x, type=types)), [part.weight], 2)
    assert not differences(found, differentiated(wanted, [part.weight], 2))
