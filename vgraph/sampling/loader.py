"""Loaders: minibatches of a sampler, or of a list of graphs, prepared while the last one is trained on.

Takes: a graph, ids, a sampler. Gives: an iterator of minibatches. Runs at every step.
Workers are threads: what draws edges lets go of the interpreter, and nothing is copied between processes.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
import torch.utils.data
from torch import Tensor

from vgraph.api.graph import Graph
from vgraph.api.serving.collate import collate
from vgraph.api.serving.prefetch import prefetched
from vgraph.arguments import COUNT, NAME, POSITIVE, WHOLE, Bound, checked
from vgraph.errors import DTypeError, FunctionError, GraphError
from vgraph.graphs.draw.random_numbers import MASK, Keys, keyed, mix
from vgraph.graphs.types import Device, Edges, EdgeType, Nodes
from vgraph.ir.program import map_leaves
from vgraph.sampling.affinity import binder, divided, program_on
from vgraph.sampling.given import check_sampler, known_device
from vgraph.sampling.promised import with_promised
from vgraph.sampling.samplers import Sampler
from vgraph.sampling.shares import own_share

logger = logging.getLogger("vgraph")
# Arguments for processes and for GPUs that read the host's memory; programs pass them.
_WITHOUT_EFFECT = frozenset(
    "use_prefetch_thread use_alternate_streams pin_prefetcher use_uva gpu_cache use_cpu_affinity "
    "persistent_workers pin_memory timeout worker_init_fn multiprocessing_context".split()
)


GENERATOR = Bound("a torch.Generator", lambda given: isinstance(given, torch.Generator)).or_none()


class DataLoader:
    """Minibatches of ``graph_sampler.sample(graph, ids)``, in order, ``num_workers`` prepared ahead.

    What is drawn depends on torch's seed, the epoch and the minibatch alone, not on the workers. Arguments
    of DGL's and torch's loaders that are about processes are accepted and have no effect, which is logged.

    Args:
        graph: the graph that is drawn from.
        indices: ids of vertices, or of edges for an edge sampler: (n,), or by type; a mask has one truth value for
            each vertex or edge of the graph.
        graph_sampler: what has a method ``sample(graph, ids)``.
        device: where minibatches are moved to; None: they stay where the sampler made them.
        use_ddp: each process of the program's group visits its own share of the ids, all equally many: without
            ``drop_last`` some ids twice.
        ddp_seed: what the order of all ids follows from where ``use_ddp`` and ``shuffle`` are set, beside the epoch.
        batch_size: how many ids in a minibatch, from 1 up.
        drop_last: leave out the last minibatch if it is smaller.
        shuffle: draw another order in every epoch.
        num_workers: how many threads prepare minibatches; 0: they are made when they are asked for.
        prefetch_factor: how many minibatches a worker prepares ahead; None: 2.
        generator: what gives every epoch its seed; None: torch's own.
        **others: arguments about processes, which have no effect.

    Raises:
        ArgumentError: there is no such batch size, or number of workers; ``generator`` is none of torch's.
        FunctionError: the sampler has no ``sample``, there is no such argument, or ``use_ddp``
            is set where the program has made no group of processes.
        DeviceError: there is no such device.
        DTypeError: ``indices`` are no array of ids.
        GraphError: a mask is not of the graph's nodes or edges, or ``indices`` name no type.

    Source: DGL 1.1, ``dgl.dataloading.DataLoader``.

    Example:
        >>> import torch, vgraph
        >>> from vgraph.sampling import DataLoader, NeighborSampler
        >>> g = vgraph.graph(([0, 1, 2, 3], [3, 3, 3, 0]))
        >>> loader = DataLoader(g, torch.arange(4), NeighborSampler([2]), batch_size=3, num_workers=1)
        >>> [outputs.tolist() for inputs, outputs, blocks in loader]
        [[0, 1, 2], [3]]
    """

    @checked(
        ddp_seed=WHOLE,
        batch_size=POSITIVE,
        num_workers=COUNT,
        prefetch_factor=COUNT.or_none(),
        generator=GENERATOR,
    )
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
        check_sampler(graph_sampler)
        self.use_ddp, self.ddp_seed, self._share, self._epoch = use_ddp, ddp_seed, own_share(use_ddp), 0
        _note_others(others)
        self.graph, self.graph_sampler, self.device = graph, graph_sampler, known_device(device)
        self.indices, self.batch_size, self.drop_last, self.shuffle = indices, batch_size, drop_last, shuffle
        self.num_workers, self.ahead = num_workers, num_workers * (prefetch_factor or 2)
        self.generator, self._cores = generator, list[int]()
        self._ids = _flat(graph, indices)
        self._attached: dict[str, Tensor] = {}

    @checked(name=NAME)
    def attach_data(self, name: str, data: Tensor) -> None:
        """Gives a tensor that is of no graph, of which a ``dgl.LazyFeature`` beside the graphs of a sampler means rows.

        Args:
            name: what the sampler calls it.
            data: (rows, ...).

        Raises:
            ArgumentError: the name is no string.
        """
        self._attached[name] = data

    @checked(epoch=COUNT)
    def set_epoch(self, epoch: int) -> None:
        """Which epoch comes next, for ``use_ddp``, where all processes have to draw one order; they count themselves.

        Args:
            epoch: its number, from 0 up.

        Raises:
            ArgumentError: it is none.
        """
        self._epoch = epoch

    @contextmanager
    def enable_cpu_affinity(
        self,
        loader_cores: Sequence[int] | None = None,
        compute_cores: Sequence[int] | None = None,
        verbose: bool = True,
    ) -> Generator[None]:
        """Binds the workers and the thread of the program to cores of their own, until the ``with`` block ends.

        Args:
            loader_cores: one core a worker; None: the first that this process may use.
            compute_cores: those of the program; None: all others.
            verbose: log which they are.

        Yields:
            Nothing.

        Raises:
            FunctionError: there are no workers, too few cores, or the system binds no threads.
        """
        self._cores, others = divided(self.num_workers, loader_cores, compute_cores)
        if verbose:
            logger.info("DataLoader: %d workers on cores %s, the program on %s", self.num_workers, self._cores, others)
        try:
            with program_on(others):
                yield
        finally:
            self._cores = []

    def __len__(self) -> int:
        count = self._share.count(len(self._ids[1]), drop_last=self.drop_last)
        return count // self.batch_size if self.drop_last else -(-count // self.batch_size)

    def __iter__(self) -> Iterator[Any]:
        place = "cpu" if self.generator is None else self.generator.device
        seed = int(torch.randint(2**62, (), generator=self.generator, device=place))
        parts = self._order(seed).split(self.batch_size)[: len(self)]
        tasks = [(Keys(mix(seed + i), (mix(seed), i)), part) for i, part in enumerate(parts)]
        bind = binder(self._cores) if self._cores else None
        made = prefetched(self._make, tasks, self.num_workers, self.ahead, bind)
        return (self._moved(one) for one in made)

    def _order(self, seed: int) -> Tensor:
        """The places that this process visits; where it has a share, all processes draw one order."""
        count = len(self._ids[1])
        order = torch.arange(count, device="cpu")
        if self.shuffle:
            common = mix(mix(self.ddp_seed & MASK) + self._epoch & MASK) >> 1 if self.use_ddp else seed
            draws = torch.Generator("cpu").manual_seed(common)
            order = torch.randperm(count, generator=draws, device="cpu")
        self._epoch += 1
        return self._share.of(order, drop_last=self.drop_last) if self.use_ddp else order

    def _make(self, task: tuple[Keys, Tensor]) -> Any:
        keys, places = task
        with keyed(keys):
            made = self.graph_sampler.sample(self.graph, self._chosen(places))
        return with_promised(made, self.graph, self._attached)

    def _chosen(self, places: Tensor) -> Tensor | dict[Hashable, Tensor]:
        """The ids at these places, by type where they were given so."""
        names, ids, kinds = self._ids
        if not names:
            return ids[places]
        kind, some = kinds[places], ids[places]
        return {name: some[kind == i] for i, name in enumerate(names) if bool((kind == i).any())}

    def _moved(self, made: Any) -> Any:
        return made if self.device is None else _to(made, self.device)


def _flat(graph: Graph, indices: object) -> tuple[list[Hashable], Tensor, Tensor]:
    """Names of types, all ids, the number of each one's type; no names where ids are of one type."""
    if not isinstance(indices, Mapping):
        ids = _ids_of(graph, None, indices)
        return [], ids, torch.zeros(len(ids), dtype=torch.int64, device="cpu")
    if not indices:
        raise GraphError("indices are a dict without any type", cure="give ids by type: {type: ids}")
    parts = {name: _ids_of(graph, name, ids) for name, ids in indices.items()}
    kinds = [torch.full((len(ids),), i, device="cpu") for i, ids in enumerate(parts.values())]
    return list(parts), torch.cat(list(parts.values())), torch.cat(kinds)


def _ids_of(graph: Graph, name: str | EdgeType | None, indices: object) -> Tensor:
    """Ids as they are given, or where a mask of all nodes or of all edges of a type is true."""
    try:
        ids = indices if isinstance(indices, Tensor) else torch.as_tensor(indices, device="cpu")
    except (TypeError, ValueError, RuntimeError) as error:
        fact = f"indices are a {type(indices).__name__}: {error}"
        raise DTypeError(fact, cure="give a tensor or a list of ids, or a mask") from error
    if not ids.ndim:
        raise DTypeError(f"indices are one number, {ids.item()}", cure="give a tensor or a list of ids, or a mask")
    if ids.dtype != torch.bool:
        return ids
    counts = dict[str, int]()
    if name is None or (not isinstance(name, tuple) and name in graph.ntypes):
        counts["nodes"] = graph.num_nodes(name)
    if name is None or name not in graph.ntypes:
        counts["edges"] = graph.num_edges(name)
    if ids.shape not in [(count,) for count in counts.values()]:
        there = " and ".join(f"{count} {word}" for word, count in counts.items())
        fact = f"a mask has shape {tuple(ids.shape)} where there are {there}" + (f" of type {name!r}" if name else "")
        raise GraphError(fact, cure=f"give one truth value for each of all {' or '.join(counts)}, or ids")
    return ids.nonzero().squeeze(1)


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
        return map_leaves(made, lambda one: _to(one, device))
    return made


class GraphDataLoader(torch.utils.data.DataLoader[Any]):
    """torch's DataLoader over a dataset of graphs, which it batches.

    Samples may be graphs, or tuples and mappings of graphs, tensors and numbers, collated member by member.

    Args:
        dataset: samples by number, as torch's loader takes them.
        collate_fn: makes a minibatch of a list of samples; None: graphs are batched, all else is stacked as torch
            does.
        use_ddp: each process of the program's group visits its own share of the samples.
        ddp_seed: what their order follows from where ``use_ddp`` and ``shuffle`` are set, beside the epoch.
        **kwargs: all other arguments of ``torch.utils.data.DataLoader``.

    Raises:
        FunctionError: ``use_ddp`` is set where the program has made no group of processes, or beside a sampler.
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

    @checked(ddp_seed=WHOLE)
    def __init__(
        self,
        dataset: Any,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        use_ddp: bool = False,
        ddp_seed: int = 0,
        **kwargs: Any,
    ) -> None:
        if collate_fn is not None and not callable(collate_fn):
            fact = f"collate_fn is a {type(collate_fn).__name__}"
            raise FunctionError(fact, cure="pass a function of a list of samples, or None")
        self.use_ddp = use_ddp
        if use_ddp:
            if kwargs.get("sampler") is not None:
                fact = "use_ddp is set beside a sampler, which would divide the samples a second time"
                raise FunctionError(fact, cure="pass either of them")
            is_shuffled, drop_last = bool(kwargs.pop("shuffle", False)), bool(kwargs.get("drop_last", False))
            kwargs["sampler"] = self.dist_sampler = _own_samples(dataset, ddp_seed, is_shuffled, drop_last)
        if kwargs.get("batch_size", 1) is not None:
            collate_fn = collate_fn or collate
        super().__init__(dataset, collate_fn=collate_fn, **kwargs)

    @checked(epoch=COUNT)
    def set_epoch(self, epoch: int) -> None:
        """Gives the samples another order, the same on all processes; for ``use_ddp`` alone.

        Args:
            epoch: its number, from 0 up.

        Raises:
            ArgumentError: it is none.
            FunctionError: ``use_ddp`` is not set.
        """
        if not self.use_ddp:
            raise FunctionError("set_epoch is for use_ddp=True", cure="pass it, or leave set_epoch out")
        self.dist_sampler.set_epoch(epoch)


def _own_samples(
    dataset: torch.utils.data.Dataset[object], seed: int, is_shuffled: bool, drop_last: bool
) -> torch.utils.data.DistributedSampler[object]:
    share = own_share(True)
    return torch.utils.data.DistributedSampler(dataset, share.size, share.rank, is_shuffled, seed, drop_last)
