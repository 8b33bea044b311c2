"""Whole: what a process knows of a graph of which it has a part.

Takes: what ``loading.py`` has read of a partitioned graph. Gives: own ranges of ids, rows of others. Runs at every
exchange.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor

from vgraph.distributed.kept_halos import ExchangedOnce, KeptHalos
from vgraph.distributed.readouts import reduce_rows, softmax_rows
from vgraph.distributed.windows import HaloWindow, Sources, check_room, make_windows
from vgraph.graphs.data import EdgeType
from vgraph.ir.halo import InEdges
from vgraph.runtime.distributed.halo_exchange import Exchange, Route, fold, spread
from vgraph.runtime.distributed.ranks import Ranks


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
