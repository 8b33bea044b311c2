"""Things that do not say of which class they are: a capture goes by what they are, and asks them nothing."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import vgraph
import vgraph.function as fn


class _Answers:
    """For every attribute, its class too, with an error."""

    def __getattribute__(self, name: str) -> Any:
        raise KeyError(name)


class _StandsIn:
    """For another object, outside the context in which there is one."""

    @property
    def __class__(self) -> type:  # pyright: ignore[reportIncompatibleMethodOverride]
        raise RuntimeError("there is no object here")


def _dead() -> Any:
    return weakref.proxy(_StandsIn())


def _closed_over(thing: Any) -> Callable[[Any], dict[str, Tensor]]:
    return lambda edges: {"m": edges.src["h"] * (2 if thing is not None else 1)}


def _default(thing: Any) -> Callable[[Any], dict[str, Tensor]]:
    def message(edges: Any, thing: Any = thing) -> dict[str, Tensor]:
        return {"m": edges.src["h"] * (2 if thing is not None else 1)}

    return message


def _in_a_list(thing: Any) -> Callable[[Any], dict[str, Tensor]]:
    things = [thing, 2]
    return lambda edges: {"m": edges.src["h"] * things[1]}


def _of_a_layer(thing: Any) -> Callable[[Any], dict[str, Tensor]]:
    class Layer(nn.Module):
        of_the_class = thing

        def __init__(self) -> None:
            super().__init__()
            self.__dict__["own"] = thing

        def message(self, edges: Any) -> dict[str, Tensor]:
            return {"m": edges.src["h"] * (2 if self.own is self.of_the_class else 1)}

    return Layer().message


@pytest.mark.parametrize("held", [_closed_over, _default, _in_a_list, _of_a_layer])
@pytest.mark.parametrize("make", [_Answers, _StandsIn, _dead])
def test_what_a_function_holds(make: Callable[[], Any], held: Callable[[Any], Any]) -> None:
    g = vgraph.graph(([0, 1, 1], [2, 2, 0]))
    g.ndata["h"] = torch.tensor([[1.0], [2.0], [4.0]])
    message = held(make())
    for _ in range(2):
        g.update_all(message, fn.sum("m", "o"))
        assert g.ndata["o"].flatten().tolist() == [4.0, 0.0, 6.0]


@pytest.mark.parametrize("make", [_Answers, _StandsIn, _dead])
def test_what_a_vertex_function_holds(make: Callable[[], Any]) -> None:
    thing = make()

    class Cell(vgraph.VertexFunction):
        def forward(self, v: vgraph.Vertex, held: Any = thing) -> None:
            h = v.pull("h") + v.gather()["s"].sum() * (1 if held is thing else 0)
            v.scatter(s=h)
            v.push(o=h)

    g = vgraph.graph(([0, 1], [1, 2]))
    g.ndata["h"] = torch.ones(3, 1)
    assert Cell()(g)["o"].flatten().tolist() == [1.0, 2.0, 3.0]
