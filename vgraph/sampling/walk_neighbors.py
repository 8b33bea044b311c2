"""Neighbours by walks: who is met most often on random walks from a vertex (PinSAGE).

Takes: a graph, ids. Gives: a graph of the most important neighbours. Runs at every step.
Source: Ying et al. 2018, section 3.1 (importance-based neighbourhoods).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from vgraph.api.build.construct import heterograph
from vgraph.api.graph import Graph
from vgraph.arguments import COUNT, PART, POSITIVE, Bound, checked
from vgraph.errors import GraphError
from vgraph.graphs.draw.neighbors import select_topk
from vgraph.graphs.frame import resolve_ids
from vgraph.graphs.given import GRAPH
from vgraph.graphs.types import EType, Ids
from vgraph.sampling.walks import random_walk

PATH = Bound("a list of types of edges", lambda given: isinstance(given, (list, tuple)) and bool(given)).or_none()


class RandomWalkNeighborSampler:
    """Joins vertices to those that are met most often on walks that begin at them.

    Called with ids (k,), it gives a graph of one type with edges from who is met.

    Args:
        G: a graph on the CPU.
        num_traversals: how often a walk goes along the metapath at most.
        termination_prob: the chance to end before each time but the first.
        num_random_walks: how many walks from every vertex.
        num_neighbors: how many edges to every vertex, at most.
        metapath: types of edges that end where they begin; None: the only one.
        weight_column: the name of the feature of edges, int64 (edges,), that counts how often.

    Raises:
        ArgumentError: a number is outside of what it counts, or the chance outside of 0 to 1; the metapath is no list.
        GraphError: there are several types and no metapath, or it does not end where it begins.
        FunctionError: types of the metapath do not follow one another.
        NameLookupError: there is no such type or feature.

    Source: Ying et al. 2018, section 3.1; DGL 1.1, ``dgl.sampling.RandomWalkNeighborSampler``.

    Example:
        >>> import vgraph
        >>> from vgraph.sampling import RandomWalkNeighborSampler
        >>> ring = vgraph.graph(([0, 1, 2], [1, 2, 0]))
        >>> near = RandomWalkNeighborSampler(ring, 1, 0.0, 5, 2)([0])
        >>> near.edges(), near.edata["weights"]
        ((tensor([1]), tensor([0])), tensor([5]))
    """

    @checked(
        G=GRAPH,
        num_traversals=POSITIVE,
        termination_prob=PART,
        num_random_walks=COUNT,
        num_neighbors=COUNT,
        metapath=PATH,
    )
    def __init__(
        self,
        G: Graph,
        num_traversals: int,
        termination_prob: float,
        num_random_walks: int,
        num_neighbors: int,
        metapath: Sequence[EType] | None = None,
        weight_column: str = "weights",
    ) -> None:
        if metapath is None and len(G.canonical_etypes) > 1:
            raise GraphError("the graph has several types of edges", cure="give a metapath")
        path = [G.to_canonical_etype(etype) for etype in metapath or G.canonical_etypes]
        if path[0][0] != path[-1][2]:
            fact = f"the metapath leads from {path[0][0]!r} to {path[-1][2]!r}"
            raise GraphError(fact, cure="end it where it begins")
        self.G, self.ntype, self.weight_column = G, path[0][0], weight_column
        self.num_random_walks, self.num_neighbors, self.hops = num_random_walks, num_neighbors, len(path)
        self.metapath = path * num_traversals
        self.restart_prob = torch.zeros(len(self.metapath), device="cpu")
        self.restart_prob[self.hops :: self.hops] = termination_prob

    def __call__(self, seed_nodes: Ids) -> Graph:
        ids = resolve_ids(seed_nodes, self.G.num_nodes(self.ntype), torch.device("cpu"))
        seeds = ids.to(self.G.idtype).repeat_interleave(self.num_random_walks)
        walks, _ = random_walk(self.G, seeds, metapath=self.metapath, restart_prob=self.restart_prob)
        met = walks[:, self.hops :: self.hops]
        src, dst = met.flatten(), seeds.repeat_interleave(met.shape[1])
        ends = torch.stack([src, dst])[:, src >= 0].long()
        pairs, counts = torch.unique(ends, dim=1, return_counts=True)
        count = self.G.num_nodes(self.ntype)
        every = {(self.ntype, "_E", self.ntype): tuple(pairs.to(self.G.idtype))}
        near = heterograph(every, {self.ntype: count}, self.G.idtype)
        near.edata[self.weight_column] = counts
        found = select_topk(near, self.num_neighbors, self.weight_column)
        del found.edata["_ID"]
        return found


class PinSAGESampler(RandomWalkNeighborSampler):
    """Joins vertices of one type to those met most often on walks along the edges to another type and back.

    Called with ids (k,), it gives a graph of one type with edges from who is met.

    Args:
        G: a graph on the CPU.
        ntype: the type of vertices.
        other_type: the type in between.
        num_traversals: how often a walk goes there and back at most.
        termination_prob: the chance to end before each time but the first.
        num_random_walks: how many walks from every vertex.
        num_neighbors: how many edges to every vertex, at most.
        weight_column: the name of the feature of edges, int64 (edges,), that counts how often.

    Raises:
        ArgumentError: a number is outside of what it counts, or the chance outside of 0 to 1.
        GraphError: there are no edges there, or none back.

    Source: Ying et al. 2018, section 3.1; DGL 1.1, ``dgl.sampling.PinSAGESampler``.

    Example:
        >>> import vgraph
        >>> from vgraph.sampling import PinSAGESampler
        >>> ends = ([0, 1, 1], [0, 0, 1])
        >>> g = vgraph.heterograph({("item", "by", "user"): ends, ("user", "took", "item"): ends[::-1]})
        >>> PinSAGESampler(g, "item", "user", 2, 0.5, 10, 2)([0]).num_nodes()
        2
    """

    @checked(G=GRAPH, num_traversals=POSITIVE, termination_prob=PART, num_random_walks=COUNT, num_neighbors=COUNT)
    def __init__(
        self,
        G: Graph,
        ntype: str,
        other_type: str,
        num_traversals: int,
        termination_prob: float,
        num_random_walks: int,
        num_neighbors: int,
        weight_column: str = "weights",
    ) -> None:
        path = [
            next((t for t in G.canonical_etypes if (t[0], t[2]) == ends), None)
            for ends in ((ntype, other_type), (other_type, ntype))
        ]
        if None in path:
            fact = f"{ntype!r} and {other_type!r} are not joined both ways by {G.canonical_etypes}"
            raise GraphError(fact, cure="add the reverse edges as a type of their own")
        super().__init__(G, num_traversals, termination_prob, num_random_walks, num_neighbors, path, weight_column)
