"""Loader: batches of graphs, prepared by a thread while the last one is computed.

Takes: graphs. Gives: batched graphs whose frontiers are known. Runs at every step.
Source: Cavs section 3.5 (streaming: what the next batch needs overlaps with this one's arithmetic).
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator, Sequence

import torch

from vgraph.api.graph import Graph
from vgraph.compiler import level_schedule, levels
from vgraph.errors import GraphError
from vgraph.graphs.batching import batch

_DIRECTIONS = {"forward": (False,), "reverse": (True,), "both": (False, True)}
WINDOW = 32  # batches among whose graphs those of like height are put together


class GraphLoader:
    """Batches of ``graphs``, their features along, in random order or as they stand.

    Args:
        graphs: with features in their frames; their levels are computed once and kept.
        batch_size: graphs a batch; the last batch of an epoch may have fewer.
        shuffle: a new order every epoch, from torch's generator.
        by_height: put graphs of like height into one batch (of 32 batches' graphs at a time): as many
            vertices then take fewer frontiers. Batches, not graphs, are shuffled then.
        prefetch: batches that a thread prepares ahead; 0 prepares each when it is asked for.
        direction: along which edges frontiers are prepared: "forward", "reverse" or "both".

    Raises:
        GraphError: the size of a batch is not positive, there is no such direction.

    Source: Xu et al. 2018 (Cavs), section 3.5 (streaming); the words are those of torch's ``DataLoader``.

    >>> import torch, vgraph
    >>> tree = vgraph.graph(([0, 1], [2, 2]))
    >>> [len(g.batch_num_nodes()) for g in vgraph.GraphLoader([tree] * 5, 2)]
    [2, 2, 1]
    """

    def __init__(
        self,
        graphs: Sequence[Graph],
        batch_size: int,
        *,
        shuffle: bool = False,
        by_height: bool = False,
        prefetch: int = 2,
        direction: str = "forward",
    ) -> None:
        for name, number, least in (("batch_size", batch_size, 1), ("prefetch", prefetch, 0)):
            if type(number) is not int or number < least:
                fact, cure = f"GraphLoader({name}={number!r})", f"give a whole number, {least} or more"
                raise GraphError(fact, cure=cure)
        if direction not in _DIRECTIONS:
            cure = "forward, reverse or both"
            raise GraphError(f"there is no direction {direction!r}", cure=cure)
        self.graphs, self.batch_size = graphs, batch_size
        self.shuffle, self.by_height, self.prefetch, self.direction = shuffle, by_height, prefetch, direction

    def __len__(self) -> int:
        return (len(self.graphs) + self.batch_size - 1) // self.batch_size

    def __iter__(self) -> Iterator[Graph]:
        plans = self._plans()
        return self._ahead(plans) if self.prefetch > 0 else map(self._prepare, plans)

    def _plans(self) -> list[list[int]]:
        """Which graphs each batch of an epoch holds."""
        count, size = len(self.graphs), self.batch_size
        order = torch.randperm(count).tolist() if self.shuffle else list(range(count))
        if self.by_height:
            window = WINDOW * size
            order = [i for at in range(0, count, window) for i in sorted(order[at : at + window], key=self._height)]
        plans = [order[at : at + size] for at in range(0, count, size)]
        if self.by_height and self.shuffle:
            plans = [plans[i] for i in torch.randperm(len(plans)).tolist()]
        return plans

    def _height(self, index: int) -> int:
        return int(levels(self.graphs[index].topology).max(initial=-1))

    def _prepare(self, plan: list[int]) -> Graph:
        whole = batch([self.graphs[i] for i in plan])
        topology = whole.topology
        for is_reversed in _DIRECTIONS[self.direction]:
            level_schedule(topology.reversed if is_reversed else topology)
        return whole

    def _ahead(self, plans: list[list[int]]) -> Iterator[Graph]:
        """A thread prepares; what it raises is raised here, and it ends when nobody listens any more."""
        ready: queue.Queue[tuple[Graph | None, BaseException | None]] = queue.Queue(self.prefetch)
        stopped = threading.Event()

        def put(graph: Graph | None, error: BaseException | None) -> None:
            while not stopped.is_set():
                try:
                    return ready.put((graph, error), timeout=0.1)
                except queue.Full:
                    continue

        def work() -> None:
            try:
                for plan in plans:
                    if stopped.is_set():
                        return
                    put(self._prepare(plan), None)
            except BaseException as error:
                put(None, error)

        threading.Thread(target=work, name="vgraph-loader", daemon=True).start()
        try:
            for _ in plans:
                graph, error = ready.get()
                if error is not None:
                    raise error
                assert graph is not None
                yield graph
        finally:
            stopped.set()
