"""Each layer of PyG, and some of a user's, gives on vgraph's kernels what it gives by itself, with two derivatives."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import vgraph
from vgraph.capture.capture import watch_runs
from vgraph.capture.errors import CaptureError

try:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyG's import uses what torch has deprecated
        import torch_geometric.nn as pyg
        from torch_geometric.utils import softmax
except ImportError:
    pytest.skip("torch_geometric is not installed", allow_module_level=True)

N, E, F, D = 12, 40, 6, 3  # nodes, edges, features of nodes, features of edges


class Given:
    """Arguments of layers."""

    def __init__(self) -> None:
        self.x, self.x0 = torch.randn(N, F, requires_grad=True), torch.randn(N, F)
        self.edges = torch.cat([torch.randint(0, N, (2, E - N)), torch.arange(N).expand(2, N)], 1)
        self.edges = self.edges[:, torch.randperm(E)]
        self.w, self.a, self.e = torch.rand(E), torch.randn(E, D), torch.randn(E, F)
        self.type, self.pos = torch.randint(0, 4, (E,)), torch.randn(N, 3)


class GatedByHand(pyg.MessagePassing):
    def __init__(self) -> None:
        super().__init__(aggr="sum")
        self.lin = nn.Linear(2 * F + D, F)

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor) -> Tensor:
        return self.propagate(edge_index, x=x, edge_attr=edge_attr)

    def message(self, x_i: Tensor, x_j: Tensor, edge_attr: Tensor) -> Tensor:
        return torch.sigmoid(self.lin(torch.cat([x_i, x_j, edge_attr], -1))) * x_j

    def update(self, inputs: Tensor, x: Tensor) -> Tensor:
        return torch.tanh(inputs) + x


class AttentionByHand(pyg.MessagePassing):
    def __init__(self) -> None:
        super().__init__(aggr="sum", flow="target_to_source", node_dim=0)
        self.lin, self.edge = nn.Linear(F, F), nn.Linear(D, 2)

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor) -> Tensor:
        return self.propagate(edge_index, h=self.lin(x).view(-1, 2, F // 2), edge_attr=edge_attr).flatten(1)

    def message(self, h_i: Tensor, h_j: Tensor, edge_attr: Tensor, index: Tensor, size_i: int) -> Tensor:
        weight = softmax((h_i * h_j).sum(-1) + self.edge(edge_attr), index, num_nodes=size_i)
        return h_j * weight.unsqueeze(-1)


class ScatterByHand(pyg.MessagePassing):
    def forward(self, x: Tensor, edge_index: Tensor, weight: Tensor) -> Tensor:
        return self.propagate(edge_index, x=x, weight=weight)

    def message(self, x_j: Tensor, weight: Tensor) -> Tensor:
        return x_j * weight.view(-1, 1)

    def aggregate(self, inputs: Tensor, index: Tensor, dim_size: int) -> Tensor:
        total = inputs.new_zeros(dim_size, inputs.size(1)).index_add_(0, index, inputs)
        return total / (1 + total.index_select(0, index).square().new_zeros(1))


class ProductsInPlace(ScatterByHand):
    def aggregate(self, inputs: Tensor, index: Tensor, dim_size: int) -> Tensor:
        ids = index.view(-1, 1).expand_as(inputs)
        return inputs.new_full((dim_size, inputs.size(1)), 2.0).scatter_reduce_(0, ids, inputs, "prod")


def _mlp(width: int, out: int = F) -> nn.Module:
    return nn.Sequential(nn.Linear(width, 8), nn.Tanh(), nn.Linear(8, out))


def _normed(norm: nn.Module) -> nn.Module:
    return nn.Sequential(nn.Linear(2 * F, F), norm, nn.Tanh())


def _knn(x: Tensor, y: Tensor, _: object, __: object, k: int, *___: object) -> Tensor:
    """As the package does that PyG takes nearest neighbours from: each row of y, and its k in x."""
    nearest = torch.cdist(y, x).topk(k, largest=False).indices
    return torch.stack([torch.arange(len(y)).repeat_interleave(k), nearest.flatten()])


_PRODUCTS = "multiplicative-self-attention"
_PNA = {"aggregators": ["mean", "max", "std"], "scalers": ["identity", "amplification"], "deg": torch.ones(8).long()}
Case = tuple[Callable[[], Any], Callable[[Any, Given], Tensor]]
CASES: dict[str, Case] = {
    "GCNConv": (lambda: pyg.GCNConv(F, F), lambda f, g: f(g.x, g.edges, g.w)),
    "SAGEConv": (lambda: pyg.SAGEConv(F, F), lambda f, g: f(g.x, g.edges)),
    "SAGEConv of a pair": (lambda: pyg.SAGEConv(F, F), lambda f, g: f((g.x, g.x0), g.edges)),
    "SAGEConv max": (lambda: pyg.SAGEConv(F, F, aggr="max", project=True), lambda f, g: f(g.x, g.edges)),
    "SAGEConv of several": (lambda: pyg.SAGEConv(F, F, aggr=["mean", "min", "var"]), lambda f, g: f(g.x, g.edges)),
    "SAGEConv softmax": (lambda: pyg.SAGEConv(F, F, aggr="softmax"), lambda f, g: f(g.x, g.edges)),
    "SAGEConv mul": (lambda: pyg.SAGEConv(F, F, aggr="mul"), lambda f, g: f(g.x, g.edges)),
    "GraphConv": (lambda: pyg.GraphConv(F, F), lambda f, g: f(g.x, g.edges, g.w)),
    "GatedGraphConv": (lambda: pyg.GatedGraphConv(F, 2), lambda f, g: f(g.x, g.edges, g.w)),
    "ResGatedGraphConv": (lambda: pyg.ResGatedGraphConv(F, F, edge_dim=D), lambda f, g: f(g.x, g.edges, g.a)),
    "GATConv": (lambda: pyg.GATConv(F, 3, heads=2, edge_dim=D), lambda f, g: f(g.x, g.edges, g.a)),
    "GATv2Conv": (lambda: pyg.GATv2Conv(F, 3, heads=2, edge_dim=D), lambda f, g: f(g.x, g.edges, g.a)),
    "TransformerConv": (lambda: pyg.TransformerConv(F, 3, 2, edge_dim=D), lambda f, g: f(g.x, g.edges, g.a)),
    "AGNNConv": (lambda: pyg.AGNNConv(), lambda f, g: f(g.x, g.edges)),
    "TAGConv": (lambda: pyg.TAGConv(F, F), lambda f, g: f(g.x, g.edges, g.w)),
    "GINConv": (lambda: pyg.GINConv(_mlp(F)), lambda f, g: f(g.x, g.edges)),
    "GINEConv": (lambda: pyg.GINEConv(_mlp(F), edge_dim=D), lambda f, g: f(g.x, g.edges, g.a)),
    "SGConv": (lambda: pyg.SGConv(F, F, K=2), lambda f, g: f(g.x, g.edges, g.w)),
    "SSGConv": (lambda: pyg.SSGConv(F, F, 0.1, K=2), lambda f, g: f(g.x, g.edges, g.w)),
    "APPNP": (lambda: pyg.APPNP(3, 0.1), lambda f, g: f(g.x, g.edges, g.w)),
    "MFConv": (lambda: pyg.MFConv(F, F), lambda f, g: f(g.x, g.edges)),
    "RGCNConv": (lambda: pyg.RGCNConv(F, F, 4, num_bases=2), lambda f, g: f(g.x, g.edges, g.type)),
    "ChebConv": (lambda: pyg.ChebConv(F, F, K=3), lambda f, g: f(g.x, g.edges, g.w)),
    "ClusterGCNConv": (lambda: pyg.ClusterGCNConv(F, F), lambda f, g: f(g.x, g.edges)),
    "CGConv": (lambda: pyg.CGConv(F, D), lambda f, g: f(g.x, g.edges, g.a)),
    "EdgeConv": (lambda: pyg.EdgeConv(_mlp(2 * F)), lambda f, g: f(g.x, g.edges)),
    "FeaStConv": (lambda: pyg.FeaStConv(F, F, heads=2), lambda f, g: f(g.x, g.edges)),
    "FiLMConv": (lambda: pyg.FiLMConv(F, F), lambda f, g: f(g.x, g.edges)),
    "GCN2Conv": (lambda: pyg.GCN2Conv(F, 0.1), lambda f, g: f(g.x, g.x0, g.edges, g.w)),
    "GENConv": (lambda: pyg.GENConv(F, F, edge_dim=D), lambda f, g: f(g.x, g.edges, g.a)),
    "GENConv powermean": (lambda: pyg.GENConv(F, F, aggr="powermean"), lambda f, g: f(g.x, g.edges)),
    "GMMConv": (lambda: pyg.GMMConv(F, F, D, 2), lambda f, g: f(g.x, g.edges, g.a)),
    "GeneralConv": (lambda: pyg.GeneralConv(F, F, D, attention=True), lambda f, g: f(g.x, g.edges, g.a)),
    "HypergraphConv": (lambda: pyg.HypergraphConv(F, F), lambda f, g: f(g.x, g.edges)),
    "LEConv": (lambda: pyg.LEConv(F, F), lambda f, g: f(g.x, g.edges, g.w)),
    "LGConv": (lambda: pyg.LGConv(), lambda f, g: f(g.x, g.edges, g.w)),
    "MixHopConv": (lambda: pyg.MixHopConv(F, F), lambda f, g: f(g.x, g.edges, g.w)),
    "NNConv": (lambda: pyg.NNConv(F, 2, _mlp(D, 2 * F)), lambda f, g: f(g.x, g.edges, g.a)),
    "PDNConv": (lambda: pyg.PDNConv(F, F, D, 4), lambda f, g: f(g.x, g.edges, g.a)),
    "PNAConv": (lambda: pyg.PNAConv(F, F, edge_dim=D, **_PNA), lambda f, g: f(g.x, g.edges, g.a)),
    "PointNetConv": (lambda: pyg.PointNetConv(_mlp(F + 3)), lambda f, g: f(g.x, g.pos, g.edges)),
    "PointTransformerConv": (lambda: pyg.PointTransformerConv(F, F), lambda f, g: f(g.x, g.pos, g.edges)),
    "SimpleConv": (lambda: pyg.SimpleConv("mean"), lambda f, g: f(g.x, g.edges, g.w)),
    "SignedConv": (lambda: pyg.SignedConv(F, F, True), lambda f, g: f(g.x, g.edges, g.edges.flip(0))),
    "DNAConv": (lambda: pyg.DNAConv(F), lambda f, g: f(torch.stack([g.x, g.x0], 1), g.edges, g.w)),
    "EGConv": (lambda: pyg.EGConv(F, F, num_heads=2, num_bases=2), lambda f, g: f(g.x, g.edges)),
    "FAConv": (lambda: pyg.FAConv(F), lambda f, g: f(g.x, g.x0, g.edges)),
    "HEATConv": (
        lambda: pyg.HEATConv(F, F, 2, 4, 3, D, 3, heads=2),
        lambda f, g: f(g.x, g.edges, torch.arange(N) % 2, g.type, g.a),
    ),
    "RGATConv": (lambda: pyg.RGATConv(F, 3, 4, heads=2), lambda f, g: f(g.x, g.edges, g.type)),
    "RGATConv of blocks": (
        lambda: pyg.RGATConv(F, 2, 4, num_blocks=2, dim=2, attention_mode=_PRODUCTS, mod="scaled", edge_dim=D),
        lambda f, g: f(g.x, g.edges, g.type, g.a),
    ),
    "PPFConv": (lambda: pyg.PPFConv(_mlp(F + 4)), lambda f, g: f(g.x, g.pos, g.pos.flip(0), g.edges)),
    "PointGNNConv": (lambda: pyg.PointGNNConv(_mlp(F, 3), _mlp(F + 3), _mlp(F)), lambda f, g: f(g.x, g.pos, g.edges)),
    "EdgeConv with BatchNorm": (lambda: pyg.EdgeConv(_normed(nn.BatchNorm1d(F))).eval(), lambda f, g: f(g.x, g.edges)),
    "EdgeConv with GroupNorm": (lambda: pyg.EdgeConv(_normed(nn.GroupNorm(2, F))), lambda f, g: f(g.x, g.edges)),
    "DynamicEdgeConv": (lambda: pyg.DynamicEdgeConv(_mlp(2 * F), 3), lambda f, g: f(g.x)),
    "GravNetConv": (lambda: pyg.GravNetConv(F, F, 2, 4, 3), lambda f, g: f(g.x)),
    "SuperGATConv": (lambda: pyg.SuperGATConv(F, 3, heads=2).eval(), lambda f, g: f(g.x, g.edges)),
    "WLConvContinuous": (lambda: pyg.WLConvContinuous(), lambda f, g: f(g.x, g.edges, g.w)),
    "gated by hand": (GatedByHand, lambda f, g: f(g.x, g.edges, g.a)),
    "attention by hand": (AttentionByHand, lambda f, g: f(g.x, g.edges, g.a)),
    "scatter by hand": (ScatterByHand, lambda f, g: f(g.x, g.edges, g.w)),
    "products in place": (ProductsInPlace, lambda f, g: f(g.x, g.edges, g.w)),
}


@pytest.mark.parametrize("name", CASES)
def test_layers_give_what_they_give_by_themselves(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.ops.pyg, "knn", _knn, raising=False)
    monkeypatch.setattr("torch_geometric.typing.WITH_KNN", True)
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        make, call = CASES[name]
        given, layer = Given(), make()
        wanted = _with_derivatives(layer, call, given)
        ours = vgraph.accelerate(copy.deepcopy(layer))
        with watch_runs() as runs:
            found = _with_derivatives(ours, call, given)
    finally:
        torch.set_default_dtype(before)
    assert runs, "it passed no messages"
    refused = [what for _, what, _ in runs if isinstance(what, CaptureError)]
    assert not refused, refused
    torch.testing.assert_close(found, wanted)


def _with_derivatives(layer: nn.Module, call: Callable[[Any, Given], Tensor], given: Given) -> list[Tensor]:
    """What a layer gives, its gradients, and theirs."""
    out = call(layer, given)
    inputs = [given.x, *(p for p in layer.parameters() if p.requires_grad)]
    first = torch.autograd.grad(
        out.square().sum(), inputs, create_graph=True, allow_unused=True, materialize_grads=True
    )
    total = torch.stack([grad.square().sum() for grad in first]).sum()
    second = torch.autograd.grad(total, inputs, allow_unused=True, materialize_grads=True)
    return [out, *first, *second]


class _InspectedAnew(pyg.MessagePassing):
    def forward(self, x: Tensor, edge_index: Tensor, a: Tensor) -> Tensor:
        return self.propagate(edge_index, x=x, a=a)

    def message(self, x_j: Tensor) -> Tensor:
        return x_j


def test_what_a_layer_asks_for_is_inspected_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """PyG inspects a layer again where its functions change: other arguments are collected from then on."""
    given, layer = Given(), vgraph.accelerate(_InspectedAnew())
    before = layer(given.x0, given.edges, given.a)

    def message(self: Any, x_i: Tensor, a: Tensor) -> Tensor:
        return x_i * a[:, :1]

    monkeypatch.setattr(_InspectedAnew, "message", message)
    layer.inspector.remove_signature("message")
    layer.inspector.inspect_signature(layer.message)
    src, dst = given.edges
    rows = given.x0[dst] * given.a[:, :1]
    torch.testing.assert_close(before, torch.zeros_like(given.x0).index_add(0, dst, given.x0[src]))
    with watch_runs() as runs:
        after = layer(given.x0, given.edges, given.a)
    torch.testing.assert_close(after, torch.zeros_like(given.x0).index_add(0, dst, rows))
    assert not any(isinstance(what, CaptureError) for _, what, _ in runs)
