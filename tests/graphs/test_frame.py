"""Frames: what may be set, what every refusal says, and what a scope undoes."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import vgraph
from vgraph.errors import DTypeError, FeatureError, GraphError, NameLookupError
from vgraph.graphs.frame import Frame

CPU = torch.device("cpu")


def nested(layout: torch.layout) -> torch.Tensor:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's: it may change
        return torch.nested.nested_tensor([torch.ones(2), torch.ones(3), torch.ones(1), torch.ones(2)], layout=layout)


def path_graph() -> vgraph.Graph:
    return vgraph.graph(([0, 1, 2], [1, 2, 3]))


def test_it_is_a_mapping_in_order_of_setting() -> None:
    frame = Frame(2, CPU)
    x, y = torch.ones(2), torch.zeros(2, 3)
    frame["x"] = x
    frame.update(y=y, z=nn.Parameter(torch.ones(2, 1)))
    assert list(frame) == ["x", "y", "z"]
    assert len(frame) == 3
    assert frame["y"] is y
    assert "y" in frame
    assert frame.get("other") is None
    assert frame.pop("x") is x
    assert frame.pop("x", None) is None
    del frame["z"]
    assert dict(frame) == {"y": y}
    assert repr(frame) == "{'y': float32 (2, 3)}"


def test_a_copy_shares_tensors_but_not_names() -> None:
    frame = Frame(2, CPU, columns={"x": torch.ones(2)})
    other = frame.copy()
    other["y"] = torch.ones(2)
    assert other["x"] is frame["x"]
    assert list(frame) == ["x"]


@pytest.mark.parametrize(
    ("value", "error", "fact"),
    [
        (torch.ones(3), FeatureError, "node feature 'h' has 3 rows where 4 are needed"),
        (torch.ones(0, 4), FeatureError, "node feature 'h' has 0 rows where 4 are needed"),
        (torch.tensor(1.0), FeatureError, "node feature 'h' has no rows (it is a scalar) where 4"),
        (torch.ones(4, device="meta"), FeatureError, "'h' is on meta; the graph is on cpu"),
        (nested(torch.strided), FeatureError, "'h' is a nested tensor, whose rows have several shapes"),
        (nested(torch.jagged), FeatureError, "'h' is a nested tensor, whose rows have several shapes"),
        ([1, 2, 3, 4], DTypeError, "node feature 'h' is a list, not a tensor"),
        (None, DTypeError, "node feature 'h' is a NoneType, not a tensor"),
    ],
)
def test_what_does_not_fit_is_refused(value: Any, error: type[Exception], fact: str) -> None:
    g = path_graph()
    with pytest.raises(error) as caught:
        g.ndata["h"] = value
    assert fact in str(caught.value)
    assert Path(__file__).name in str(caught.value)
    assert "cure: " in str(caught.value)
    assert not g.ndata


def test_the_words_are_those_of_the_frame() -> None:
    g = path_graph()
    with pytest.raises(FeatureError, match=r"edge feature 'w' has 4 rows where 3 .*\n.*\n.*an? edge"):
        g.edata["w"] = torch.ones(4)
    with pytest.raises(FeatureError, match="graph feature 'q' has 4 rows where 1"):
        g.gdata["q"] = torch.ones(4)


def test_a_name_is_a_string() -> None:
    with pytest.raises(DTypeError, match="the name of node feature 3 is no string"):
        path_graph().ndata[3] = torch.ones(4)  # type: ignore[index]


def test_a_missing_name_lists_those_there_are() -> None:
    g = path_graph()
    with pytest.raises(NameLookupError, match=r"no edge feature 'w'; there is: none(.|\n)*edata\['w'\]"):
        g.edata["w"]
    g.ndata["x"] = g.ndata["y"] = torch.ones(4)
    with pytest.raises(KeyError) as caught:
        g.ndata["h"]
    assert "there is no node feature 'h'; there is: 'x', 'y'" in str(caught.value)
    assert Path(__file__).name in str(caught.value)
    with pytest.raises(NameLookupError):
        del g.ndata["h"]


def test_a_scope_undoes_what_was_set_in_it() -> None:
    g = path_graph()
    x, frame = torch.ones(4), g.ndata
    g.ndata["x"] = x
    g.gdata["q"] = torch.ones(1)
    with g.local_scope():
        frame["x"] = torch.zeros(4)  # by way of a reference from outside
        g.edata["w"] = torch.ones(3)
        with g.local_scope():
            g.ndata["y"] = g.ndata.pop("x")
        assert list(g.ndata) == ["x"]
        del g.gdata["q"]
    assert g.ndata["x"] is x
    assert not g.edata
    assert list(g.gdata) == ["q"]


def test_a_scope_ends_with_an_error_too() -> None:
    g = path_graph()
    with pytest.raises(ZeroDivisionError), g.local_scope():
        g.ndata["x"] = torch.ones(4)
        raise ZeroDivisionError
    assert not g.ndata


def test_local_var_leaves_the_graph() -> None:
    g = path_graph()
    g.ndata["x"] = torch.ones(4)
    local = g.local_var()
    local.ndata["x"] = torch.zeros(4)
    local.edata["w"] = torch.zeros(3)
    assert g.ndata["x"].sum() == 4
    assert not g.edata
    assert local.topology is g.topology


def test_features_of_some_rows() -> None:
    g = path_graph()
    g.nodes[[3, 1]].data["h"] = torch.tensor([[3.0], [1.0]])
    assert g.ndata["h"].flatten().tolist() == [0, 1, 0, 3]
    assert g.nodes[3].data["h"].tolist() == [[3]]
    assert g.nodes[1:3].data["h"].tolist() == [[1], [0]]
    mask = torch.tensor([True, False, False, True])
    for ids in (mask, mask.numpy(), mask.tolist()):
        assert g.nodes[ids].data["h"].tolist() == [[0], [3]]
    assert g.nodes[torch.tensor(1)].data["h"].tolist() == [[1]]
    assert repr(g.nodes[[0]].data) == "{'h': float32 (1, 1)}"
    assert (list(g.nodes[[0]].data), len(g.nodes[[0]].data)) == (["h"], 1)
    g.edges[::2].data.update({"w": torch.ones(2), "k": torch.ones(2, dtype=torch.int32)})
    assert g.edata["w"].tolist() == [1, 0, 1]
    assert g.edata["k"].dtype == torch.int32


def test_writing_rows_keeps_what_autograd_saved() -> None:
    g = path_graph()
    x = torch.ones(4, requires_grad=True)
    g.ndata["h"] = x * 2
    squared = g.ndata["h"] ** 2  # saves its operand
    new = torch.full((1,), 5.0, requires_grad=True)
    g.nodes[[2]].data["h"] = new
    (squared.sum() + g.ndata["h"].sum()).backward()
    assert x.grad is not None
    assert new.grad is not None
    assert x.grad.tolist() == [10, 10, 8, 10]
    assert new.grad.tolist() == [1]


@pytest.mark.parametrize(
    ("ids", "value", "error", "fact"),
    [
        ([0, 4], torch.ones(2), GraphError, r"node ids\[1\] is 4, where there are 4 nodes"),
        ([-1], torch.ones(1), GraphError, r"node ids\[0\] is -1, which is negative"),
        ([0.5], torch.ones(1), DTypeError, "node ids, which begins with 0.5, has dtype"),
        ([True, False], torch.ones(1), DTypeError, "which begins with True, has dtype torch.bool"),
        ([[0, 1]], torch.ones(2), GraphError, r"node ids has shape \(1, 2\)"),
        ("first", torch.ones(1), NameLookupError, "there is no node type 'first'; there is: '_N'"),
        ({}, torch.ones(1), DTypeError, "node ids is no array of whole numbers"),
        ([0, 1], torch.ones(3), FeatureError, "'h' has 3 rows where 2 are needed"),
        (
            [0],
            torch.ones(1, 5),
            FeatureError,
            r"are float32 \(1, 5\); the feature is float32 \(4,\)",
        ),
        ([0], torch.ones(1).double(), FeatureError, r"are float64 \(1,\); the feature is float32"),
    ],
)
def test_wrong_rows_are_refused(ids: Any, value: Any, error: type[Exception], fact: str) -> None:
    g = path_graph()
    before = g.ndata["h"] = torch.zeros(4)
    with pytest.raises(error, match=fact):
        g.nodes[ids].data["h"] = value
    assert g.ndata["h"] is before


def test_rows_of_no_nodes() -> None:
    g = path_graph()
    g.ndata["h"] = torch.ones(4)
    assert g.nodes[[]].data["h"].shape == (0,)
    with pytest.raises(NameLookupError, match="no node feature 'x'"):
        g.nodes[[0]].data["x"]
