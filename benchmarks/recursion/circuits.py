"""Circuits: a gated unit on deep DAGs, thousands of narrow frontiers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import vgraph
from recursion.workload import Workload, optional, training
from vgraph.data import load_aiger
from vgraph.scheduler.frontiers import levels


class GateGRU(vgraph.VertexFunction):
    """A gated unit whose previous state is the sum of the fanins'."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.W, self.U = nn.Linear(hidden, 3 * hidden), nn.Linear(hidden, 3 * hidden)

    def forward(self, v: vgraph.Vertex) -> None:
        past = v.gather()["h"].sum()
        xr, xz, xn = self.W(v.pull("x")).chunk(3, -1)
        hr, hz, hn = self.U(past).chunk(3, -1)
        r, z = torch.sigmoid(xr + hr), torch.sigmoid(xz + hz)
        h = (1 - z) * torch.tanh(xn + r * hn) + z * past
        v.scatter(h=h)
        v.push(h=h)


def loss_of(model: GateGRU, graph: vgraph.Graph, x: Tensor) -> Tensor:
    return (model(graph, x=x)["h"] ** 2).mean()


def braid(length: int) -> vgraph.Graph:
    """Two vertices a frontier, each fed by both of the one before: what the middle of ``hyp`` looks like."""
    first = torch.arange(2 * (length - 1))
    step = first - first % 2
    return vgraph.graph((torch.cat([first, first]), torch.cat([step + 2, step + 3])), num_nodes=2 * length)


def last_frontiers(graph: vgraph.Graph, count: int) -> vgraph.Graph:
    """The vertices of the last frontiers, and the edges between them."""
    level = torch.as_tensor(levels(graph.topology))
    return vgraph.node_subgraph(graph, (level > level.max() - count).nonzero().squeeze(1))


def circuit(path: Path | None, hidden: int, length: int = 2000, last: int = 0) -> Workload:
    """``last``: so many frontiers of the circuit; 0: all, without the side that would take minutes."""
    torch.manual_seed(0)
    graph = braid(length) if path is None else load_aiger(path).graph
    graph = last_frontiers(graph, last) if last else graph
    x, model = torch.randn(graph.num_nodes(), hidden), GateGRU(hidden)
    sides = {"vgraph": training(model.parameters(), lambda: loss_of(model, graph, x))}
    dgl = optional("dgl")
    if dgl is not None and (last or path is None):
        sides["DGL prop_nodes_topo"] = training(model.parameters(), by_dgl(dgl, graph, x, model))
    frontiers = int(levels(graph.topology).max()) + 1
    name = f"braid of {length}" if path is None else path.stem
    name += f", last {last} frontiers" if last else ""
    flops = 2 * 3 * hidden * hidden * graph.num_nodes() * 5
    return Workload(f"GRU hidden {hidden} on {name}", sides, flops, frontiers)


def by_dgl(dgl: Any, graph: vgraph.Graph, x: Tensor, model: GateGRU) -> Any:
    g = dgl.graph(graph.edges(), num_nodes=graph.num_nodes())
    hidden = x.shape[1]

    def apply(nodes: Any) -> dict[str, Tensor]:
        past = nodes.data["past"]
        xr, xz, xn = nodes.data["own"].chunk(3, -1)
        hr, hz, hn = model.U(past).chunk(3, -1)
        r, z = torch.sigmoid(xr + hr), torch.sigmoid(xz + hz)
        return {"h": (1 - z) * torch.tanh(xn + r * hn) + z * past}

    def loss() -> Tensor:
        g.ndata["own"] = model.W(x)
        g.ndata["past"] = g.ndata["h"] = torch.zeros(g.num_nodes(), hidden)
        dgl.prop_nodes_topo(g, dgl.function.copy_u("h", "m"), dgl.function.sum("m", "past"), apply_node_func=apply)
        return (g.ndata["h"] ** 2).mean()

    return loss
