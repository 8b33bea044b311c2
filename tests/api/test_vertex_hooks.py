"""Hooks of a vertex function: each runs once a call, on what the caller gave and gets."""

from __future__ import annotations

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
