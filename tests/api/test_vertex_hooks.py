"""Hooks of a vertex function: each runs once a call, on what the caller gave and gets."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import vgraph
from vgraph.errors import FunctionError

TREE = vgraph.graph(([0, 1], [2, 2]))


class Sum(vgraph.VertexFunction):
    def forward(self, v):
        h = 2 * v.pull("x") + v.gather()["h"].sum()
        v.scatter(h=h)
        v.push(h=h)


def rows() -> Tensor:
    return torch.tensor([[1.0], [2.0], [4.0]], requires_grad=True)


WANTED = torch.tensor([[2.0], [4.0], [14.0]])


def test_hooks_run_once_a_call_and_change_what_it_takes_and_gives() -> None:
    model, seen = Sum(), list[Any]()

    def before(module: Any, args: Any, named: Any) -> Any:
        seen.append(("before", args, sorted(named)))
        return args, {"x": named["x"] / 2}

    def after(module: Any, args: Any, outputs: Any) -> Any:
        seen.append(("after", args, sorted(outputs)))
        return {"twice": 2 * outputs["h"]}

    handles = [
        model.register_forward_pre_hook(before, with_kwargs=True),
        model.register_forward_hook(after),
        model.register_forward_pre_hook(lambda module, args: None),
        model.register_forward_hook(lambda module, args, named, outputs: None, with_kwargs=True),
    ]
    for _ in range(2):
        assert torch.equal(model(TREE, x=rows())["twice"], WANTED)
    assert seen == [("before", (TREE,), ["x"]), ("after", (TREE,), ["h"])] * 2
    for handle in handles:
        handle.remove()
    assert torch.equal(model(TREE, x=rows())["h"], WANTED)


def test_full_backward_hooks_see_gradients_of_features_and_outputs() -> None:
    model, seen, x = Sum(), list[Any](), rows()

    def backward(module: Any, inward: Any, outward: Any) -> Any:
        seen.append((inward, outward))
        return tuple(None if grad is None else 10 * grad for grad in inward)

    model.register_full_backward_hook(backward)
    model.register_full_backward_pre_hook(lambda module, outward: tuple(3 * grad for grad in outward))
    model(TREE, x=x)["h"].sum().backward()
    ((inward, outward),) = seen
    assert [grad.tolist() for grad in outward] == [[[3.0], [3.0], [3.0]]]
    assert [grad.tolist() for grad in inward] == [[[12.0], [12.0], [6.0]]]
    assert x.grad is not None
    assert x.grad.tolist() == [[120.0], [120.0], [60.0]]


def test_hooks_that_are_always_called_see_a_call_fail() -> None:
    model, seen = Sum(), list[Any]()
    model.register_forward_hook(lambda module, args, outputs: seen.append(outputs), always_call=True)
    with pytest.raises(KeyError, match="there is no vertex feature 'x'"):
        model(TREE)
    assert seen == [None]


def served(model: vgraph.VertexFunction) -> None:
    with vgraph.serve(model) as server:
        server.submit(TREE, x=rows())


@pytest.mark.parametrize(
    ("use", "fact"),
    [
        (lambda model: vgraph.grow(model), "Sum has hooks"),
        (lambda model: vgraph.serve(model).submit(TREE, x=rows()), "Sum has hooks"),
        (
            lambda model: vgraph.ByType({0: model}, key="t")(TREE, t=torch.zeros(3).long(), x=rows()),
            "Sum of type 0 has",
        ),
    ],
    ids=["grow", "serve", "type"],
)
def test_where_no_graph_is_evaluated_hooks_are_refused(use: Callable[[Any], object], fact: str) -> None:
    model = Sum()
    model.register_forward_hook(lambda module, args, outputs: None)
    with pytest.raises(FunctionError, match=fact):
        use(model)


def test_hooks_that_torch_has_replaced_are_refused() -> None:
    model = Sum()
    model.register_backward_hook(lambda module, inward, outward: None)
    with pytest.raises(FunctionError, match="register_full_backward_hook"):
        model(TREE, x=rows())


class Layered(vgraph.VertexFunction):
    """Like Sum, through a module that may have hooks."""

    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(1, 1, bias=False)

    def forward(self, v):
        h = self.inner(v.pull("x")) + v.gather()["h"].sum()
        v.scatter(h=h)
        v.push(h=h)


def test_what_a_hook_within_returns_is_part_of_the_function() -> None:
    model, x = Layered(), rows()
    plain = model(TREE, x=x)["h"]
    model.inner.register_forward_hook(lambda module, args, output: 3 * output)
    torch.testing.assert_close(model(TREE, x=x)["h"], 3 * plain)


def test_a_hook_within_that_looks_on_is_refused() -> None:
    class Looked(Layered):
        """A type of its own: how Layered runs is known."""

    model, seen = Looked(), list[Any]()

    def look(*of_call: Any) -> None:
        seen.append(of_call)

    refusal = "Looked is recorded, and then runs as a whole: it has a Linear with a hook that returns nothing"
    of_all = torch.nn.modules.module.register_module_forward_hook
    for register in (model.inner.register_forward_hook, model.inner.register_forward_pre_hook, of_all):
        for hook in (look, lambda *of_call: seen.append(of_call)):  # the second says it only when it has run
            handle = register(hook)
            with pytest.raises(FunctionError, match=refusal) as info:
                model(TREE, x=rows())
            handle.remove()
            line = f"{__file__}:{hook.__code__.co_firstlineno}"
            assert info.value.line == line and info.value.cure.startswith("register it on the vertex function itself")
    assert model(TREE, x=rows())["h"].shape == (3, 1)


def test_a_hook_that_comes_after_the_first_calls_of_a_function_that_is_looked_up() -> None:
    class Timed(Layered):
        """It reads what no guard watches, so that its Python runs at every call."""

        def forward(self, v):
            h = self.inner(v.pull("x")) * (2.0 if time.perf_counter() > 0 else 1.0) + v.gather()["h"].sum()
            v.scatter(h=h)
            v.push(h=h)

    model, seen, x = Timed(), list[Any](), rows()
    plain = [model(TREE, x=x)["h"] for _ in range(2)][1]
    handle = model.inner.register_forward_hook(lambda *of_call: seen.append(of_call))
    for _ in range(2):
        with pytest.raises(FunctionError, match="a Linear with a hook that returns nothing"):
            model(TREE, x=x)
    handle.remove()
    assert torch.equal(model(TREE, x=x)["h"], plain)


@pytest.mark.parametrize("kind", ["forward", "forward_pre", "full_backward", "of all modules"])
def test_hooks_within_a_message_function_see_each_call_once(kind: str) -> None:
    linear, shapes = torch.nn.Linear(1, 1), list[Any]()

    def look(module: Any, given: Any, *outputs: Any) -> None:
        shapes.append(given[0].shape)

    of_all = torch.nn.modules.module.register_module_forward_hook
    handle = (of_all if kind == "of all modules" else getattr(linear, f"register_{kind}_hook"))(look)
    g = vgraph.graph(([0, 1, 0], [2, 2, 1]))
    for _ in range(2):
        g.ndata["h"] = rows()
        g.update_all(lambda edges: {"m": linear(edges.src["h"])}, lambda nodes: {"o": nodes.mailbox["m"].sum(1)})
        g.ndata["o"].sum().backward()
    handle.remove()
    assert shapes == [(3, 1)] * 2


@pytest.mark.parametrize("kind", ["parameter", "made by autograd"])
def test_a_hook_on_a_tensor_sees_the_gradient_of_each_call_once(kind: str) -> None:
    weight = torch.ones(1, 1, requires_grad=True)
    used, seen = weight if kind == "parameter" else 1 * weight, list[Tensor]()

    def triple(grad: Tensor) -> Tensor:
        seen.append(grad)
        return 3 * grad

    used.register_hook(triple)
    g = vgraph.graph(([0, 1, 0], [2, 2, 1]))
    g.ndata["h"] = rows()
    for count in (1, 2):
        g.update_all(lambda edges: {"m": edges.src["h"] @ used}, lambda nodes: {"o": nodes.mailbox["m"].sum(1)})
        (grad,) = torch.autograd.grad(g.ndata["o"].sum(), weight, retain_graph=True)
        assert [one.item() for one in seen] == [4.0] * count and grad.item() == 12.0


def test_a_hook_that_a_message_function_registers_sees_the_rows_of_each_call() -> None:
    seen, factor = list[Any](), [3.0]

    def message(edges: Any) -> dict[str, Tensor]:
        sent = edges.src["h"] * 1
        sent.register_hook(lambda grad: seen.append(grad.shape))
        sent.register_hook(lambda grad: grad * factor[0])
        return {"m": sent}

    g = vgraph.graph(([0, 1, 0], [2, 2, 1]))
    g.ndata["h"] = h = rows()
    for count in (1, 2):
        factor[0] = 3.0
        g.update_all(message, lambda nodes: {"o": nodes.mailbox["m"].sum(1)})
        g.apply_edges(message)
        factor[0] = 5.0  # which hooks read in the backward
        (grad,) = torch.autograd.grad(g.ndata["o"].sum() + g.edata["m"].sum(), h)
        assert seen == [(3, 1)] * 2 * count and grad.tolist() == [[20.0], [10.0], [0.0]]


def test_a_hook_that_a_vertex_function_registers_sees_gradients_of_vertices() -> None:
    class Clipped(Sum):
        """The gradient of each vertex's state is at most 1."""

        def forward(self, v):
            h = 2 * v.pull("x") + v.gather()["h"].sum()
            h.register_hook(lambda grad: seen.append(grad.shape[-1:]) or grad.clamp(max=1.0))
            v.scatter(h=h)
            v.push(h=h)

    seen, x = list[Any](), rows()
    for count in (1, 2):
        (grad,) = torch.autograd.grad(Clipped()(TREE, x=x)["h"].sum(), x)
        assert seen == [(1,)] * 3 * count and grad.tolist() == [[2.0]] * 3


def test_a_hook_on_a_result_sees_its_gradient_and_one_on_its_node_those_of_states_too() -> None:
    x, seen = rows(), list[Any]()
    out = Sum()(TREE, x=x)["h"]
    assert out.grad_fn is not None
    out.register_hook(lambda grad: seen.append(grad.clone()))
    out.grad_fn.register_prehook(lambda grads: seen.append(len(grads)))
    (3 * out).sum().backward()
    assert len(seen) == 2 and {type(one) for one in seen} == {Tensor, int}
    hooked, count = sorted(seen, key=lambda one: type(one) is int)
    assert torch.equal(hooked, torch.full((3, 1), 3.0)) and count == 2
