"""Models that are trained on a whole graph and on parts of it: layers, and functions of all kinds that users write."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import vgraph
import vgraph.function as fn
from vgraph.nn import GATConv, GraphConv, PNAConv, RelGraphConv, SAGEConv

WIDTH, CLASSES = 7, 3


class Layers(nn.Module):
    """Two layers, the first of which is made wide by ``first`` and flattened."""

    def __init__(self, first: nn.Module, second: nn.Module, *edge_names: str) -> None:
        super().__init__()
        self.first, self.second, self.edge_names = first, second, edge_names

    def forward(self, g: vgraph.Graph, x: Tensor) -> Tensor:
        given = [g.edata[name] for name in self.edge_names]
        hidden = torch.relu(self.first(g, x, *given).flatten(1))
        return self.second(g, hidden, *given).flatten(1)


class Function(nn.Module):
    """A linear map, one ``update_all`` of functions that ``make`` gives, another linear map."""

    def __init__(self, make: Callable[[nn.Linear], tuple[Any, ...]]) -> None:
        super().__init__()
        self.enter, self.inner = nn.Linear(WIDTH, 6), nn.Linear(6, 6)
        self.leave = nn.Linear(12, CLASSES)
        self.make = make

    def forward(self, g: vgraph.Graph, x: Tensor) -> Tensor:
        with g.local_scope():
            g.ndata["h"] = self.enter(x)
            g.ndata["z"] = torch.tanh(g.ndata["h"])
            g.update_all(*self.make(self.inner))
            return self.leave(torch.cat([g.ndata["h"], g.ndata["out"]], 1))


def _attending(inner: nn.Linear) -> tuple[Any, ...]:
    return (
        lambda edges: {"m": inner(edges.src["h"]), "s": (edges.src["z"] * edges.dst["h"]).sum(1) + edges.data["w"]},
        lambda nodes: {"out": (torch.softmax(nodes.mailbox["s"], 1).unsqueeze(2) * nodes.mailbox["m"]).sum(1)},
        lambda nodes: {"out": nodes.data["out"] + nodes.data["z"]},
    )


def _median(inner: nn.Linear) -> tuple[Any, ...]:
    """Slots are sorted: such functions run degree by degree."""
    return (
        lambda edges: {"m": inner(edges.src["h"]) * edges.data["w"].unsqueeze(1)},
        lambda nodes: {"out": nodes.mailbox["m"].sort(1).values[:, 0] + nodes.mailbox["m"].cumsum(1)[:, -1]},
    )


def _uncaptured(inner: nn.Linear) -> tuple[Any, ...]:
    """Python that looks at numbers: no recording stands for it."""

    def message(edges: Any) -> dict[str, Tensor]:
        sent = inner(edges.src["h"])
        return {"m": sent * edges.src["z"] if edges.batch_size() != -1 and float(sent.detach().sum()) != 0.5 else sent}

    return message, lambda nodes: {"out": nodes.mailbox["m"].sum(1)}


def _dropping(inner: nn.Linear) -> tuple[Any, ...]:
    """Random numbers are drawn by the original ids of edges and nodes."""
    return (
        lambda edges: {"m": F.dropout(inner(edges.src["h"]), 0.4)},
        lambda nodes: {"out": F.dropout(nodes.mailbox["m"].sum(1), 0.3)},
    )


class Narrowing(nn.Module):
    """Functions that make rows of sources narrower, of which the narrow ones travel."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.gate = nn.Linear(WIDTH, 2), nn.Linear(2, CLASSES), nn.Linear(WIDTH, 1)

    def forward(self, g: vgraph.Graph, x: Tensor) -> Tensor:
        first, second, gate = self.first, self.second, self.gate
        with g.local_scope():
            g.ndata["x"] = x
            g.update_all(
                lambda edges: {"m": torch.tanh(first(edges.src["x"])), "s": gate(edges.src["x"]) * edges.data["w1"]},
                lambda nodes: {"h": (torch.softmax(nodes.mailbox["s"], 1) * nodes.mailbox["m"]).sum(1)},
            )
            g.apply_edges(lambda edges: {"k": torch.sigmoid(gate(edges.src["x"]) - gate(edges.dst["x"]))})
            g.update_all(
                lambda edges: {"m": second(F.dropout(edges.src["h"] * 2, 0.0)) * edges.data["k"]}, fn.max("m", "out")
            )
            return g.ndata["out"] + 0 * x[:, :1]


def _ids(inner: nn.Linear) -> tuple[Any, ...]:
    """What functions see of ids are those of the whole graph."""

    def message(edges: Any) -> dict[str, Tensor]:
        src, dst, ids = edges.edges()
        return {
            "m": inner(edges.src["h"]) * torch.sin(1.0 * src + 2.0 * dst + 3.0 * ids).unsqueeze(1).to(torch.float64)
        }

    return message, lambda nodes: {
        "out": nodes.mailbox["m"].sum(1) * torch.cos(1.0 * nodes.nodes()).unsqueeze(1).double()
    }


MODELS: dict[str, Callable[[], nn.Module]] = {
    "gcn": lambda: Layers(
        GraphConv(WIDTH, 4, allow_zero_in_degree=True), GraphConv(4, CLASSES, allow_zero_in_degree=True)
    ),
    "gat": lambda: Layers(
        GATConv(WIDTH, 3, 2, allow_zero_in_degree=True), GATConv(6, CLASSES, 1, allow_zero_in_degree=True)
    ),
    "sage": lambda: Layers(SAGEConv(WIDTH, 5, "pool"), SAGEConv(5, CLASSES, "pool")),
    "pna": lambda: Layers(  # not "std" or moments: roots of numbers near 0 magnify rounding errors
        PNAConv(WIDTH, 6, ["mean", "max"], ["identity", "amplification"], delta=1.5),
        PNAConv(6, CLASSES, ["sum", "min"], ["identity", "attenuation"], delta=1.5),
    ),
    "rgcn": lambda: Layers(
        RelGraphConv(WIDTH, 5, 3, "basis", num_bases=2), RelGraphConv(5, CLASSES, 3), "kind"
    ),
    "lambda": lambda: Function(_attending),
    "narrowing": Narrowing,
    "buckets": lambda: Function(_median),
    "uncaptured": lambda: Function(_uncaptured),
    "dropout": lambda: Function(_dropping),
    "ids": lambda: Function(_ids),
    "copy": lambda: Function(lambda inner: (fn.u_mul_e("h", "w1", "m"), fn.mean("m", "out"))),
}  # fmt: skip
