"""What a vertex function writes in place, and states that are no floating-point numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import vgraph
from tests.api.recursion import DAG, F64, States, evaluate
from vgraph.capture import capture
from vgraph.errors import DTypeError, FunctionError

TREES = vgraph.batch([DAG, vgraph.graph(([0, 1], [1, 2]))])


class Pushes(vgraph.VertexFunction):
    """Pushes what a function makes of a vertex."""

    def __init__(self, make: Callable[[Any], Tensor]) -> None:
        super().__init__()
        self.make = make

    def forward(self, v: vgraph.Vertex) -> None:
        v.push(h=self.make(v))


# ---------------------------------------------------------------- what is written has no room
def assigns_vertices_to_graphs(v: vgraph.Vertex) -> Tensor:
    b = v.pull_graph("z").clone()
    b[:, 0] = v.pull("x")[:, 0]
    return b + v.pull("x")


def adds_vertices_to_graphs(v: vgraph.Vertex) -> Tensor:
    b = v.pull_graph("z").clone()
    b.add_(v.pull("x"))
    return b + v.pull("x")


def multiplies_vertices_by_children(v: vgraph.Vertex) -> Tensor:
    b = v.pull("x").clone()
    b.mul_(v.pull_edge("w"))
    return b + v.pull_edge("w").sum()


def fills_vertices_by_children(v: vgraph.Vertex) -> Tensor:
    b = v.pull("x").clone()
    b.masked_fill_(v.pull_edge("w") > 0, 1.0)
    return b + v.pull_edge("w").sum()


def adds_children_out(v: vgraph.Vertex) -> Tensor:
    b = v.pull("x").clone()
    torch.add(v.pull_edge("w"), 1.0, out=b)
    return b + v.pull_edge("w").sum()


@pytest.mark.parametrize(
    ("make", "fact"),
    [
        (assigns_vertices_to_graphs, "an assignment writes one row a vertex to a tensor with one row a graph"),
        (adds_vertices_to_graphs, "add_ writes one row a vertex to a tensor with one row a graph"),
        (multiplies_vertices_by_children, "mul_ writes one row a child to a tensor with one row a vertex"),
        (fills_vertices_by_children, "masked_fill_ writes one row a child to a tensor with one row a vertex"),
        (adds_children_out, "add writes one row a child to a tensor with one row a vertex"),
    ],
)
def test_what_has_no_room_is_refused(make: Callable[[Any], Tensor], fact: str) -> None:
    with pytest.raises(FunctionError) as caught:
        Pushes(make)(TREES, x=torch.ones(10, 2), z=torch.ones(2, 2), w=torch.ones(12, 2))
    assert fact in str(caught.value) and f"{__file__}:" in str(caught.value)


def test_a_name_that_is_given_to_the_result_has_room() -> None:
    def adds(v: vgraph.Vertex) -> Tensor:
        b = v.pull_graph("z").clone()
        b += v.pull("x")
        return b

    found = Pushes(adds)(TREES, x=torch.ones(10, 2), z=torch.tensor([[1.0, 1.0], [2.0, 2.0]]))["h"]
    assert found[:, 0].tolist() == [2.0] * 7 + [3.0] * 3


# ---------------------------------------------------------------- stacks: a state that is written in part
class Stack(vgraph.VertexFunction):
    def forward(self, v: vgraph.Vertex) -> None:
        stack = torch.roll(v.gather()["stack"].sum(), 1, dims=1)
        stack[:, 0] = v.pull("x")
        stack[:, 1:] += 1
        v.scatter(stack=stack)
        v.push(stack=stack)


class WatchedStack(Stack):
    """The same, one vertex at a time."""

    def forward(self, v: vgraph.Vertex) -> None:
        if v.pull("x").sum() < 1e9:
            super().forward(v)


@pytest.mark.parametrize("kernels", ["0", "1"])
@pytest.mark.parametrize("policy", ["frontier", "serial"])
@pytest.mark.parametrize("make", [Stack, WatchedStack])
def test_a_state_that_is_written_in_part(
    make: type[Stack], policy: str, kernels: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Absent children are whole numbers to begin with, and alike at all leaves; what is written there is neither."""
    monkeypatch.setenv("VGRAPH_KERNELS", kernels)
    capture.forget()
    x = torch.rand(7, 4, requires_grad=True)

    def cell(vertex: int, kids: list[States], _: list[int]) -> States:
        past = sum((k[0] for k in kids), torch.zeros(3, 4))
        return (torch.cat([x[vertex].unsqueeze(0), past[:2] + 1]),)

    model = make(states={"stack": (3, 4)}, policy=policy)
    wanted, found = evaluate(DAG, cell)[0], model(DAG, x=x)["stack"]
    torch.testing.assert_close(found, wanted)
    grads = [torch.autograd.grad((out**2).sum(), x)[0] for out in (found, wanted)]
    torch.testing.assert_close(*grads)


@pytest.mark.parametrize("watched", [False, True])
def test_fractions_are_no_whole_numbers(watched: bool) -> None:
    """A state that nothing tells is whole numbers; one that is filled with fractions is not."""

    class Filled(vgraph.VertexFunction):
        def forward(self, v: vgraph.Vertex) -> None:
            if watched and v.pull("x").sum() > 1e9:
                return
            past = v.gather()["h"].sum()
            h = past.masked_fill((v.in_degree == 0).unsqueeze(-1), 0.5)
            v.scatter(h=h)
            v.push(h=h + 0 * v.pull("x"))

    found = Filled()(vgraph.graph(([0, 1], [1, 2])), x=torch.ones(3, 2))["h"]
    assert found.tolist() == [[0.5, 0.5]] * 3


# ---------------------------------------------------------------- ids and flags that parents read
class Tagger(vgraph.VertexFunction):
    """A tag for each vertex, which its parents embed; a state beside it whose width only a product tells."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.embed, self.cell = nn.Embedding(5, 4), nn.Linear(4, 4)
        self.out = nn.Linear(4, 5)

    def forward(self, v: vgraph.Vertex) -> None:
        child = v.gather()
        kids = self.cell(child["h"]) + self.embed(child["tag"])
        h = torch.tanh(v.pull("x") + torch.where(child["odd"].unsqueeze(-1), kids, -kids).sum())
        tag = self.out(h).argmax(-1)
        v.scatter(h=h, tag=tag, odd=tag % 2 == 1)
        v.push(h=h, tag=tag)


@pytest.mark.parametrize("states", [None, {"h": 4, "tag": (), "odd": ()}])
def test_states_that_are_ids_and_flags(states: Any) -> None:
    model, x = Tagger(states=states).double(), torch.randn(7, 4, dtype=F64, requires_grad=True)

    def cell(vertex: int, kids: list[States], _: list[int]) -> States:
        given = torch.zeros(4, dtype=F64)
        for h, tag in kids:
            sent = model.cell(h) + model.embed(tag)
            given = given + (sent if tag % 2 == 1 else -sent)
        h = torch.tanh(x[vertex] + given)
        return h, model.out(h).argmax()

    wanted, found = evaluate(DAG, cell), model(DAG, x=x)
    torch.testing.assert_close(found["h"], wanted[0])
    assert found["tag"].tolist() == wanted[1].tolist()
    wrt = (x, *model.embed.parameters(), *model.cell.parameters())
    grads = [torch.autograd.grad((h**2).sum(), wrt) for h in (found["h"], wanted[0])]
    torch.testing.assert_close(*grads)


def test_a_mask_is_not_blamed_for_another_dtype() -> None:
    class Masked(vgraph.VertexFunction):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(2, 2)

        def forward(self, v: vgraph.Vertex) -> None:
            x = torch.where(v.pull("mask").unsqueeze(-1), v.pull("ids").unsqueeze(-1), 0).expand(-1, 2)
            h = self.linear(x) + v.gather()["h"].sum()
            v.scatter(h=h)
            v.push(h=h)

    with pytest.raises(DTypeError, match="feature 'ids' is torch"):
        Masked()(DAG, mask=torch.ones(7, dtype=torch.bool), ids=torch.arange(7))


# ---------------------------------------------------------------- a loss for each vertex
LOSSES: dict[str, dict[str, Any]] = {
    "plain": {},
    "ignored": {"ignore_index": 2},
    "weighted": {"weight": torch.tensor([0.5, 1.0, 2.0, 0.1], dtype=F64)},
    "smoothed": {"weight": torch.tensor([0.5, 1.0, 2.0, 0.1], dtype=F64), "ignore_index": 1, "label_smoothing": 0.2},
}


@pytest.mark.parametrize("name", LOSSES)
def test_a_loss_for_each_vertex(name: str) -> None:
    x, kinds = torch.randn(7, 4, dtype=F64, requires_grad=True), torch.arange(7) % 4
    loss = nn.CrossEntropyLoss(reduction="none", **LOSSES[name])
    found = Pushes(lambda v: loss(v.pull("x"), v.pull("kind")))(DAG, x=x, kind=kinds)["h"]
    wanted = loss(x, kinds)
    torch.testing.assert_close(found, wanted)
    weights = torch.randn_like(wanted)
    grads = [torch.autograd.grad((out * weights).sum(), x)[0] for out in (found, wanted)]
    torch.testing.assert_close(*grads)


def test_a_loss_of_numbers_that_are_no_class() -> None:
    model = Pushes(lambda v: functional.nll_loss(v.pull("x"), v.pull("kind"), reduction="none"))
    with pytest.raises(RuntimeError, match="out of bounds"):
        model(DAG, x=torch.randn(7, 4), kind=torch.arange(7))
