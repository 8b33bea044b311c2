"""Hot rows: which rows of other machines are worth keeping, within a budget of bytes.

Takes: the machine's lists, its seeds, a sampler's fanouts. Gives: ids, most accesses first. Runs once per loader.
Source: Kaler et al. 2023 (SALIENT++, section 4: expected accesses of sampled neighbourhoods, a static cache).
What lies behind lists of other machines is not followed: their sources count by how often they occur here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from vgraph.api.graph import Graph
from vgraph.distributed.sampled.exchange import Stamp
from vgraph.distributed.sampled.rows import HotRows, Request, fetch_rows
from vgraph.distributed.sampled.served import Served
from vgraph.graphs.data import EdgeType
from vgraph.graphs.draw.neighbors import fanouts_of
from vgraph.graphs.draw.random_numbers import Array
from vgraph.runtime.distributed.peers import Peers

Scores = dict[str, tuple[Array, Array]]  # by type: ids of other machines, and how often they are asked for


def keep_hot_rows(
    served: Served,
    peers: Peers,
    outline: Graph,
    sampler: Any,
    seeds: Mapping[str, Array],
    budget: int,
) -> HotRows:
    """The rows that fit into ``budget`` bytes, read from their owners; all ranks call."""
    hot, kinds = HotRows(), _wanted_of_nodes(outline, sampler)
    if peers.size == 1 or not kinds:
        return hot
    fanouts = getattr(sampler, "fanouts", None)
    scores = _in_lists(served) if fanouts is None else _by_fanouts(served, outline, fanouts, seeds)
    chosen = _within(scores, {t: _row_bytes(served, t, names) for t, names in kinds.items()}, max(budget, 0))
    requests = [Request(t, names, chosen[t]) for t, names in kinds.items()]
    stamp: Stamp = (-1, -1)
    for one, columns in zip(requests, fetch_rows(served, peers, HotRows(), requests, stamp), strict=True):
        hot.ids[one.kind] = one.ids
        hot.rows.update({(one.kind, name): rows for name, rows in zip(one.names, columns, strict=True)})
    return hot


def _wanted_of_nodes(outline: Graph, sampler: Any) -> dict[str, tuple[str, ...]]:
    """The features of nodes that minibatches read of sources, by type."""
    from_blocks = getattr(sampler, "prefetch_node_feats", ()) or ()
    by_type = from_blocks if isinstance(from_blocks, Mapping) else {outline.ntypes[0]: from_blocks}
    return {t: tuple(names) for t, names in by_type.items() if names}


def _row_bytes(served: Served, ntype: str, names: Sequence[str]) -> int:
    return 8 + sum(served.rows(ntype, name).row_bytes for name in names)


def _within(scores: Scores, row_bytes: Mapping[str, int], budget: int) -> dict[str, Array]:
    """The ids that are asked for most often a byte, ascending."""
    found = {t: np.empty(0, np.int64) for t in row_bytes}
    there = [t for t in row_bytes if t in scores]
    if not there:
        return found
    ids = np.concatenate([scores[t][0] for t in there])
    kinds = np.repeat(np.arange(len(there)), [len(scores[t][0]) for t in there])
    costs = np.array([row_bytes[t] for t in there], np.int64)[kinds]
    gains = np.concatenate([scores[t][1] for t in there]) / costs
    order = np.lexsort((ids, kinds, -gains))
    order = order[(np.cumsum(costs[order]) <= budget) & (gains[order] > 0)]
    return {t: np.sort(ids[order][kinds[order] == i]) for i, t in enumerate(there)} | {
        t: none for t, none in found.items() if t not in there
    }


def _in_lists(served: Served) -> Scores:
    """How often each node of other machines stands in lists of this one."""
    found: dict[str, list[Array]] = {}
    for etype in served.stored.canonical_etypes:
        for part in served.lists(etype).parts:
            sources = part.other.astype(np.int64)
            found.setdefault(etype[0], []).append(sources[served.machines_of(etype[0], sources) != served.machine])
    return {t: _counted(np.concatenate(parts)) for t, parts in found.items()}


def _counted(ids: Array, numbers: Array | None = None) -> tuple[Array, Array]:
    unique, places = np.unique(ids, return_inverse=True)
    return unique, np.bincount(places, numbers, len(unique)).astype(np.float64)


def _by_fanouts(served: Served, outline: Graph, fanouts: Sequence[Any], seeds: Mapping[str, Array]) -> Scores:
    """Expected accesses: one a seed, and what a list gives to each of its entries by every hop's fanout."""
    bounds = {t: served.range_of(t) for t in outline.ntypes}
    own = {t: np.zeros(last - first) for t, (first, last) in bounds.items()}
    far: dict[str, list[tuple[Array, Array]]] = {t: [] for t in outline.ntypes}
    for t, ids in seeds.items():
        mine = ids[(ids >= bounds[t][0]) & (ids < bounds[t][1])]
        own[t][mine - bounds[t][0]] = 1.0
    for fanout in reversed(list(fanouts)):
        counts = fanouts_of(outline, fanout)
        reached = {t: accesses.copy() for t, accesses in own.items()}
        for etype in outline.canonical_etypes:
            ids, gains = _given_on(served, etype, own[etype[2]], counts[etype])
            first, last = bounds[etype[0]]
            is_own = (ids >= first) & (ids < last)
            reached[etype[0]] += np.bincount(ids[is_own] - first, gains[is_own], last - first)
            far[etype[0]].append(_counted(ids[~is_own], gains[~is_own]))
        own = {t: np.minimum(accesses, 1.0) for t, accesses in reached.items()}
    return {
        t: _counted(*(np.concatenate(column) for column in zip(*parts, strict=True)))
        for t, parts in far.items()
        if parts
    }


def _given_on(served: Served, etype: EdgeType, accesses: Array, fanout: int) -> tuple[Array, Array]:
    """(sources of this machine's edges that may be drawn, the chance that each is)."""
    ids, gains, first = list[Array](), list[Array](), 0
    for part in served.lists(etype).parts:
        degrees = np.diff(part.ptr)
        mine = accesses[first : first + len(degrees)]
        first += len(degrees)
        share = mine if fanout < 0 else mine * np.minimum(1.0, fanout / np.maximum(degrees, 1))
        per_edge = np.repeat(share, degrees)
        chosen = per_edge > 0
        ids.append(part.other[chosen].astype(np.int64))
        gains.append(per_edge[chosen])
    return np.concatenate(ids), np.concatenate(gains)
