"""Loader: batches of graphs, prepared by a thread while the last one is computed.

Takes: graphs. Gives: batched graphs whose frontiers, where they have any, are known. Runs at every step.
Source: Cavs section 3.5 (streaming: what the next batch needs overlaps with this one's arithmetic).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Generic, TypeVar, cast

import torch

from vgraph.api.graph import Graph
from vgraph.api.serving.collate import collate, graphs_in
from vgraph.api.serving.prefetch import prefetched
from vgraph.arguments import COUNT, POSITIVE, checked
from vgraph.compiler import level_schedule, levels
from vgraph.errors import CycleError, FunctionError, GraphError

_DIRECTIONS = {None: (False,), "forward": (False,), "reverse": (True,), "both": (False, True)}
Sample = TypeVar("Sample")
WINDOW = 32  # batches among whose graphs those of like height are put together


class GraphLoader(Generic[Sample]):
    """Batches of graphs, their features along, in random order or as they stand.

    Args:
        graphs: with features in their frames; or samples, which are tuples, lists or mappings with a graph and what
            stands beside it, such as a label. A minibatch has the same members: graphs batched, numbers and tensors
            stacked. The levels of graphs are computed once and kept.
        batch_size: graphs a batch; the last batch of an epoch may have fewer.
        shuffle: a new order every epoch, from torch's generator.
        by_height: put graphs of like height into one batch (of 32 batches' graphs at a time): as many vertices then
            take fewer frontiers. Batches, not graphs, are shuffled then.
        prefetch: batches that a thread prepares ahead; 0 prepares each when it is asked for.
        direction: along which edges frontiers are prepared: "forward", "reverse" or "both"; None: forward, in batches
            without a cycle. Messages need no frontiers; a vertex function refuses a batch with a cycle.

    Raises:
        ArgumentError: the size of a batch is below 1, or ``prefetch`` below 0.
        GraphError: there is no such direction.
        CycleError: where there is a ``direction``, or ``by_height``, a graph has a cycle.
        FunctionError: a sample has no graph.

    Source: Xu et al. 2018 (Cavs), section 3.5 (streaming); the words are those of torch's ``DataLoader``.

    Example:
        >>> import torch, vgraph
        >>> tree = vgraph.graph(([0, 1], [2, 2]))
        >>> [len(g.batch_num_nodes()) for g in vgraph.GraphLoader([tree] * 5, 2)]
        [2, 2, 1]
        >>> samples = [(tree, label) for label in (1, 0, 1)]
        >>> [labels.tolist() for g, labels in vgraph.GraphLoader(samples, 2)]
        [[1, 0], [1]]
    """

    @checked(batch_size=POSITIVE, prefetch=COUNT)
    def __init__(
        self,
        graphs: Sequence[Sample],
        batch_size: int,
        *,
        shuffle: bool = False,
        by_height: bool = False,
        prefetch: int = 2,
        direction: str | None = None,
    ) -> None:
        if direction not in _DIRECTIONS:
            cure = "forward, reverse or both"
            raise GraphError(f"there is no direction {direction!r}", cure=cure)
        self.graphs, self.batch_size = graphs, batch_size
        self.shuffle, self.by_height, self.prefetch, self.direction = shuffle, by_height, prefetch, direction

    def __len__(self) -> int:
        return (len(self.graphs) + self.batch_size - 1) // self.batch_size

    def __iter__(self) -> Iterator[Sample]:
        return prefetched(self._prepare, self._plans(), num_workers=int(self.prefetch > 0), ahead=self.prefetch)

    def _plans(self) -> list[list[int]]:
        """Which graphs each batch of an epoch holds."""
        count, size = len(self.graphs), self.batch_size
        order = torch.randperm(count, device="cpu").tolist() if self.shuffle else list(range(count))
        if self.by_height:
            window = WINDOW * size
            order = [i for at in range(0, count, window) for i in sorted(order[at : at + window], key=self._height)]
        plans = [order[at : at + size] for at in range(0, count, size)]
        if self.by_height and self.shuffle:
            plans = [plans[i] for i in torch.randperm(len(plans), device="cpu").tolist()]
        return plans

    def _height(self, index: int) -> int:
        return max(int(levels(g.topology).max(initial=-1)) for g in _graphs_of(self.graphs[index]))

    def _prepare(self, plan: list[int]) -> Sample:
        whole = collate([self.graphs[i] for i in plan])
        for g in _graphs_of(whole):
            try:
                for is_reversed in _DIRECTIONS[self.direction]:
                    level_schedule(g.topology.reversed if is_reversed else g.topology)
            except CycleError:
                if self.direction is not None:
                    raise
        return cast("Sample", whole)


def _graphs_of(sample: object) -> list[Graph]:
    graphs = list(graphs_in(sample))
    if not graphs:
        fact = f"a sample of GraphLoader is a {type(sample).__name__} without a graph"
        raise FunctionError(fact, cure="give graphs, or tuples and mappings that have one")
    return graphs
