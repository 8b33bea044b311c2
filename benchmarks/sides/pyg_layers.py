"""Layers of PyG and of a user's, and small models of them: what all sides of pyg.py compute, each in its own way."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sides.steps import Step, training, with_gradient
from sides.workloads import Data

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import torch_geometric.nn as pyg
    from torch_geometric.utils import softmax

RELATIONS, MOLECULE = 4, 25


class Gated(pyg.MessagePassing):
    """Messages of a source weighed by a gate that sees both ends and the edge."""

    def __init__(self, width: int, edge_width: int) -> None:
        super().__init__(aggr="sum")
        self.src, self.dst = nn.Linear(width, width), nn.Linear(width, width)
        self.edge = nn.Linear(edge_width, width)

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor) -> Tensor:
        return self.propagate(edge_index, x=x, a=self.src(x), b=self.dst(x), edge_attr=edge_attr)

    def message(self, x_j: Tensor, a_j: Tensor, b_i: Tensor, edge_attr: Tensor) -> Tensor:
        return torch.sigmoid(a_j + b_i + self.edge(edge_attr)) * x_j


class Attention(pyg.MessagePassing):
    """Heads of attention whose weights know the edge."""

    def __init__(self, width: int, edge_width: int, heads: int = 4) -> None:
        super().__init__(aggr="add", node_dim=0)
        self.heads, self.lin, self.edge = heads, nn.Linear(width, width), nn.Linear(edge_width, heads)

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor) -> Tensor:
        h = self.lin(x).view(len(x), self.heads, -1)
        return self.propagate(edge_index, h=h, edge_attr=edge_attr).flatten(1)

    def message(self, h_i: Tensor, h_j: Tensor, edge_attr: Tensor, index: Tensor, size_i: int) -> Tensor:
        score = (h_i * h_j).sum(-1) / h_i.shape[-1] ** 0.5 + self.edge(edge_attr)
        return h_j * softmax(score, index, num_nodes=size_i).unsqueeze(-1)


class Distance(pyg.MessagePassing):
    """The mean of differences, each weighed by how far apart its ends are; an update that sees the node."""

    def __init__(self, width: int) -> None:
        super().__init__(aggr="mean")
        self.lin, self.out = nn.Linear(width, width), nn.Linear(2 * width, width)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.propagate(edge_index, x=x, h=self.lin(x))

    def message(self, h_i: Tensor, h_j: Tensor) -> Tensor:
        difference = h_j - h_i
        return difference * torch.exp(-difference.square().mean(-1, keepdim=True))

    def update(self, inputs: Tensor, x: Tensor) -> Tensor:
        return torch.relu(self.out(torch.cat([inputs, x], -1)))


def _mlp(*widths: int) -> nn.Module:
    first, inner, last = widths
    return nn.Sequential(nn.Linear(first, inner), nn.ReLU(), nn.Linear(inner, last))


def _pna(width: int, degrees: Tensor) -> nn.Module:
    scalers = ["identity", "amplification", "attenuation"]
    return pyg.PNAConv(width, width, ["mean", "min", "max", "std"], scalers, torch.bincount(degrees))


Make = Callable[[int, int, Data], nn.Module]
# width, width of edges' features -> a layer; and what it is given besides nodes and edges
LAYERS: dict[str, tuple[Make, str]] = {
    "GCNConv": (lambda w, _, d: pyg.GCNConv(w, w), ""),
    "SAGEConv mean": (lambda w, _, d: pyg.SAGEConv(w, w), ""),
    "SAGEConv max": (lambda w, _, d: pyg.SAGEConv(w, w, aggr="max"), ""),
    "GATConv": (lambda w, _, d: pyg.GATConv(w, w // 4, heads=4), ""),
    "GATv2Conv": (lambda w, _, d: pyg.GATv2Conv(w, w // 4, heads=4), ""),
    "TransformerConv": (lambda w, _, d: pyg.TransformerConv(w, w // 4, heads=4), ""),
    "GINEConv": (lambda w, e, d: pyg.GINEConv(_mlp(w, w, w), edge_dim=e), "features"),
    "PNAConv": (lambda w, _, d: _pna(w, torch.bincount(d.dst, minlength=d.num_nodes)), ""),
    "RGCNConv": (lambda w, _, d: pyg.RGCNConv(w, w, RELATIONS), "types"),
    "EdgeConv": (lambda w, _, d: pyg.EdgeConv(_mlp(2 * w, w, w)), ""),
    "NNConv": (lambda w, e, d: pyg.NNConv(w, w // 8, nn.Linear(e, w * (w // 8))), "features"),
    "CGConv": (lambda w, e, d: pyg.CGConv(w, e), "features"),
    "gated by hand": (lambda w, e, d: Gated(w, e), "features"),
    "attention by hand": (lambda w, e, d: Attention(w, e), "features"),
    "distance by hand": (lambda w, _, d: Distance(w), ""),
}
Way = Callable[[nn.Module], Any]  # a module as its side runs it


def build(data: Data, way: Way) -> Step:
    torch.manual_seed(0)
    kind = data.workload.options["layer"]
    edges = torch.stack([data.src, data.dst])
    if kind == "molecules":
        return _molecules(data, edges, way)
    if kind in ("GCN", "GAT"):
        model = getattr(pyg, kind)(data.sizes[0], data.sizes[1], 2, data.sizes[-1])
        run = way(model)
        return training(lambda: run(data.x, edges), model.parameters(), data.y)
    make, given = LAYERS[kind]
    width = data.workload.width
    layer = make(width, data.workload.options["edge_width"], data)
    types = torch.from_numpy(np.random.default_rng(5).integers(0, RELATIONS, data.num_edges))
    extra = {"": (), "features": (data.edge_feat,), "types": (types,)}[given]
    x, run = data.draw(1, data.num_nodes, width).requires_grad_(), way(layer)
    return with_gradient(lambda: run(x, edges, *extra), [x, *layer.parameters()])


class _Molecules(nn.Module):
    """Three layers of GINE, and a number for each molecule."""

    def __init__(self, width: int, edge_width: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(pyg.GINEConv(_mlp(width, width, width), edge_dim=edge_width) for _ in range(3))
        self.out = nn.Linear(width, 2)

    def forward(self, x: Tensor, edges: Tensor, features: Tensor, ids: Tensor, count: int) -> Tensor:
        for layer in self.layers:
            x = F.relu(layer(x, edges, features))
        return self.out(pyg.global_add_pool(x, ids, count))


def _molecules(data: Data, edges: Tensor, way: Way) -> Step:
    """Molecules in batches, whose edges are new tensors in every step, as a loader gives them."""
    ids = torch.arange(data.num_nodes) // MOLECULE
    edges = edges % MOLECULE + edges[:1] // MOLECULE * MOLECULE  # both ends within one molecule
    count = int(ids[-1]) + 1
    edges = edges.clamp(max=data.num_nodes - 1)
    model = _Molecules(data.workload.width, data.workload.options["edge_width"])
    run, x = way(model), data.draw(1, data.num_nodes, data.workload.width)
    labels = torch.from_numpy(np.random.default_rng(2).integers(0, 2, count))
    return training(lambda: run(x, edges.clone(), data.edge_feat, ids, count), model.parameters(), labels)
