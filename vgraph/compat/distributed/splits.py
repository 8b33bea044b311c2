"""Which of some nodes, or edges, a process trains on: each as many as any other, as DGL has it, or those it has.

Takes: a mask or ids. Gives: new ids. Runs once per training, on all processes.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

import vgraph.distributed as vd
from vgraph.compat.distributed.dist_tensor import DistTensor
from vgraph.compat.distributed.partition_book import GraphPartitionBook
from vgraph.errors import FeatureError, GraphError


def node_split(
    nodes: Any,
    partition_book: GraphPartitionBook | None = None,
    ntype: str = "_N",
    rank: int | None = None,
    force_even: bool = True,
    node_trainer_ids: Any = None,
) -> Tensor:
    """New ids of this process's share of some nodes: near ones together, and as many as any other if ``force_even``."""
    bounds = partition_book.node_bounds(ntype) if partition_book is not None else _bounds_of(nodes)
    return _split(nodes, bounds, rank, is_even=force_even, by=node_trainer_ids)


def edge_split(
    edges: Any,
    partition_book: GraphPartitionBook | None = None,
    etype: Any = "_E",
    rank: int | None = None,
    force_even: bool = True,
    edge_trainer_ids: Any = None,
) -> Tensor:
    """New ids of this process's share of some edges: near ones together, and as many as any other if ``force_even``."""
    bounds = partition_book.edge_bounds(etype) if partition_book is not None else _bounds_of(edges)
    return _split(edges, bounds, rank, is_even=force_even, by=edge_trainer_ids)


def _bounds_of(given: Any) -> Tensor:
    if not isinstance(given, DistTensor):
        raise FeatureError(
            "a split needs a partition book", cure="pass g.get_partition_book(), or a feature of the graph"
        )
    return given.part_policy.bounds


def _split(given: Any, bounds: Tensor, rank: int | None, *, is_even: bool, by: Any) -> Tensor:
    if by is not None:
        raise GraphError(
            "shares by trainer ids are not there", cure="leave trainer ids out: processes have ids by part"
        )
    mine = vd.rank() if rank is None else rank
    ids = _ids(given, bounds)
    if not is_even:
        first, last = bounds[mine : mine + 2].tolist()
        return ids[(ids >= first) & (ids < last)]
    return torch.tensor_split(ids, len(bounds) - 1)[mine]


def _ids(given: Any, bounds: Tensor) -> Tensor:
    """New ids, ascending, the same on all processes."""
    count = int(bounds[-1])
    if isinstance(given, DistTensor):
        own = _as_mask(given.local_partition)
        return vd.gather_rows(own.nonzero().squeeze(1) + bounds[vd.rank()])
    some = torch.as_tensor(given)
    is_mask = some.dtype == torch.bool or (len(some) == count and count > 1 and bool(((some == 0) | (some == 1)).all()))
    if is_mask and len(some) != count:
        raise GraphError(f"a mask has {len(some)} entries for {count} rows", cure="give a mask of all, or a DistTensor")
    return some.nonzero().squeeze(1) if is_mask else some.long().sort().values


def _as_mask(rows: Tensor) -> Tensor:
    if rows.ndim != 1:
        raise FeatureError(f"a mask has rows of shape {tuple(rows.shape[1:])}", cure="give one truth value a row")
    return rows != 0
