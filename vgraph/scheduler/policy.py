"""Policy: how the vertices of a graph are divided into frontiers.

Takes: phases, and what the caller asked for. Gives: a policy's name. Runs once per topology.
Source: Cavs section 3.2 (batching policy; serial evaluation is its baseline).
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from vgraph.errors import NameLookupError
from vgraph.ir.schedule import Phase
from vgraph.ir.topology import Topology
from vgraph.scheduler.agenda import Types, agenda, split_levels, typed_lower_bound
from vgraph.scheduler.frontiers import Levels, Walk, levels

FRONTIER = "frontier"  # one frontier a level; of several types of vertices, one a level and type
TYPE_AWARE = "type-aware"  # vertices of one type that wait for nothing; types in an order that makes few batches
SERIAL = "serial"  # one vertex a frontier, in the same order of rows as "frontier"
ONCE = "once"  # no levels: a single frontier of all rows, in the user's order
POLICIES = (FRONTIER, TYPE_AWARE, SERIAL, ONCE)


def choose_policy(phases: Iterable[Phase], asked: str | None = None) -> str:
    """The policy a Program runs under: the asked one, unless its loops need another.

    A Program without loops keeps what was asked: it may be the backward of one that loops, and
    both must lay rows out in the same order. Without a wish it runs once.
    """
    if asked is not None and asked not in POLICIES:
        names = ", ".join(f'"{name}"' for name in POLICIES)
        raise NameLookupError(f'there is no policy "{asked}"', cure=f"pass one of {names}")
    loops = [phase for phase in phases if phase.is_loop]
    if any(phase.is_serial for phase in loops):
        return SERIAL
    assert not (loops and asked == ONCE), "what is carried along edges cannot run once"
    return asked or (FRONTIER if loops else ONCE)


def vertex_keys(topology: Topology, policy: str, types: Types | None = None, walk: Walk | None = None) -> Levels | None:
    """By what rows are sorted, (vertices,), so that frontiers are slices; None: not sorted.

    ``types``: of every vertex, from 0; then no frontier holds two of them.
    """
    if policy == ONCE:
        return None
    found = levels(topology, walk)
    if types is None or policy == SERIAL:
        return found
    return (agenda if policy == TYPE_AWARE else split_levels)(topology, types)


def second_keys(topology: Topology, policy: str, keys: Levels | None, walk: Walk | None = None) -> Levels | None:
    """By what rows of one frontier are sorted, (vertices,); None: by vertex id.

    Where no vertex has two children (sequences), those with the longest way to go come first: then the children of
    a frontier are the first rows of the one before it, and are read where they lie. Leaves stay in order of ids.
    """
    if policy not in (FRONTIER, SERIAL) or keys is None:
        return None
    if not topology.num_edges or topology.num_edges != np.count_nonzero(keys):
        return None
    to_go = levels(topology.reversed, walk)
    return np.where(keys > 0, to_go.max() - to_go, 0).astype(np.int32)


def lower_bound(topology: Topology, types: Types | None = None) -> int:
    """The least number of frontiers under any policy that puts children first and keeps types apart."""
    if types is None:
        return int(levels(topology).max(initial=-1)) + 1
    return typed_lower_bound(topology, types)


def count_batches(topology: Topology, types: Types | None = None) -> dict[str, int]:
    """How many frontiers each policy makes."""
    keys = {policy: vertex_keys(topology, policy, types) for policy in (FRONTIER, TYPE_AWARE)}
    made = {policy: 0 if key is None else int(key.max(initial=-1)) + 1 for policy, key in keys.items()}
    return {SERIAL: topology.num_dst, **made}
