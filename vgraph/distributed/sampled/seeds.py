"""Seeds: the ids that a loader goes through, in an order that no partition decides, and which rank has which of them.

Takes: ids that each rank was given. Gives: ids of all ranks by original ids; shares of a batch. Shares at every step.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import numpy as np
import torch
from torch import Tensor

from vgraph.distributed.sampled.served import Served
from vgraph.errors import GraphError
from vgraph.graphs.draw.random_numbers import Array
from vgraph.runtime.distributed.peers import Machines
from vgraph.runtime.distributed.ranks import Ranks

MOST_ABOVE_MEAN = 1.05  # of a machine's seeds in a batch; what exceeds it goes to others


@dataclass(frozen=True)
class Seeds:
    """All seeds of all ranks, sorted by type and original id. ``kinds``: the place of each one's type in ``names``."""

    names: tuple[Any, ...]
    kinds: Array
    ids: Array
    original: Array

    def chosen(self, places: Array) -> dict[Any, Tensor]:
        """Ids by type, of some seeds."""
        kinds, ids = self.kinds[places], self.ids[places]
        return {name: torch.from_numpy(ids[kinds == i]) for i, name in enumerate(self.names)}


def gather_seeds(
    ranks: Ranks, served: Served, own: Mapping[Any, tuple[int, int]], given: Mapping[Any, Tensor]
) -> Seeds:
    """The seeds of all ranks: each gives some, or all give all. ``own``: by type the first own id, and where they end.

    Raises:
        GraphError: an id is given twice, or there is none.
    """
    names, parts = tuple(own), list[Array]()
    for number, name in enumerate(names):
        every = _united(ranks, given.get(name, torch.empty(0, dtype=torch.int64)).long().numpy())
        first, last = own[name]
        mine = every[(every >= first) & (every < last)]
        rows = np.stack([np.full(len(mine), number), mine, served.orig(name, mine)], 1)
        parts.append(_gathered(ranks, rows))
    kinds, ids, original = np.concatenate(parts).T
    if not len(ids):
        raise GraphError("no rank was given an id", cure="give ids of nodes to train on, or a mask with some")
    order = np.lexsort((original, kinds))
    found = Seeds(names, kinds[order], ids[order], original[order])
    same = (np.diff(found.original) == 0) & (np.diff(found.kinds) == 0)
    if same.any():
        fact = f"{int(same.sum())} ids are given twice, {found.ids[1:][same][0]} among them"
        raise GraphError(fact, cure="give each id once, on one rank; or the same ids on all ranks")
    return found


def _united(ranks: Ranks, ids: Array) -> Array:
    """The ids of all ranks; those of one where all have the same."""
    told = int(sha256(np.ascontiguousarray(ids).tobytes()).hexdigest()[:15], 16)
    numbers = ranks.max(torch.tensor([told, -told]), "seeds").tolist()
    return ids if numbers[0] == -numbers[1] else _gathered(ranks, ids.reshape(-1, 1)).reshape(-1)


def _gathered(ranks: Ranks, rows: Array) -> Array:
    """Rows of all ranks, in order of ranks."""
    counts = ranks.gather(len(rows), "numbers of seeds")
    flat = torch.from_numpy(np.ascontiguousarray(rows)).repeat(ranks.size, 1)
    return ranks.all_to_all(flat, [len(rows)] * ranks.size, counts, "seeds").numpy()


def share_out(machines_of_seeds: Array, machines: Machines, order: Array) -> list[Array]:
    """The places of each rank's seeds, ascending: at their owners, but for what exceeds a machine's mean by 5 %.

    ``order``: numbers by which seeds of one machine are cut into consecutive runs for its ranks, so that near ones
    stay together.
    """
    count, sizes = len(machines_of_seeds), np.array([len(own) for own in machines.ranks])
    mean = count * sizes / sizes.sum()
    most = np.ceil(MOST_ABOVE_MEAN * mean).astype(np.int64)
    own = [(machines_of_seeds == m).nonzero()[0] for m in range(len(sizes))]
    kept = [places[:limit] for places, limit in zip(own, most, strict=True)]
    surplus = np.sort(np.concatenate([places[limit:] for places, limit in zip(own, most, strict=True)]))
    load, to = np.array([len(places) for places in kept]) - mean, np.empty(len(surplus), np.int64)
    for number in range(len(surplus)):
        to[number] = np.argmin(load)
        load[to[number]] += 1
    own = [np.concatenate([places, surplus[to == m]]) for m, places in enumerate(kept)]
    return [
        np.sort(part)
        for places, ranks in zip(own, machines.ranks, strict=True)
        for part in np.array_split(places[np.argsort(order[places], kind="stable")], len(ranks))
    ]
