"""Loading: a process's part of a partitioned graph, in little more memory than it takes once it is there.

Takes: a partitioned graph on disk, the ranks. Gives: what is known of the whole, topologies of own in-edges. Runs once
per process and graph. Lists as long as the edges are made in place, some edges at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from vgraph.distributed.whole import SourceHalo, Stored, StoredRows, Whole
from vgraph.errors import GraphError, WorkerError
from vgraph.graphs.data import EdgeType
from vgraph.ir.topology import Topology
from vgraph.runtime.distributed.halo_exchange import make_route, spread
from vgraph.runtime.distributed.ranks import Ranks

_AT_ONCE = 1 << 16  # edges of which ids are translated together


def parts_of_ranks(weights: Sequence[int], shares: Sequence[float]) -> list[int]:
    """Which part is the first of each rank, and the number of parts: consecutive, as even as may be, none without.

    >>> parts_of_ranks([5, 1, 1, 1, 1, 1], [1, 1])
    [0, 1, 6]
    """
    total, wanted, number = sum(weights), sum(shares), len(shares)
    bounds, passed = [0], 0.0
    for rank in range(1, number):
        passed += shares[rank - 1]
        most = len(weights) - (number - rank)  # every later rank needs a part, too
        first, last = bounds[-1] + 1, bounds[-1] + 1
        while last < most and sum(weights[:last]) < total * passed / wanted:
            last += 1
        before = abs(sum(weights[: last - 1]) - total * passed / wanted)
        after = abs(sum(weights[:last]) - total * passed / wanted)
        bounds.append(last - 1 if last > first and before < after else last)
    return [*bounds, len(weights)]


def load_whole(stored: Stored, ranks: Ranks, shares: Sequence[float] | None) -> tuple[Whole, range]:
    """What is known before any edge is read, and the parts of this rank.

    Raises:
        WorkerError: there are more ranks than parts, or ranks have different partitions.
    """
    if shares is not None and len(shares) != ranks.size:
        raise GraphError(f"shares are {list(shares)} for {ranks.size} ranks", cure="give one number above 0 a rank")
    if ranks.size > stored.num_parts:
        fact = f"{ranks.size} ranks have {stored.num_parts} parts between them"
        raise WorkerError(fact, cure="start fewer ranks, or partition the graph into more parts")
    ranks.check_equal(
        int(stored.digest[:15], 16),
        "ranks have different partitions of the graph",
        "copy one folder to all machines; two runs of partition_graph need not divide a graph alike",
    )
    weights = _weights(stored)
    firsts = parts_of_ranks(weights, [1.0] * ranks.size if shares is None else shares)
    mine = range(firsts[ranks.rank], firsts[ranks.rank + 1])
    at = torch.tensor(firsts)
    bounds = {t: stored.bounds(t).index_select(0, at) for t in stored.ntypes}
    original = {t: joined([stored.part(p).orig(t) for p in mine]).long() for t in stored.ntypes}
    counts = {e: stored.num_edges(e) for e in stored.canonical_etypes}
    return Whole(ranks, stored, bounds, counts, original, tuple(firsts)), mine


def _weights(stored: Stored) -> list[int]:
    """Nodes and edges of every part."""
    bounds = [stored.bounds(t) for t in stored.ntypes] + [stored.edge_bounds(e) for e in stored.canonical_etypes]
    return torch.stack([found.diff() for found in bounds]).sum(0).tolist()


def load_topologies(whole: Whole, mine: range) -> dict[EdgeType, Topology]:
    """Own in-edges by type: sources are own nodes, then the halo, which is the same for all types of edges."""
    stored = whole.stored
    parts = [stored.part(p) for p in mine]
    for ntype in stored.ntypes:
        _load_halo(whole, ntype, [part.src(e) for e in stored.canonical_etypes if e[0] == ntype for part in parts])
    original = {t: _original_sources(whole, t) for t in stored.ntypes}
    return {e: _topology(whole, parts, e, original[e[0]]) for e in stored.canonical_etypes}


def _load_halo(whole: Whole, ntype: str, sources: Sequence[Tensor]) -> None:
    """All ranks call, for every type of nodes; ``sources`` are new ids, (edges,) each."""
    ranks, (first, last) = whole.ranks, whole.own(ntype)
    halo = _others(sources, first, last).long()
    ends = torch.searchsorted(halo, whole.bounds[ntype])
    wanted = [halo[ends[r] : ends[r + 1]] - whole.bounds[ntype][r] for r in range(ranks.size)]
    whole.halos[ntype] = halo
    whole.routes[ntype] = make_route(ranks, last - first, wanted)


def _others(sources: Sequence[Tensor], first: int, last: int) -> Tensor:
    """The ids that are not from ``first`` to ``last`` - 1, ascending, each once.

    What has been found is merged when it may have doubled: in few merges, and in memory for few times what is found.
    """
    found, new, waiting = torch.empty(0, dtype=torch.int32), list[Tensor](), 0
    for some in _blocks(sources):
        new.append(torch.unique(some[(some < first) | (some >= last)]))
        waiting += len(new[-1])
        if waiting > max(len(found), _AT_ONCE):
            found, new, waiting = torch.unique(torch.cat([found, *new])), [], 0
    return torch.unique(torch.cat([found, *new]))


def _blocks(ids: Sequence[Tensor]) -> Iterator[Tensor]:
    """All of them in order, some at a time: what is mapped takes no memory of its own until then."""
    for one in ids:
        yield from one.split(_AT_ONCE)


def _original_sources(whole: Whole, ntype: str) -> Tensor:
    if whole.ranks.size == 1:
        return whole.original[ntype]
    return spread(whole.routes[ntype], [whole.original[ntype]], f"original ids of {ntype}")[0]


def _topology(whole: Whole, parts: Sequence[StoredRows], etype: EdgeType, original_src: Tensor) -> Topology:
    num_own, num_dst = whole.num_own(etype[0]), whole.num_own(etype[2])
    num_src = num_own + len(whole.halos[etype[0]])
    src = _local_sources(whole, etype[0], [part.src(etype) for part in parts], num_src)
    dst = _destinations([part.ptr(etype) for part in parts], len(src), src.dtype)
    original = {
        "vertex": whole.original[etype[2]],
        "edge": joined([part.eid(etype) for part in parts]),
        "src": original_src,
    }
    reads_others = bool(len(src)) and int(src.max()) >= num_own
    halo = _agreed_halo(whole, parts, etype, reads_others)
    return Topology(src, dst, num_src, num_dst, original_ids=original, halo=halo)


def _local_sources(whole: Whole, ntype: str, sources: Sequence[Tensor], num_src: int) -> Tensor:
    """Places of new ids among own nodes and then the halo, in as few bits as they take."""
    (first, last), halo = whole.own(ntype), whole.halos[ntype]
    local, filled = torch.empty(sum(map(len, sources)), dtype=_short(num_src)), 0
    for some in map(Tensor.long, _blocks(sources)):
        is_own = (some >= first) & (some < last)
        places = torch.where(is_own, some - first, torch.searchsorted(halo, some) + (last - first))
        local[filled : filled + len(some)] = places
        filled += len(some)
    return local


def _destinations(pointers: Sequence[Tensor], num_edges: int, dtype: torch.dtype) -> Tensor:
    """The number of every edge's destination: how many destinations begin up to it, without the first."""
    dst, passed = torch.zeros(num_edges, dtype=dtype), 0
    for ptr in pointers:
        for some in ptr[:-1].split(_AT_ONCE):
            begins = some + passed
            begins = begins[begins < num_edges]
            dst.index_add_(0, begins, torch.ones(len(begins), dtype=dtype))
        passed += int(ptr[-1])
    dst[:1] -= 1
    return dst.cumsum_(0, dtype=dtype)


def _short(count: int) -> torch.dtype:
    """A dtype for ids below this number."""
    return torch.int32 if count < 2**31 else torch.int64


def joined(columns: Sequence[Tensor]) -> Tensor:
    """One of them is not copied: its file stays mapped."""
    return columns[0] if len(columns) == 1 else torch.cat(list(columns))


def _agreed_halo(whole: Whole, parts: Sequence[StoredRows], etype: EdgeType, reads_others: bool) -> SourceHalo:
    """What all ranks know alike, as it decides which functions run."""
    there, is_cut = _agreed_degrees(whole.ranks, parts, etype, reads_others)
    return SourceHalo(
        whole,
        etype[0],
        num_edges=whole.num_edges[etype],
        has_lonely=0 in there,
        degrees=tuple(degree for degree in there if degree),
        is_cut=is_cut,
        out_degrees=joined([part.outdeg(etype) for part in parts]).long(),
    )


def _agreed_degrees(
    ranks: Ranks, parts: Sequence[StoredRows], etype: EdgeType, reads_others: bool
) -> tuple[list[int], bool]:
    """In-degrees of vertices of any rank, ascending; whether any rank reads rows of another."""
    degrees = torch.cat([part.ptr(etype).diff() for part in parts])
    largest = int(degrees.max()) if len(degrees) else 0
    most, is_cut = ranks.max(torch.tensor([largest, int(reads_others)]), f"largest degree of {etype}").tolist()
    own = torch.zeros(most + 1, dtype=torch.uint8).index_fill_(0, degrees, 1)
    return ranks.max(own, f"degrees of {etype}").nonzero().squeeze(1).tolist(), bool(is_cut)
