"""The numbers of a workload on a device: drawn as for every other side, then moved."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import torch
from sides.workloads import Data, Workload, draw_edges
from torch import Tensor

import vgraph

_MANY = 1 << 22  # edges
_last: dict[tuple[Any, ...], vgraph.Graph] = {}  # the last large graph: other widths go on with it


class DeviceData(Data):
    """As Data, without files; a large graph is drawn on the device itself."""

    def __init__(self, workload: Workload, device: str) -> None:
        self.workload, self.num_nodes, self.device = workload, workload.nodes, device
        key = (*self._wanted, device)
        if workload.edges >= _MANY and key not in _last:
            _last.clear()
            _last[key] = self._graph()
        graph = _last[key] if workload.edges >= _MANY else self._graph()
        self.graph: vgraph.Graph = graph.local_var()
        self.src, self.dst = self.graph.edges()

    def _graph(self) -> vgraph.Graph:
        if self.device in ("cpu", "meta") or self.workload.edges < _MANY:
            src, dst = (torch.from_numpy(end) for end in draw_edges(*self._wanted))
        else:
            draw = torch.Generator(self.device).manual_seed(0)
            src, dst = self._end(draw), self._end(draw)
        return vgraph.graph((src, dst), num_nodes=self.num_nodes).to(self.device)

    @property
    def _wanted(self) -> tuple[int, int, str]:
        return self.workload.nodes, self.workload.edges, self.workload.law

    def _end(self, draw: torch.Generator) -> Tensor:
        """The r-th of the shuffled vertices weighs r ** (-1 / 1.2)."""
        nodes, edges, _ = self._wanted
        ranks = torch.arange(1, nodes + 1, device=self.device, dtype=torch.float64)
        share = (ranks ** (-1 / 1.2)).cumsum(0)
        shuffled = torch.randperm(nodes, generator=draw, device=self.device)
        parts: list[Tensor] = []
        for low in range(0, edges, 1 << 24):
            count = min(1 << 24, edges - low)
            at = torch.rand(count, generator=draw, device=self.device, dtype=torch.float64) * share[-1]
            parts.append(shuffled[torch.searchsorted(share, at).clamp_(max=nodes - 1)])
        return torch.cat(parts)

    def draw(self, seed: int, *shape: int, scale: float = 1.0) -> Tensor:
        return super().draw(seed, *shape, scale=scale).to(self.device)

    @cached_property
    def x(self) -> Tensor:
        return self.draw(1, self.num_nodes, self.sizes[0])

    @cached_property
    def y(self) -> Tensor:
        return self.draw(2, self.num_nodes, self.sizes[-1]).argmax(1)

    @cached_property
    def edge_weight(self) -> Tensor:
        return self.draw(4, self.num_edges, 1).sigmoid()
