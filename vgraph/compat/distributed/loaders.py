"""Loaders of DistDGL: of blocks, and of whatever a function makes of ids.

Takes: ids of this process, what is to be made of them. Gives: batches, as many on every process. Runs at every step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

import vgraph
import vgraph.distributed as vd
from vgraph.compat.distributed.dist_tensor import DistTensor
from vgraph.distributed.sampled.batches import GlobalBatches, digest_of
from vgraph.errors import FunctionError, GraphError

_OF_ONE_PROCESS = {"num_workers", "pin_memory", "persistent_workers", "use_ddp", "ddp_seed", "use_uva"}


def DistNodeDataLoader(
    g: vd.DistGraph, nids: Any, graph_sampler: Any, device: Any = None, **options: Any
) -> vd.DistDataLoader:
    """A ``vgraph.distributed.DistDataLoader`` in which ``batch_size`` counts the nodes of one process."""
    known = {name: value for name, value in options.items() if name not in _OF_ONE_PROCESS}
    unknown = set(known) - {"batch_size", "shuffle", "drop_last", "seed", "prefetch", "bulk", "cache_bytes"}
    if unknown:
        raise FunctionError(
            f"DistNodeDataLoader takes no {min(unknown)}", cure="leave it out; docs/coming_from/dgl_names.md"
        )
    known["batch_size"] = known.get("batch_size", 1) * vd.num_ranks()
    ids = nids.local_partition if isinstance(nids, DistTensor) else nids
    return vd.DistDataLoader(g, ids, graph_sampler, device=device, **known)


class _Collated(GlobalBatches):
    """Batches of the ids of all processes, of which each has an equal share, of ids that are near one another."""

    def __init__(
        self, ids: Tensor, batch_size: int, collate: Callable[[list[Any]], Any], *, shuffle: bool, drop_last: bool
    ) -> None:
        self._ids, self._collate = ids.numpy(), collate
        if not len(ids):
            raise GraphError("no process was given an id", cure="give ids of nodes to train on")
        size, told = batch_size * vd.num_ranks(), digest_of(self._ids.tobytes())
        super().__init__(len(ids), size, shuffle=shuffle, seed=0, drop_last=drop_last, digest=told)

    def __iter__(self) -> Iterator[Any]:
        for step in self._begin():
            every = np.sort(self._ids[self.places_of(self.epoch, step)])
            mine = np.array_split(every, vd.num_ranks())[vd.rank()]
            yield self._collate((mine if len(mine) else every[:1]).tolist())


def DistDataLoader(dataset: Any, *args: Any, **options: Any) -> Any:
    """Batches of ids, each handed to ``collate_fn``; a DistGraph in place of ids: as ``vgraph.distributed`` has it.

    ``batch_size`` counts the ids of one process. All processes make as many steps; where the last batch has no id
    for one, it gets one that another has, too.
    """
    if isinstance(dataset, vd.DistGraph):
        return vd.DistDataLoader(dataset, *args, **options)
    return _collated(dataset, *args, **options)


def _collated(
    dataset: Any,
    batch_size: int,
    shuffle: bool = False,
    collate_fn: Callable[[list[Any]], Any] | None = None,
    drop_last: bool = False,
    queue_size: int | None = None,
) -> _Collated:
    ids = vd.gather_rows(torch.as_tensor(dataset).long().reshape(-1))
    return _Collated(ids, batch_size, collate_fn or torch.tensor, shuffle=shuffle, drop_last=drop_last)


def sample_neighbors(
    g: vd.DistGraph,
    nodes: Any,
    fanout: Any,
    edge_dir: str = "in",
    prob: str | None = None,
    exclude_edges: Any = None,
    replace: bool = False,
    etype_sorted: bool = True,
    output_device: Any = None,
) -> vgraph.Graph:
    """``vgraph.distributed.sample_neighbors``, on all processes at the same time."""
    if exclude_edges is not None:
        fact = "edges are drawn where their lists are, and none can be left out there"
        raise FunctionError(fact, cure="draw without exclude_edges, then remove_edges of the graph that is drawn")
    drawn = vd.sample_neighbors(g, nodes, fanout, edge_dir, prob, replace)
    return drawn if output_device is None else drawn.to(output_device)
