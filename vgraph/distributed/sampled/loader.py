"""DistDataLoader: minibatches of a graph in parts, this rank's share of global batches, made ahead by a thread.

Takes: a DistGraph, ids, a sampler of ``vgraph.sampling``. Gives: minibatches. Runs at every step.
Several batches share the rounds of ids and rows that travel. All ranks make the same rounds at the same steps.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
import torch
from torch import Tensor

from vgraph.arguments import COUNT, POSITIVE, WHOLE, checked
from vgraph.distributed.dist_graph import DistGraph
from vgraph.distributed.sampled.batches import GlobalBatches, digest_of
from vgraph.distributed.sampled.drawing import draw_hops
from vgraph.distributed.sampled.graph_loader import WEIGHT
from vgraph.distributed.sampled.hot_rows import keep_hot_rows
from vgraph.distributed.sampled.layout import layout_of
from vgraph.distributed.sampled.rows import fill_frames
from vgraph.distributed.sampled.seeds import gather_seeds, share_out
from vgraph.errors import FunctionError, GraphError
from vgraph.graphs.draw.neighbors import Drawn, Hop
from vgraph.graphs.draw.random_numbers import Keys, keyed
from vgraph.graphs.ids_by_type import nodes_by_type
from vgraph.runtime.distributed.peers import Peers
from vgraph.sampling.samplers import NeighborSampler, ShaDowKHopSampler

_SAMPLERS = (NeighborSampler, ShaDowKHopSampler)


class DistDataLoader(GlobalBatches):
    """This rank's share of global batches, sampled over all parts of a graph.

    Batch k of epoch e is a set of ids that follows from (seed, e, k), on any number of ranks. Each id goes to the
    machine that has its part; what exceeds a machine's mean by 5 % goes to the machine with least. Edges are drawn
    where their lists are, by the batch's key and original ids: what is drawn for a node is the same on any number of
    ranks, and what ``sampler`` draws in one process. All ranks make the same steps. ``dstdata["_WEIGHT"]`` of the last
    block (``ndata["_WEIGHT"]`` of a subgraph) is 1 for the ids of a batch, and 0 for the one that a rank gets which
    has none: ``vd.mean(rows, blocks[-1].dstdata["_WEIGHT"]).backward()``.

    ``state_dict`` and ``load_state_dict`` tell where the loader stands, on any number of ranks; the loader is a
    ``Stateful`` of ``torch.distributed.checkpoint``. ``statistics`` counts what travelled.

    Args:
        g: a ``DistGraph``.
        train_ids: (k,) new ids of nodes, whole numbers, or (own nodes,) truth values, by type where there are several.
            Each rank gives some (``node_split``), or all ranks give the same.
        sampler: ``NeighborSampler``, ``MultiLayerFullNeighborSampler`` or ``ShaDowKHopSampler``; the features that it
            is told to prefetch come with the minibatch, from whichever rank has them.
        batch_size: ids of a batch, on all ranks together.
        shuffle: whether every epoch has another order; without it ids come by original ids.
        drop_last: whether the last batch is left out if it is smaller.
        seed: a whole number, from which the order and what is drawn follow.
        prefetch: batches that are made ahead by a thread; 0: they are made when they are asked for.
        bulk: batches that share the rounds of an exchange, and are in memory together.
        cache_bytes: memory for rows of other machines that are asked for often.
        device: where minibatches are moved to; None: they stay where they were made, on the CPU.

    Raises:
        FunctionError: a sampler of another kind.
        ArgumentError: a number is outside of what it counts.
        GraphError: no ids, ids given twice or of no node, a mask of another length.
        DTypeError: ids are not whole numbers.
        NameLookupError: there is no such type of nodes; a feature was not stored with the graph.
        WorkerError: ranks have made different loaders; a rank is lost, or out of step.

    Source: DGL 1.1, ``dgl.dataloading.DistNodeDataLoader``; what is kept of other machines' rows: Kaler et al. 2023
    (SALIENT++), section 4.

    Example:
        >>> import tempfile, torch, vgraph, vgraph.distributed as vd
        >>> from vgraph.sampling import NeighborSampler
        >>> folder = tempfile.mkdtemp()
        >>> _ = vd.partition_graph(vgraph.graph(([0, 1, 2, 3], [3, 3, 3, 0])), folder, num_parts=2)
        >>> g = vd.DistGraph(folder)
        >>> loader = vd.DistDataLoader(g, g.own_ids(), NeighborSampler([2]), batch_size=3)
        >>> [g.orig_ids(outputs).tolist() for inputs, outputs, blocks in loader]
        [[0, 1, 2], [3]]
    """

    @checked(batch_size=POSITIVE, seed=WHOLE, prefetch=COUNT, bulk=POSITIVE, cache_bytes=COUNT)
    def __init__(
        self,
        g: DistGraph,
        train_ids: Any,
        sampler: Any,
        *,
        batch_size: int = 1,
        shuffle: bool = False,
        drop_last: bool = False,
        seed: int = 0,
        prefetch: int = 2,
        bulk: int = 4,
        cache_bytes: int = 0,
        device: Any = None,
    ) -> None:
        _check(sampler)
        self.g, self.sampler, self.device, self.prefetch, self.bulk = g, sampler, device, prefetch, bulk
        layout = layout_of(g)
        self._ranks, self._machines, self._served = layout.ranks, layout.machines, layout.served
        self._outline = self._served.outline()
        own = {t: g.whole.own(t) for t in g.ntypes}
        self._seeds = gather_seeds(self._ranks, self._served, own, _ids_by_type(g, train_ids))
        told = digest_of(g.whole.stored.digest, self._seeds.kinds.tobytes(), self._seeds.original.tobytes())
        count = len(self._seeds.ids)
        super().__init__(count, batch_size, shuffle=shuffle, seed=seed, drop_last=drop_last, digest=told)
        self._ranks.check_equal(
            int(digest_of(told, repr((batch_size, shuffle, seed, drop_last, bulk, prefetch)))[:15], 16),
            "ranks have made different loaders",
            "give all ranks the same batch size, seed and options",
        )
        self._peers = Peers(self._ranks, self._machines)
        every = {t: ids.numpy() for t, ids in self._seeds.chosen(np.arange(count)).items()}
        self._hot = keep_hot_rows(self._served, self._peers, self._outline, sampler, every, cache_bytes)
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="vgraph-sampling") if prefetch else None

    # ------------------------------------------------------------ iteration
    def __iter__(self) -> Iterator[Any]:
        numbers = self._begin()
        epoch, first = self.epoch, self.steps
        rounds = [range(step, min(step + self.bulk, len(self))) for step in range(first, len(self), self.bulk)]
        return self._batches(epoch, rounds, numbers)

    def _batches(self, epoch: int, rounds: Sequence[range], numbers: Iterator[int]) -> Generator[Any]:
        """Rounds are begun at the same steps on all ranks, and never given up: others wait for their exchanges."""
        waiting, rest, ready = deque[Future[list[Any]]](), deque(rounds), deque[Any]()
        for step in numbers:
            while self._pool is not None and rest and rest[0].start <= step + self.prefetch:
                waiting.append(self._pool.submit(self._make, epoch, rest.popleft()))
            if not ready:
                ready.extend(waiting.popleft().result() if waiting else self._make(epoch, rest.popleft()))
            made = ready.popleft()
            yield made if self.device is None else _moved(made, self.device)

    def _make(self, epoch: int, steps: range) -> list[Any]:
        """The batches of one round."""
        stamp = (epoch, steps.start)
        seeds = [self._own_seeds(self.places_of(epoch, step)) for step in steps]
        keys = [Keys(self.key_of(epoch, step)) for step in steps]
        made = self._followed([ids for ids, _ in seeds], keys, stamp)
        parts = [one[2] for one in made]
        wants = [want for part in parts for want in self.sampler.wants(self._outline, part)]
        fill_frames(self._served, self._peers, self._hot, wants, stamp)
        for (ids, weight), part in zip(seeds, parts, strict=True):
            _put_weights(part, ids, weight)
        return [self.sampler.moved(one) for one in made]

    def _own_seeds(self, places: Any) -> tuple[dict[str, Tensor], float]:
        """This rank's seeds of a batch, and their weight."""
        machines = np.empty(len(places), np.int64)
        for number, name in enumerate(self._seeds.names):
            mine = self._seeds.kinds[places] == number
            machines[mine] = self._served.machines_of(name, self._seeds.ids[places[mine]])
        mine = share_out(machines, self._machines, self._seeds.ids[places])[self._ranks.rank]
        if len(mine):
            return self._seeds.chosen(places[mine]), 1.0
        return self._seeds.chosen(places[:1]), 0.0

    def _followed(
        self, seeds: Sequence[Mapping[str, Tensor]], keys: Sequence[Keys], stamp: tuple[int, int]
    ) -> list[Any]:
        """The samplers of all batches, hop by hop together."""
        g = self._outline
        samplers = [self.sampler.hops(g, ids if len(g.ntypes) > 1 else ids[g.ntypes[0]]) for ids in seeds]
        answers: list[dict[Any, Drawn] | None] = [None] * len(samplers)
        while True:
            hops, ended = list[Hop](), list[Any]()
            for one, own, answer in zip(samplers, keys, answers, strict=True):
                try:
                    with keyed(own):
                        hops.append(one.send(answer))
                except StopIteration as end:
                    ended.append(end.value)
            if ended:
                return ended
            answers = list(draw_hops(self._served, self._peers, g, hops, stamp))

    # ------------------------------------------------------------ what travelled
    @property
    def statistics(self) -> dict[str, int]:
        """Bytes that this rank sent for the loader; rows of other machines that were kept here, and that were not."""
        return {"sent_bytes": self._peers.sent_bytes, "hits": self._hot.hits, "misses": self._hot.misses}


def _check(sampler: Any) -> None:
    kind = type(sampler)
    known = next((base for base in _SAMPLERS if isinstance(sampler, base)), None)
    own = [
        name for name in ("sample", "sample_blocks", "hops") if getattr(kind, name, None) != getattr(known, name, None)
    ]
    if known is None or own:
        what = f"{kind.__name__} has its own {own[0]}" if known else f"{kind.__name__} draws from a graph in memory"
        raise FunctionError(
            f"{what}, and DistDataLoader asks other ranks for edges",
            cure="pass NeighborSampler, MultiLayerFullNeighborSampler or ShaDowKHopSampler, or call "
            "vgraph.distributed.sample_neighbors in a loop of your own",
        )


def _ids_by_type(g: DistGraph, given: Any) -> dict[str, Tensor]:
    """New ids by type; masks are of own nodes."""
    by_type = given if isinstance(given, Mapping) else {g.ntypes[0]: given}
    if len(g.ntypes) > 1 and not isinstance(given, Mapping):
        raise GraphError("ids without a type in a graph of several", cure="give a dict from types to ids")
    found: dict[str, Any] = {}
    for name, ids in by_type.items():
        some = torch.as_tensor(ids)
        some = some if some.numel() else some.long()
        if some.dtype == torch.bool:
            first, last = g.whole.own(name)
            if len(some) != last - first:
                fact = f"a mask has {len(some)} entries, and this rank has {last - first} nodes"
                raise GraphError(fact, cure='give a mask of own nodes, like g.ndata["train_mask"], or ids')
            some = some.nonzero().squeeze(1) + first
        found[name] = some
    return {name: ids.cpu() for name, ids in nodes_by_type(layout_of(g).served.outline(), found).items()}


def _put_weights(made: Any, seeds: Mapping[str, Tensor], weight: float) -> None:
    """1 for the seeds of a batch; 0 for one that stands for none, and for what else is in a subgraph."""
    frames = made[-1].dst_frames if isinstance(made, list) else made.src_frames
    for name, frame in frames.items():
        column = torch.zeros(frame.num_rows)
        column[: len(seeds.get(name, ()))] = weight
        frame[WEIGHT] = column


def _moved(made: tuple[Any, Any, Any], device: Any) -> Any:
    def move(one: Any) -> Any:
        if isinstance(one, Mapping):
            return {key: part.to(device) for key, part in one.items()}
        return [block.to(device) for block in one] if isinstance(one, list) else one.to(device)

    return tuple(move(one) for one in made)
