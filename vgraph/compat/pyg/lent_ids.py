"""Ids of many edges that kernels read in an order of their own: given back, and copied anew where somebody asks.

Takes: an edge_index and its topology. Gives: the topology without ids of its own. Runs once per topology.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from vgraph.compiler import is_ordered
from vgraph.errors import VGraphError
from vgraph.ir.topology import Ends, Topology
from vgraph.native_part import load_native
from vgraph.runtime.cpu.native import Native


class IdsChangedError(VGraphError, RuntimeError):
    """Ids of edges that nobody has any more: the edge_index in which they were has others by now."""


@dataclass(frozen=True, eq=False)
class LentIds:
    """Copies of ids that lie with whoever gave them: ``ids``, (2, edges), sources first where ``forward``.

    ``checksums``: of the copies in ``dtype`` that were given back, by which a write is noticed, counted or not;
    ``num_bytes``: of the memory in which ``ids`` lie, which may be let go.
    """

    ids: Tensor
    dtype: torch.dtype
    forward: bool
    native: Native
    checksums: tuple[int, ...]
    num_bytes: int

    def __call__(self) -> Ends:
        """The ids as they were.

        Raises:
            IdsChangedError: they are others by now.
        """
        if self.ids.untyped_storage().nbytes() >= self.num_bytes:
            first, second = copied(self.ids, self.dtype)
            ends = (first, second) if self.forward else (second, first)
            if tuple(map(self.native.checksum, ends)) == self.checksums:
                return ends
        fact = f"an edge_index of {self.ids.shape[1]} edges was changed in place after a layer had run on it"
        raise IdsChangedError(fact, cure="write to a copy, edge_index.clone(), while a backward is to come")


def copied(ids: Tensor, dtype: torch.dtype) -> Tensor:
    """A copy without gaps."""
    return ids.to(dtype, copy=True, memory_format=torch.contiguous_format)


def give_back(topology: Topology, ids: Tensor, *, forward: bool) -> bool:
    """Lets go of a topology's copies of ``ids``; False: they are in no order yet, or no native code can tell them."""
    native = load_native() if is_ordered(topology) else None
    if native is None:
        return False
    ends = topology.src, topology.dst
    checksums, num_bytes = tuple(map(native.checksum, ends)), ids.untyped_storage().nbytes()
    topology.give_back(LentIds(ids, ends[0].dtype, forward, native, checksums, num_bytes))
    return True
