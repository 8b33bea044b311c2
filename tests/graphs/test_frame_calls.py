"""What nobody can mean, for every argument of the features of a graph; and what no frame does to its graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import vgraph
from tests.test_absurd_calls import failures
from vgraph.errors import VGraphError
from vgraph.graphs.frame import Frame


def frame() -> Frame:
    g = vgraph.graph(([0, 1], [2, 2]))
    g.ndata["h"] = torch.ones(3, 2)
    return g.ndata


OF_FRAMES: dict[str, tuple[Callable[..., object], dict[str, Any]]] = {
    "read": (lambda data, name: data[name], {"name": "h"}),
    "set": (lambda data, name, value: data.__setitem__(name, value), {"name": "x", "value": torch.ones(3)}),
    "drop": (lambda data, name: data.__delitem__(name), {"name": "h"}),
    "ask": (lambda data, name: name in data, {"name": "h"}),
    "get": (lambda data, name, default: data.get(name, default), {"name": "h", "default": None}),
    "pop": (lambda data, name: data.pop(name), {"name": "h"}),
    "setdefault": (lambda data, name, value: data.setdefault(name, value), {"name": "x", "value": torch.ones(3)}),
    "update": (lambda data, features: data.update(features), {"features": {"x": torch.ones(3)}}),
    "update one": (lambda data, value: data.update(h=torch.zeros(3), x=value), {"value": torch.ones(3)}),
}


@pytest.mark.parametrize("name", OF_FRAMES)
def test_frames(name: str) -> None:
    use, valid = OF_FRAMES[name]

    def call(**given: Any) -> None:
        data = frame()
        before = {key: rows.tolist() for key, rows in data.items()}
        try:
            use(data, **given)
        except VGraphError:
            assert {key: rows.tolist() for key, rows in data.items()} == before
            raise

    call(**valid)
    assert list(failures(call, valid, list(valid))) == []


def test_rows_of_a_graph_do_not_come_or_go_by_its_frame() -> None:
    assert not {"add_rows", "keep_rows"} & {*dir(Frame)}  # edges would name rows that are not there
