"""Tensors whose memory does not hold their numbers: everywhere they mean what they mean to torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import vgraph
import vgraph.function as fn
from vgraph.capture.capture import forget
from vgraph.errors import FeatureError
from vgraph.sampling import NeighborSampler, sample_neighbors, select_topk

SRC, DST, COUNT = torch.tensor([0, 1, 2, 3, 4, 0]), torch.tensor([1, 2, 3, 4, 5, 5]), 6
Rows = Callable[[], Tensor]


@pytest.fixture(params=["1", "0"], ids=["kernels", "torch"], autouse=True)
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VGRAPH_KERNELS", request.param)
    forget()


def graph() -> vgraph.Graph:
    return vgraph.graph((SRC, DST), num_nodes=COUNT)


class Cell(vgraph.VertexFunction):
    def forward(self, v: Any) -> None:
        h = torch.tanh(v.pull("x") + v.gather()["h"].sum())
        v.scatter(h=h)
        v.push(h=h)


class Eager(vgraph.VertexFunction):
    def forward(self, v: Any) -> None:
        v.push(h=torch.sin(v.pull("x")) * 2)


class OnEdges(vgraph.VertexFunction):
    def forward(self, v: Any) -> None:
        h = torch.tanh((v.gather()["h"] * v.pull_edge("x")).sum() + 1)
        v.scatter(h=h)
        v.push(h=h)


def messages(reduce: Any) -> Callable[[Tensor], Tensor]:
    def run(x: Tensor) -> Tensor:
        g = graph()
        g.ndata["h"] = x
        g.update_all(lambda e: {"m": torch.sigmoid(e.src["h"]) * e.dst["h"]}, reduce)
        return g.ndata["o"]

    return run


def copied(x: Tensor) -> Tensor:
    g = graph()
    g.ndata["h"] = x
    g.update_all(fn.copy_u("h", "m"), fn.sum("m", "o"))
    return g.ndata["o"]


def of_edges(x: Tensor) -> Tensor:
    g = graph()
    g.ndata["h"], g.edata["w"] = torch.ones(COUNT, 4, dtype=x.dtype), x
    g.update_all(fn.u_mul_e("h", "w", "m"), fn.sum("m", "o"))
    return g.ndata["o"]


def reached(x: Tensor) -> Tensor:
    g = graph()
    g.ndata["h"] = torch.linspace(0, 1, COUNT * 4, dtype=x.dtype).view(COUNT, 4)
    opposite = -x  # perhaps a view of the same memory
    g.update_all(lambda e: {"m": torch.tanh(e.src["h"] * x[0]) + opposite[1]}, fn.sum("m", "o"))
    return g.ndata["o"]


def on_both_sides(x: Tensor) -> Tensor:
    g = graph()
    g.ndata["h"] = x
    g.apply_edges(lambda e: {"m": e.src["h"] * torch._neg_view(e.dst["h"]).exp()})
    return g.edata["m"]


def within(x: Tensor) -> Tensor:
    g = graph()
    g.ndata["h"] = x
    g.update_all(lambda e: {"m": torch.view_as_complex(e.src["h"].view(-1, 2, 2)).conj().imag.exp()}, fn.sum("m", "o"))
    return g.ndata["o"]


def reduced(x: Tensor) -> Tensor:
    return vgraph.reduce((x, x[:1]), (0,), "sum", of=lambda a, b: a.exp() * b)


def softmax(x: Tensor) -> Tensor:
    return vgraph.ops.edge_softmax(graph(), x)


def segments(x: Tensor) -> Tensor:
    return vgraph.ops.segment_reduce(torch.tensor([2, 4]), x, "sum")


def readout(x: Tensor) -> Tensor:
    g = vgraph.batch([vgraph.graph(([0], [1]))] * 3)
    g.ndata["h"] = x
    return vgraph.sum_nodes(g, "h")


PATHS: dict[str, Callable[[Tensor], Tensor]] = {
    "sum": messages(fn.sum("m", "o")),
    "max": messages(fn.max("m", "o")),
    "by degree": messages(lambda v: {"o": v.mailbox["m"].sum(1) / v.mailbox["m"].shape[1] ** 0.5}),
    "copied": copied,
    "of edges": of_edges,
    "reached": reached,
    "both sides": on_both_sides,
    "within": within,
    "cell": lambda x: Cell()(graph(), x=x)["h"],
    "cell in reverse": lambda x: Cell(direction="reverse")(graph(), x=x)["h"],
    "eager": lambda x: Eager()(graph(), x=x)["h"],
    "at some": lambda x: Eager()(graph(), x=vgraph.at(x[:2], torch.tensor([4, 1])))["h"],
    "slots": lambda x: OnEdges(states={"h": 4})(graph(), x=x)["h"],
    "rows of a product": lambda x: vgraph.linear(x.repeat(20, 1), torch.ones(5, 4, dtype=x.dtype)),
    "reduced": reduced,
    "softmax": softmax,
    "segments": segments,
    "readout": readout,
}
VIEWS: dict[str, Callable[[Tensor], Tensor]] = {
    "neg": lambda x: torch._neg_view(-x),
    "conj().imag": lambda x: torch.complex(torch.zeros_like(x), -x).conj().imag,
}


def numbers() -> Tensor:
    return torch.linspace(-1, 1, COUNT * 4, dtype=torch.float64).view(COUNT, 4)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("view", VIEWS)
def test_views_of_opposites(view: str, path: str) -> None:
    function, x, base = PATHS[path], numbers().requires_grad_(), numbers().requires_grad_()
    seen = VIEWS[view](x)
    assert seen.is_neg() and torch.equal(seen, base)
    found, wanted = function(seen), function(base)
    torch.testing.assert_close(found, wanted)
    weights = torch._neg_view(torch.linspace(1, 2, wanted.numel(), dtype=wanted.dtype).view(wanted.shape))
    (first,) = torch.autograd.grad(found, x, weights, create_graph=True)
    (again,) = torch.autograd.grad(wanted, base, weights.clone(), create_graph=True)
    torch.testing.assert_close(first, again)
    second = torch.autograd.grad((first * x).square().sum(), x)
    torch.testing.assert_close(second, torch.autograd.grad((again * base).square().sum(), base))
    with torch.no_grad():
        torch.testing.assert_close(function(seen), wanted)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64])
def test_views_of_other_dtypes(dtype: torch.dtype) -> None:
    x = torch.arange(COUNT * 4).view(COUNT, 4).to(dtype)
    for function in (copied, of_edges):
        assert torch.equal(function(torch._neg_view(-x)), function(x))


def test_parameters_products_and_biases() -> None:
    weight, bias, rows = torch.randn(300, 20), torch.randn(300), torch.randn(100, 20)
    wanted = nn.functional.linear(rows, weight, bias)
    for given in (
        (torch._neg_view(-rows), weight, bias),
        (rows, torch._neg_view(-weight), bias),
        (rows, weight, torch._neg_view(-bias)),
    ):
        torch.testing.assert_close(vgraph.linear(*given), wanted)
    layer = nn.Linear(20, 300)
    layer.weight, layer.bias = nn.Parameter(torch._neg_view(-weight)), nn.Parameter(torch._neg_view(-bias))
    g = vgraph.graph((torch.arange(100), torch.arange(100)))
    g.ndata["h"] = rows
    g.update_all(lambda e: {"m": layer(e.src["h"])}, fn.sum("m", "o"))
    torch.testing.assert_close(g.ndata["o"], wanted)


def test_two_readings_of_one_memory() -> None:
    one = torch.linspace(1, 2, 4)
    other = torch._neg_view(one)
    g = graph()
    g.ndata["h"] = torch.ones(COUNT, 4)
    g.update_all(lambda e: {"m": e.src["h"] * one + e.src["h"] * other * 3}, fn.sum("m", "o"))
    torch.testing.assert_close(g.ndata["o"][1], -2 * one)
    pair = torch.complex(one, one)
    h = torch.complex(g.ndata["h"], g.ndata["h"])
    g.ndata["z"] = h
    g.update_all(lambda e: {"m": e.src["z"] * pair + e.src["z"] * pair.conj()}, fn.sum("m", "o"))
    torch.testing.assert_close(g.ndata["o"][1], (2 * h[0] * one))


def test_ids_and_weights() -> None:
    g = vgraph.graph((torch._neg_view(-SRC), torch._neg_view(-DST)), num_nodes=COUNT)
    assert [end.tolist() for end in g.edges()] == [SRC.tolist(), DST.tolist()]
    assert g.in_edges(torch._neg_view(torch.tensor([-5])), "eid").tolist() == [4, 5]
    assert vgraph.rows_at(numbers(), torch._neg_view(torch.tensor([-2]))).tolist() == numbers()[2:3].tolist()
    g.edata["w"] = torch._neg_view(-torch.tensor([0.0, 1, 1, 1, 0, 3]))
    assert sample_neighbors(g, [5], 5, prob="w").edges("eid").numel() == 1
    assert select_topk(g, 1, "w", [5]).edata["_ID"].tolist() == [5]
    drawn = NeighborSampler([5], prob="w").sample(g, torch._neg_view(torch.tensor([-5])))
    assert drawn[2][0].num_edges() == 1
    found = vgraph.to_networkx(g, edge_attrs=["w"])
    assert found.edges[0, 5, 0]["w"] == 3


@pytest.mark.parametrize("path", PATHS)
def test_zeros_that_lie_nowhere(path: str) -> None:
    zeros = torch._efficientzerotensor((COUNT, 4), dtype=torch.float64)
    torch.testing.assert_close(PATHS[path](zeros), PATHS[path](torch.zeros(COUNT, 4, dtype=torch.float64)))


class Wrapper(Tensor):
    """A tensor that holds another one, as sharded and quantised ones do."""

    @staticmethod
    def __new__(cls, inner: Tensor) -> Any:
        made: Any = Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype, device=inner.device)
        made.inner = inner
        return made

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*[a.inner if isinstance(a, cls) else a for a in args], **(kwargs or {}))


@pytest.mark.parametrize("path", ["sum", "copied", "of edges", "cell", "eager", "softmax", "segments"])
def test_wrappers_are_refused(path: str) -> None:
    with pytest.raises(FeatureError, match="is a Wrapper, which has no memory of its own"):
        PATHS[path](Wrapper(numbers()))


def test_a_wrapper_that_is_read_is_torchs() -> None:
    """What it holds is known to torch's operators alone, so the function runs on those."""
    g, scale = graph(), Wrapper(numbers()[0])
    g.ndata["h"] = numbers()
    results = []
    for factor in (scale, scale.inner):
        g.update_all(lambda e, factor=factor: {"m": e.src["h"] * factor}, fn.sum("m", "o"))
        results.append(g.ndata["o"])
    torch.testing.assert_close(*results)


def test_a_function_that_met_zeros_of_autograds_reads_other_numbers_later() -> None:
    """The product with zeros that lie nowhere is recorded as zeros: it is not that of other tensors."""

    def run(x: Tensor) -> Tensor:
        g = graph()
        g.ndata["h"] = torch.ones(COUNT, 4, dtype=x.dtype)
        g.update_all(lambda e: {"m": e.src["h"] * x[0] + 1}, fn.sum("m", "o"))
        return g.ndata["o"]

    kinds = [torch._efficientzerotensor((2, 4), dtype=torch.float64), torch.ones(2, 4, dtype=torch.float64)]
    kinds.append(torch._neg_view(kinds[1]))
    for x in (*kinds, *reversed(kinds)):
        degrees = graph().in_degrees().to(x.dtype).unsqueeze(1)
        assert torch.equal(run(x), degrees * (x.clone().resolve_neg()[0] + 1))


COMPLEX_NUMBERS: dict[str, Callable[[Tensor], Tensor]] = {
    "times": lambda x: x * 2j,
    "over": lambda x: x / (1 + 2j),
    "of a number": lambda x: 1j / (x + 3),
    "phases": lambda x: torch.exp(1j * x.real) * x,
}


@pytest.mark.parametrize("turns", [False, True])
@pytest.mark.parametrize("determinant", [torch.linalg.det, lambda m: torch.linalg.det(torch.sin(m.mT))])
def test_a_determinant_has_torchs_gradient_however_its_matrix_lies(
    determinant: Callable[[Tensor], Tensor], turns: bool
) -> None:
    """Torch factorizes another matrix where rows lie otherwise than in the example, and its derivative must know."""
    g, h = graph(), torch.randn(COUNT, 9, dtype=torch.float64)
    h = (h.T.contiguous().T if turns else h).requires_grad_()

    def message(edges: Any) -> dict[str, Tensor]:
        return {"m": determinant(edges.src["h"].view(-1, 3, 3)).sin()}

    g.ndata["h"] = h
    g.update_all(message, fn.sum("m", "y"))
    wanted = torch.zeros(COUNT, dtype=torch.float64).index_add(0, DST, determinant(h[SRC].view(-1, 3, 3)).sin())
    torch.testing.assert_close(g.ndata["y"], wanted)
    found, by_hand = (torch.autograd.grad(each.square().sum(), h)[0] for each in (g.ndata["y"], wanted))
    torch.testing.assert_close(found, by_hand)


@pytest.mark.parametrize("name", COMPLEX_NUMBERS)
def test_complex_numbers_in_a_message_have_torchs_gradient(name: str) -> None:
    function = COMPLEX_NUMBERS[name]
    x = torch.complex(numbers(), numbers().flip(0)).requires_grad_()
    g = graph()
    g.ndata["h"] = x
    g.update_all(lambda e: {"m": function(e.src["h"])}, fn.sum("m", "o"))
    wanted = torch.zeros_like(x).index_add(0, DST, function(x)[SRC])
    torch.testing.assert_close(g.ndata["o"], wanted)
    weights = torch.complex(numbers().cos(), numbers())
    firsts = [torch.autograd.grad(o, x, weights, create_graph=True)[0] for o in (g.ndata["o"], wanted)]
    torch.testing.assert_close(*firsts)
    torch.testing.assert_close(*[torch.autograd.grad((first * x).abs().sum(), x)[0] for first in firsts])


@pytest.mark.parametrize("dtype", [torch.int32, torch.int16])
def test_bits_of_rows_are_read_as_another_dtype(dtype: torch.dtype) -> None:
    """Torch calls it a view, as it calls a reshape."""
    g, x = graph(), numbers().float()
    g.ndata["h"] = x
    g.update_all(lambda e: {"m": e.src["h"].view(dtype).float()}, fn.sum("m", "o"))
    src, dst = g.edges()
    bits = x.view(dtype).float()
    torch.testing.assert_close(g.ndata["o"], torch.zeros_like(bits).index_add(0, dst, bits[src]))


class Turned(vgraph.VertexFunction):
    def forward(self, v: vgraph.Vertex) -> None:
        h = v.pull("x") * 2 + v.gather()["h"].sum()
        v.scatter(h=h)
        v.push(h=h)


def test_states_that_are_complex_have_gradient() -> None:
    chain = vgraph.graph(([0, 1, 2], [1, 2, 3]))
    x = torch.complex(numbers(), numbers().flip(0))[:4].requires_grad_()
    found, wanted = Turned()(chain, x=x)["h"], (2 * x).cumsum(0)
    torch.testing.assert_close(found, wanted)
    torch.testing.assert_close(*[torch.autograd.grad(h.abs().sum(), x)[0] for h in (found, wanted)])


def test_weights_that_torch_has_packed_run_uncaptured() -> None:
    """Of quantized layers; they are objects that nobody can compare, nor find again."""
    weight, bias = torch.randn(2, 3), torch.randn(2)
    packed = torch.ops.quantized.linear_prepack_fp16(weight, bias)
    g, x = vgraph.graph(([0, 1, 1], [1, 2, 0])), torch.randn(3, 3)
    g.ndata["x"] = x
    for _ in range(2):
        g.update_all(
            lambda edges: {"m": torch.ops.quantized.linear_dynamic_fp16(edges.src["x"], packed)},
            lambda nodes: {"o": nodes.mailbox["m"].sum(1)},
        )
        torch.testing.assert_close(g.ndata["o"], (x @ weight.T + bias)[[1, 0, 1]], atol=1e-2, rtol=1e-2)
