"""Negative samples: pairs of vertices that are, most likely or surely, not joined.

Takes: a graph, edges. Gives: pairs by edge type; tempo: every step.
Source: Mikolov et al. 2013, section 2.2; DGL's words.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from vgraph.api.graph import Graph, method
from vgraph.errors import FunctionError, GraphError
from vgraph.graphs.data import EdgeType
from vgraph.sampling.draws import below, draw, next_key

Pairs = tuple[Tensor, Tensor]


class _NegativeSampler:
    def __call__(self, g: Graph, eids: Any) -> Any:
        """(sources, destinations), by edge type where ``eids`` are so."""
        if isinstance(eids, Mapping):
            return {key: self._pairs(g, ids, g.to_canonical_etype(key)) for key, ids in eids.items()}  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
        if len(g.canonical_etypes) != 1:
            raise FunctionError("edges without a type in a graph of several", cure="give a dict by edge type")
        return self._pairs(g, torch.as_tensor(eids), g.canonical_etypes[0])

    def _pairs(self, g: Graph, eids: Tensor, etype: EdgeType) -> Pairs:
        raise NotImplementedError


def _checked(k: int) -> int:
    if k < 0:
        raise GraphError(f"k is {k}", cure="pass how many pairs an edge, from 0 up")
    return k


class Uniform(_NegativeSampler):
    """For every edge k pairs of its source and any destination of its type, which may be joined by chance.

    Called with a graph and ids of edges (edges,), or by edge type; gives (sources, destinations), each (edges * k,),
    by edge type where ids are so.

    Raises:
        GraphError: ``k`` is below 0. FunctionError: ids without a type in a graph of several.
        NameLookupError: an unknown edge type.

    Source: DGL 1.1, ``dgl.dataloading.negative_sampler.Uniform``; Mikolov et al. 2013, section 2.2.

    >>> import vgraph
    >>> from vgraph.sampling import Uniform
    >>> src, dst = Uniform(2)(vgraph.graph(([0, 1], [1, 2])), [0, 1])
    >>> src.tolist(), len(dst)
    ([0, 0, 1, 1], 4)
    """

    def __init__(self, k: int) -> None:
        self.k = _checked(k)

    def _pairs(self, g: Graph, eids: Tensor, etype: EdgeType) -> Pairs:
        topology = g.relation(etype)[0]
        src = topology.src.index_select(0, eids.long()).repeat_interleave(self.k)
        drawn = draw(next_key(), np.arange(len(src)), 0)
        return src, torch.from_numpy(below(drawn, topology.num_dst)).to(g.idtype)


class GlobalUniform(_NegativeSampler):
    """k times as many pairs as edges, drawn among all that are not joined; fewer where they are hard to find.

    Called with a graph and ids of edges (edges,), or by edge type; gives (sources, destinations), by edge type
    where ids are so.

    Raises:
        GraphError: ``k`` is below 0. FunctionError: ids without a type in a graph of several.
        NameLookupError: an unknown edge type.

    Source: DGL 1.1, ``dgl.dataloading.negative_sampler.GlobalUniform``.

    >>> import vgraph
    >>> from vgraph.sampling import GlobalUniform
    >>> g = vgraph.graph(([0, 1], [1, 0]), num_nodes=3)
    >>> src, dst = GlobalUniform(1)(g, [0, 1])
    >>> g.has_edges_between(src, dst).any().item()
    False
    """

    def __init__(self, k: int, exclude_self_loops: bool = True, replace: bool = False) -> None:
        self.k, self.exclude_self_loops, self.replace = _checked(k), exclude_self_loops, replace

    def _pairs(self, g: Graph, eids: Tensor, etype: EdgeType) -> Pairs:
        return global_uniform_negative_sampling(g, self.k * len(eids), self.exclude_self_loops, self.replace, etype)


@method
def global_uniform_negative_sampling(
    g: Graph,
    num_samples: int,
    exclude_self_loops: bool = True,
    replace: bool = False,
    etype: Any = None,
    redundancy: float | None = None,
) -> Pairs:
    """Up to ``num_samples`` pairs (sources, destinations) that no edge of the type joins.

    Args:
        exclude_self_loops: no pair of a vertex with itself, where both ends are of one type.
        replace: whether a pair may occur twice.
        redundancy: how many times as many are drawn, of which the joined ones fall out; by default 1.3.

    Returns:
        (sources, destinations), each (pairs,), of the graph's dtype of ids.

    Raises:
        NameLookupError: an unknown edge type.

    Source: DGL 1.1, ``dgl.sampling.global_uniform_negative_sampling``.

    >>> import vgraph
    >>> from vgraph.sampling import global_uniform_negative_sampling
    >>> g = vgraph.graph(([0, 1, 2], [1, 2, 0]), num_nodes=100)
    >>> src, dst = global_uniform_negative_sampling(g, 5)
    >>> len(src)
    5
    """
    key = g.to_canonical_etype(etype) if etype is not None else g.canonical_etypes[0]
    topology = g.relation(key)[0]
    found = np.empty((0, 2), np.int64)
    if not topology.num_src * topology.num_dst:
        return torch.empty(0, dtype=g.idtype), torch.empty(0, dtype=g.idtype)
    for _ in range(20):  # a graph that is nearly complete has few such pairs
        missing = num_samples - len(found)
        if missing <= 0:
            break
        numbers, drawn_key = np.arange(int(missing * (redundancy or 1.3)) + 8), next_key()
        src, dst = (below(draw(drawn_key, numbers, i), n) for i, n in enumerate((topology.num_src, topology.num_dst)))
        ends = torch.from_numpy(src).to(g.idtype), torch.from_numpy(dst).to(g.idtype)
        is_good = ~torch.as_tensor(g.has_edges_between(*ends, etype=key)).numpy()
        if exclude_self_loops and key[0] == key[2]:
            is_good &= src != dst
        found = np.concatenate([found, np.stack([src, dst], 1)[is_good]])
        if not replace:
            found = found[np.sort(np.unique(found, axis=0, return_index=True)[1])]
    pairs = torch.from_numpy(found[:num_samples]).to(g.idtype)
    return pairs[:, 0].contiguous(), pairs[:, 1].contiguous()
