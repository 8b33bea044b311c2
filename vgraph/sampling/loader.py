"""Loaders: minibatches of a sampler, or of a list of graphs, prepared while the last one is trained on.

Takes: a graph, ids, a sampler. Gives: an iterator of minibatches. Runs at every step.
Workers are threads: what draws edges lets go of the interpreter, and nothing is copied between processes.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Iterator, Mapping
from typing import Any

import torch
import torch.utils.data
from torch import Tensor

from vgraph.api.graph import Graph
from vgraph.api.serving.prefetch import prefetched
from vgraph.errors import FunctionError, GraphError
from vgraph.graphs.batching import batch
from vgraph.graphs.draw.random_numbers import keyed, mix
from vgraph.graphs.types import Device, Edges, Nodes
from vgraph.sampling.samplers import Sampler

logger = logging.getLogger("vgraph")
# Arguments for processes and for GPUs that read the host's memory; programs pass them.
_WITHOUT_EFFECT = frozenset(
    "use_prefetch_thread use_alternate_streams pin_prefetcher use_uva gpu_cache use_cpu_affinity "
    "persistent_workers pin_memory timeout worker_init_fn multiprocessing_context".split()
)


class DataLoader:
    """Minibatches of ``graph_sampler.sample(graph, ids)``, in order, ``num_workers`` prepared ahead.

    What is drawn depends on torch's seed, the epoch and the minibatch alone, not on the workers. Arguments
    of DGL's and torch's loaders that are about processes are accepted and have no effect, which is logged.

    Args:
        graph: the graph that is drawn from.
        indices: ids of vertices, or of edges for an edge sampler: (n,), or by type.
        graph_sampler: what has a method ``sample(graph, ids)``.
        device: where minibatches are moved to; None: they stay where the sampler made them.
        use_ddp: must be False: every process is given its own ids.
        ddp_seed: ignored; DGL has it.
        batch_size: how many ids in a minibatch, from 1 up.
        drop_last: leave out the last minibatch if it is smaller.
        shuffle: draw another order in every epoch.
        num_workers: how many threads prepare minibatches; 0: they are made when they are asked for.
        prefetch_factor: how many minibatches a worker prepares ahead; None: 2.
        generator: what gives every epoch its seed; None: torch's own.
        **others: arguments about processes, which have no effect.

    Raises:
        FunctionError: the sampler has no ``sample``, there is no such argument, or ``use_ddp`` is set.
        GraphError: there is no such batch size or number of workers.

    Source: DGL 1.1, ``dgl.dataloading.DataLoader``.

    Example:
        >>> import torch, vgraph
        >>> from vgraph.sampling import DataLoader, NeighborSampler
        >>> g = vgraph.graph(([0, 1, 2, 3], [3, 3, 3, 0]))
        >>> loader = DataLoader(g, torch.arange(4), NeighborSampler([2]), batch_size=3, num_workers=1)
        >>> [outputs.tolist() for inputs, outputs, blocks in loader]
        [[0, 1, 2], [3]]
    """

    def __init__(
        self,
        graph: Graph,
        indices: Nodes | Edges,
        graph_sampler: Sampler,
        device: Device = None,
        use_ddp: bool = False,
        ddp_seed: int = 0,
        batch_size: int = 1,
        drop_last: bool = False,
        shuffle: bool = False,
        num_workers: int = 0,
        prefetch_factor: int | None = None,
        generator: torch.Generator | None = None,
        **others: object,
    ) -> None:
        if not callable(getattr(graph_sampler, "sample", None)):
            fact = f"{type(graph_sampler).__name__} has no method sample"
            raise FunctionError(fact, cure="pass a sampler, like vgraph.sampling.NeighborSampler([10, 10])")
        if batch_size < 1 or num_workers < 0:
            fact = f"batch_size is {batch_size} and num_workers {num_workers}"
            raise GraphError(fact, cure="give at least 1 id a minibatch, and 0 workers or more")
        if use_ddp:
            fact = "use_ddp is set, and this loader knows of no other processes"
            raise FunctionError(fact, cure="give every process its own ids, like ids[rank::world_size]")
        _note_others(others)
        self.graph, self.graph_sampler, self.device = graph, graph_sampler, device
        self.indices, self.batch_size, self.drop_last, self.shuffle = indices, batch_size, drop_last, shuffle
        self.num_workers, self.ahead = num_workers, num_workers * (prefetch_factor or 2)
        self.generator = generator
        self._ids = _flat(indices)

    def __len__(self) -> int:
        count = len(self._ids[1])
        return count // self.batch_size if self.drop_last else -(-count // self.batch_size)

    def __iter__(self) -> Iterator[Any]:
        seed = int(torch.randint(2**62, (), generator=self.generator))
        count = len(self._ids[1])
        order = torch.arange(count)
        if self.shuffle:
            order = torch.randperm(count, generator=torch.Generator().manual_seed(seed))
        tasks = [(mix(seed + i), part) for i, part in enumerate(order.split(self.batch_size))][: len(self)]
        return (self._moved(made) for made in prefetched(self._make, tasks, self.num_workers, self.ahead))

    def _make(self, task: tuple[int, Tensor]) -> Any:
        key, places = task
        with keyed(key):
            return self.graph_sampler.sample(self.graph, self._chosen(places))

    def _chosen(self, places: Tensor) -> Tensor | dict[Hashable, Tensor]:
        """The ids at these places, by type where they were given so."""
        names, ids, kinds = self._ids
        if not names:
            return ids[places]
        kind, some = kinds[places], ids[places]
        return {name: some[kind == i] for i, name in enumerate(names) if bool((kind == i).any())}

    def _moved(self, made: Any) -> Any:
        return made if self.device is None else _to(made, self.device)


def _flat(indices: object) -> tuple[list[Hashable], Tensor, Tensor]:
    """Names of types, all ids, the number of each one's type; no names where ids are of one type."""
    if not isinstance(indices, Mapping):
        ids = torch.as_tensor(indices)
        ids = ids.nonzero().squeeze(1) if ids.dtype == torch.bool else ids
        return [], ids, torch.zeros(len(ids), dtype=torch.int64)
    parts = {name: torch.as_tensor(ids) for name, ids in indices.items()}
    kinds = [torch.full((len(ids),), i) for i, ids in enumerate(parts.values())]
    return list(parts), torch.cat(list(parts.values())), torch.cat(kinds)


def _note_others(others: Mapping[str, object]) -> None:
    unknown = sorted(set(others) - _WITHOUT_EFFECT)
    if unknown:
        raise FunctionError(f"DataLoader has no argument {unknown[0]!r}", cure="see its documentation")
    for name in sorted(name for name, value in others.items() if value):
        logger.info("DataLoader: %s has no effect, since workers are threads of this process", name)


def _to(made: Any, device: torch.device | str | int) -> Any:
    if isinstance(made, (Tensor, Graph)):
        return made.to(device)
    if isinstance(made, Mapping):
        return {key: _to(one, device) for key, one in made.items()}
    if isinstance(made, (list, tuple)):
        return type(made)(_to(one, device) for one in made)
    return made


class GraphDataLoader(torch.utils.data.DataLoader[Any]):
    """torch's DataLoader over a dataset of graphs, which it batches.

    Samples may be graphs, or tuples and mappings of graphs, tensors and numbers, collated member by member.

    Args:
        dataset: samples by number, as torch's loader takes them.
        collate_fn: makes a minibatch of a list of samples; None: graphs are batched, all else is stacked as torch
            does.
        use_ddp: must be False: a DistributedSampler divides the dataset.
        ddp_seed: ignored; DGL has it.
        **kwargs: all other arguments of ``torch.utils.data.DataLoader``.

    Raises:
        FunctionError: ``use_ddp`` is set.
        GraphError: graphs of a minibatch differ in device, dtype of ids or types.
        FeatureError: a feature is missing in some of them, or differs in dtype or shape.

    Source: DGL 1.1, ``dgl.dataloading.GraphDataLoader``.

    Example:
        >>> import torch, vgraph
        >>> from vgraph.sampling import GraphDataLoader
        >>> samples = [(vgraph.graph(([0], [1])), torch.tensor(i)) for i in range(3)]
        >>> [(g.batch_size, y.tolist()) for g, y in GraphDataLoader(samples, batch_size=2)]
        [(2, [0, 1]), (1, [2])]
    """

    def __init__(
        self,
        dataset: Any,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        use_ddp: bool = False,
        ddp_seed: int = 0,
        **kwargs: Any,
    ) -> None:
        if use_ddp:
            fact = "use_ddp is set, and this loader knows of no other processes"
            raise FunctionError(fact, cure="pass sampler=DistributedSampler(dataset)")
        super().__init__(dataset, collate_fn=collate_fn or collate, **kwargs)


def collate(samples: list[Any]) -> Any:
    """One minibatch of several samples: graphs are batched, all else is stacked as torch's loader does."""
    first = samples[0]
    if isinstance(first, Graph):
        return batch(samples)
    if isinstance(first, Mapping):
        return {key: collate([sample[key] for sample in samples]) for key in first}
    if isinstance(first, (tuple, list)):
        return [collate(list(parts)) for parts in zip(*samples, strict=True)]
    return torch.utils.data.default_collate(samples)
