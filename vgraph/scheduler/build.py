"""Build: frontiers as slices of rows.

Takes: a Topology, a policy, the row order by its keys. Gives: a Schedule. Runs once per topology.
Source: Cavs section 3.2 (batching policy).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias
from weakref import ref

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from vgraph.ir.schedule import Bounds, Frontier, RowOrder, Schedule
from vgraph.ir.topology import Topology
from vgraph.scheduler.frontiers import Levels
from vgraph.scheduler.policy import SERIAL

FindBounds: TypeAlias = Callable[[Levels, Tensor], Bounds]  # of keys and ``in_ptr``


def build_schedule(
    topology: Topology, policy: str, keys: Levels | None, order: RowOrder, bounds: FindBounds | None = None
) -> Schedule:
    """The frontiers, children first; ``keys``: of ``vertex_keys``; by them ``order``, on the CPU, sorts rows.

    ``bounds`` finds in native code where they lie.
    """
    if bounds is not None and keys is not None and policy != SERIAL and order.in_ptr.shape[0] == len(keys) + 1:
        v, e, degrees = bounds(keys, order.in_ptr)
        return Schedule(ref(topology), policy, order, tuple(map(Frontier, v[:-1], v[1:], e[:-1], e[1:], degrees)))
    v_ptr = _vertex_ptr(topology, policy, keys)
    in_ptr: NDArray[np.int64] = order.in_ptr.numpy()
    v, e = v_ptr.tolist(), in_ptr[v_ptr].tolist()
    degrees = _common_degrees(in_ptr, v_ptr[:-1])
    frontiers = tuple(map(Frontier, v[:-1], v[1:], e[:-1], e[1:], degrees))
    return Schedule(ref(topology), policy, order, frontiers)


def one_frontier(topology: Topology, policy: str, order: RowOrder, degree: int | None) -> Schedule:
    """All rows at once, in the user's order of vertices; ``degree``: the in-degree of all, if there is one."""
    whole = Frontier(0, topology.num_dst, 0, topology.num_edges, degree)
    return Schedule(ref(topology), policy, order, (whole,))


def _vertex_ptr(topology: Topology, policy: str, keys: Levels | None) -> NDArray[np.int64]:
    """Where every frontier begins, and where the last one ends."""
    if keys is None:
        return np.array([0, topology.num_dst])
    if policy == SERIAL:
        return np.arange(topology.num_dst + 1)
    sizes = np.bincount(keys)
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)])


def _common_degrees(in_ptr: NDArray[np.int64], starts: NDArray[np.int64]) -> list[int | None]:
    """The in-degree that all vertices of a frontier have, or None where they differ."""
    degrees = np.diff(in_ptr)
    if not len(degrees):
        return [None] * len(starts)
    least = np.minimum.reduceat(degrees, starts)
    is_common = least == np.maximum.reduceat(degrees, starts)
    return [d if c else None for d, c in zip(least.tolist(), is_common.tolist(), strict=True)]
