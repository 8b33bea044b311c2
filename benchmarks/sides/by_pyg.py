"""By PyTorch Geometric: its layers over edge_index, gathered and scattered."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sides.steps import Step, alone, training, with_gradient
from sides.workloads import Data, NotExpressible

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import torch_geometric.nn as pyg
    from torch_geometric.utils import scatter, softmax


Compile = Callable[[Callable[[], Tensor]], Callable[[], Tensor]]


def make_layer(kind: str, sizes: tuple[int, int, int], values: dict[str, Tensor]) -> nn.Module:
    rows, width, heads = sizes
    if kind == "gcn":  # normalised once, beforehand
        layer = pyg.GCNConv(rows, width, bias=False, normalize=False, add_self_loops=False)
        layer.load_state_dict({"lin.weight": values["W"]})
    elif kind == "gat":
        layer = pyg.GATConv(rows, width, heads, bias=False, add_self_loops=False)
        layer.load_state_dict({"lin.weight": values["W"], "att_src": values["al"], "att_dst": values["ar"]})
    elif kind == "gatv2":
        layer = pyg.GATv2Conv(rows, width, heads, bias=False, add_self_loops=False)
        layer.load_state_dict({"lin_l.weight": values["Ws"], "lin_r.weight": values["Wd"], "att": values["at"]})
    else:
        layer = pyg.TransformerConv(rows, width, heads, bias=False, root_weight=False)
        maps = {"query": "Q", "key": "K", "value": "V"}
        state = {f"lin_{name}.weight": values[short] for name, short in maps.items()}
        layer.load_state_dict(layer.state_dict() | state)  # it also makes a skip, which it does not use
    return layer


def model(data: Data, edges: Tensor, compiled: Compile) -> Step:
    kind = data.workload.kind
    given = zip(data.layer_sizes(), data.layers(), strict=True)
    layers = nn.ModuleList([make_layer(kind, sizes, values) for sizes, values in given])
    extra = (data.norm,) if kind == "gcn" else ()
    activation = torch.relu if kind == "gcn" else F.elu

    def run() -> Tensor:
        rows = data.x
        for i, layer in enumerate(layers):
            rows = layer(activation(rows) if i else rows, edges, *extra)
        return rows

    return training(compiled(run), layers.parameters(), data.y)


class Function(pyg.MessagePassing):
    """One of the functions as its message, with the library's own aggregations."""

    def __init__(self, kind: str, data: Data) -> None:
        super().__init__(aggr="mean" if kind == "linear_message" else "sum")
        self.kind, self.weight = kind, data.matrix(20, data.workload.width, data.workload.width)

    def forward(self, h: Tensor, a: Tensor, b: Tensor, edges: Tensor, w: Tensor) -> Tensor:
        return self.propagate(edges, h=h, a=a, b=b, w=w)

    def message(self, h_j: Tensor, a_j: Tensor, b_i: Tensor, w: Tensor, index: Tensor, size_i: int | None) -> Tensor:
        if self.kind == "gated":
            return torch.sigmoid(a_j + b_i) * h_j
        if self.kind == "linear_message":
            return torch.relu(h_j @ self.weight) * w
        return softmax((a_j * b_i).sum(-1, keepdim=True), index, num_nodes=size_i) * h_j


def build(data: Data, compiled: Compile = lambda run: run) -> Step:
    kind = data.workload.kind
    if kind == "aggregate":
        x = data.draw(1, data.num_nodes, data.workload.width)
        return alone(compiled(lambda: scatter(x[data.src], data.dst, 0, data.num_nodes, "sum")))
    edges = torch.stack([data.src, data.dst])
    if kind in ("gcn", "gat", "gatv2", "dot"):
        return model(data, edges, compiled)
    if kind in ("std_reduce", "edge_mlp"):
        raise NotExpressible("one would write it as by hand")
    inputs, function = data.vertex_inputs(), Function(kind, data)
    run = compiled(lambda: function(*inputs.values(), edges, data.edge_weight))
    return with_gradient(run, inputs.values())
