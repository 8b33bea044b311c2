"""Once: the schedule of few edges, all rows at once, where one call of native code checks ids and puts them in order.

Takes: a Topology, or ids that may be wrong; what sorts edges. Gives: a Schedule. Runs once per topology, where a small
graph pays for calls rather than for sorting (ADR 0024).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import torch
from torch import Tensor

from vgraph.ir.schedule import RowOrder, Schedule
from vgraph.ir.topology import Topology
from vgraph.scheduler.build import one_frontier
from vgraph.scheduler.policy import ONCE

SortEdges: TypeAlias = Callable[[Topology], "tuple[RowOrder, int | None] | None"]  # see ``Native.order_edges``


def order_few(topology: Topology, sort: SortEdges) -> Schedule:
    """The schedule of a topology, whose ids are those of vertices."""
    found = sort(topology)
    assert found is not None, "ids are those of vertices"
    return one_frontier(topology, ONCE, *found)


def copy_few(
    ids: Tensor, num_src: int, num_dst: int, sort: SortEdges, *, forward: bool
) -> tuple[Topology, Schedule] | None:
    """A copy of edges ``ids[0] -> ids[1]``, (2, edges) of int64, in order at once; None: an id is that of no vertex.

    ``forward``: whether they lead from the first row to the second.
    """
    first, second = ids.detach().clone(memory_format=torch.contiguous_format)
    topology = Topology(*((first, second) if forward else (second, first)), num_src, num_dst)
    found = sort(topology)
    return None if found is None else (topology, one_frontier(topology, ONCE, *found))
