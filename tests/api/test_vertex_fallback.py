"""Layers and operators inside a vertex function, and what runs one vertex at a time."""

from __future__ import annotations

import gc
import logging
import traceback
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

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
from vgraph.api.vertex.serial import VertexSession
from vgraph.errors import (
    ChildIndexError,
    FunctionError,
    NameLookupError,
)


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
    assert "one vertex at a time" not in caplog.text
    check_equal(model, (out["h"], out["c"]), evaluate(DAG, cell), (x,))


class Inverse(vgraph.VertexFunction):
    """torch.linalg.inv checks its data, so it is not captured at all."""

    def forward(self, v: vgraph.Vertex) -> None:
        a = torch.linalg.inv(v.pull("a") + 0.1 * v.gather()["a"].sum())
        v.scatter(a=a)
        v.push(a=a)


class Exponential(vgraph.VertexFunction):
    """torch.linalg.matrix_exp is known to take one matrix at a time."""

    def forward(self, v: vgraph.Vertex) -> None:
        a = torch.linalg.matrix_exp(0.3 * (v.pull("a") + 0.1 * v.gather()["a"].sum()))
        v.scatter(a=a)
        v.push(a=a)


@pytest.mark.parametrize(("kind", "num_notices"), [(Inverse, 1), (Exponential, 0)])
def test_operator_that_looks_at_data_runs_one_vertex_at_a_time(
    kind: type[vgraph.VertexFunction], num_notices: int, caplog: pytest.LogCaptureFixture
) -> None:
    eye = 3 * torch.eye(2, dtype=F64)
    a = (torch.randn(7, 2, 2, dtype=F64) * 0.3 + eye).requires_grad_()
    model = kind(states={"a": (2, 2)})
    with caplog.at_level(logging.INFO, "vgraph"):
        out = model(DAG, a=a)["a"]
        model(DAG, a=a)
    assert caplog.text.count("one vertex at a time") == num_notices
    assert (f"{__file__}:" in caplog.text) == bool(num_notices)
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


class ByLength(vgraph.VertexFunction):
    def forward(self, v: vgraph.Vertex) -> None:
        slots = v.gather()["h"]
        h = v.pull("x") * (2 if len(slots) == 0 else 3) + slots.sum()
        v.scatter(h=h)
        v.push(h=h)


class InALoop(vgraph.VertexFunction):
    def forward(self, v: vgraph.Vertex) -> None:
        slots = v.gather()["h"]
        h = v.pull("x")
        for _ in range(len(slots)):
            h = h + slots.sum()
        v.scatter(h=h)
        v.push(h=h)


@pytest.mark.parametrize(("function", "wanted"), [(ByLength, [2.0, 5.0, 8.0]), (InALoop, [1.0, 2.0, 3.0])])
def test_a_number_of_children_is_no_constant(
    function: type[vgraph.VertexFunction], wanted: list[float], caplog: pytest.LogCaptureFixture
) -> None:
    """``len`` gives a plain number: what is done with it holds for the recording's examples alone."""
    with caplog.at_level("INFO", logger="vgraph"):
        found = function()(vgraph.graph(([0, 1], [1, 2])), x=torch.ones(3))["h"]
    assert found.tolist() == wanted and "runs one vertex at a time" in caplog.text


@pytest.mark.guards
def test_rows_made_by_number_stay_in_the_recording(caplog: pytest.LogCaptureFixture) -> None:
    class WithZeros(vgraph.VertexFunction):
        def forward(self, v: vgraph.Vertex) -> None:
            x = v.pull("x")
            h = torch.cat([x, torch.zeros(len(x), 2)], -1) + v.gather()["h"].sum()
            v.scatter(h=h)
            v.push(h=h)

    with caplog.at_level("INFO", logger="vgraph"):
        found = WithZeros(states={"h": 3})(vgraph.graph(([0, 1], [1, 2])), x=torch.ones(3, 1))["h"]
    assert found.tolist() == [[1.0, 0.0, 0.0], [2.0, 0.0, 0.0], [3.0, 0.0, 0.0]]
    assert "one vertex at a time" not in caplog.text


def test_error_in_the_users_function_keeps_its_line() -> None:
    def wanted(x: Tensor) -> Tensor:
        return evaluate(DAG, lambda v, kids, _: (x[v] + sum(k[0] for k in kids),))[0]

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
    assert torch.equal(model(DAG, x=x)["h"], wanted(x))


@pytest.mark.parametrize("width", [3, 13])
def test_error_of_torch_names_the_users_line(width: int) -> None:
    model = ChildSum()
    with pytest.raises(RuntimeError, match="cannot be multiplied") as caught:
        model(DAG, x=torch.ones(7, width))
    assert any("self.W(x) + self.U" in line for line in traceback.format_tb(caught.tb))
    model(DAG, x=torch.ones(7, WIDTH))


class NoSuchChild(vgraph.VertexFunction):
    def __init__(self, k: Any) -> None:
        super().__init__()
        self.k = k

    def forward(self, v: vgraph.Vertex) -> None:
        v.scatter(h=v.gather(self.k)["h"])


@pytest.mark.parametrize("k", [-1, 1.0, True])
def test_gather_of_no_such_child(k: Any) -> None:
    with pytest.raises(ChildIndexError, match="no such child"):
        NoSuchChild(k)(DAG)


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


def test_rows_written_under_a_mask() -> None:
    class Masked(vgraph.VertexFunction):
        def forward(self, v: vgraph.Vertex) -> None:
            h = v.pull("x") * 2
            h[v.in_degree > 0] = 0.5
            v.push(h=h)

    x = features()
    wanted = torch.where(DAG.in_degrees().unsqueeze(1) > 0, 0.5, x * 2)
    check_equal(Masked(), (Masked()(DAG, x=x)["h"],), (wanted,), (x,))


class OverPlaces(vgraph.VertexFunction):
    """A network of torch over the two places that a vertex's rows have."""

    def __init__(self, net: nn.Module, run: Callable[[nn.Module, Tensor], Tensor]) -> None:
        super().__init__(states={"h": 4})
        self.net, self.run = net, run

    def forward(self, v: vgraph.Vertex) -> None:
        h = torch.tanh(self.run(self.net, v.pull("x") + v.gather()["h"].sum()))
        v.scatter(h=h)
        v.push(h=h)


NETS: dict[str, tuple[Callable[[], nn.Module], Callable[[Any, Tensor], Tensor]]] = {
    "attention": (
        lambda: nn.MultiheadAttention(2, 2, batch_first=True),
        lambda net, x: net(*[x.unflatten(1, (2, 2))] * 3)[0].flatten(1),
    ),
    "encoder": (
        lambda: nn.TransformerEncoderLayer(2, 1, 5, 0.0, batch_first=True),
        lambda net, x: net(x.unflatten(1, (2, 2))).flatten(1),
    ),
    "lstm": (lambda: nn.LSTM(2, 2, batch_first=True), lambda net, x: net(x.unflatten(1, (2, 2)))[0].flatten(1)),
    "gru": (lambda: nn.GRU(2, 2, batch_first=True), lambda net, x: net(x.unflatten(1, (2, 2)))[0].flatten(1)),
    "bag": (lambda: nn.EmbeddingBag(5, 4), lambda net, x: x + net((x > 0).long())),
}


@pytest.mark.parametrize("name", NETS)
def test_networks_that_join_rows_and_places_run_one_vertex_at_a_time(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    make, run = NETS[name]
    model, x = OverPlaces(make(), run).double(), torch.randn(7, 4, dtype=torch.float64, requires_grad=True)

    def cell(vertex: int, kids: list[tuple[Tensor, ...]], _: list[int]) -> tuple[Tensor]:
        return (torch.tanh(run(model.net, (x[vertex] + sum(k[0] for k in kids)).unsqueeze(0))).squeeze(0),)

    with caplog.at_level("INFO", logger="vgraph"):
        found, wanted = model(DAG, x=x)["h"], evaluate(DAG, cell)[0]
    torch.testing.assert_close(found, wanted)
    wrt = (x, *model.parameters())
    grads = [torch.autograd.grad((out**2).sum(), wrt) for out in (found, wanted)]
    torch.testing.assert_close(*grads)
    assert "one vertex at a time" in caplog.text and f"{__file__}:" in caplog.text


def test_a_vertex_without_children_sees_none_on_its_graphs_device() -> None:
    feed: Any = nn.Module()  # nobody asks it
    session = VertexSession(feed, 0, torch.empty(0, dtype=torch.int64, device="meta"), {})
    assert session.child("h", (3,), torch.float32).device.type == "meta"


class OfMatrices(vgraph.VertexFunction):
    def __init__(self, read: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.read = read

    def forward(self, v: vgraph.Vertex) -> None:
        s = self.read(v.pull("a")) + 0.5 * v.gather()["s"].sum()
        v.scatter(s=s)
        v.push(s=s)


def _third_powers(a: Tensor) -> Tensor:
    """Writes along diagonals of its own."""
    own = a * 1
    own.diagonal(1, 2, 1).copy_(a[:, 0, :1])
    return (own**3).flatten(1)


OF_MATRICES: dict[str, Callable[[Tensor], Tensor]] = {
    "det": lambda a: torch.linalg.det(a)[:, None],
    "eigvalsh": torch.linalg.eigvalsh,
    "svdvals": torch.linalg.svdvals,
    "diagonals": _third_powers,
    "inv": lambda a: torch.linalg.inv(a).flatten(1),
}


def _orders(out: Tensor, a: Tensor) -> list[Tensor]:
    (first,) = torch.autograd.grad(out.pow(2).sum(), a, create_graph=True)
    return [out, first, *torch.autograd.grad(first.pow(2).sum(), a)]


@pytest.mark.parametrize("kind", OF_MATRICES)
def test_second_derivatives_of_functions_of_matrices(kind: str) -> None:
    """Torch writes them along diagonals."""
    a = (torch.randn(2, 2, 2, dtype=F64) * 0.3).requires_grad_()
    a = (a @ a.mT + 2 * torch.eye(2, dtype=F64)).detach().requires_grad_()
    read, chain = OF_MATRICES[kind], vgraph.graph(([0], [1]))
    rows = read(a)
    wanted = torch.stack([rows[0], rows[1] + 0.5 * rows[0]])
    found = OfMatrices(read)(chain, a=a)["s"]
    torch.testing.assert_close(_orders(found, a), _orders(wanted, a))


def test_a_derivative_that_cannot_be_recorded_says_so_and_the_next_call_has_it() -> None:
    a = (torch.randn(1, 2, 2, dtype=F64) * 0.3 + 2 * torch.eye(2, dtype=F64)).requires_grad_()
    cell, alone = OfMatrices(lambda a: torch.linalg.slogdet(a)[1][:, None]), vgraph.graph(([], []), num_nodes=1)
    with pytest.raises(FunctionError, match="a further derivative of OfMatrices cannot be recorded"):
        _orders(cell(alone, a=a)["s"], a)
    torch.testing.assert_close(_orders(cell(alone, a=a)["s"], a), _orders(torch.linalg.slogdet(a)[1][:, None], a))


@pytest.mark.parametrize("read", [lambda a: torch.linalg.eigh(a + a.mT)[1].abs().flatten(1), torch.linalg.svdvals])
def test_singular_values_and_eigenvectors_are_captured(
    read: Callable[[Tensor], Tensor], caplog: pytest.LogCaptureFixture
) -> None:
    """Of vertices and of messages, with two derivatives."""
    g = vgraph.graph(([0, 1, 0], [1, 2, 2]))
    a = torch.randn(3, 2, 2, dtype=F64).requires_grad_()
    with caplog.at_level(logging.INFO, "vgraph"):
        g.ndata["a"] = a
        g.update_all(lambda edges: {"m": read(edges.src["a"])}, vgraph.function.sum("m", "s"))
        found = _orders(g.ndata["s"], a)
        apart = _orders(OfMatrices(read)(vgraph.graph(([], []), num_nodes=3), a=a)["s"], a)
    assert "uncaptured" not in caplog.text and "one vertex at a time" not in caplog.text
    src, dst = g.edges()
    torch.testing.assert_close(apart, _orders(read(a), a))
    wanted = read(a).new_zeros(3, read(a).shape[1]).index_add(0, dst, read(a[src]))
    torch.testing.assert_close(found, _orders(wanted, a))


def _thrice(out: Tensor, a: Tensor) -> list[Tensor]:
    found = [out]
    for _ in range(3):
        found += torch.autograd.grad(found[-1].sin().sum(), a, create_graph=True)
    return found


def test_a_third_derivative_of_a_determinant_is_torchs() -> None:
    """Where torch's way is recorded it comes from equal singular values, and is not a number."""
    a = (torch.randn(2, 2, 2, dtype=F64) * 0.3 + 2 * torch.eye(2, dtype=F64)).requires_grad_()
    read, apart = OF_MATRICES["det"], vgraph.graph(([], []), num_nodes=2)
    cell = OfMatrices(read)
    with pytest.raises(FunctionError, match="third derivative of a determinant is not a number in a recording"):
        _thrice(cell(apart, a=a)["s"], a)
    torch.testing.assert_close(_thrice(cell(apart, a=a)["s"], a), _thrice(read(a), a))


@pytest.mark.parametrize("read", [torch.linalg.det, lambda a: torch.linalg.slogdet(a)[1]])
def test_further_derivatives_of_messages_that_no_recording_holds(read: Callable[[Tensor], Tensor]) -> None:
    """Once that is known no recording of one degree is tried either."""
    g = vgraph.graph(([0, 1, 0, 1], [1, 2, 2, 0]))
    a = (torch.randn(3, 2, 2, dtype=F64) * 0.3 + 2 * torch.eye(2, dtype=F64)).requires_grad_()

    def sums() -> Tensor:
        g.ndata["a"] = a
        g.update_all(lambda edges: {"m": read(edges.src["a"])}, vgraph.function.sum("m", "s"))
        return g.ndata["s"]

    with pytest.raises(FunctionError, match=r"a further derivative of .* cannot be recorded"):
        _thrice(sums(), a)
    src, dst = g.edges()
    wanted = torch.zeros(3, dtype=F64).index_add(0, dst, read(a[src]))
    torch.testing.assert_close(_thrice(sums(), a), _thrice(wanted, a))


@pytest.mark.parametrize("name", ["cholesky", "inv", "lu_factor"])
def test_what_leaves_a_check_of_data_out_is_named(name: str, caplog: pytest.LogCaptureFixture) -> None:
    """In the log of vertex functions, again where the reason is remembered, and of messages."""
    checking, g, a = getattr(torch.linalg, name), vgraph.graph(([0, 1], [1, 2])), torch.eye(2).expand(3, 2, 2)

    def first(rows: Tensor) -> Tensor:
        found = checking(rows)
        return found[0] if isinstance(found, tuple) else found

    with caplog.at_level(logging.INFO, "vgraph"):
        for _ in range(2):
            OfMatrices(lambda a: first(a).flatten(1))(g, a=a)
        g.ndata["a"] = a
        g.update_all(lambda edges: {"m": first(edges.src["a"])}, vgraph.function.sum("m", "s"))
    told = [r.getMessage() for r in caplog.records if "checks the data" in r.getMessage()]
    assert len(told) >= 2 and all(f"; torch.linalg.{name}_ex(...)[0] leaves the check out" in words for words in told)


@pytest.mark.parametrize("doubles", [False, True])
def test_results_of_one_vertex_at_a_time_that_the_graph_is_given_are_let_go_with_it(doubles: bool) -> None:
    """Autograd's nodes must not hold the graph, which would hold them."""

    class Looks(vgraph.VertexFunction):
        def forward(self, v: vgraph.Vertex) -> None:
            child = v.gather()["h"]
            h = torch.tanh(v.pull("x") + child.sum() + child.max())
            if float(h.detach().sum()) > 1e9:
                h = h / 2
            v.scatter(h=h)
            v.push(h=h)

    g, x = vgraph.graph(([0, 1], [2, 2])), torch.randn(3, 2, requires_grad=True)
    g.ndata["x"] = x
    out = g.ndata["h"] = Looks()(g)["h"]
    (grad,) = torch.autograd.grad(out.sum(), x, create_graph=doubles)
    if doubles:
        grad.square().sum().backward()
    seen = weakref.ref(out)
    del g, out, grad
    gc.collect()  # of what the refused recording left
    assert seen() is None
