"""By DGL: its layers, its built-ins, and the same Python functions as vgraph's."""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sides.batches import epoch, prefetched
from sides.functions import by_functions
from sides.relational import BASES, HIDDEN, ManyGraphs, OneGraph, Relational
from sides.steps import Step, alone, training
from sides.workloads import Data

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import dgl
    import dgl.dataloading
    import dgl.function as fn
    import dgl.nn.pytorch as dglnn
    from dgl.nn.functional import edge_softmax


class DotAttention(nn.Module):
    """Queries, keys and values with maps of their own, by DGL's built-ins."""

    def __init__(self, in_size: int, width: int, heads: int, activation: Any) -> None:
        super().__init__()
        self.heads, self.scale, self.activation = heads, width**-0.5, activation
        self.Q, self.K, self.V = (nn.Linear(in_size, width * heads, bias=False) for _ in range(3))

    def forward(self, g: Any, x: Tensor) -> Tensor:
        with g.local_scope():
            for name, layer in (("q", self.Q), ("k", self.K), ("v", self.V)):
                g.ndata[name] = layer(x).unflatten(1, (self.heads, -1))
            g.apply_edges(fn.u_dot_v("k", "q", "s"))
            g.edata["a"] = edge_softmax(g, g.edata["s"] * self.scale)
            g.update_all(fn.u_mul_e("v", "a", "m"), fn.sum("m", "o"))
            return g.ndata["o"] if self.activation is None else self.activation(g.ndata["o"])


def make_layer(kind: str, sizes: tuple[int, int, int], values: dict[str, Tensor], activation: Any) -> nn.Module:
    rows, width, heads = sizes
    given: dict[str, Any] = {"bias": False, "activation": activation, "allow_zero_in_degree": True}
    if kind == "gcn":
        layer = dglnn.GraphConv(rows, width, **given)
        layer.load_state_dict({"weight": values["W"].T})
    elif kind == "gat":
        layer = dglnn.GATConv(rows, width, heads, **given)
        layer.load_state_dict({"fc.weight": values["W"], "attn_l": values["al"], "attn_r": values["ar"]})
    elif kind == "gatv2":
        layer = dglnn.GATv2Conv(rows, width, heads, **given)
        state = {"fc_src.weight": values["Ws"], "fc_dst.weight": values["Wd"], "attn": values["at"]}
        layer.load_state_dict(state)
    else:
        layer = DotAttention(rows, width, heads, activation)
        layer.load_state_dict({f"{name}.weight": values[name] for name in "QKV"})
    return layer


def model(data: Data, g: Any) -> Step:
    kind = data.workload.kind
    between = [torch.relu if kind == "gcn" else F.elu] * (len(data.layer_sizes()) - 1)
    given = zip(data.layer_sizes(), data.layers(), [*between, None], strict=True)
    layers = nn.ModuleList([make_layer(kind, *one) for one in given])

    def run() -> Tensor:
        rows = data.x
        for layer in layers:
            rows = layer(g, rows).flatten(1)
        return rows

    return training(run, layers.parameters(), data.y)


def sampled(data: Data, g: Any) -> Step:
    given = data.workload.options
    g.create_formats_()
    loader = dgl.dataloading.DataLoader(
        g, torch.arange(given["seeds"]), dgl.dataloading.NeighborSampler(given["fanouts"], **prefetched(data, g)),
        batch_size=given["batch"], shuffle=True, num_workers=given["workers"],
    )  # fmt: skip
    return epoch(data, loader, dglnn.SAGEConv)


def relational(data: Data) -> Step:
    given = Relational(data)
    if data.workload.options["form"] == "HeteroGraphConv":
        ends = {("_N", f"{i:03d}", "_N"): (data.src[at], data.dst[at]) for i, at in enumerate(given.places_by_type())}
        g = dgl.heterograph(ends, {"_N": data.num_nodes})
        model: nn.Module = ManyGraphs(given, g, dglnn)
        return given.training(lambda: model(g), [model.vectors, model.coefficients[0]],
                              [model.matrices, model.coefficients[1]])  # fmt: skip
    g = dgl.graph((data.src, data.dst), num_nodes=data.num_nodes)
    g.create_formats_()
    layer = dglnn.RelGraphConv(HIDDEN, given.num_classes, given.num_rels, "basis", BASES, bias=False, self_loop=False)
    model = OneGraph(given, data.num_nodes, layer)
    return given.training(lambda: model(g, given, fn), [model.vectors, model.first], model.second.parameters())


def build(data: Data) -> Step:
    kind = data.workload.kind
    if kind == "relational":
        return relational(data)
    g = dgl.graph((data.src, data.dst), num_nodes=data.num_nodes)
    if kind == "sampling":
        return sampled(data, g)
    if kind == "aggregate":
        x = data.draw(1, data.num_nodes, data.workload.width)

        def run() -> Tensor:
            g.ndata["h"] = x
            g.update_all(fn.copy_u("h", "m"), fn.sum("m", "o"))
            return g.ndata["o"]

        return alone(run)
    return model(data, g) if kind in ("gcn", "gat", "gatv2", "dot") else by_functions(data, g, fn)
