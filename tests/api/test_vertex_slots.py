"""Every reduction over slots against a recursion written by hand, with first and second derivatives."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import vgraph
from tests.api.recursion import DAG, evaluate

WIDTH = 3
Reduce = Callable[[Tensor], Tensor]


def _first_extremum(largest: bool) -> Reduce:
    def reduce(rows: Tensor) -> Tensor:
        if not len(rows):
            return rows.new_zeros(rows.shape[1:])
        best = rows.detach().amax(0) if largest else rows.detach().amin(0)
        slots = torch.arange(len(rows)).view(-1, *(1,) * (rows.dim() - 1)).expand(rows.shape)
        first = torch.where(rows.detach() == best, slots, len(rows)).amin(0)
        return rows.gather(0, first.unsqueeze(0)).squeeze(0)

    return reduce


def _or(empty: float, reduce: Reduce) -> Reduce:
    return lambda rows: reduce(rows) if len(rows) else rows.new_full(rows.shape[1:], empty)


# name: how a vertex function says it, what it means for the children of one vertex
SINGLE: dict[str, tuple[Reduce, Reduce]] = {
    "sum": (lambda s: s.sum(), lambda r: r.sum(0)),
    "mean": (lambda s: s.mean(), _or(0.0, lambda r: r.mean(0))),
    "max": (lambda s: s.max(), _first_extremum(True)),
    "min": (lambda s: s.min(), _first_extremum(False)),
    "amax": (lambda s: s.amax(), _or(0.0, lambda r: r.amax(0))),
    "amin": (lambda s: s.amin(), _or(0.0, lambda r: r.amin(0))),
    "prod": (lambda s: s.prod(), lambda r: r.prod(0)),
    "logsumexp": (
        lambda s: torch.sigmoid(s.logsumexp()),
        lambda r: torch.sigmoid(_or(-math.inf, lambda x: x.logsumexp(0))(r)),
    ),
    "softmax": (
        lambda s: (s.softmax() * s).sum(),
        lambda r: (r.softmax(0) * r).sum(0),
    ),
    "log_softmax": (
        lambda s: (s.log_softmax() * s).sum(),
        lambda r: (r.log_softmax(0) * r).sum(0),
    ),
    "var": (
        lambda s: s.var(correction=-1),
        lambda r: ((r - r.mean(0)) ** 2).sum(0) / (len(r) + 1) if len(r) else r.sum(0),
    ),
    "std": (
        lambda s: s.std(correction=0),
        lambda r: r.std(0, correction=0) if len(r) > 1 else r.new_zeros(r.shape[1:]),
    ),
    "maximum of two": (
        lambda s: torch.max(s, s * 0 + 0.1).sum(),
        lambda r: torch.max(r, r * 0 + 0.1).sum(0),
    ),
    "over features": (
        lambda s: (s * s.max(-1, keepdim=True).values + s.softmax(-1)).sum(),
        lambda r: (r * r.max(-1, keepdim=True).values + r.softmax(-1)).sum(0),
    ),
}


class Reduced(vgraph.VertexFunction):
    def __init__(self, reduce: Reduce) -> None:
        super().__init__()
        self.reduce = reduce

    def forward(self, v: vgraph.Vertex) -> None:
        x = v.pull("x")
        h = torch.tanh(x) + self.reduce(v.gather()["h"] * 0.7 + x * v.pull_edge("w"))
        v.scatter(h=h)
        v.push(h=h)


def _reference(reduce: Reduce, x: Tensor, w: Tensor) -> Tensor:
    def cell(vertex: int, children: list[tuple[Tensor, ...]], edges: list[int]) -> tuple[Tensor]:
        kids = [c[0] * 0.7 + x[vertex] * w[e] for c, e in zip(children, edges, strict=True)]
        rows = torch.stack(kids) if kids else x.new_zeros((0, x.shape[1]))
        return (torch.tanh(x[vertex]) + reduce(rows),)

    return evaluate(DAG, cell)[0]


def _features() -> tuple[Tensor, Tensor]:
    x = torch.randn(DAG.num_nodes(), WIDTH, dtype=torch.float64, requires_grad=True)
    return x, torch.rand(DAG.num_edges(), 1, dtype=torch.float64, requires_grad=True)


@pytest.mark.parametrize("policy", ["frontier", "serial"])
@pytest.mark.parametrize("name", SINGLE)
def test_reduction_equals_recursion(name: str, policy: str) -> None:
    said, meant = SINGLE[name]
    x, w = _features()
    function = Reduced(said)
    function.policy = policy
    out, wanted = function(DAG, x=x, w=w)["h"], _reference(meant, x, w)
    torch.testing.assert_close(out, wanted, rtol=1e-10, atol=1e-12)
    weight = torch.randn_like(out)
    grads = torch.autograd.grad((out * weight).sum(), (x, w))
    expected = torch.autograd.grad((wanted * weight).sum(), (x, w))
    torch.testing.assert_close(grads, expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name", SINGLE)
def test_derivatives_of_first_and_second_order(name: str) -> None:
    function = Reduced(SINGLE[name][0])
    x, w = _features()
    x = x.detach()[:, :1].requires_grad_()

    def call(*inputs: Tensor) -> Tensor:
        return function(DAG, x=inputs[0], w=inputs[1])["h"]

    assert torch.autograd.gradcheck(call, (x, w))
    assert torch.autograd.gradgradcheck(call, (x, w), fast_mode=True)


class Plain(vgraph.VertexFunction):
    """A feature of the children, reduced: what they scatter is what they are given."""

    def __init__(self, reduce: Reduce) -> None:
        super().__init__()
        self.reduce = reduce

    def forward(self, v: vgraph.Vertex) -> None:
        v.scatter(x=v.pull("x"))
        v.push(r=self.reduce(v.gather()["x"]))


TREE = vgraph.graph(([0, 1, 2, 3, 4], [5, 5, 5, 6, 6]))


def _reduced(reduce: Reduce, x: Tensor, policy: str = "frontier") -> tuple[Tensor, Tensor]:
    model = Plain(reduce)
    model.policy = policy
    x = x.clone().requires_grad_()
    out = model(TREE, x=x)["r"]
    (grad,) = torch.autograd.grad(out[5:].sum(), x)
    return out.detach(), grad


@pytest.mark.parametrize("policy", ["frontier", "serial"])
def test_without_children(policy: str) -> None:
    x = torch.randn(7, 2, dtype=torch.float64)
    empty = {"sum": 0.0, "mean": 0.0, "max": 0.0, "min": 0.0, "amax": 0.0, "amin": 0.0,
             "prod": 1.0, "logsumexp": -math.inf, "var": 0.0, "std": 0.0}  # fmt: skip
    for name, value in empty.items():
        out, grad = _reduced(lambda s, name=name: getattr(s, name)(), x, policy)
        assert (out[:5] == value).all(), name
        assert grad.isfinite().all(), name


@pytest.mark.parametrize("policy", ["frontier", "serial"])
def test_ties_follow_torch(policy: str) -> None:
    x = torch.tensor([1.0, 1.0, 0.0, 2.0, 2.0, 0.0, 0.0], dtype=torch.float64).unsqueeze(1)
    for first in (lambda s: s.max(), lambda s: -(-s).min()):
        out, grad = _reduced(first, x, policy)
        assert out[5:, 0].tolist() == [1, 2]
        assert grad[:, 0].tolist() == [1, 0, 0, 1, 0, 0, 0]
    out, grad = _reduced(lambda s: s.amax(), x, policy)
    assert grad[:, 0].tolist() == [0.5, 0.5, 0, 0.5, 0.5, 0, 0]


@pytest.mark.parametrize("zeros", [0, 1, 2, 3])
def test_zeros_in_a_product(zeros: int) -> None:
    x = torch.tensor([2.0, 3.0, 5.0, 7.0, 0.0, 0.0, 0.0], dtype=torch.float64)
    x[:zeros] = 0
    out, grad = _reduced(lambda s: s.prod(), x.unsqueeze(1))
    leaf = x.clone().requires_grad_()
    (wanted,) = torch.autograd.grad(leaf[:3].prod() + leaf[3:5].prod(), leaf)
    assert out[5, 0] == x[:3].prod() and torch.equal(grad[:, 0], wanted)

    def prods(t: Tensor) -> Tensor:
        return Plain(lambda s: s.prod())(TREE, x=t)["r"]

    assert torch.autograd.gradgradcheck(prods, (x.unsqueeze(1).requires_grad_(),))


def test_infinities_and_large_numbers() -> None:
    x = torch.tensor([1e3, -1e3, 999.0, -math.inf, -math.inf, 0.0, 0.0], dtype=torch.float64)
    out, grad = _reduced(lambda s: torch.exp(s.logsumexp() - 1000), x.unsqueeze(1))
    torch.testing.assert_close(out[5, 0], torch.exp(x[:3].logsumexp(0) - 1000))
    assert out[6, 0] == 0 and not grad[:3].isnan().any()
    out, _ = _reduced(lambda s: (s.softmax() * torch.ones_like(s)).sum(), x.unsqueeze(1))
    torch.testing.assert_close(out[5, 0], torch.tensor(1.0, dtype=torch.float64))


def test_torch_functions_and_methods_agree() -> None:
    x = torch.randn(7, 3, dtype=torch.float64)
    pairs: list[tuple[Reduce, Reduce]] = [
        (lambda s: s.sum(), torch.sum), (lambda s: s.mean(), torch.mean),
        (lambda s: s.max(), torch.max), (lambda s: s.prod(), torch.prod),
        (lambda s: s.amin(), torch.amin), (lambda s: s.std(), torch.std),
    ]  # fmt: skip
    for method, function in pairs:
        torch.testing.assert_close(_reduced(method, x), _reduced(function, x), equal_nan=True)


def test_slots_of_scalars_and_matrices() -> None:
    for shape in ((7,), (7, 2, 3)):
        x = torch.randn(shape, dtype=torch.float64)
        out, grad = _reduced(lambda s: s.sum() + s.max() * s.mean(), x)
        for vertex, rows in ((5, x[:3]), (6, x[3:5])):
            torch.testing.assert_close(out[vertex], rows.sum(0) + rows.amax(0) * rows.mean(0))
        assert grad.shape == x.shape


def test_integer_slots() -> None:
    x = torch.tensor([3, 1, 2, 5, 4, 0, 0])
    for reduce, wanted in (("sum", [6, 9]), ("max", [3, 5]), ("min", [1, 4]), ("prod", [6, 20])):
        out = Plain(lambda s, name=reduce: getattr(s, name)())(TREE, x=x)["r"]
        assert out[5:].tolist() == wanted and out.dtype == torch.int64
    mean = Plain(lambda s: s.double().mean())(TREE, x=x)["r"]
    assert mean[5:].tolist() == [2, 4.5]


MATRIX, VECTOR = torch.randn(5, 4, dtype=torch.float64), torch.randn(5, dtype=torch.float64)


@pytest.mark.parametrize(
    "product",
    [
        lambda slots: slots @ VECTOR,
        lambda slots: slots @ MATRIX,
        lambda slots: slots.matmul(VECTOR),
        lambda slots: torch.nn.functional.linear(slots, VECTOR),
        lambda slots: torch.inner(slots, VECTOR),
        lambda slots: torch.inner(slots, MATRIX.T),
        lambda slots: torch.tensordot(slots, MATRIX, dims=([-1], [0])),
        lambda slots: torch.einsum("...d,dk->...k", slots, MATRIX),
        lambda slots: slots.flatten(-2).unflatten(-1, (5, 2)).mT @ MATRIX,
    ],
)
def test_products_of_matrices_that_children_hold(product: Callable[[Tensor], Tensor]) -> None:
    """Torch makes one row of each place of each slot: an edge and its places, not a vertex and its slots."""

    class Products(vgraph.VertexFunction):
        def forward(self, v: vgraph.Vertex) -> None:
            v.push(o=product(v.gather()["r"]).sum())
            v.scatter(r=v.pull("x"))

    x = torch.randn(3, 2, 5, dtype=torch.float64, requires_grad=True)
    found = Products(states={"r": (2, 5)})(vgraph.graph(([0, 0, 1], [1, 2, 2])), x=x)["o"]
    sent = product(x)
    wanted = torch.stack([torch.zeros_like(sent[0]), sent[0], sent[0] + sent[1]])
    torch.testing.assert_close(found, wanted)
    grads = [torch.autograd.grad((made**2).sum(), x)[0] for made in (found, wanted)]
    torch.testing.assert_close(*grads)
