"""Functions by type: what is refused when they are given and called, types that change, states that parts know."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import vgraph
from tests.runtime.engine_models import WIDTH, chain
from vgraph.capture.capture import Bound, watch_runs
from vgraph.errors import DTypeError, FeatureError, FunctionError, NameLookupError


class Word(vgraph.VertexFunction):
    def forward(self, v: vgraph.Vertex) -> None:
        v.scatter(h=v.pull("x"))
        v.push(h=v.pull("x"))


class Phrase(vgraph.VertexFunction):
    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.W = nn.Linear(WIDTH, WIDTH)

    def forward(self, v: vgraph.Vertex) -> None:
        h = torch.tanh(self.W(v.gather()["h"].sum()) + v.pull("x"))
        v.scatter(h=h)
        v.push(h=h)


@pytest.mark.parametrize(
    ("functions", "fact"),
    [
        ({}, "no functions"),
        ([Word()], "is given a list"),
        ({"a": Word()}, "'a' is no type"),
        ({0: nn.Linear(1, 1)}, "of type 0 is a Linear"),
        ({0: Word(), 1: vgraph.ByType({0: Word()})}, "of type 1 is a ByType"),
        ({0: Word(), 3: Phrase(direction="reverse")}, "of type 3 has the direction 'reverse', ByType 'forward'"),
    ],
)
def test_functions_that_are_none(functions: Any, fact: str) -> None:
    with pytest.raises(FunctionError, match=fact) as caught:
        vgraph.ByType(functions)
    assert __file__ in str(caught.value)


@pytest.mark.parametrize(
    ("types", "error", "fact"),
    [
        (None, NameLookupError, "no vertex feature 'type'"),
        ([0, 1, 1, 1], NameLookupError, "no vertex feature 'type'"),
        (torch.tensor([0.0, 1.0, 1.0, 1.0]), DTypeError, "types are torch.float32"),
        (torch.tensor([0, 1]), FeatureError, "2 types for 4 vertices"),
        (torch.tensor([0, 1, 2, 1]), NameLookupError, "of type 2, which has no function"),
    ],
)
def test_types_that_are_none(types: Any, error: type[Exception], fact: str) -> None:
    model = vgraph.ByType({0: Word(), 1: Phrase()})
    with pytest.raises(error, match=fact) as caught:
        model(chain(4), x=torch.ones(4, WIDTH), type=types)
    assert __file__ in str(caught.value)


def test_hooks_of_a_part_are_refused() -> None:
    word = Word()
    word.register_forward_hook(lambda *given: None)
    with pytest.raises(FunctionError, match="Word of type 0 has hooks"):
        vgraph.ByType({0: word})(chain(2), x=torch.ones(2, WIDTH), type=torch.tensor([0, 0]))


def test_a_call_is_found_by_its_guards(monkeypatch: pytest.MonkeyPatch) -> None:
    """What ``ByType`` itself reads is no obstacle: the Python of its functions does not run at every call."""
    monkeypatch.delenv("VGRAPH_CAPTURE", raising=False)
    g, x = chain(4), torch.randn(4, WIDTH)
    g.ndata["type"] = torch.tensor([0, 1, 1, 1])
    model = vgraph.ByType({0: Word(), 1: Phrase()})
    with watch_runs() as runs:
        model(g, x=x)
    (_, bound, _) = runs[-1]
    assert isinstance(bound, Bound) and not any(name.startswith("shared:") for name in bound.captured.names)


@pytest.mark.parametrize("policy", ["frontier", "type-aware"])
def test_types_written_in_place_are_seen(policy: str) -> None:
    """A schedule is kept with the types that it was made for."""
    model, g, x = vgraph.ByType({0: Word(), 1: Phrase()}, policy=policy), chain(4), torch.randn(4, WIDTH)
    g.ndata["type"] = torch.tensor([0, 1, 1, 1])
    model(g, x=x)
    g.ndata["type"][2:] = 0
    found = model(g, x=x)["h"]
    assert torch.equal(found[2:], x[2:])
    assert torch.equal(found, model(chain(4), x=x, type=torch.tensor([0, 1, 0, 0]))["h"])


def test_equal_types_share_a_schedule() -> None:
    """Types that are made anew in every step leave nothing behind."""
    model, g, x = vgraph.ByType({0: Word(), 1: Phrase()}), chain(4), torch.randn(4, WIDTH)
    counts = set[int]()
    for _ in range(3):
        model(g, x=x, type=torch.tensor([0, 1, 1, 1]))
        counts.add(len(g.topology.kept))
    assert len(counts) == 1


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.uint8, torch.bool])
def test_types_of_every_whole_dtype(dtype: torch.dtype) -> None:
    model, x = vgraph.ByType({0: Word(), 1: Phrase()}), torch.randn(4, WIDTH)
    kinds = torch.tensor([0, 1, 0, 1])
    assert torch.equal(model(chain(4), x=x, type=kinds.to(dtype))["h"], model(chain(4), x=x, type=kinds)["h"])


class Matrix(vgraph.VertexFunction):
    """Its state's shape cannot be told from what it computes without children."""

    def forward(self, v: vgraph.Vertex) -> None:
        m = v.gather()["m"].sum().unflatten(-1, (5, 3)).transpose(-1, -2).flatten(-2)
        v.scatter(m=m)
        v.push(m=m)


def test_states_given_to_a_part() -> None:
    assert vgraph.ByType({0: Word(), 1: Matrix(states={"m": 15})}).given_states == {"m": (15,)}
    model = vgraph.ByType({0: Matrix(states={"m": 15})})
    assert model(chain(2), type=torch.tensor([0, 0]))["m"].shape == (2, 15)


@pytest.mark.parametrize("policy", ["frontier", "type-aware", "serial"])
@pytest.mark.parametrize(
    ("graph", "kinds"),
    [
        (lambda: chain(9), [i % 2 for i in range(9)]),
        (lambda: chain(5), [1] * 5),
        (lambda: vgraph.graph(([0, 0, 0], [1, 1, 2])), [0, 1, 1]),
        (lambda: vgraph.graph(([], []), num_nodes=3), [1, 0, 1]),
        (lambda: vgraph.graph(([], []), num_nodes=1), [1]),
        (lambda: vgraph.graph(([], []), num_nodes=0), []),
    ],
    ids=["alternating", "one type", "two edges between two", "no edges", "one vertex", "none"],
)
def test_odd_graphs(graph: Callable[[], vgraph.Graph], kinds: list[int], policy: str) -> None:
    """Against one vertex after another, by hand; a third type has no vertex at all."""
    g, parts = graph(), {0: Word(), 1: Phrase(), 7: Phrase()}
    model = vgraph.ByType(parts, policy=policy).double()
    x = torch.randn(g.num_nodes(), WIDTH, dtype=torch.float64, requires_grad=True)
    found = model(g, x=x, type=torch.tensor(kinds, dtype=torch.int64))["h"]
    rows, src, dst = list[torch.Tensor](), *(ends.tolist() for ends in g.edges())
    for vertex, kind in enumerate(kinds):
        below = sum((rows[s] for s, d in zip(src, dst, strict=True) if d == vertex), x.new_zeros(WIDTH))
        rows.append(torch.tanh(parts[1].W(below) + x[vertex]) if kind else x[vertex])
    wanted = torch.stack(rows) if rows else x
    torch.testing.assert_close(found, wanted, rtol=1e-10, atol=1e-12)
    wrt = (x, parts[1].W.weight)
    given = [torch.autograd.grad((rows**2).sum(), wrt, allow_unused=True) for rows in (found, wanted)]
    for tensor, one, two in zip(wrt, *given, strict=True):
        one, two = (torch.zeros_like(tensor) if grad is None else grad for grad in (one, two))
        torch.testing.assert_close(one, two, rtol=1e-10, atol=1e-12)


class Scaled(vgraph.VertexFunction):
    def __init__(self, times: float) -> None:
        super().__init__()
        self.times = times

    def forward(self, v: vgraph.Vertex) -> None:
        v.push(h=v.pull("x") * self.times)


def test_functions_without_parameters_are_told_apart() -> None:
    """Nothing but their types and numbers tells these from each other."""
    g, x = chain(3), torch.ones(3, WIDTH)
    g.ndata["type"] = torch.zeros(3, dtype=torch.int64)
    for parts in ({0: Word()}, {0: Scaled(2)}, {0: Scaled(3)}, {0: Scaled(3), 1: Word()}, {1: Scaled(3), 0: Scaled(4)}):
        found = vgraph.ByType(parts)(g, x=x)["h"]
        assert torch.equal(found, x * getattr(parts[0], "times", 1)), parts
