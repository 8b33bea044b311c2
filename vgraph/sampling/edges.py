"""Edge prediction: blocks for both ends of some edges, and of pairs that are none.

Takes: a graph, ids of edges. Gives: input ids, a graph of pairs, another of negative ones, blocks. Runs at every
step. Source: Hamilton et al. 2017, section 3.2 (the loss on pairs); DGL's words.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from vgraph.api.build.construct import heterograph
from vgraph.api.graph import Graph
from vgraph.arguments import checked
from vgraph.errors import FunctionError
from vgraph.graphs.blocks import compact_graphs
from vgraph.graphs.draw.unjoined_pairs import Pairs
from vgraph.graphs.given import GRAPH
from vgraph.graphs.ids_by_type import edge_ids_by_type
from vgraph.graphs.mutation import ID
from vgraph.graphs.subgraph import edge_subgraph, gathering_lazily
from vgraph.graphs.types import Edges, EdgeType, Ids
from vgraph.sampling.given import FEATURES, check_sampler
from vgraph.sampling.samplers import BlockSampler, Names, Sampler, ShaDowKHopSampler, as_given, wanted_of_edges

EdgesByType = dict[EdgeType, Tensor]
Exclude = Callable[[Tensor | EdgesByType], Edges]
NegativeSampler = Callable[[Graph, Edges], Pairs | Mapping[str, Pairs] | Mapping[EdgeType, Pairs]]


class EdgePredictionSampler(Sampler):
    """Draws what a model needs that predicts edges: the graph of pairs, and blocks for their ends.

    The graphs of pairs have the same vertices, those that some pair needs; the feature ``"_ID"`` holds ids in the
    whole.

    Args:
        sampler: what draws the blocks for both ends.
        exclude: as in ``as_edge_prediction_sampler``.
        reverse_eids: the reverse of every edge, ids (edges,) (by edge type), for "reverse_id"; None for the others.
        reverse_etypes: the reverse of every edge type, for "reverse_types"; None for the others.
        negative_sampler: a function of a graph and edge ids that gives pairs for a second graph; None: there is none.
        prefetch_labels: names of features (by edge type) that go to the edges of the pair graph; None: none.

    Raises:
        ArgumentError: ``prefetch_labels`` are no names.
        FunctionError: there is no such ``exclude``, or it has no table; ``sampler`` has no ``sample``;
            ``negative_sampler`` is no function.

    Source: DGL 1.1, ``dgl.dataloading.EdgePredictionSampler``.

    Example:
        >>> import vgraph
        >>> from vgraph.sampling import EdgePredictionSampler, NeighborSampler
        >>> g = vgraph.graph(([0, 1, 2], [1, 2, 0]))
        >>> inputs, pairs, blocks = EdgePredictionSampler(NeighborSampler([2])).sample(g, [0])
        >>> pairs.num_edges(), pairs.ndata["_ID"].tolist()
        (1, [0, 1])
    """

    @checked(prefetch_labels=FEATURES)
    def __init__(
        self,
        sampler: BlockSampler | ShaDowKHopSampler,
        exclude: str | Exclude | None = None,
        reverse_eids: Ids | Mapping[str, Ids] | Mapping[EdgeType, Ids] | None = None,
        reverse_etypes: Mapping[str, str] | Mapping[EdgeType, EdgeType] | None = None,
        negative_sampler: NegativeSampler | None = None,
        prefetch_labels: Names = None,
    ) -> None:
        check_sampler(sampler)
        if negative_sampler is not None and not callable(negative_sampler):
            fact = f"negative_sampler is a {type(negative_sampler).__name__}"
            raise FunctionError(fact, cure="pass a function of a graph and edge ids, as vgraph.sampling.Uniform(5) is")
        if isinstance(exclude, str) and exclude not in ("self", "reverse_id", "reverse_types"):
            raise FunctionError(
                f"exclude is {exclude!r}", cure='pass "self", "reverse_id", "reverse_types", a function, or None'
            )
        if exclude == "reverse_id" and reverse_eids is None:
            raise FunctionError('exclude is "reverse_id" without reverse_eids', cure="give every edge's reverse")
        if exclude == "reverse_types" and reverse_etypes is None:
            raise FunctionError('exclude is "reverse_types" without reverse_etypes', cure="give types by type")
        self.sampler, self.exclude, self.negative_sampler = sampler, exclude, negative_sampler
        self.reverse_eids, self.reverse_etypes, self.prefetch_labels = reverse_eids, reverse_etypes, prefetch_labels

    @checked(g=GRAPH)
    def sample(self, g: Graph, indices: Edges) -> tuple[object, ...]:
        """A minibatch for some edges.

        Args:
            g: a graph on the CPU.
            indices: ids of edges (k,), by type where there are several.

        Returns:
            Input ids, the graph of pairs, with ``negative_sampler`` the graph of negative pairs, and the blocks.

        Raises:
            GraphError: an id is out of range, ids have no type where there are several, or the graph is not on the CPU.
            NameLookupError: there is no such type or feature.
            FunctionError: ``reverse_eids`` has not the reverse of every edge of a type that is to be predicted, or
                ``negative_sampler`` gives pairs without a type where there are several.
        """
        edges = edge_ids_by_type(g, indices)
        pairs = edge_subgraph(gathering_lazily(g), edges, relabel_nodes=False)
        graphs = [pairs]
        if self.negative_sampler is not None:
            graphs.append(self._negative_graph(g, indices))
        graphs = compact_graphs(graphs)
        seeds = as_given(g, {name: graphs[0].src_frames[name][ID] for name in g.ntypes})
        for want in wanted_of_edges(g, graphs[0], self.prefetch_labels):
            want.take_from(g)
        given, _, blocks = self.sampler.sample(g, seeds, self.excluded(g, edges))
        return given, *graphs, blocks

    def _negative_graph(self, g: Graph, indices: Edges) -> Graph:
        assert self.negative_sampler is not None
        made = self.negative_sampler(g, indices)
        if not isinstance(made, Mapping):
            if len(g.canonical_etypes) != 1:
                fact = "negative_sampler gives pairs without a type in a graph of several"
                raise FunctionError(fact, cure="let it give pairs by edge type: {etype: (sources, destinations)}")
            made = {g.canonical_etypes[0]: made}
        ends = {g.to_canonical_etype(key): pair for key, pair in made.items()}
        nothing = torch.empty(0, dtype=g.idtype, device=g.device)
        every = {etype: ends.get(etype, (nothing, nothing)) for etype in g.canonical_etypes}
        return heterograph(every, num_nodes_dict={name: g.num_nodes(name) for name in g.ntypes}, idtype=g.idtype)

    def excluded(self, g: Graph, edges: Mapping[EdgeType, Tensor]) -> Edges | None:
        """Ids by type that messages must not go along: they are what is to be predicted.

        Args:
            g: the graph that the edges are of.
            edges: ids (k,) by edge type.

        Returns:
            Ids by edge type, or what the program's own function gives; None: all edges may be used.

        Raises:
            FunctionError: ``reverse_eids`` has not the reverse of every edge of a type that is named.
        """
        if self.exclude is None:
            return None
        if callable(self.exclude):
            return self.exclude(dict(edges) if len(g.canonical_etypes) > 1 else next(iter(edges.values())))
        found = {key: [ids] for key, ids in edges.items()}
        if self.exclude == "reverse_id":
            for key, ids in edges.items():
                found[key].append(self._reverses(key, g.num_edges(key))[ids].long())
        elif self.exclude == "reverse_types":
            assert self.reverse_etypes is not None
            for key, ids in edges.items():
                if (named := _key_in(self.reverse_etypes, key)) is not None:
                    found.setdefault(g.to_canonical_etype(self.reverse_etypes[named]), []).append(ids)
        return {key: torch.cat(parts) for key, parts in found.items()}

    def _reverses(self, etype: EdgeType, num_edges: int) -> Tensor:
        """The reverse of every edge of a type, as ``reverse_eids`` has it."""
        given = self.reverse_eids
        if isinstance(given, Mapping):
            key = _key_in(given, etype)
            if key is None:
                raise FunctionError(
                    f"reverse_eids has nothing for edges of type {etype[1]!r}", cure="name this type, too"
                )
            given = given[key]
        table = torch.as_tensor(given, device="cpu")
        if len(table) != num_edges:
            fact = f"reverse_eids has {len(table)} ids for {num_edges} edges of type {etype[1]!r}"
            raise FunctionError(fact, cure="give the reverse of every edge")
        return table


def _key_in(table: Mapping[Any, object], etype: EdgeType) -> Any:
    return next((key for key in (etype, etype[1]) if key in table), None)


def as_edge_prediction_sampler(
    sampler: BlockSampler | ShaDowKHopSampler,
    exclude: str | Exclude | None = None,
    reverse_eids: Ids | Mapping[str, Ids] | Mapping[EdgeType, Ids] | None = None,
    reverse_etypes: Mapping[str, str] | Mapping[EdgeType, EdgeType] | None = None,
    negative_sampler: NegativeSampler | None = None,
    prefetch_labels: Names = None,
) -> EdgePredictionSampler:
    """A sampler of blocks made into one for edges.

    Args:
        sampler: what draws the blocks for both ends.
        exclude: edges along which no message may go: "self", those to be predicted; "reverse_id", also their
            reverses, ``reverse_eids[edge id]``; "reverse_types", also those of the same ids and of the type
            ``reverse_etypes[type]``; a function of ids to ids; None: none.
        reverse_eids: the reverse of every edge, ids (edges,) (by edge type), for "reverse_id"; None for the others.
        reverse_etypes: the reverse of every edge type, for "reverse_types"; None for the others.
        negative_sampler: a function of a graph and edge ids that gives pairs for a second graph, which shares its
            vertices with the first; None: there is none.
        prefetch_labels: names of features (by edge type) that go to the edges of the pair graph; None: none.

    Returns:
        An EdgePredictionSampler.

    Raises:
        FunctionError: an unknown ``exclude``, or one without its table.

    Source: DGL 1.1, ``dgl.dataloading.as_edge_prediction_sampler``.

    Example:
        >>> import vgraph
        >>> from vgraph.sampling import NeighborSampler, Uniform, as_edge_prediction_sampler
        >>> g = vgraph.graph(([0, 1, 2], [1, 2, 0]))
        >>> sampler = as_edge_prediction_sampler(NeighborSampler([2]), "self", negative_sampler=Uniform(1))
        >>> inputs, pairs, negatives, blocks = sampler.sample(g, [0])
        >>> blocks[0].num_edges() + (blocks[0].edata["_ID"] == 0).sum().item() == blocks[0].num_edges()
        True
    """
    return EdgePredictionSampler(sampler, exclude, reverse_eids, reverse_etypes, negative_sampler, prefetch_labels)
