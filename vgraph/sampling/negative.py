"""Negative samples: pairs of vertices that are, most likely or surely, not joined.

Takes: a graph, edges. Gives: pairs by edge type. Runs at every step.
Source: Mikolov et al. 2013, section 2.2; DGL's words.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from vgraph.api.graph import Graph
from vgraph.arguments import COUNT, checked
from vgraph.graphs.draw.random_numbers import below, draw, next_key
from vgraph.graphs.draw.unjoined_pairs import Pairs, global_uniform_negative_sampling
from vgraph.graphs.given import GRAPH
from vgraph.graphs.ids_by_type import edge_ids_by_type
from vgraph.graphs.types import Edges, EdgeType


class _NegativeSampler(ABC):
    @checked(g=GRAPH)
    def __call__(self, g: Graph, eids: Edges) -> Any:
        """(sources, destinations), by edge type where ``eids`` are so."""
        made = {etype: self._pairs(g, ids, etype) for etype, ids in edge_ids_by_type(g, eids).items()}
        if isinstance(eids, Mapping):
            return {key: made[g.to_canonical_etype(key)] for key in eids}
        return made[g.to_canonical_etype(None)]

    @abstractmethod
    def _pairs(self, g: Graph, eids: Tensor, etype: EdgeType) -> Pairs: ...


class Uniform(_NegativeSampler):
    """For every edge k pairs of its source and any destination of its type, which may be joined by chance.

    Called with a graph and ids of edges (edges,), or by edge type; gives (sources, destinations), each (edges * k,),
    by edge type where ids are so.

    Args:
        k: how many pairs an edge, from 0 up.

    Raises:
        ArgumentError: ``k`` is no whole number from 0 up.
        GraphError: an id is out of range, or ids have no type where there are several.
        NameLookupError: an unknown edge type.

    Source: DGL 1.1, ``dgl.dataloading.negative_sampler.Uniform``; Mikolov et al. 2013, section 2.2.

    Example:
        >>> import vgraph
        >>> from vgraph.sampling import Uniform
        >>> src, dst = Uniform(2)(vgraph.graph(([0, 1], [1, 2])), [0, 1])
        >>> src.tolist(), len(dst)
        ([0, 0, 1, 1], 4)
    """

    @checked(k=COUNT)
    def __init__(self, k: int) -> None:
        self.k = k

    def _pairs(self, g: Graph, eids: Tensor, etype: EdgeType) -> Pairs:
        topology = g.relation(etype)[0]
        src = topology.src.index_select(0, eids).repeat_interleave(self.k)
        drawn = draw(next_key(), np.arange(len(src)), 0)
        return src, torch.from_numpy(below(drawn, topology.num_dst)).to(g.idtype)


class GlobalUniform(_NegativeSampler):
    """k times as many pairs as edges, drawn among all that are not joined; fewer where they are hard to find.

    Called with a graph and ids of edges (edges,), or by edge type; gives (sources, destinations), by edge type
    where ids are so.

    Args:
        k: how many pairs an edge, from 0 up.
        exclude_self_loops: draw no pair of a vertex with itself, where both ends are of one type.
        replace: let a pair occur twice.

    Raises:
        ArgumentError: ``k`` is no whole number from 0 up.
        GraphError: an id is out of range, or ids have no type where there are several.
        NameLookupError: an unknown edge type.

    Source: DGL 1.1, ``dgl.dataloading.negative_sampler.GlobalUniform``.

    Example:
        >>> import vgraph
        >>> from vgraph.sampling import GlobalUniform
        >>> g = vgraph.graph(([0, 1], [1, 0]), num_nodes=3)
        >>> src, dst = GlobalUniform(1)(g, [0, 1])
        >>> g.has_edges_between(src, dst).any().item()
        False
    """

    @checked(k=COUNT)
    def __init__(self, k: int, exclude_self_loops: bool = True, replace: bool = False) -> None:
        self.k, self.exclude_self_loops, self.replace = k, exclude_self_loops, replace

    def _pairs(self, g: Graph, eids: Tensor, etype: EdgeType) -> Pairs:
        return global_uniform_negative_sampling(g, self.k * len(eids), self.exclude_self_loops, self.replace, etype)
