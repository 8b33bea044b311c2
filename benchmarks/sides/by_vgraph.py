"""By vgraph: its layers, and Python functions of edges and nodes under update_all."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import vgraph
import vgraph.function as fn
from sides.batches import epoch, prefetched
from sides.functions import by_functions
from sides.relational import BASES, HIDDEN, Relational
from sides.steps import Step, alone, training
from sides.workloads import Data
from vgraph.nn import GATConv, GATv2Conv, GraphConv, RelGraphConv, RelGraphEmbedding, SAGEConv
from vgraph.sampling import DataLoader, NeighborSampler


class DotAttention(nn.Module):
    """Queries, keys and values with maps of their own, as in a Transformer."""

    def __init__(self, in_size: int, width: int, heads: int, activation: Any) -> None:
        super().__init__()
        self.heads, self.scale, self.activation = heads, width**-0.5, activation
        self.Q, self.K, self.V = (nn.Linear(in_size, width * heads, bias=False) for _ in range(3))

    def forward(self, g: vgraph.Graph, x: Tensor) -> Tensor:
        with g.local_scope():
            for name, layer in (("q", self.Q), ("k", self.K), ("v", self.V)):
                g.ndata[name] = layer(x).unflatten(1, (self.heads, -1))
            g.ndata["q"] = g.ndata["q"] * self.scale
            g.update_all(
                lambda e: {"m": e.src["v"], "s": (e.src["k"] * e.dst["q"]).sum(-1, keepdim=True)},
                lambda v: {"o": (torch.softmax(v.mailbox["s"], 1) * v.mailbox["m"]).sum(1)},
            )
            return g.ndata["o"] if self.activation is None else self.activation(g.ndata["o"])


def make_layer(kind: str, sizes: tuple[int, int, int], values: dict[str, Tensor], activation: Any) -> nn.Module:
    rows, width, heads = sizes
    given: dict[str, Any] = {"bias": False, "activation": activation, "allow_zero_in_degree": True}
    if kind == "gcn":
        layer: nn.Module = GraphConv(rows, width, **given)
        return filled(layer, {"weight": values["W"].T})
    if kind == "gat":
        layer = GATConv(rows, width, heads, **given)
        return filled(layer, {"fc.weight": values["W"], "attn_l": values["al"], "attn_r": values["ar"]})
    if kind == "gatv2":
        layer = GATv2Conv(rows, width, heads, **given)
        return filled(layer, {"fc_src.weight": values["Ws"], "fc_dst.weight": values["Wd"], "attn": values["at"]})
    return filled(DotAttention(rows, width, heads, activation), {f"{name}.weight": values[name] for name in "QKV"})


def filled(layer: nn.Module, values: dict[str, Tensor]) -> nn.Module:
    layer.load_state_dict(values)
    return layer


def model(data: Data, g: vgraph.Graph) -> Step:
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


def sampled(data: Data, g: vgraph.Graph) -> Step:
    given = data.workload.options
    sampler = NeighborSampler(given["fanouts"], **prefetched(data, g))
    loader = DataLoader(
        g, torch.arange(given["seeds"]), sampler, batch_size=given["batch"], shuffle=True, num_workers=given["workers"]
    )
    return epoch(data, loader, SAGEConv)


def relational(data: Data, g: vgraph.Graph) -> Step:
    given = Relational(data)
    first = RelGraphEmbedding(data.num_nodes, HIDDEN, given.num_rels, BASES, bias=False)
    second = RelGraphConv(HIDDEN, given.num_classes, given.num_rels, "basis", BASES, bias=False, self_loop=False)
    filled(first, {"weight": given.values["vectors"], "coeff": given.values["first"]})
    filled(second, {"linear_r.W": given.values["matrices"], "linear_r.coeff": given.values["second"]})

    def run() -> Tensor:
        return second(g, torch.relu(first(g, given.etypes, given.norm)), given.etypes, given.norm)

    return given.training(run, first.parameters(), second.parameters())


def build(data: Data, g: vgraph.Graph | None = None) -> Step:
    """``g``: the graph, where somebody has made it already."""
    kind = data.workload.kind
    g = vgraph.graph((data.src, data.dst), num_nodes=data.num_nodes) if g is None else g
    if kind == "relational":
        return relational(data, g)
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
