"""Collators: minibatches of a list of items, for torch's own ``DataLoader``.

Takes: ids of nodes or edges, or samples. Gives: what a sampler makes of them, or batches. Runs at every step.
Source: DGL 1.1, ``dgl.dataloading`` (``NodeCollator``, ``EdgeCollator``, ``GraphCollator``).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, TypeAlias

import torch
from torch import Tensor

import vgraph
from vgraph.graphs.frame import resolve_ids
from vgraph.graphs.types import Edges, EdgeType, Ids, Nodes
from vgraph.sampling import BlockSampler, EdgePredictionSampler
from vgraph.sampling.edges import Exclude, NegativeSampler
from vgraph.sampling.loader import collate
from vgraph.sampling.samplers import Minibatch

_CPU = torch.device("cpu")
Item: TypeAlias = int | Tensor | tuple[Hashable, int | Tensor]


class Collator(ABC):
    """Has items, and makes a minibatch of some of them."""

    @property
    @abstractmethod
    def dataset(self) -> Sequence[Item] | Tensor:
        """The items: ids, or pairs of a type and an id."""

    @abstractmethod
    def collate(self, items: Sequence[Item]) -> object:
        """A minibatch of some items."""


class _IdCollator(Collator):
    def __init__(self, ids: Nodes | Edges, count: Callable[..., int], kind: str) -> None:
        """``count``: how many ids a type has, or the graph where there are no types; ``kind``: what they are ids of."""
        self._dataset: Sequence[Item] | Tensor = (
            [(key, one) for key, some in ids.items() for one in resolve_ids(some, count(key), _CPU, kind)]
            if isinstance(ids, Mapping)
            else resolve_ids(ids, count(None), _CPU, kind)
        )

    @property
    def dataset(self) -> Sequence[Item] | Tensor:
        """The items: ids, or pairs of a type and an id."""
        return self._dataset


def _joined(items: Sequence[Item]) -> Any:
    """Ids as one tensor, by type where items are pairs."""
    by_type: dict[Hashable, list[int]] = {}
    alone: list[int] = []
    for item in items:
        if isinstance(item, tuple):
            by_type.setdefault(item[0], []).append(int(item[1]))
        else:
            alone.append(int(item))
    return {key: torch.tensor(ids) for key, ids in by_type.items()} if by_type else torch.tensor(alone)


class NodeCollator(_IdCollator):
    """Blocks for some of the nodes."""

    def __init__(self, g: vgraph.Graph, nids: Nodes, graph_sampler: BlockSampler) -> None:
        super().__init__(nids, g.num_nodes, "node")
        self.g, self.nids, self.graph_sampler = g, nids, graph_sampler

    def collate(self, items: Sequence[Item]) -> object:
        """Input ids, output ids and the blocks."""
        return self.graph_sampler.sample(self.g, _joined(items))


class EdgeCollator(_IdCollator):
    """The graph of some edges, of negative pairs where there is a sampler of them, and blocks for all ends.

    ``g_sampling``: the graph that blocks are drawn from, if that is another; nothing is left out of it.
    """

    def __init__(
        self,
        g: vgraph.Graph,
        eids: Edges,
        graph_sampler: BlockSampler,
        g_sampling: vgraph.Graph | None = None,
        exclude: str | Exclude | None = None,
        reverse_eids: Ids | Mapping[str, Ids] | Mapping[EdgeType, Ids] | None = None,
        reverse_etypes: Mapping[str, str] | Mapping[EdgeType, EdgeType] | None = None,
        negative_sampler: NegativeSampler | None = None,
    ) -> None:
        super().__init__(eids, g.num_edges, "edge")
        self.g, self.eids, self.g_sampling = g, eids, g if g_sampling is None else g_sampling
        left_out = exclude if g_sampling is None else None
        drawn_from = graph_sampler if g_sampling is None else _Elsewhere(graph_sampler, g_sampling)
        self.graph_sampler = EdgePredictionSampler(drawn_from, left_out, reverse_eids, reverse_etypes, negative_sampler)

    def collate(self, items: Sequence[Item]) -> object:
        """Input ids, the graph of the edges, with a sampler of negative pairs their graph, and the blocks."""
        return self.graph_sampler.sample(self.g, _joined(items))


class _Elsewhere(BlockSampler):
    """Draws from another graph than it is given."""

    def __init__(self, sampler: BlockSampler, g: vgraph.Graph) -> None:
        super().__init__()
        self._sampler, self._g = sampler, g

    def sample(self, g: vgraph.Graph, indices: Nodes, exclude_eids: Edges | None = None) -> Minibatch:
        """A minibatch of the other graph."""
        return self._sampler.sample(self._g, indices, exclude_eids)


class GraphCollator:
    """Batches of samples, member by member: graphs are batched, all else is stacked."""

    def collate(self, items: list[object]) -> object:
        """One minibatch of several samples."""
        return collate(items)
