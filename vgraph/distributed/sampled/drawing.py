"""Drawing: hops of samplers answered by whoever has the lists, several batches in a round.

Takes: one hop of each batch. Gives: the edges drawn for it. Runs once a layer and round.
A draw follows from the batch's key and the vertex's original id, so it does not matter who draws.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from vgraph.api.graph import Graph
from vgraph.distributed.sampled.exchange import Asked, Stamp, by_member, by_request
from vgraph.distributed.sampled.served import Served
from vgraph.graphs.data import EdgeType
from vgraph.graphs.draw.neighbors import Drawn, Hop, draw_from, fanouts_of
from vgraph.graphs.draw.random_numbers import Array
from vgraph.runtime.distributed.peers import Peers

_NONE = np.empty(0, np.int64)


@dataclass(frozen=True)
class _Request:
    """Edges of one type for one batch."""

    batch: int
    etype: EdgeType
    seeds: Array
    fanout: int
    key: int
    prob: str | None
    replace: bool


def draw_hops(
    served: Served, peers: Peers, outline: Graph, hops: Sequence[Hop], stamp: Stamp
) -> list[dict[EdgeType, Drawn]]:
    """What is drawn for the hops, which all ranks have at the same time, of the same batches."""
    requests = [request for batch, hop in enumerate(hops) for request in _requests(outline, batch, hop)]
    machines = [served.machines_of(one.etype[2], one.seeds) for one in requests]
    here = [where == served.machine for where in machines]
    if peers.size == 1:
        answers = [_answer(served, one, one.seeds) for one in requests]
    else:
        asked = Asked(peers, [one.seeds for one in requests], machines, stamp)
        remote = _exchanged(served, peers, requests, asked)
        own = [_answer(served, one, one.seeds[mine]) for one, mine in zip(requests, here, strict=True)]
        order = [machine for machine in np.argsort(peers.places) if machine != peers.machine]
        answers = [
            _merged(where, served.machine, mine, far, order)
            for where, mine, far in zip(machines, own, remote, strict=True)
        ]
    found: list[dict[EdgeType, Drawn]] = [{} for _ in hops]
    for one, (degrees, src, edge_ids) in zip(requests, answers, strict=True):
        places = np.repeat(np.arange(len(one.seeds)), degrees)
        found[one.batch][one.etype] = Drawn(one.seeds, places, src, edge_ids)
    return found


def _requests(outline: Graph, batch: int, hop: Hop) -> list[_Request]:
    """One for every type of edges, also where this rank has no seeds: others may."""
    counts = fanouts_of(outline, hop.fanout)
    return [
        _Request(
            batch=batch,
            etype=etype,
            seeds=hop.seeds[etype[2]].long().numpy() if etype[2] in hop.seeds else _NONE,
            fanout=counts[etype],
            key=hop.key_of(number),
            prob=hop.prob,
            replace=hop.replace,
        )
        for number, etype in enumerate(outline.canonical_etypes)
        if counts[etype]
    ]


def _answer(served: Served, one: _Request, seeds: Array) -> tuple[Array, Array, Array]:
    """(how many edges each seed gets, their sources, their new ids), of seeds of this machine."""
    rows = None if one.prob is None else served.weights(one.etype, one.prob)
    weights = None if rows is None else lambda places: rows.take(places).reshape(-1).double().numpy()
    lists = served.lists(one.etype)
    src, edge_ids, places = draw_from(lists, weights, seeds, one.fanout, one.key, replace=one.replace)
    return np.bincount(places, minlength=len(seeds)), src, edge_ids


def _exchanged(
    served: Served, peers: Peers, requests: Sequence[_Request], asked: Asked
) -> list[tuple[Array, Array, Array]]:
    """Answers to others' requests against others' answers to these, machine by machine as ``peers`` has them."""
    answers = [_answer(served, one, asked.request(number)) for number, one in enumerate(requests)]
    degrees = by_member([answer[0] for answer in answers], asked.told).astype(np.int32)
    got = peers.swap(torch.from_numpy(degrees), asked.told.sum(1).tolist(), asked.counts.sum(1).tolist()).numpy()
    sizes = np.stack([_totals(own[0], asked.told[:, i]) for i, own in enumerate(answers)], 1)
    expected = _totals(got, asked.counts.reshape(-1)).reshape(asked.counts.shape)
    ends = [np.stack([answer[1], answer[2]], 1) for answer in answers]
    flat = torch.from_numpy(by_member(ends, sizes).reshape(-1, 2))
    edges = peers.swap(flat, sizes.sum(1).tolist(), expected.sum(1).tolist()).numpy()
    return [
        (own, pairs[:, 0], pairs[:, 1])
        for own, pairs in zip(by_request(got.astype(np.int64), asked.counts), by_request(edges, expected), strict=True)
    ]


def _totals(numbers: Array, lengths: Array) -> Array:
    """The sums of consecutive stretches of some lengths."""
    sums, ends = np.concatenate([[0], np.cumsum(numbers, dtype=np.int64)]), np.cumsum(lengths)
    return sums[ends] - sums[ends - lengths]


def _merged(
    where: Array, machine: int, own: tuple[Array, Array, Array], far: tuple[Array, Array, Array], order: Sequence[int]
) -> tuple[Array, Array, Array]:
    """Own answers and those of others (machines in ``order``) in the order of the seeds."""
    from_far = np.concatenate([_NONE, *((where == one).nonzero()[0] for one in order)])
    from_here = (where == machine).nonzero()[0]
    degrees = np.empty(len(where), np.int64)
    degrees[from_here], degrees[from_far] = own[0], far[0]
    starts = np.cumsum(degrees) - degrees
    src, edge_ids = np.empty(int(degrees.sum()), np.int64), np.empty(int(degrees.sum()), np.int64)
    for seeds, (counts, ends, ids) in ((from_here, own), (from_far, far)):
        at = np.repeat(starts[seeds] - (np.cumsum(counts) - counts), counts) + np.arange(len(ends))
        src[at], edge_ids[at] = ends, ids
    return degrees, src, edge_ids
