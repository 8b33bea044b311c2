"""Windows: own vertices in groups that read few rows of other ranks, so that no rank ever holds all that it reads.

Takes: a topology of own in-edges, how many rows may be here at a time. Gives: its windows, as many on every rank. Runs
once per topology and number of rows. Source: Mostafa 2022 (SAR), section 3: rows are fetched again in the backward.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from vgraph.errors import GraphError
from vgraph.ir.halo import InEdges
from vgraph.runtime.distributed.halo_exchange import Route, add_back, fetch, make_route
from vgraph.runtime.distributed.ranks import Ranks


@dataclass(frozen=True, eq=False)
class Sources:
    """Who owns the sources: own ones come first, then the halo, of new ids ``halo`` among ``bounds`` of ranks."""

    ranks: Ranks
    num_own: int
    halo: Tensor
    bounds: Tensor


@dataclass(frozen=True, eq=False)
class HaloWindow:
    """Some own vertices with all of their in-edges; see ``vgraph.ir.halo``. Without a route all rows are own."""

    vertex_ids: Tensor
    edge_ids: Tensor
    ends: tuple[Tensor, Tensor]
    num_sources: int
    original_ids: Mapping[str, Tensor]
    own_ids: Tensor
    route: Route | None

    def fetch(self, columns: Sequence[Tensor], what: str) -> list[Tensor]:
        """Rows of own sources, then those of other ranks."""
        own = [column.index_select(0, self.own_ids) for column in columns]
        if self.route is None or not columns:
            return own
        others = fetch(self.route, columns, f"window {what}")
        return [torch.cat(pair) for pair in zip(own, others, strict=True)]

    def give_back(self, totals: Sequence[Tensor], rows: Sequence[Tensor], what: str) -> None:
        """Adds what belongs to the fetched rows to own ``totals``, on whichever rank owns them."""
        count = len(self.own_ids)
        for total, part in zip(totals, rows, strict=True):
            total.index_add_(0, self.own_ids, part[:count])
        if self.route is not None and totals:
            add_back(self.route, totals, [part[count:] for part in rows], f"window's gradients {what}")


def make_windows(edges: InEdges, sources: Sources, most_rows: int) -> tuple[tuple[HaloWindow, ...], int]:
    """Vertices that read own rows alone, then others in as few windows as a walk in order makes; all ranks call.

    Also the most rows that one window fetches anywhere: more than ``most_rows`` where one vertex reads so many.
    """
    is_remote, num_dst = edges.src >= sources.num_own, len(edges.ptr) - 1
    ends = torch.repeat_interleave(torch.arange(num_dst), edges.ptr.diff(), output_size=len(edges.src))
    counts = torch.bincount(ends[is_remote], minlength=num_dst)
    boundary, remote = counts.nonzero().squeeze(1), edges.src[is_remote]
    starts = torch.cat([torch.zeros(1, dtype=torch.int64), counts[boundary].cumsum(0)])
    bounds = _cut_up(remote, starts, most_rows)
    fullest = max((_num_rows(remote, starts, a, b) for a, b in bounds), default=0)
    largest, number = sources.ranks.max(torch.tensor([fullest, len(bounds)]), "windows").tolist()
    if largest > most_rows:
        return (), largest
    groups = [(counts == 0).nonzero().squeeze(1), *(boundary[a:b] for a, b in bounds)]
    groups += [boundary[:0]] * (number + 1 - len(groups))
    return tuple(_window(edges, sources, group, reads_others=i > 0) for i, group in enumerate(groups)), largest


def check_room(largest: int, row_bytes: int, room: int) -> None:
    """GraphError: one node reads more than there is room for."""
    if largest * row_bytes > room:
        raise GraphError(
            f"a node reads {largest} rows of other ranks, {largest * row_bytes} bytes, and halo_bytes is {room}",
            cure=f"give halo_bytes of {largest * row_bytes} or more",
        )


def _num_rows(remote: Tensor, starts: Tensor, first: int, last: int) -> int:
    return len(torch.unique(remote[starts[first] : starts[last]]))


def _cut_up(remote: Tensor, starts: Tensor, most: int) -> list[tuple[int, int]]:
    """Stretches of vertices that read at most so many different rows, at least one vertex each.

    A row counts where it is first read: where it was not read before, or before the stretch.
    """
    bounds, first, before = list[tuple[int, int]](), 0, _place_before(remote)
    while first < len(starts) - 1:
        start, ahead = int(starts[first]), 2 * max(most, 1)
        while True:
            different = (before[start : start + ahead] < start).cumsum(0)
            if start + ahead >= len(remote) or int(different[-1]) > most:
                break
            ahead *= 2
        fit = int(torch.searchsorted(different, most, right=True))
        last = max(int(torch.searchsorted(starts, start + fit, right=True)) - 1, first + 1)
        bounds.append((first, last))
        first = last
    return bounds


def _place_before(rows: Tensor) -> Tensor:
    """Where the same row stands before each place; -1 where it does not."""
    order = torch.argsort(rows, stable=True)
    found = torch.full_like(order, -1)
    kinds = rows.index_select(0, order)
    found[order[1:]] = torch.where(kinds[1:] == kinds[:-1], order[:-1], -1)
    return found


def _window(edges: InEdges, of: Sources, vertex_ids: Tensor, *, reads_others: bool) -> HaloWindow:
    counts = edges.ptr.diff().index_select(0, vertex_ids)
    begins = edges.ptr.index_select(0, vertex_ids) - counts.cumsum(0) + counts
    places = torch.repeat_interleave(begins, counts)
    places = places + torch.arange(len(places))
    edge_ids, known = edges.edge_ids.index_select(0, places), edges.original_ids
    sources, src = torch.unique(edges.src.index_select(0, places), return_inverse=True)
    dst = torch.repeat_interleave(torch.arange(len(vertex_ids)), counts)
    own = sources[sources < of.num_own]
    return HaloWindow(
        vertex_ids=vertex_ids,
        edge_ids=edge_ids,
        ends=(src, dst),
        num_sources=len(sources),
        original_ids={
            "vertex": known["vertex"][vertex_ids],
            "edge": known["edge"][edge_ids],
            "src": known["src"][sources],
        },
        own_ids=own,
        route=_route(of, sources[len(own) :] - of.num_own) if reads_others else None,
    )


def _route(of: Sources, places: Tensor) -> Route:
    """How rows come that lie at these places of the halo."""
    wanted = of.halo.index_select(0, places)
    ends = torch.searchsorted(wanted, of.bounds)
    ids = [wanted[ends[rank] : ends[rank + 1]] - of.bounds[rank] for rank in range(of.ranks.size)]
    return make_route(of.ranks, of.num_own, ids)
