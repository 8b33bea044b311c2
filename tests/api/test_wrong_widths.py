"""Calls that a newcomer gets wrong: the layer, both features and the user's own counts are named, and a cure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import vgraph
import vgraph.function as fn
import vgraph.nn as vnn
from vgraph.errors import FunctionError, NameLookupError, ShapeError
from vgraph.nn import ChildSumTreeLSTM, GATConv, GATv2Conv, GraphConv, HeteroGraphConv, HeteroLinear, SAGEConv

TREE = vgraph.graph(([0, 1], [2, 2]))
ROWS, EDGE_INDEX = torch.ones(3, 3), torch.tensor([[0, 1], [2, 2]])


class Mapped(vgraph.VertexFunction):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.ReLU(), nn.Linear(4, 4))

    def forward(self, v):
        v.scatter(h=self.body(v.pull("x")) + v.gather()["h"].sum())


class Silent(vgraph.VertexFunction):
    def forward(self, v):
        v.scatter(h=v.pull("x") + v.gather()["h"].sum())


class SilentAndSerial(vgraph.VertexFunction):
    def forward(self, v):
        v.scatter(h=v.pull("x") + v.gather()["h"].sum() * float(v.pull("x").sum()))


@pytest.mark.parametrize(
    ("model", "layer"),
    [(Mapped(), r"Mapped's body\.1, Linear\(in_features=4"), (ChildSumTreeLSTM(4, 2), "ChildSumTreeLSTM's W_iou, Lin")],
    ids=["own", "of vgraph.nn"],
)
def test_a_vertex_function_names_its_layer_and_the_rows_of_the_call(model: vgraph.VertexFunction, layer: str) -> None:
    with pytest.raises(ShapeError, match=f"{layer}.* is given 3 numbers for each of 3 vertices") as caught:
        model(TREE, x=ROWS)
    assert "test_wrong_widths.py" in caught.value.line
    assert "29" not in caught.value.fact
    assert isinstance(caught.value, RuntimeError)


@pytest.mark.parametrize("make", [GraphConv, lambda *w: GATConv(*w, 1), lambda *w: GATv2Conv(*w, 1), SAGEConv])
def test_layers_name_themselves(make: Callable[..., nn.Module]) -> None:
    layer = make(4, 2, "mean") if make is SAGEConv else make(4, 2)
    g = vgraph.add_self_loop(TREE)
    with pytest.raises(ShapeError, match=rf"{type(layer).__name__} was made for rows of 4 numbers .* \(3, 3\)"):
        layer(g, ROWS)


OF_VERTICES: dict[str, Callable[..., Any]] = {
    "ChebConv": lambda g, x, e: vnn.ChebConv(4, 2, 2)(g, x),
    "TAGConv": lambda g, x, e: vnn.TAGConv(4, 2)(g, x),
    "SGConv": lambda g, x, e: vnn.SGConv(4, 2)(g, x),
    "EdgeConv": lambda g, x, e: vnn.EdgeConv(4, 2)(g, x),
    "EdgeGATConv": lambda g, x, e: vnn.EdgeGATConv((3, 4), 3, 2, 1)(g, (x, x), e),
    "EGATConv": lambda g, x, e: vnn.EGATConv((3, 4), 3, 2, 2, 1)(g, (x, x), e),
    "EGNNConv": lambda g, x, e: vnn.EGNNConv(4, 2, 2)(g, x, x),
    "GatedGCNConv": lambda g, x, e: vnn.GatedGCNConv(4, 3, 2)(g, x, e),
    "GCN2Conv": lambda g, x, e: vnn.GCN2Conv(4, 1)(g, x, x),
    "DotGatConv": lambda g, x, e: vnn.DotGatConv((3, 4), 2, 1)(g, (x, x)),
    "PNAConv": lambda g, x, e: vnn.PNAConv(4, 2, ["mean"], ["identity"], 1.0)(g, x),
    "DGNConv": lambda g, x, e: vnn.DGNConv(4, 2, ["mean"], ["identity"], 1.0)(g, x),
    "HGTConv": lambda g, x, e: vnn.HGTConv(4, 2, 1, 1, 1)(g, x, g.nodes(), g.edges()[0]),
    "RelGraphConv": lambda g, x, e: vnn.RelGraphConv(4, 2, 2)(g, x, g.edges()[0]),
    "TWIRLSConv": lambda g, x, e: vnn.TWIRLSConv(4, 2, 3, prop_step=1)(g, x),
    "NNConv": lambda g, x, e: vnn.NNConv(4, 2, nn.Linear(3, 8), "mean")(g, x, e),
    "CFConv": lambda g, x, e: vnn.CFConv(4, 3, 2, 2)(g, x, e),
    "GMMConv": lambda g, x, e: vnn.GMMConv(4, 2, 3, 1, "sum")(g, x, e),
    "DenseGraphConv": lambda g, x, e: vnn.DenseGraphConv(4, 2)(torch.ones(3, 3), x),
    "DenseSAGEConv": lambda g, x, e: vnn.DenseSAGEConv(4, 2)(torch.ones(3, 3), x),
    "DenseChebConv": lambda g, x, e: vnn.DenseChebConv(4, 2, 2)(torch.ones(3, 3), x),
    "TypedLinear": lambda g, x, e: vnn.TypedLinear(4, 2, 2, "bdd", 2)(x, g.nodes()),
    "Set2Set": lambda g, x, e: vnn.Set2Set(4, 2, 1)(g, x),
    "SetTransformerEncoder": lambda g, x, e: vnn.SetTransformerEncoder(4, 1, 2, 2)(g, x),
    "SetTransformerDecoder": lambda g, x, e: vnn.SetTransformerDecoder(4, 1, 2, 2, 1, 1)(g, x),
    "WeightAndSum": lambda g, x, e: vnn.WeightAndSum(4)(g, x),
}
OF_PAIRS: dict[str, tuple[Callable[..., Any], str]] = {
    "SAGEConv": (lambda g, x: vnn.SAGEConv((3, 4), 2, "mean")(g, (x, x)), r"receivers' rows of 4 .* \(3, 3\)"),
    "HeteroLinear": (lambda g, x: HeteroLinear({"film": 4}, 2)({"film": x}), r"'film' rows of 4 .* \(3, 3\)"),
    "TransE": (lambda g, x: vnn.TransE(3, 4)(x, x, g.nodes()), r"heads' rows of 4 .* \(3, 3\)"),
    "TransR": (lambda g, x: vnn.TransR(3, 2, 4)(torch.ones(3, 4), x, g.nodes()), r"tails' rows of 4 .* \(3, 3\)"),
    "BiasedMHA": (lambda g, x: vnn.BiasedMHA(4, 2)(x[None]), r"rows of 4 .* \(1, 3, 3\)"),
    "GraphormerLayer": (lambda g, x: vnn.GraphormerLayer(4, 2, 2)(x[None]), r"rows of 4 .* \(1, 3, 3\)"),
    "PathEncoder": (
        lambda g, x: vnn.PathEncoder(1, 4)(x[None], x.new_ones(1, 3, 3, 1, 3)),
        r"edges' rows of 4 .* \(1, 3, 3, 1, 3\)",
    ),
}
OF_EDGES: dict[str, Callable[..., Any]] = {
    "EdgeGATConv": lambda g, x, e: vnn.EdgeGATConv(3, 4, 2, 1)(g, x, e),
    "EGATConv": lambda g, x, e: vnn.EGATConv(3, 4, 2, 2, 1)(g, x, e),
    "EGNNConv": lambda g, x, e: vnn.EGNNConv(3, 2, 2, 4)(g, x, x, e),
    "GatedGCNConv": lambda g, x, e: vnn.GatedGCNConv(3, 4, 2)(g, x, e),
    "PNAConv": lambda g, x, e: vnn.PNAConv(3, 2, ["mean"], ["identity"], 1.0, edge_feat_size=4)(g, x, e),
    "CFConv": lambda g, x, e: vnn.CFConv(3, 4, 2, 2)(g, x, e),
    "GMMConv": lambda g, x, e: vnn.GMMConv(3, 2, 4, 1, "sum")(g, x, e),
}


@pytest.mark.parametrize(
    ("name", "call", "what"),
    [
        *((name, call, r"rows of 4 numbers and is given \(3, 3\)") for name, call in OF_VERTICES.items()),
        *((name, call, r"edges' rows of 4 numbers and is given \(5, 3\)") for name, call in OF_EDGES.items()),
    ],
)
def test_other_layers_name_themselves(name: str, call: Callable[..., Any], what: str) -> None:
    g = vgraph.add_self_loop(TREE)
    with pytest.raises(ShapeError, match=f"^{name} was made for {what}"):
        call(g, ROWS, torch.ones(5, 3))


@pytest.mark.parametrize("name", OF_PAIRS)
def test_layers_of_several_kinds_of_rows_say_which(name: str) -> None:
    call, what = OF_PAIRS[name]
    with pytest.raises(ShapeError, match=f"^{name} was made for {what}"):
        call(TREE, ROWS)


@pytest.mark.parametrize("given", [(ROWS, EDGE_INDEX), (EDGE_INDEX, ROWS)], ids=["as in PyG", "turned round"])
def test_an_edge_index_is_no_graph(given: tuple[Any, ...]) -> None:
    for layer in (GraphConv(3, 2), SAGEConv(3, 2, "mean"), ChildSumTreeLSTM(3, 2)):
        with pytest.raises(FunctionError, match=r"(?s)is called on a [Tt]ensor.*vgraph\.graph\(\(edge_index\[0\]"):
            layer(*given)


def test_features_without_names() -> None:
    with pytest.raises(FunctionError, match=r"(?s)with 1 more than a graph.*\(g, x=x\)"):
        ChildSumTreeLSTM(3, 2)(TREE, ROWS)


@pytest.mark.parametrize("function", [Silent(), SilentAndSerial()])
def test_a_function_that_pushes_nothing_is_told_so_once(
    function: vgraph.VertexFunction, caplog: pytest.LogCaptureFixture
) -> None:
    assert function(TREE, x=ROWS) == function(TREE, x=ROWS) == {}
    told = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert len(told) == 1
    assert "pushes nothing" in told[0]
    assert "test_wrong_widths.py" in told[0]


@pytest.mark.parametrize("name", ["u_mul_e", "u_dot_e", "v_add_e", "e_sub_v"])
def test_built_ins_name_both_features(name: str) -> None:
    g = TREE.local_var()
    g.ndata["h"], g.edata["h"] = ROWS, torch.ones(2, 2)
    words = {
        "u": "source's 'h', in rows of (3,)",
        "v": "destination's 'h', in rows of (3,)",
        "e": "edge's 'h', in rows",
    }
    with pytest.raises(ShapeError) as caught:
        g.update_all(getattr(fn, name)("h", "h", "m"), fn.sum("m", "out"))
    assert words[name[0]] in caught.value.fact
    assert words[name[-1]] in caught.value.fact
    g.edata["h"] = torch.ones(2, 3, 3)  # its missing dim comes after the rows
    g.apply_edges(fn.u_mul_e("h", "h", "m"))
    assert g.edata["m"].shape == (2, 3, 3)


@pytest.mark.parametrize("name", ["type", "forward", "a.b", ""])
def test_names_of_relations_that_torch_reserves(name: str) -> None:
    with pytest.raises(NameLookupError, match="torch's ModuleDict keeps no layer under"):
        HeteroGraphConv({name: GraphConv(3, 2)})
    with pytest.raises(NameLookupError, match="torch's ModuleDict keeps no layer under"):
        HeteroLinear({name: 3}, 2)
    assert len(HeteroGraphConv({("user", "type", "film"): GraphConv(3, 2)}).mods) == 1


@pytest.mark.filterwarnings("ignore:.*torch.jit.trace")
def test_layers_refuse_exporters() -> None:
    class Whole(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.g = GraphConv(3, 2, allow_zero_in_degree=True), TREE

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.layer(self.g, x)

    with pytest.raises(Exception, match=r"torch\.export does not reach into GraphConv"):
        torch.export.export(Whole(), (ROWS,))
    with pytest.raises(FunctionError, match=r"torch\.jit\.trace does not reach into GraphConv"):
        torch.jit.trace(Whole(), (ROWS,))
