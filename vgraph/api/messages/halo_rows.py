"""Halo rows: features of sources that other processes hold, where messages read them.

Takes: a topology and features of own sources. Gives: rows of all sources. Runs at every call on a part of a graph.
All processes call the same functions, so what is exchanged, and in which order, is the same everywhere.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from torch import Tensor

from vgraph.api.messages.meanwhile import Coming, Halves, run_meanwhile
from vgraph.api.messages.window_by_window import Outputs, run_by_window
from vgraph.capture.capture import Bound
from vgraph.capture.cut import cut_of
from vgraph.errors import GraphError
from vgraph.ir.halo import Halo
from vgraph.ir.topology import Topology
from vgraph.scheduler.degree_buckets import active_part

SRC = "src:"


def is_without_edges(topology: Topology) -> bool:
    """Whether the whole graph has no edge."""
    return not (topology.num_edges if topology.halo is None else topology.halo.num_edges)


def has_lonely(topology: Topology) -> bool:
    """Whether a vertex of the whole graph has no in-edge."""
    return active_part(topology) is not None if topology.halo is None else topology.halo.has_lonely


def check_uncut(topology: Topology, what: str) -> None:
    """GraphError: other ranks have edges or rows that ``what`` would need."""
    if topology.halo is not None and topology.halo.is_cut:
        raise GraphError(
            f"{what} needs nodes or edges of several ranks in one place, and this graph is divided among ranks",
            cure="use update_all or apply_edges on all edges; or run it on a graph that one process holds",
        )


class Arrivals:
    """Rows of all sources by name, each exchanged once while a function runs on parts of a topology."""

    def __init__(self, topology: Topology) -> None:
        assert topology.halo is not None
        self._topology, self._halo, self._known = topology, topology.halo, dict[str, Tensor]()

    def run(self, bound: Bound, tensors: tuple[Tensor, ...], *, of_edges: bool) -> Outputs:
        """What a function gives where rows have arrived; what is narrowest is sent.

        That may be what the function makes of rows of sources: then they make it, and send that.
        """
        halo, given = self._halo, dict(zip(bound.captured.names, tensors, strict=True))
        columns = {name: rows for name, rows in given.items() if name.startswith(SRC)}
        by_window = halo.room is not None and halo.is_cut
        here = frozenset[str]() if by_window else halo.here(columns)
        held, readers = (here, 1) if by_window else (here | halo.preferred(columns), halo.num_readers)
        cut = cut_of(bound, held, readers) if halo.is_cut else None
        if cut is not None:
            at_sources, bound = cut.bind(bound)
            own = tuple(given[name] for name in at_sources.captured.names)
            for name, rows in zip(cut.places, at_sources(own, _own_sources(self._topology), "once"), strict=True):
                assert rows is not None, name
                given[name] = rows
        names = bound.captured.names
        if by_window:
            return run_by_window(bound, [given[name] for name in names], self._topology, halo, of_edges=of_edges)
        made = () if cut is None else cut.places.keys()
        sent = {name: given[name] for name in names if name.startswith(SRC)}
        if halo.overlaps(sent, here, made):

            def start(halves: Halves) -> Coming:
                return halo.start(sent, here, halves.own_ids, halves.source_ids)

            return run_meanwhile(bound, {n: given[n] for n in names}, self._topology, start, of_edges=of_edges)
        given.update(halo.rows(sent, here, made))
        return bound(tuple(given[name] for name in names), self._topology, "once")

    def inputs(self, names: Sequence[str], tensors: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """A function's inputs, those called ``src:`` with the rows of others; one exchange of what is not known."""
        given = dict(zip(names, tensors, strict=True))
        new = sorted(name for name in names if name.startswith(SRC) and name not in self._known)
        if new:
            self._known.update(self._halo.rows({name: given[name] for name in new}))
        return tuple(self._known.get(name, tensor) for name, tensor in given.items())


@contextmanager
def shared_arrivals(topology: Topology, types_of_sources: Iterable[str]) -> Generator[None]:
    """Meanwhile a column of sources comes once, whichever of the relations read it; one type for each of them."""
    if topology.halo is None:
        yield
        return
    with topology.halo.shared(Counter(types_of_sources)):
        yield


def _own_sources(topology: Topology) -> Topology:
    """Own sources as vertices without edges; kept."""

    def make() -> Topology:
        none = topology.src.new_empty(0)
        return Topology(none, none, topology.num_own_sources, topology.num_own_sources)

    return topology.keep("own_sources", make)


class ReadArrivals(Mapping[str, Tensor]):
    """Features of all sources, each exchanged when it is first read: for functions that are not captured."""

    def __init__(self, halo: Halo, own: Mapping[str, Tensor]) -> None:
        self._halo, self._own, self._known = halo, own, dict[str, Tensor]()

    def __getitem__(self, name: str) -> Tensor:
        if name not in self._known:
            self._known.update(self._halo.rows({name: self._own[name]}))
        return self._known[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._own)

    def __len__(self) -> int:
        return len(self._own)
