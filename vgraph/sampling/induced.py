"""Induced samples: the subgraph of vertices that are drawn from the whole graph (GraphSAINT).

Takes: a graph. Gives: a subgraph a minibatch. Runs at every step.
Source: Zeng et al. 2020, section 3.4 (samplers of nodes, edges and walks).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from vgraph.api.graph import Graph
from vgraph.arguments import COUNT, checked
from vgraph.errors import FunctionError, GraphError
from vgraph.graphs.draw.random_numbers import next_key
from vgraph.graphs.given import GRAPH
from vgraph.graphs.subgraph import gathering_lazily
from vgraph.graphs.types import Device
from vgraph.ir.topology import Topology
from vgraph.sampling.given import FEATURES, known_device
from vgraph.sampling.samplers import Names, Sampler, wanted_of
from vgraph.sampling.walks import pack_traces, random_walk

_CURE = "leave out graphs that have none"


def _check_budget(mode: str, budget: object) -> None:
    counts = tuple(budget) if isinstance(budget, (tuple, list)) else (budget,)
    if len(counts) != (2 if mode == "walk" else 1) or not all(map(COUNT.accepts, counts)):
        cure = "give how many walks, and how long: (100, 2)" if mode == "walk" else "give how many draws"
        raise FunctionError(f"the budget is {budget!r}", cure=cure)


class SAINTSampler(Sampler):
    """The subgraph of vertices drawn by out-degree ("node"), of ends of edges ("edge") or of walks ("walk").

    Args:
        mode: "node", "edge" or "walk".
        budget: how many draws a minibatch; for walks a pair, how many and how long.
        cache: keep the chances of being drawn, for the graph that was sampled last.
        prefetch_ndata: names of features (by type) of nodes that are gathered ahead; the others are when they are
            read. None: none.
        prefetch_edata: names of features (by edge type) of edges that are gathered ahead; None: none.
        output_device: where the subgraph goes.

    Raises:
        FunctionError: another mode, or a budget that is not what this one takes.

    Source: Zeng et al. 2020, section 3.4; DGL 1.1, ``dgl.dataloading.SAINTSampler``.

    Example:
        >>> import torch, vgraph
        >>> from vgraph.sampling import DataLoader, SAINTSampler
        >>> g = vgraph.graph((torch.arange(30), torch.arange(1, 31) % 30))
        >>> [part.num_nodes() <= 10 for part in DataLoader(g, torch.arange(3), SAINTSampler("node", 10))]
        [True, True, True]
    """

    @checked(prefetch_ndata=FEATURES, prefetch_edata=FEATURES)
    def __init__(
        self,
        mode: str,
        budget: Any,
        cache: bool = True,
        prefetch_ndata: Names = None,
        prefetch_edata: Names = None,
        output_device: Device = "cpu",
    ) -> None:
        if mode not in ("node", "edge", "walk"):
            raise FunctionError(f"mode is {mode!r}", cure='pass "node", "edge" or "walk"')
        _check_budget(mode, budget)
        self.mode, self.budget, self.cache, self.output_device = mode, budget, cache, known_device(output_device)
        self.prefetch_ndata, self.prefetch_edata = prefetch_ndata, prefetch_edata
        self._known: tuple[Topology, Tensor] | None = None

    @checked(g=GRAPH)
    def sample(self, g: Graph, indices: object) -> Graph:
        """A subgraph of what is drawn.

        Args:
            g: a graph on the CPU.
            indices: ignored, as they only count minibatches.

        Returns:
            A graph of the same class, whose feature ``"_ID"`` holds ids in ``g``.

        Raises:
            GraphError: there is nothing to draw.
        """
        part = gathering_lazily(g).subgraph(self._drawn(g).unique().to(g.idtype))
        for want in wanted_of(g, part, self.prefetch_ndata, self.prefetch_edata):
            want.take_from(g)
        return part if self.output_device is None else part.to(self.output_device)

    def _drawn(self, g: Graph) -> Tensor:
        draws = torch.Generator("cpu").manual_seed(next_key() >> 1)
        if not g.num_nodes() and self.mode == "walk":
            raise GraphError("the graph has no node to walk from", cure=_CURE)
        if self.mode == "walk":
            roots = torch.randint(0, g.num_nodes(), (self.budget[0],), generator=draws, device="cpu")
            return pack_traces(*random_walk(g, roots, length=self.budget[1]))[0]
        sums = self._summed_chances(g)
        if not len(sums):
            raise GraphError(f"the graph has no {self.mode} to draw", cure=_CURE)
        places = torch.rand(self.budget, dtype=torch.float64, generator=draws, device="cpu") * sums[-1]
        drawn = torch.searchsorted(sums, places, right=True).clamp(max=len(sums) - 1)
        return drawn if self.mode == "node" else torch.cat([end[drawn] for end in g.edges()])

    def _summed_chances(self, g: Graph) -> Tensor:
        """Cumulative sums of the nodes' (edges') chances, which hold as long as the graph's edges are the same.

        ``torch.multinomial`` does this, for 2**24 chances at most.
        """
        topology = g.relation()[0]
        known = self._known
        if known is None or known[0] is not topology:
            known = topology, self._chances_of(g).cumsum(0, dtype=torch.float64)
            self._known = known if self.cache else None
        return known[1]

    def _chances_of(self, g: Graph) -> Tensor:
        out, into = (degrees.float().clamp(min=1) for degrees in (g.out_degrees(), g.in_degrees()))
        if self.mode == "node":
            return out
        src, dst = (end.long() for end in g.edges())
        return out[src].reciprocal() + into[dst].reciprocal()
