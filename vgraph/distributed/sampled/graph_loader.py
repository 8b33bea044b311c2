"""Batches of whole graphs, trees among them, shared out over ranks by the work that they are.

Takes: a list of graphs, or of samples with one. Gives: this rank's share of every global batch. Runs at every step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from vgraph.api.graph import Graph
from vgraph.api.serving.collate import collate
from vgraph.api.serving.prefetch import prefetched
from vgraph.arguments import COUNT, POSITIVE, WHOLE, checked
from vgraph.distributed.sampled.batches import GlobalBatches, digest_of
from vgraph.distributed.sampled.work import Sizes, Work, fit_work
from vgraph.errors import CycleError, GraphError, WorkerError
from vgraph.graphs.traversal import topological_nodes_generator
from vgraph.runtime.distributed.ranks import current_ranks

WEIGHT = "_WEIGHT"


class DistGraphLoader(GlobalBatches):
    """This rank's share of global batches of graphs, or of tuples and mappings with one graph each.

    A batch is a set of graphs that follows from (seed, epoch, number), on any number of ranks. The dearest graphs are
    given out first, each to the rank that has least work then. Samples are collated as ``GraphDataLoader`` does it.
    The batched graph's ``gdata["_WEIGHT"]`` is 1 for every graph; a rank for which there is none gets one graph of
    weight 0, so that all ranks make the same steps: ``vd.mean(rows, batch.gdata["_WEIGHT"]).backward()``.
    ``state_dict`` and ``load_state_dict`` tell where the loader stands, on any number of ranks.

    Args:
        graphs: the same on all ranks, in the same order. Their sizes are read once, when the loader is made.
        batch_size: graphs of a batch, on all ranks together.
        shuffle: whether every epoch has another order; without it graphs come as they are given.
        seed: a whole number, from which the order follows.
        drop_last: whether the last batch is left out if it is smaller.
        measure: a function of a collated batch that does what a step does; it is timed on rank 0 to find out what a
            vertex, an edge and a frontier cost. Without it vertices and edges cost alike, and frontiers nothing.
        num_workers: threads that batch graphs ahead; 0: each batch is made when it is asked for.

    Raises:
        ArgumentError: a number is outside of what it counts.
        GraphError: there are no graphs, or a sample has none; graphs of a batch differ in device, dtype of ids or
            types.
        FeatureError: a feature is missing in some graphs of a batch, or differs in dtype or shape.
        WorkerError: ranks have been given different graphs; ``measure`` failed on rank 0; a rank is lost.

    Source: DGL 1.1, ``dgl.dataloading.GraphDataLoader``; shares: Graham 1969 (longest first).

    Example:
        >>> import torch, vgraph
        >>> import vgraph.distributed as vd
        >>> chains = [vgraph.graph((torch.arange(n), torch.arange(1, n + 1))) for n in (5, 1, 3)]
        >>> loader = vd.DistGraphLoader(chains, batch_size=2, seed=0)
        >>> [(batch.batch_size, batch.gdata["_WEIGHT"].tolist()) for batch in loader]
        [(2, [1.0, 1.0]), (1, [1.0])]
    """

    @checked(batch_size=POSITIVE, seed=WHOLE, num_workers=COUNT)
    def __init__(
        self,
        graphs: Sequence[Any],
        batch_size: int = 1,
        *,
        shuffle: bool = True,
        seed: int = 0,
        drop_last: bool = False,
        measure: Callable[[Any], object] | None = None,
        num_workers: int = 0,
    ) -> None:
        if not len(graphs):
            raise GraphError("there are no graphs", cure="give one or more")
        self.graphs, self.num_workers = graphs, num_workers
        self._sizes = _sizes_of(graphs, with_heights=measure is not None)
        told = digest_of(*(part.tobytes() for part in (self._sizes.vertices, self._sizes.edges)))
        super().__init__(len(graphs), batch_size, shuffle=shuffle, seed=seed, drop_last=drop_last, digest=told)
        self._ranks = current_ranks()
        self._ranks.check_equal(
            int(told[:15], 16),
            "ranks have been given different graphs",
            cure="give all ranks the same graphs in the same order; the loader shares them out",
        )
        self.work = Work() if measure is None else self._fitted(measure)

    def __iter__(self) -> Iterator[Any]:
        numbers = self._begin()
        epoch, first = self.epoch, self.steps
        made = prefetched(
            lambda step: self._make(epoch, step), range(first, len(self)), self.num_workers, 2 * self.num_workers
        )
        return (batch for _, batch in zip(numbers, made, strict=True))

    def _make(self, epoch: int, step: int) -> Any:
        shares = self.work.shares(self._sizes, self.places_of(epoch, step), self._ranks.size)
        mine, weight = shares[self._ranks.rank], 1.0
        if not len(mine):
            mine, weight = next(share for share in shares if len(share))[:1], 0.0
        return self._collated(mine.tolist(), weight)

    def _collated(self, chosen: Sequence[int], weight: float = 1.0) -> Any:
        made = collate([self.graphs[place] for place in chosen])
        batch = _graph_in(made)
        batch.gdata[WEIGHT] = torch.full((len(chosen),), weight, device=batch.device)
        return made

    def _fitted(self, measure: Callable[[Any], object]) -> Work:
        """Rank 0 measures; all have what it found."""
        found, failure = torch.full((3,), torch.nan, dtype=torch.float64), None
        if self._ranks.rank == 0:
            try:
                share = -(-self.batch_size // self._ranks.size)
                work = fit_work(self._sizes, lambda chosen: measure(self._collated(chosen)), share)
                found = torch.tensor([work.a, work.b, work.c], dtype=torch.float64)
            except Exception as error:
                failure = error
        found = self._ranks.of_first(found, "fit work")
        if failure is not None:
            raise failure
        if bool(found.isnan().any()):
            raise WorkerError("rank 0 could not measure a step", cure="see what it raised")
        return Work(*found.tolist())


def _sizes_of(samples: Sequence[object], *, with_heights: bool) -> Sizes:
    rows: list[tuple[int, int, int]] = []
    for place in range(len(samples)):
        graph = _graph_in(samples[place])
        rows.append((graph.num_nodes(), graph.num_edges(), _height(graph) if with_heights else 0))
    vertices, edges, heights = np.array(rows, np.int64).T
    return Sizes(vertices.copy(), edges.copy(), heights.copy())


def _height(graph: Graph) -> int:
    """Frontiers of a graph of one type; 0 where there are cycles or types."""
    if not graph.is_homogeneous:
        return 0
    try:
        return len(topological_nodes_generator(graph))
    except CycleError:
        return 0


def _graph_in(sample: object) -> Graph:
    found = _find(sample)
    if found is None:
        raise GraphError(
            f"a sample of type {type(sample).__name__} has no graph", cure="give graphs, or tuples with one"
        )
    return found


def _find(sample: object) -> Graph | None:
    if isinstance(sample, Graph):
        return sample
    if isinstance(sample, Mapping):
        sample = list(sample.values())
    if isinstance(sample, (tuple, list)):
        return next((graph for graph in map(_find, sample) if graph is not None), None)
    return None
