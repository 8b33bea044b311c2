"""A graph divided into parts in memory, with what ``PartitionedGraph`` offers: for tests of what is made of it."""

from __future__ import annotations

from functools import cache
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

import vgraph


class InMemory:
    """``parts_of``: by node type the part of every node."""

    def __init__(self, g: vgraph.Graph, parts_of: dict[str, Tensor], num_parts: int, digest: str = "0" * 64) -> None:
        self.g, self.num_parts, self.digest = g, num_parts, digest
        self.ntypes, self.canonical_etypes = list(g.ntypes), list(g.canonical_etypes)
        self.order = {t: torch.argsort(parts_of[t], stable=True) for t in self.ntypes}
        self._bounds = {
            t: torch.tensor([0, *torch.bincount(parts_of[t], minlength=num_parts).cumsum(0).tolist()])
            for t in self.ntypes
        }
        self.part = cache(self._part)

    def bounds(self, ntype: str) -> Tensor:
        return self._bounds[ntype]

    def num_nodes(self, ntype: str) -> int:
        return self.g.num_nodes(ntype)

    def num_edges(self, etype: Any) -> int:
        return self.g.num_edges(etype)

    def edge_bounds(self, etype: Any) -> Tensor:
        return torch.tensor([0, *torch.tensor([len(self.part(p).src(etype)) for p in range(self.num_parts)]).cumsum(0)])

    def node_schemes(self, ntype: str) -> dict[str, Any]:
        return dict(self.g.nodes[ntype].data)

    def edge_schemes(self, etype: Any) -> dict[str, Any]:
        return dict(self.g.edges[etype].data)

    def new_ids(self, ntype: str) -> Tensor:
        return torch.argsort(self.order[ntype])

    def owners(self, ntype: str, new_ids: Tensor) -> Tensor:
        return torch.searchsorted(self.bounds(ntype), new_ids, right=True) - 1

    def _part(self, p: int) -> Any:
        own = {t: self.order[t][self._bounds[t][p] : self._bounds[t][p + 1]] for t in self.ntypes}

        @cache
        def edges(etype: Any) -> tuple[Tensor, Tensor, Tensor]:
            src, dst = self.g.edges(etype=etype)
            new_src, new_dst = self.new_ids(etype[0])[src], self.new_ids(etype[2])[dst]
            first, last = self._bounds[etype[2]][p], self._bounds[etype[2]][p + 1]
            eid = ((new_dst >= first) & (new_dst < last)).nonzero().squeeze(1)
            eid = eid[torch.argsort(new_dst[eid], stable=True)]
            counts = torch.bincount(new_dst[eid] - first, minlength=int(last - first))
            ptr = torch.cat([torch.zeros(1, dtype=torch.int64), counts.cumsum(0)])
            return ptr, new_src[eid], eid

        return SimpleNamespace(
            orig=lambda t: own[t],
            ptr=lambda e: edges(e)[0],
            src=lambda e: edges(e)[1],
            eid=lambda e: edges(e)[2],
            outdeg=lambda e: self.g.out_degrees(etype=e)[own[e[0]]],
            node_data=lambda t, n: self.g.nodes[t].data[n][own[t]],
            edge_data=lambda e, n: self.g.edges[e].data[n][edges(e)[2]],
        )
