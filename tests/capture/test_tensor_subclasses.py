"""Subclasses of Tensor without ``__torch_function__`` of their own, of which torch joins no two that are unrelated."""

from __future__ import annotations

import logging
from typing import Any

import pytest
import torch
from torch import Tensor

import vgraph
from vgraph.errors import FunctionError


class Named(Tensor):
    """A class that overrides nothing."""

    label = "weights"


class Odd(Tensor):
    """A class whose product with a tensor is another one."""

    def __rmul__(self, other: Tensor) -> Tensor:
        return other * 7


class Scaled(vgraph.VertexFunction):
    def __init__(self, w: Tensor, states: dict[str, int] | None) -> None:
        super().__init__(states=states)
        self.w = w

    def forward(self, v: Any) -> None:
        h = v.gather()["h"].sum() * self.w + self.w * v.pull("x")
        v.scatter(h=h)
        v.push(h=h)


@pytest.mark.guards
@pytest.mark.parametrize("states", [{"h": 2}, None], ids=["given", "inferred"])
def test_a_vertex_function_computes_with_one_as_with_a_plain_tensor(
    states: dict[str, int] | None, caplog: pytest.LogCaptureFixture
) -> None:
    g, x = vgraph.graph(([0, 1], [2, 2])), torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    w = torch.tensor([2.0, 3.0])
    with caplog.at_level(logging.INFO, logger="vgraph"):
        found = Scaled(w.as_subclass(Named), states)(g, x=x)["h"]
    assert not [record for record in caplog.records if "uncaptured" in record.message]
    assert torch.equal(found, Scaled(w, states)(g, x=x)["h"])
    assert torch.equal(found[2], (x[0] + x[1]) * w * w + w * x[2])


@pytest.mark.parametrize("states", [{"h": 2}, None], ids=["given", "inferred"])
def test_one_that_overrides_an_operator_is_refused_by_name(states: dict[str, int] | None) -> None:
    g, w = vgraph.graph(([0, 1], [2, 2])), torch.tensor([2.0, 3.0]).as_subclass(Odd)
    with pytest.raises(FunctionError, match="class Odd") as told:
        Scaled(w, states)(g, x=torch.ones(3, 2))
    assert "as_subclass(torch.Tensor)" in told.value.cure
    assert "test_tensor_subclasses.py" in told.value.line


@pytest.mark.guards
def test_messages_keep_the_class_that_torch_gives_them(caplog: pytest.LogCaptureFixture) -> None:
    g, w = vgraph.graph(([0, 1], [2, 2])), torch.tensor([2.0, 3.0]).as_subclass(Named)
    g.ndata["x"] = torch.ones(3, 2)
    with caplog.at_level(logging.INFO, logger="vgraph"):
        g.update_all(lambda edges: {"m": edges.src["x"] * w}, lambda nodes: {"y": nodes.mailbox["m"].sum(1)})
    assert type(g.ndata["y"]) is Named
    assert g.ndata["y"].tolist() == [[0, 0], [0, 0], [4, 6]]
    assert "class Named" in caplog.text
