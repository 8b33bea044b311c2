"""Readouts, broadcasts and the k largest: against loops over the graphs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import vgraph
from vgraph.errors import FeatureError, FunctionError, NameLookupError

SIZES = [(3, 4), (1, 0), (0, 0), (5, 7)]


def many(idtype: torch.dtype = torch.int64) -> vgraph.Graph:
    graphs = [vgraph.rand_graph(n, m, idtype) if n else vgraph.graph(([], []), idtype=idtype) for n, m in SIZES]
    g = vgraph.batch(graphs)
    g.ndata["h"] = torch.randn(9, 2, dtype=torch.float64)
    g.edata["w"] = torch.randn(11, 2, dtype=torch.float64)
    g.ndata["a"], g.edata["a"] = torch.rand(9, 1).double(), torch.rand(11).double()
    return g


def reference(rows: Tensor, sizes: list[int], op: str) -> Tensor:
    functions: dict[str, Callable[[Tensor], Tensor]] = {
        "sum": lambda part: part.sum(0),
        "mean": lambda part: part.mean(0),
        "max": lambda part: part.amax(0),
        "min": lambda part: part.amin(0),
    }
    parts = rows.split(sizes)
    return torch.stack([functions[op](part) if len(part) else part.new_zeros(part.shape[1:]) for part in parts])


@pytest.mark.parametrize("op", ["sum", "mean", "max", "min"])
@pytest.mark.parametrize("idtype", [torch.int64, torch.int32])
def test_readouts(op: str, idtype: torch.dtype) -> None:
    g = many(idtype)
    nodes, edges = ([size[i] for size in SIZES] for i in (0, 1))
    torch.testing.assert_close(vgraph.readout_nodes(g, "h", op=op), reference(g.ndata["h"], nodes, op))
    torch.testing.assert_close(vgraph.readout_edges(g, "w", op=op), reference(g.edata["w"], edges, op))
    weighted = g.ndata["h"] * g.ndata["a"]
    torch.testing.assert_close(vgraph.readout_nodes(g, "h", "a", op=op), reference(weighted, nodes, op))
    weighted = g.edata["w"] * g.edata["a"].unsqueeze(1)
    torch.testing.assert_close(vgraph.readout_edges(g, "w", "a", op=op), reference(weighted, edges, op))


def test_short_names() -> None:
    g = many()
    for op in ("sum", "mean", "max"):
        for kind, name in (("nodes", "h"), ("edges", "w")):
            short, long = getattr(vgraph, f"{op}_{kind}"), getattr(vgraph, f"readout_{kind}")
            assert torch.equal(short(g, name), long(g, name, op=op))


def test_softmax_and_broadcast() -> None:
    g = many()
    for kind, data, name, place in (("nodes", g.ndata, "h", 0), ("edges", g.edata, "w", 1)):
        sizes = [size[place] for size in SIZES]
        found = getattr(vgraph, f"softmax_{kind}")(g, name)
        torch.testing.assert_close(found, torch.cat([part.softmax(0) for part in data[name].split(sizes)]))
        rows = torch.arange(4.0)
        spread = getattr(vgraph, f"broadcast_{kind}")(g, rows)
        assert torch.equal(spread, rows.repeat_interleave(torch.tensor(sizes)))


def test_derivatives_of_readouts() -> None:
    g = many()
    for function in (vgraph.sum_nodes, vgraph.mean_nodes, vgraph.max_nodes, vgraph.softmax_nodes):

        def run(rows: Tensor, function: Any = function) -> Tensor:
            g.ndata["h"] = rows
            return function(g, "h")

        rows = torch.randn(9, 2, dtype=torch.float64, requires_grad=True)
        assert torch.autograd.gradcheck(run, rows)
        assert torch.autograd.gradgradcheck(run, rows)


@pytest.mark.parametrize("descending", [True, False])
def test_the_k_largest(descending: bool) -> None:
    g = many()
    for kind, data, name, place in (("nodes", g.ndata, "h", 0), ("edges", g.edata, "w", 1)):
        sizes = [size[place] for size in SIZES]
        function = getattr(vgraph, f"topk_{kind}")
        values, ids = function(g, name, 3, descending=descending)
        sorted_rows, sorted_ids = function(g, name, 3, descending=descending, sortby=-1)
        for i, part in enumerate(data[name].split(sizes)):
            count = min(3, len(part))
            wanted, where = torch.sort(part, 0, descending=descending)
            assert torch.equal(values[i, :count], wanted[:count])
            assert torch.equal(ids[i, :count], where[:count])
            assert not values[i, count:].any()
            order = part[:, -1].argsort(descending=descending)[:count]
            assert torch.equal(sorted_rows[i, :count], part[order])
            assert torch.equal(sorted_ids[i, :count], order)


@pytest.mark.parametrize("sortby", [None, 0])
def test_the_k_largest_where_no_graph_has_any(sortby: int | None) -> None:
    g = vgraph.batch([vgraph.graph(([], []), num_nodes=2), vgraph.graph(([], []), num_nodes=0)])
    g.edata["w"] = torch.ones(0, 4)
    values, ids = vgraph.topk_edges(g, "w", 3, sortby=sortby)
    assert values.shape == (2, 3, 4) and not values.any() and not ids.any()
    assert ids.shape == ((2, 3, 4) if sortby is None else (2, 3))
    nothing = vgraph.graph(([], []), num_nodes=0)
    nothing.ndata["h"] = torch.ones(0)
    assert vgraph.topk_nodes(nothing, "h", 2)[0].tolist() == [[0.0, 0.0]]


def test_typed_graphs() -> None:
    one = vgraph.heterograph({("u", "p", "g"): ([0, 1], [0, 0])})
    two = vgraph.heterograph({("u", "p", "g"): ([0, 0, 1], [0, 1, 1])}, {"u": 3, "g": 2})
    g = vgraph.batch([one, two])
    g.nodes["u"].data["h"], g.edata["w"] = torch.arange(5.0), torch.arange(5.0)
    assert vgraph.sum_nodes(g, "h", ntype="u").tolist() == [1.0, 9.0]
    assert vgraph.max_edges(g, "w").tolist() == [1.0, 4.0]
    assert vgraph.broadcast_nodes(g, torch.tensor([1.0, 2.0]), ntype="g").tolist() == [1.0, 2.0, 2.0]
    assert g.batch_num_nodes("u").tolist() == [2, 3]
    assert [part.num_nodes("u") for part in vgraph.unbatch(g)] == [2, 3]
    assert vgraph.unbatch(g)[1].edata["w"].tolist() == [2.0, 3.0, 4.0]


@pytest.mark.parametrize(
    ("call", "error", "fact"),
    [
        (lambda g: vgraph.readout_nodes(g, "h", op="median"), FunctionError, "there is no readout 'median'"),
        (lambda g: vgraph.sum_nodes(g, "x"), NameLookupError, "there is no node feature 'x'; there is: 'h'"),
        (lambda g: vgraph.broadcast_nodes(g, torch.ones(3)), FeatureError, r"\(3,\) rows for 4 graphs"),
        (lambda g: vgraph.sum_nodes(g, "h", ntype="u"), NameLookupError, "there is no node type 'u'"),
    ],
)
def test_refusals(call: Callable[[vgraph.Graph], Any], error: type[Exception], fact: str) -> None:
    with pytest.raises(error, match=fact):
        call(many())


@pytest.mark.parametrize(
    "call",
    [
        lambda g: vgraph.sum_nodes(g, "s"),
        lambda g: vgraph.mean_nodes(g, "h", "s"),
        lambda g: vgraph.max_edges(g, "s"),
        lambda g: vgraph.softmax_nodes(g, "s"),
        lambda g: vgraph.softmax_edges(g, "s"),
        lambda g: vgraph.topk_nodes(g, "s", 1),
        lambda g: vgraph.topk_edges(g, "s", 1),
        lambda g: vgraph.broadcast_nodes(g, torch.eye(4).to_sparse()),
        lambda g: vgraph.broadcast_edges(g, torch.eye(4).to_sparse()),
    ],
)
def test_sparse_features_are_named(call: Callable[[vgraph.Graph], object]) -> None:
    g = many()
    g.ndata["s"], g.edata["s"] = torch.eye(9).to_sparse(), torch.eye(11).to_sparse()
    with pytest.raises(FeatureError) as told:
        call(g)
    assert "has the layout torch.sparse_coo" in str(told.value) and "cure: give it as .to_dense()" in str(told.value)
    assert str(told.value).startswith(("the feature 's' has", "graph_feat has"))
