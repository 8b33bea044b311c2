"""Rows: features that a minibatch wants, from this machine's files, from what is kept of others', or from others.

Takes: frames to be filled, of several batches. Gives: the frames, filled. Runs once a round, after the last hop.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from vgraph.distributed.sampled.exchange import Asked, Stamp, by_request
from vgraph.distributed.sampled.served import Served
from vgraph.graphs.data import EdgeType
from vgraph.graphs.draw.random_numbers import Array
from vgraph.runtime.distributed.peers import Peers
from vgraph.sampling.samplers import Want

Key = tuple[str | EdgeType, str]  # a type, and the name of a feature


class HotRows:
    """Rows of other machines that are asked for often: ids ascending, by type; features by type and name."""

    def __init__(self) -> None:
        self.ids: dict[str | EdgeType, Array] = {}
        self.rows: dict[Key, Tensor] = {}
        self.hits = self.misses = 0  # of rows of other machines

    def places(self, kind: str | EdgeType, names: Sequence[str], ids: Array) -> Array:
        """Where the rows of some ids lie; -1: they are not kept, or not all of these features."""
        kept = self.ids.get(kind)
        if kept is None or not len(kept) or any((kind, name) not in self.rows for name in names):
            return np.full(len(ids), -1, np.int64)
        at = np.minimum(np.searchsorted(kept, ids), len(kept) - 1)
        return np.where(kept[at] == ids, at, -1)


@dataclass(frozen=True)
class Request:
    """Rows of some features of one type, for one frame."""

    kind: str | EdgeType
    names: tuple[str, ...]
    ids: Array


def fill_frames(served: Served, peers: Peers, hot: HotRows, wants: Sequence[Want], stamp: Stamp) -> None:
    """Fills in all that is wanted; all ranks want features of the same types at the same time."""
    by_frame: dict[tuple[int, str | EdgeType], list[Want]] = {}
    for want in wants:
        by_frame.setdefault((id(want.frame), want.kind), []).append(want)
    groups = list(by_frame.values())
    requests = [Request(own[0].kind, tuple(want.name for want in own), own[0].ids.numpy()) for own in groups]
    for own, columns in zip(groups, fetch_rows(served, peers, hot, requests, stamp), strict=True):
        for want, column in zip(own, columns, strict=True):
            want.frame[want.name] = column


def fetch_rows(
    served: Served, peers: Peers, hot: HotRows, requests: Sequence[Request], stamp: Stamp
) -> list[list[Tensor]]:
    """The features of every request, in the order of its names."""
    machines = [served.machines_of(one.kind, one.ids) for one in requests]
    if peers.size == 1 or not requests:
        return [[served.rows(one.kind, name).take(one.ids) for name in one.names] for one in requests]
    kept = [hot.places(one.kind, one.names, one.ids) for one in requests]
    for where, at in zip(machines, kept, strict=True):
        is_far = where != served.machine
        hot.hits += int((is_far & (at >= 0)).sum())
        hot.misses += int((is_far & (at < 0)).sum())
        where[is_far & (at >= 0)] = -1  # nobody is asked
    asked = Asked(peers, [one.ids for one in requests], machines, stamp)
    widths = np.array([_width(served, one) for one in requests], np.int64)
    told, counts = asked.told * widths, asked.counts * widths
    flat, first = peers.room("sent", int(told.sum())), 0
    for wanted in asked.by_member():
        for one, ids, width in zip(requests, wanted, widths.tolist(), strict=True):
            _pack(served, one, ids, flat[first : first + width * len(ids)])
            first += width * len(ids)
    got = peers.swap_bytes(flat, told.sum(1).tolist(), counts.sum(1).tolist()).numpy()
    far = by_request(got, counts)
    order = [machine for machine in np.argsort(peers.places) if machine != peers.machine]
    return [
        _joined(served, hot, one, (where, at, far[number]), order)
        for number, (one, where, at) in enumerate(zip(requests, machines, kept, strict=True))
    ]


def _width(served: Served, one: Request) -> int:
    return sum(served.rows(one.kind, name).row_bytes for name in one.names)


def _pack(served: Served, one: Request, ids: Array, out: Tensor) -> None:
    """Rows of several features side by side, as bytes one behind the other."""
    table, start = out.reshape(len(ids), _width(served, one)), 0
    for name in one.names:
        rows = served.rows(one.kind, name)
        if len(one.names) == 1:
            rows.pack(ids, out)
        else:
            found = rows.take(ids).reshape(len(ids), rows.shape.numel()).view(torch.uint8)
            table[:, start : start + rows.row_bytes] = found
        start += rows.row_bytes


def _joined(
    served: Served, hot: HotRows, one: Request, found: tuple[Array, Array, Array], order: Sequence[int]
) -> list[Tensor]:
    """Every feature's rows in the order of the ids: in one pass over files, what has come, and what is kept."""
    where, kept, flat = found
    from_far = np.concatenate([np.empty(0, np.int64), *((where == m).nonzero()[0] for m in order)])
    from_kept, last = (where < 0).nonzero()[0], served.range_of(one.kind)[1]
    places = one.ids.astype(np.int64)
    places[from_far] = last + np.arange(len(from_far))
    places[from_kept] = last + len(from_far) + kept[from_kept]
    table, start, columns = torch.from_numpy(flat).reshape(len(from_far), _width(served, one)), 0, list[Tensor]()
    for name in one.names:
        rows = served.rows(one.kind, name)
        come = table[:, start : start + rows.row_bytes].contiguous().view(rows.dtype)
        others = [come, hot.rows[one.kind, name]] if len(from_kept) else [come]
        columns.append(rows.followed_by(others).take(places))
        start += rows.row_bytes
    return columns
