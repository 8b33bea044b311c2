"""Grouped: the lists of a graph in memory, from which edges are drawn.

Takes: a topology. Gives: its Lists, kept with it. Runs once per topology, before the first draw.
Ids are as short as they can be, since a draw reads them at random; the ids of edges are put in order when somebody
reads them. Compiled where there is a compiler, else what the topology itself has of its edges.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from vgraph.graphs.draw.kernels import address, pool, run
from vgraph.graphs.draw.lists import ListPart, Lists
from vgraph.graphs.draw.random_numbers import Array
from vgraph.ir.topology import Compressed, Topology

_SHORT = 2**31  # ids below this have 32 bits
_one_at_a_time = threading.Lock()  # several workers of a loader need the same lists


def lists_of(topology: Topology, *, of_in_edges: bool) -> Lists:
    """The lists of every destination's in-edges, or every source's out-edges."""
    with _one_at_a_time:
        return topology.keep(f"lists of {'in' if of_in_edges else 'out'}-edges", lambda: _made(topology, of_in_edges))


def _made(topology: Topology, of_in_edges: bool) -> Lists:
    ends = (topology.dst, topology.src) if of_in_edges else (topology.src, topology.dst)
    sizes = (topology.num_dst, topology.num_src) if of_in_edges else (topology.num_src, topology.num_dst)
    known: Compressed | None = vars(topology).get("csc" if of_in_edges else "csr")
    if known is None and not _is_sorted(ends[0]) and max(sizes[1], topology.num_edges) < _SHORT:
        grouped = _grouped(ends[0].contiguous().numpy(), ends[1].contiguous().numpy(), sizes[0])
        if grouped is not None:
            return grouped
    known = known or (topology.csc if of_in_edges else topology.csr)
    if known.edge_ids is None:  # the edges as they were given, which may lie on disk
        return Lists([ListPart(known.ptr.numpy(), known.other.numpy())])
    other = known.other.int() if sizes[1] < _SHORT else known.other
    return Lists([ListPart(known.ptr.numpy(), other.numpy(), known.edge_ids.numpy())])


def _is_sorted(ids: Tensor) -> bool:
    return len(ids) < 2 or bool((ids[1:] >= ids[:-1]).all())


def _grouped(group: Array, other: Array, count: int) -> Lists | None:
    """Lists with short ids, put in order by a kernel; None: nothing compiles."""
    ptr = np.zeros(count + 1, np.int64)
    grouping = [address(group), group.itemsize, address(other), other.itemsize, len(group), count, address(ptr)]
    threads = [pool(), torch.get_num_threads()]
    if run("vg_group", [*grouping, 0, *threads]) is None:
        return None
    found = np.empty(len(group), np.int32)
    run("vg_group", [*grouping, address(found), *threads])
    return Lists([ListPart(ptr, found)], late_ids=_ids_in_order(group, ptr))


def _ids_in_order(group: Array, ptr: Array) -> Callable[[], Array]:
    """What puts the ids of edges in the lists' order."""

    def make() -> Array:
        found = np.empty(len(group), np.int32)
        words = [address(group), group.itemsize, 0, 8, len(group), len(ptr) - 1, address(ptr), address(found)]
        run("vg_group", [*words, pool(), torch.get_num_threads()])
        return found

    return make
