"""Exchange: what every request needs, whoever owns it: ids to their machines, answers back in the order of the ids.

Takes: ids of several requests by machine. Gives: answers in the order in which they were asked for.
Runs at every round. A round carries the requests of several batches, for each of them of several types.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from vgraph.errors import WorkerError
from vgraph.graphs.draw.random_numbers import Array
from vgraph.runtime.distributed.peers import Peers

Stamp = tuple[int, int]  # epoch and step: what all peers must be at


class Asked:
    """Requests that have gone to their owners, and those of others that came here.

    ``machines``: of every request, the machine of each id. A request to this machine's own parts does not travel.
    """

    def __init__(self, peers: Peers, ids: Sequence[Array], machines: Sequence[Array], stamp: Stamp) -> None:
        self.peers, self.ids, self.machines = peers, ids, machines
        counts = np.zeros((peers.size, len(ids) + 2), np.int64)
        counts[:, -2:] = stamp
        chosen: list[list[Array]] = [[np.empty(0, np.int64)] for _ in range(peers.size)]
        for machine, place in enumerate(peers.places):
            for number, (some, where) in enumerate(zip(ids, machines, strict=True)):
                if machine != peers.machine:
                    mine = some[where == machine]
                    counts[place, number] = len(mine)
                    chosen[place].append(mine)
        self.counts = counts[:, :-2]
        told = peers.swap_counts(torch.from_numpy(counts)).numpy()
        if (told[:, -2:] != np.array(stamp)).any():
            raise WorkerError(
                f"ranks are out of step: this one is at epoch {stamp[0]}, batch {stamp[1]}; others are at "
                + ", ".join(f"{epoch}, {step}" for epoch, step in {tuple(pair) for pair in told[:, -2:].tolist()}),
                cure="make the same steps of the same loaders on all ranks, and leave an epoch early on all or none",
            )
        self.told = told[:, :-2]  # what every member asks here
        flat = torch.from_numpy(np.concatenate([part for parts in chosen for part in parts]))
        found = peers.swap(flat, self.counts.sum(1).tolist(), self.told.sum(1).tolist()).numpy()
        self._here = found if peers.size > 1 else np.empty(0, np.int64)

    def request(self, number: int) -> Array:
        """What others ask here by one request, member by member."""
        return np.concatenate([own[number] for own in self.by_member()])

    def by_member(self) -> list[list[Array]]:
        """What every member asks here, request by request."""
        pieces, width = np.split(self._here, np.cumsum(self.told.reshape(-1))[:-1]), self.told.shape[1]
        return [pieces[first : first + width] for first in range(0, len(pieces), width)]


def by_member(answers: Sequence[Array], sizes: Array) -> Array:
    """Answers to requests, each member by member, as they travel: member by member, each request by request.

    ``sizes``: how long the answer to each member's request is, (members, requests).
    """
    cut = [np.split(answer, np.cumsum(sizes[:-1, number])) for number, answer in enumerate(answers)]
    every = [cut[number][member] for member in range(sizes.shape[0]) for number in range(sizes.shape[1])]
    return np.concatenate(every) if every else np.empty(0, np.int64)


def by_request(flat: Array, sizes: Array) -> list[Array]:
    """The reverse: what has come member by member, as one array a request, member by member."""
    pieces = np.split(flat, np.cumsum(sizes.reshape(-1))[:-1])
    width = sizes.shape[1]
    return [_whole(pieces[number::width]) for number in range(width)]


def _whole(pieces: Sequence[Array]) -> Array:
    """All of them; what one has alone is not copied."""
    there = [piece for piece in pieces if len(piece)]
    return there[0] if len(there) == 1 else np.concatenate(pieces)
