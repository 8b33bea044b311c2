"""Relational graph convolution over an RDF graph: what all sides compute, and DGL's ways to write it.

Two layers: vectors for each vertex and relation, as sums of bases, and a map a relation, from bases, too; cross
entropy at some vertices; Adam. Every side begins with the same numbers; the same optimizer, fused, steps all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sides.steps import Step
from sides.workloads import Data

BASES, HIDDEN = 30, 16


class Relational:
    """Types, factors and labels from files beside the edges; the first values of all parameters."""

    def __init__(self, data: Data) -> None:
        folder = Path(data.workload.folder)
        self.etypes, self.ids, self.labels = (
            torch.from_numpy(np.load(folder / f"{name}.npy")) for name in ("etypes", "ids", "labels")
        )
        self.norm = torch.from_numpy(np.load(folder / "norm.npy"))
        self.num_rels, self.num_classes = int(self.etypes.max()) + 1, int(self.labels.max()) + 1
        nodes, rels = data.num_nodes, self.num_rels
        self.values: Mapping[str, Tensor] = {
            "vectors": data.draw(1, nodes, BASES, HIDDEN, scale=0.01), "first": data.draw(2, rels, BASES, scale=0.2),
            "matrices": data.draw(3, BASES, HIDDEN, self.num_classes, scale=0.3),
            "second": data.draw(4, rels, BASES, scale=0.2),
        }  # fmt: skip

    def places_by_type(self) -> list[Tensor]:
        return [(self.etypes == i).nonzero().squeeze(1) for i in range(self.num_rels)]

    def training(self, run: Callable[[], Tensor], first: Iterable[Tensor], second: Iterable[Tensor]) -> Step:
        groups = [{"params": list(first), "weight_decay": 5e-4}, {"params": list(second)}]
        optimizer = torch.optim.Adam(groups, lr=0.01, fused=True)

        def step() -> list[Tensor]:
            loss = F.cross_entropy(run()[self.ids], self.labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            return [loss.detach()]

        return step


class OneGraph(nn.Module):
    """As DGL's layers: one graph, all types' vectors by one product, RelGraphConv on sorted edges."""

    def __init__(self, given: Relational, num_nodes: int, layer: nn.Module) -> None:
        super().__init__()
        values, self.num_nodes = given.values, num_nodes
        self.vectors = nn.Parameter(values["vectors"].transpose(0, 1).contiguous())
        self.first = nn.Parameter(values["first"].clone())
        layer.load_state_dict({"linear_r.W": values["matrices"], "linear_r.coeff": values["second"]})
        self.second = layer

    def forward(self, g: Any, given: Relational, fn: Any) -> Tensor:
        weight = (self.first @ self.vectors.flatten(1)).view(-1, HIDDEN)
        places = given.etypes * self.num_nodes

        def message(edges: Any) -> dict[str, Tensor]:
            rows = weight.index_select(0, edges.data["place"] + edges.src["id"])
            return {"m": rows * edges.data["norm"]}

        with g.local_scope():
            g.ndata["id"], g.edata["place"], g.edata["norm"] = torch.arange(self.num_nodes), places, given.norm
            g.update_all(message, fn.sum("m", "h"))
            h = torch.relu(g.ndata["h"])
        return self.second(g, h, given.etypes, given.norm, presorted=True)


class ManyGraphs(nn.Module):
    """As DGL's heterogeneous layers: a graph a relation, HeteroGraphConv over GraphConv, matrices from bases."""

    def __init__(self, given: Relational, g: Any, layers: Any) -> None:
        super().__init__()
        values, self.parts = given.values, [g[etype] for etype in g.canonical_etypes]
        self.mean = layers.GraphConv(1, 1, "right", weight=False, bias=False, allow_zero_in_degree=True)
        mapped = {e: layers.GraphConv(HIDDEN, given.num_classes, "right", weight=False, bias=False) for e in g.etypes}
        self.second = layers.HeteroGraphConv(mapped)
        self.vectors = nn.Parameter(values["vectors"].transpose(0, 1).contiguous())
        self.matrices = nn.Parameter(values["matrices"].clone())
        self.coefficients = nn.ParameterList([values["first"].clone(), values["second"].clone()])

    def forward(self, g: Any) -> Tensor:
        first, second = (
            (self.coefficients[i] @ bases.flatten(1)).view(-1, *bases.shape[1:])
            for i, bases in enumerate((self.vectors, self.matrices))
        )
        h = sum(self.mean(part, rows) for part, rows in zip(self.parts, first, strict=True))
        given = {e: {"weight": weight} for e, weight in zip(g.etypes, second, strict=True)}
        return self.second(g, {"_N": torch.relu(h)}, mod_kwargs=given)["_N"]
