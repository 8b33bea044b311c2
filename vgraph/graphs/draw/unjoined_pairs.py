"""Pairs of vertices that no edge joins, drawn until there are enough.

Takes: a graph, how many. Gives: ends of pairs; runs every step.
Source: Mikolov et al. 2013, section 2.2; DGL's words.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from vgraph.arguments import COUNT, checked, real
from vgraph.graphs.draw.random_numbers import below, draw, next_key
from vgraph.graphs.given import GRAPH
from vgraph.graphs.graph_data import GraphData
from vgraph.graphs.types import EType

Pairs = tuple[Tensor, Tensor]

TIMES = real("a number above 0, 1000 at most", lambda number: 0 < number <= 1000)


@checked(g=GRAPH, num_samples=COUNT, redundancy=TIMES.or_none())
def global_uniform_negative_sampling(
    g: GraphData,
    num_samples: int,
    exclude_self_loops: bool = True,
    replace: bool = False,
    etype: EType = None,
    redundancy: float | None = None,
) -> Pairs:
    """Up to ``num_samples`` pairs (sources, destinations) that no edge of the type joins.

    Args:
        g: a graph.
        num_samples: how many pairs.
        exclude_self_loops: draw no pair of a node with itself, where both ends are of one type.
        replace: let a pair occur twice.
        etype: the type of edges, a name or a triple; None: the first.
        redundancy: how many times as many are drawn, of which the joined ones fall out; None: 1.3.

    Returns:
        Sources and destinations, each (pairs,) in the dtype of ids. There are fewer than asked for where the graph is
        nearly complete.

    Raises:
        ArgumentError: ``num_samples`` is no whole number from 0 up, or ``redundancy`` not above 0, or above 1000.
        NameLookupError: there is no such type.
        GraphError: there are several types of that name.

    Source: Mikolov et al. 2013, section 2.2; DGL 1.1, ``dgl.sampling.global_uniform_negative_sampling``.

    Example:
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
    for _ in range(20 if topology.num_src * topology.num_dst else 0):  # one that is nearly complete has few such pairs
        missing = num_samples - len(found)
        if missing <= 0:
            break
        numbers, drawn_key = np.arange(int(missing * (redundancy or 1.3)) + 8), next_key()
        src, dst = (below(draw(drawn_key, numbers, i), n) for i, n in enumerate((topology.num_src, topology.num_dst)))
        ends = torch.from_numpy(src).to(g.idtype), torch.from_numpy(dst).to(g.idtype)
        joined: Tensor = g.has_edges_between(*ends, etype=key)
        is_good = ~joined.numpy()
        if exclude_self_loops and key[0] == key[2]:
            is_good &= src != dst
        found = np.concatenate([found, np.stack([src, dst], 1)[is_good]])
        if not replace:
            found = found[np.sort(np.unique(found, axis=0, return_index=True)[1])]
    pairs = torch.from_numpy(found[:num_samples]).to(g.idtype)
    return pairs[:, 0].contiguous(), pairs[:, 1].contiguous()
