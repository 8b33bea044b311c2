"""Whole: what a process knows of a graph of which it has a part.

Takes: a partitioned graph on disk, the ranks. Gives: own ranges of ids, topologies of own in-edges. Runs once per
process and graph.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor

from vgraph.distributed.kept_halos import ExchangedOnce, KeptHalos
from vgraph.distributed.readouts import reduce_rows, softmax_rows
from vgraph.distributed.windows import HaloWindow, Sources, check_room, make_windows
from vgraph.errors import GraphError, WorkerError
from vgraph.graphs.data import EdgeType
from vgraph.ir.halo import InEdges
from vgraph.ir.topology import Topology
from vgraph.runtime.distributed.halo_exchange import Exchange, Route, fold, make_route, spread
from vgraph.runtime.distributed.ranks import Ranks

_AT_ONCE = 1 << 22  # edges of which ids are translated together


class StoredRows(Protocol):
    """One part of a stored graph; see ``stored/partitioned_graph.py``."""

    def orig(self, ntype: str) -> Tensor: ...
    def ptr(self, etype: EdgeType) -> Tensor: ...
    def src(self, etype: EdgeType) -> Tensor: ...
    def eid(self, etype: EdgeType) -> Tensor: ...
    def outdeg(self, etype: EdgeType) -> Tensor: ...
    def node_data(self, ntype: str, name: str) -> Tensor: ...
    def edge_data(self, etype: EdgeType, name: str) -> Tensor: ...


class Stored(Protocol):
    """What is read of a partitioned graph; see ``stored/partitioned_graph.py``."""

    @property
    def num_parts(self) -> int: ...
    @property
    def digest(self) -> str: ...
    @property
    def ntypes(self) -> list[str]: ...
    @property
    def canonical_etypes(self) -> list[EdgeType]: ...
    def num_edges(self, etype: EdgeType) -> int: ...
    def bounds(self, ntype: str) -> Tensor: ...
    def edge_bounds(self, etype: EdgeType) -> Tensor: ...
    def node_schemes(self, ntype: str) -> Mapping[str, Any]: ...
    def edge_schemes(self, etype: EdgeType) -> Mapping[str, Any]: ...
    def new_ids(self, ntype: str) -> Tensor: ...
    def owners(self, ntype: str, new_ids: Tensor) -> Tensor: ...
    def part(self, part: int) -> StoredRows: ...


@dataclass(eq=False)
class Whole:
    """A graph on ranks: ``bounds`` by node type say where each rank's new ids begin, (ranks + 1,).

    ``halos``: by node type the new ids of other ranks' nodes from which edges come here, ascending; ``routes``: how
    their rows come.
    """

    ranks: Ranks
    stored: Stored
    bounds: Mapping[str, Tensor]
    num_edges: Mapping[EdgeType, int]
    original: Mapping[str, Tensor]  # of own nodes
    first_parts: tuple[int, ...]  # of each rank, and the number of parts
    halos: dict[str, Tensor] = field(default_factory=dict[str, Tensor])
    routes: dict[str, Route] = field(default_factory=dict[str, Route])
    once: ExchangedOnce = field(default_factory=ExchangedOnce)
    halo_bytes: int | None = None  # that may be here at a time
    overlap: bool = False  # whether vertices that read own rows alone are computed while others' rows come

    def __post_init__(self) -> None:
        self.kept = KeptHalos(self.ranks)

    def own(self, ntype: str) -> tuple[int, int]:
        """The first own new id, and the first that is not own any more."""
        first, last = self.bounds[ntype][self.ranks.rank : self.ranks.rank + 2].tolist()
        return first, last

    def num_own(self, ntype: str) -> int:
        first, last = self.own(ntype)
        return last - first

    def num_nodes(self, ntype: str) -> int:
        """Of all ranks."""
        return int(self.bounds[ntype][-1])

    def original_ids(self, ntype: str, new_ids: Tensor) -> Tensor:
        """Original ids of any nodes of which the parts are on this machine."""
        first, last = self.own(ntype)
        if not new_ids.numel() or (int(new_ids.min()) >= first and int(new_ids.max()) < last):
            return self.original[ntype].index_select(0, new_ids - first)
        owners, out = self.stored.owners(ntype, new_ids), torch.empty_like(new_ids)
        for part in owners.unique().tolist():
            mine = (owners == part).nonzero().squeeze(1)
            local = new_ids.index_select(0, mine) - self.stored.bounds(ntype)[part]
            out[mine] = self.stored.part(part).orig(ntype).index_select(0, local).long()
        return out

    def new_ids(self, ntype: str, local: Tensor) -> Tensor:
        """New ids of places among own nodes and then the halo."""
        first, last = self.own(ntype)
        if ntype not in self.halos:
            return local + first
        return torch.cat([torch.arange(first, last), self.halos[ntype]]).index_select(0, local)


@dataclass(frozen=True, eq=False)
class SourceHalo:
    """What a relation's topology knows of other ranks; see ``vgraph.ir.halo``."""

    whole: Whole
    ntype: str  # of the sources
    num_edges: int
    has_lonely: bool
    degrees: tuple[int, ...]
    is_cut: bool
    out_degrees: Tensor  # of own sources, in the whole graph

    @property
    def route(self) -> Route:
        return self.whole.routes[self.ntype]

    @property
    def num_own(self) -> int:
        return self.route.num_own

    @property
    def _most_rows(self) -> int:
        """Of sources that any rank has, at most: own ones and those of others."""
        return int(self.whole.bounds[self.ntype].diff().max()) + self.route.most_rows

    def here(self, columns: Mapping[str, Tensor]) -> frozenset[str]:
        """Names of columns of which others' rows are here."""
        if self.whole.ranks.size == 1:
            return frozenset(columns)
        once, kept = self.whole.once, self.whole.kept
        shared = {name for name, column in columns.items() if once.find(self.ntype, column) is not None}
        others = {name: column for name, column in columns.items() if name not in shared}
        return kept.here(self.ntype, others) | shared

    def preferred(self, columns: Mapping[str, Tensor]) -> frozenset[str]:
        """Names of columns that are to come, as nothing else may, for they will be kept."""
        kept, most = self.whole.kept, self._most_rows
        return frozenset(n for n, one in columns.items() if kept.prefers and kept.wants(self.ntype, n, one, most))

    def rows(
        self, columns: Mapping[str, Tensor], here: Collection[str] | None = None, made: Collection[str] = ()
    ) -> dict[str, Tensor]:
        """Own rows and then others', by name, in one exchange of what is not here."""
        if self.whole.ranks.size == 1 or not columns:
            return dict(columns)
        here = self.here(columns) if here is None else here
        found = {name: self._known(name, column) for name, column in columns.items() if name in here}
        missing = {name: columns[name] for name in sorted(columns.keys() - found.keys())}
        if missing:
            come = spread(self.route, list(missing.values()), self._told(missing))
            found.update(zip(missing, come, strict=True))
        for name, column in missing.items():
            if name not in made:
                self._keep(name, column, found[name])
        return found

    def overlaps(self, columns: Mapping[str, Tensor], here: Collection[str], made: Collection[str]) -> bool:
        """Whether what is not here comes while vertices that do not read it are computed: not what others share."""
        missing = columns.keys() - here
        if not (self.whole.overlap and self.is_cut and missing):
            return False
        return not any(self._stays(name, columns[name]) for name in missing if name not in made)

    def start(
        self, columns: Mapping[str, Tensor], here: Collection[str], own_ids: Tensor, source_ids: Tensor
    ) -> tuple[dict[str, Tensor], Callable[[], dict[str, Tensor]]]:
        """What is not here begins to come. Own rows; and what waits for rows of the sources ``source_ids``, by name.

        ``own_ids``: own ones among them, before those of others.
        """
        missing = {name: columns[name] for name in sorted(columns.keys() - here)}
        exchange = Exchange(self.route, list(missing.values()), self._told(missing), own_ids)

        def wait() -> dict[str, Tensor]:
            known = {
                name: self._known(name, columns[name]).index_select(0, source_ids) for name in columns.keys() & here
            }
            return known | dict(zip(missing, exchange.wait(), strict=True))

        return {**columns, **dict(zip(missing, exchange.own, strict=True))}, wait

    def _told(self, columns: Mapping[str, Tensor]) -> str:
        """What an exchange is called on all ranks."""
        return f"{self.ntype} {','.join(f'{n}:{tuple(one.shape[1:])}{one.dtype}' for n, one in columns.items())}"

    def _stays(self, name: str, column: Tensor) -> bool:
        """Whether its rows are for other calls, too."""
        return self.whole.once.is_on or self.whole.kept.wants(self.ntype, name, column, self._most_rows)

    def _known(self, name: str, column: Tensor) -> Tensor:
        shared = self.whole.once.find(self.ntype, column)
        return self.whole.kept.rows(self.ntype, name, column) if shared is None else shared

    def _keep(self, name: str, column: Tensor, rows: Tensor) -> None:
        kept, most = self.whole.kept, self._most_rows
        self.whole.once.note(self.ntype, column, rows)
        if kept.wants(self.ntype, name, column, most):
            kept.keep(self.ntype, name, column, rows, most)

    @property
    def room(self) -> int | None:
        """Bytes of others' rows that may be here at a time."""
        return self.whole.halo_bytes

    def windows(self, edges: InEdges, row_bytes: int) -> Sequence[HaloWindow]:
        """Windows of which none fetches more than there is room for."""
        assert self.room is not None
        whole = self.whole
        sources = Sources(whole.ranks, self.num_own, whole.halos[self.ntype], whole.bounds[self.ntype])
        found, largest = make_windows(edges, sources, self.room // max(row_bytes, 1))
        check_room(largest, row_bytes, self.room)
        return found

    @property
    def num_readers(self) -> int:
        """How many relations that begin at these sources pass messages now."""
        return self.whole.once.readers.get(self.ntype, 1)

    def shared(self, num_readers: Mapping[str, int]) -> AbstractContextManager[None]:
        """Meanwhile a column comes once, whichever relations read it."""
        return self.whole.once.during(num_readers)

    def folded(self, rows: Tensor) -> Tensor:
        """Own rows, to which what others have of them is added."""
        return fold(self.route, [rows], self.ntype)[0] if self.whole.ranks.size > 1 else rows

    def reduced(self, rows: Tensor, reducer: str) -> Tensor:
        """``sum``, ``mean``, ``max`` or ``min`` of the rows of all ranks, (1, ...); 0 of none."""
        return reduce_rows(self.whole.ranks, rows, reducer)

    def softmax(self, rows: Tensor) -> Tensor:
        """Own rows of the softmax over the rows of all ranks."""
        return softmax_rows(self.whole.ranks, rows)

    def agreed(self, seed: Tensor) -> Tensor:
        """The seed of rank 0."""
        return self.whole.ranks.of_first(seed, "seed") if self.whole.ranks.size > 1 else seed


# ---------------------------------------------------------------- loading
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
    if shares is not None and (len(shares) != ranks.size or min(shares) <= 0):
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
    original = {t: torch.cat([stored.part(p).orig(t) for p in mine]).long() for t in stored.ntypes}
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
    halo = torch.empty(0, dtype=torch.int64)
    for some in _blocks(sources):
        halo = torch.unique(torch.cat([halo, some[(some < first) | (some >= last)]]))
    ends = torch.searchsorted(halo, whole.bounds[ntype])
    wanted = [halo[ends[r] : ends[r + 1]] - whole.bounds[ntype][r] for r in range(ranks.size)]
    whole.halos[ntype] = halo
    whole.routes[ntype] = make_route(ranks, last - first, wanted)


def _blocks(ids: Sequence[Tensor]) -> Iterator[Tensor]:
    """All of them in order as int64, some at a time: what is mapped takes no memory of its own until then."""
    for one in ids:
        for first in range(0, len(one), _AT_ONCE):
            yield one[first : first + _AT_ONCE].long()


def _original_sources(whole: Whole, ntype: str) -> Tensor:
    if whole.ranks.size == 1:
        return whole.original[ntype]
    return spread(whole.routes[ntype], [whole.original[ntype]], f"original ids of {ntype}")[0]


def _topology(whole: Whole, parts: Sequence[StoredRows], etype: EdgeType, original_src: Tensor) -> Topology:
    first, last = whole.own(etype[0])
    degrees = torch.cat([part.ptr(etype).diff() for part in parts])
    num_src, num_dst = last - first + len(whole.halos[etype[0]]), len(degrees)
    src = _local_sources(whole, etype[0], [part.src(etype) for part in parts], num_src)
    numbers = torch.arange(num_dst, dtype=_short(num_dst))
    dst = torch.repeat_interleave(numbers, degrees, output_size=len(src))
    original = {
        "vertex": whole.original[etype[2]],
        "edge": joined([part.eid(etype) for part in parts]),
        "src": original_src,
    }
    out_degrees = torch.cat([part.outdeg(etype) for part in parts]).long()
    reads_others = bool(len(src)) and int(src.max()) >= last - first
    halo = _agreed_halo(whole, etype, degrees, reads_others, out_degrees)
    return Topology(src, dst.to(src.dtype), num_src, num_dst, original_ids=original, halo=halo)


def _local_sources(whole: Whole, ntype: str, sources: Sequence[Tensor], num_src: int) -> Tensor:
    """Places of new ids among own nodes and then the halo, in as few bits as they take."""
    (first, last), halo = whole.own(ntype), whole.halos[ntype]
    local, filled = torch.empty(sum(map(len, sources)), dtype=_short(num_src)), 0
    for some in _blocks(sources):
        is_own = (some >= first) & (some < last)
        places = torch.where(is_own, some - first, torch.searchsorted(halo, some) + (last - first))
        local[filled : filled + len(some)] = places
        filled += len(some)
    return local


def _short(count: int) -> torch.dtype:
    """A dtype for ids below this number."""
    return torch.int32 if count < 2**31 else torch.int64


def joined(columns: Sequence[Tensor]) -> Tensor:
    """One of them is not copied: its file stays mapped."""
    return columns[0] if len(columns) == 1 else torch.cat(list(columns))


def _agreed_halo(whole: Whole, etype: EdgeType, degrees: Tensor, reads_others: bool, out: Tensor) -> SourceHalo:
    """What all ranks know alike, as it decides which functions run."""
    ranks = whole.ranks
    largest = int(degrees.max()) if len(degrees) else 0
    most, is_cut = ranks.max(torch.tensor([largest, int(reads_others)]), f"largest degree of {etype}").tolist()
    own = torch.zeros(most + 1, dtype=torch.uint8).index_fill_(0, degrees, 1)
    there = ranks.max(own, f"degrees of {etype}")
    found = there.nonzero().squeeze(1).tolist()
    return SourceHalo(
        whole,
        etype[0],
        num_edges=whole.num_edges[etype],
        has_lonely=bool(there[0]),
        degrees=tuple(degree for degree in found if degree),
        is_cut=bool(is_cut),
        out_degrees=out,
    )
