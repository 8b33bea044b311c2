"""Which features a function asks for, and that each that comes or goes is seen by the next call."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

import vgraph
import vgraph.function as fn
from vgraph.capture.capture import forget


@pytest.fixture(autouse=True)
def _nothing_is_known() -> Iterator[None]:
    forget()
    yield
    forget()


def three_nodes() -> vgraph.Graph:
    g = vgraph.graph(([0, 1], [1, 2]))
    g.ndata["h"] = torch.tensor([[1.0, 2.0], [3.0, -4.0], [5.0, 6.0]])
    return g


def _weighted(edges: Any) -> dict[str, Tensor]:
    return {"m": edges.src["h"] * edges.data["w"] if "w" in edges.data else edges.src["h"]}


ASKS: dict[str, Callable[[Any], dict[str, Tensor]]] = {
    "in": _weighted,
    "get": lambda edges: {"m": edges.src["h"] * (edges.data.get("w") if edges.data.get("w") is not None else 1)},
    "len": lambda edges: {"m": edges.src["h"] * (1 + 6 * len(edges.data))},
    "list": lambda edges: {"m": edges.src["h"] * (7.0 if "w" in list(edges.data) else 1.0)},
    "keys": lambda edges: {"m": edges.src["h"] * (7.0 if "w" in edges.data.keys() else 1.0)},  # noqa: SIM118
}


@pytest.mark.parametrize("name", ASKS)
def test_a_feature_that_was_absent(name: str) -> None:
    g = three_nodes()
    for wanted in (1, 7, 1):
        if wanted == 7:
            g.edata["w"] = torch.full((2, 1), 7.0)
        elif "w" in g.edata:
            del g.edata["w"]
        g.update_all(ASKS[name], fn.sum("m", "o"))
        assert g.ndata["o"][1, 0] == wanted


class Optional(vgraph.VertexFunction):
    def forward(self, v: vgraph.Vertex) -> None:
        try:
            x = v.pull("x") * v.pull("w")
        except KeyError:
            x = v.pull("x")
        v.push(x=x)


def test_a_feature_that_a_vertex_function_misses() -> None:
    model, g, x = Optional(), three_nodes(), torch.ones(3, 1)
    assert model(g, x=x)["x"][0] == 1
    assert model(g, x=x, w=x * 7)["x"][0] == 7
    assert model(g, x=x)["x"][0] == 1
