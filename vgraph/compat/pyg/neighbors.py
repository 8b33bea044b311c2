"""Neighbors hop by hop: each node's in-edges are drawn once, in the hop after the one that found it.

Takes: relations as lists of in-edges, seeds, how many edges each. Gives: nodes by type, seeds first; edges by relation.
Runs at every step. Source: Hamilton et al. 2017, algorithm 2; PyG, ``torch.ops.pyg.neighbor_sample``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from vgraph.errors import FeatureError, FunctionError, GraphError
from vgraph.graphs.draw.lists import ListPart, Lists, Spans
from vgraph.graphs.draw.pick import FROM_0, are_weights, pick_uniform, pick_weighted, renumber
from vgraph.graphs.draw.random_numbers import Array, Keys

_ID_BITS = 40  # of a key: the bits above are the number of the seed whose own subgraph a node is in
_UNBOUNDED = 1 << 62
_NONE = np.empty(0, np.int64)


@dataclass(frozen=True, eq=False)
class Relation:
    """Edges of one type: for every node of type ``near`` the list of those that end there; they begin in ``far``.

    ``counts``: how many a hop, -1: all. ``times``: those of the entries at some places, within each list not falling;
    ``weights``: of all entries.
    """

    near: str
    far: str
    lists: Lists
    num_near: int
    counts: Sequence[int]
    times: Callable[[Array], Array] | None = None
    weights: Array | None = None

    @classmethod
    def of(
        cls,
        ends: tuple[str, str],
        colptr: Tensor,
        row: Tensor,
        counts: Sequence[int],
        times: tuple[Tensor | None, Tensor | None] = (None, None),
        weights: Tensor | None = None,
    ) -> Relation:
        """``ends``: far, near. ``times``: of the far nodes, of edges; at most one of the two.

        Raises:
            GraphError: ``colptr`` and ``row`` do not fit one another.
        """
        ptr, other = np.ascontiguousarray(colptr.long().numpy()), np.ascontiguousarray(row.numpy())
        if not len(ptr) or ptr[0] != 0 or ptr[-1] != len(other):
            raise GraphError("colptr does not end at the number of edges", cure="make the sampler of the graph anew")
        far_times, edge_times = (None if one is None else one.numpy() for one in times)
        take = None
        if edge_times is not None:
            take = edge_times.__getitem__
        elif far_times is not None:
            take = _times_of(other, far_times)
        own = None if weights is None else weights.detach().numpy()
        return cls(ends[1], ends[0], Lists([ListPart(ptr, other)]), len(ptr) - 1, counts, take, own)

    def spans(self, ids: Array) -> Spans:
        """Where the lists of some nodes lie.

        Raises:
            GraphError: one of them is out of range.
        """
        check_ids(ids, self.num_near)
        return self.lists.spans(ids)


def check_ids(ids: Array, num_nodes: int | None) -> None:
    """``num_nodes``: None where nobody says.

    Raises:
        GraphError: an id is out of range.
    """
    if len(ids) and (ids.min() < 0 or (num_nodes is not None and ids.max() >= num_nodes)):
        among = "" if num_nodes is None else f" and below {num_nodes}, how many nodes edges may end at"
        raise GraphError(
            f"ids lie from {ids.min()} to {ids.max()}, and should be from 0 up{among}", cure="check the ids"
        )


def _times_of(other: Array, times: Array) -> Callable[[Array], Array]:
    def take(places: Array) -> Array:
        return times[other[places]]

    return take


@dataclass(frozen=True)
class How:
    """``seed_times``: by the number of the seed; ``takes_last``: the last edges in time, in place of any."""

    replace: bool
    seed_times: Array | None = None
    takes_last: bool = False


class Nodes:
    """Nodes of one type as they are found: seeds first, then each once; ``batch``: which seed's subgraph each is in.

    From ``begin`` on they are those that the last hop found. A seed that is given twice stands there twice. An id that
    is out of range is a GraphError.
    """

    def __init__(self, seeds: Array, first_seed: int | None, num_nodes: int | None) -> None:
        self.ids, self.begin, self.counts = seeds.copy(), 0, [len(seeds)]
        self.batch = None if first_seed is None else np.arange(first_seed, first_seed + len(seeds))
        self._num_nodes = num_nodes
        self._limit = _UNBOUNDED if num_nodes is None or first_seed is not None else num_nodes
        self._keys, known = renumber(self._keyed(seeds, self.batch), self._limit)
        self._places = np.empty(len(self._keys), np.int64)
        self._places[known[::-1]] = np.arange(len(seeds))[::-1]  # of two the first

    def _keyed(self, ids: Array, batch: Array | None) -> Array:
        check_ids(ids, self._num_nodes)
        return ids.astype(np.int64) if batch is None else batch << _ID_BITS | ids

    def place(self, ids: Array, batch: Array | None) -> Array:
        """Where they stand; those that are new stand behind all others, in order."""
        num_known = len(self._keys)
        keys, local = renumber(np.concatenate([self._keys, self._keyed(ids, batch)]), self._limit)
        new = keys[num_known:]
        self._places = np.concatenate([self._places, np.arange(len(self.ids), len(self.ids) + len(new))])
        self._keys = keys
        if self.batch is not None:
            self.batch = np.concatenate([self.batch, new >> _ID_BITS])
            new = new & ((1 << _ID_BITS) - 1)
        self.ids = np.concatenate([self.ids, new])
        return self._places[local[num_known:]]

    def find(self, ids: Array, batch: Array | None = None) -> Array:
        """Where they stand, each in the subgraph of its own or in that which all share; -1: nowhere."""
        num_known = len(self._keys)
        _, local = renumber(np.concatenate([self._keys, self._keyed(ids, batch)]), self._limit)
        places = np.append(self._places, -1)
        return places[np.minimum(local[num_known:], num_known)]

    def end_hop(self) -> None:
        """What was found since the last one is where the next one begins."""
        self.begin = sum(self.counts)
        self.counts.append(len(self.ids) - self.begin)


@dataclass
class Edges:
    """Edges of one relation: places of their ends among the nodes, and in the lists; how many each hop drew."""

    far: list[Array] = field(default_factory=list[Array])
    near: list[Array] = field(default_factory=list[Array])
    places: list[Array] = field(default_factory=list[Array])
    counts: list[int] = field(default_factory=list[int])

    def add(self, far: Array, near: Array, places: Array) -> None:
        """Those of one hop."""
        self.far.append(far)
        self.near.append(near)
        self.places.append(places)
        self.counts.append(len(places))

    def tensors(self, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
        """(far ends, near ends, places) of all hops."""
        far, near, places = (
            torch.from_numpy(np.concatenate(parts or [_NONE])).to(dtype) for parts in (self.far, self.near, self.places)
        )
        return far, near, places


def own_keys() -> Keys:
    """Keys that follow from torch's own generator, which workers of a DataLoader seed each differently."""
    return Keys(int(torch.randint(2**62, ())))


def sample(relations: Mapping[str, Relation], nodes: Mapping[str, Nodes], num_hops: int, how: How) -> dict[str, Edges]:
    """Edges by relation; the nodes at their ends are added to ``nodes``.

    Raises:
        GraphError: an id is out of range, or times within a list fall.
        FeatureError: a weight is below 0, or not finite.
    """
    found, keys = {name: Edges() for name in relations}, own_keys()
    for hop in range(num_hops):
        drawn = {name: _draw(one, nodes[one.near], hop, keys.next(), how) for name, one in relations.items()}
        for far, its_nodes in nodes.items():
            _add_hop(far, its_nodes, relations, drawn, found)
        for its_nodes in nodes.values():
            its_nodes.end_hop()
    return found


@dataclass(frozen=True)
class _Drawn:
    """``ids`` and ``batch`` of far ends, places of near ends among their nodes, places in the lists."""

    ids: Array
    batch: Array | None
    near: Array
    places: Array


def _draw(relation: Relation, nodes: Nodes, hop: int, key: int, how: How) -> _Drawn:
    ids, count = nodes.ids[nodes.begin :], int(relation.counts[hop])
    batch = None if nodes.batch is None else nodes.batch[nodes.begin :]
    if not len(ids) or not count:
        return _Drawn(_NONE, None if batch is None else _NONE, _NONE, _NONE)
    of_all = relation.spans(ids)
    # Draws follow from where a node stands: it may stand in several subgraphs, which differ.
    spans = Spans(of_all.begins, of_all.lengths, np.arange(nodes.begin, nodes.begin + len(ids)))
    if relation.times is not None and how.seed_times is not None and batch is not None:
        spans = _until(spans, relation.times, how.seed_times[batch])
        spans = _last(spans, count) if how.takes_last and count > 0 else spans
    places, owners = _pick(relation, spans, count, key, how)
    far, _ = relation.lists.fetch(places)
    return _Drawn(far, None if batch is None else batch[owners], owners + nodes.begin, places)


def _pick(relation: Relation, spans: Spans, count: int, key: int, how: How) -> tuple[Array, Array]:
    if relation.weights is None or count < 0:
        return pick_uniform(spans, count, key, replace=how.replace)
    owners, slots = spans.entries
    own = relation.weights[spans.begins[owners] + slots]
    if not are_weights(own):
        raise FeatureError("edges have weights below 0, or that are not finite", cure=FROM_0)
    return pick_weighted(spans, own, count, key, replace=how.replace)


def _until(spans: Spans, times: Callable[[Array], Array], limits: Array) -> Spans:
    """The first entries of every list, up to a time each has of its own; halved at all lists together."""
    low, high = np.zeros_like(spans.lengths), spans.lengths.copy()
    while (searched := (low < high).nonzero()[0]).size:
        middle = (low[searched] + high[searched]) // 2
        is_before = times(spans.begins[searched] + middle) <= limits[searched]
        low[searched] = np.where(is_before, middle + 1, low[searched])
        high[searched] = np.where(is_before, high[searched], middle)
    long = low > 1
    first = spans.begins[long]
    if (times(first) > times(first + low[long] - 1)).any():
        raise GraphError(
            "times of the edges that end in a node are not sorted",
            cure="leave out is_sorted, or sort edges by the node they end in and by time",
        )
    return Spans(spans.begins, low, spans.names)


def _last(spans: Spans, count: int) -> Spans:
    kept = np.minimum(spans.lengths, count)
    return Spans(spans.begins + spans.lengths - kept, kept, spans.names)


def _add_hop(
    far: str, nodes: Nodes, relations: Mapping[str, Relation], drawn: Mapping[str, _Drawn], found: Mapping[str, Edges]
) -> None:
    """What all relations from one type drew: their nodes are numbered together."""
    mine = [name for name, one in relations.items() if one.far == far]
    if not mine:
        return
    ids = np.concatenate([drawn[name].ids for name in mine])
    batches = [batch for name in mine if (batch := drawn[name].batch) is not None]
    standing = nodes.place(ids, np.concatenate(batches) if batches else None) if len(ids) else _NONE
    begin = 0
    for name in mine:
        one = drawn[name]
        end = begin + len(one.ids)
        found[name].add(standing[begin:end], one.near, one.places)
        begin = end


def induced(relation: Relation, near: Nodes, far: Nodes) -> Edges:
    """All edges of a relation among nodes that were found, in the same subgraph where these are disjoint."""
    spans, found = relation.spans(near.ids), Edges()
    places, owners = pick_uniform(spans, -1, 0, replace=False)
    standing = far.find(relation.lists.fetch(places)[0], None if near.batch is None else near.batch[owners])
    stays = standing >= 0
    found.add(standing[stays], owners[stays], places[stays])
    return found


def check_strategy(strategy: str, *, is_timed: bool, is_weighted: bool) -> bool:
    """Whether the last edges in time are taken.

    Raises:
        FunctionError: another word; or both the last ones and weights are asked for.
    """
    if strategy not in ("uniform", "last"):
        raise FunctionError(f"temporal_strategy is {strategy!r}", cure='pass "uniform" or "last"')
    if strategy == "last" and is_timed and is_weighted:
        raise FunctionError("the last edges in time are not drawn by weights", cure='temporal_strategy="uniform"')
    return strategy == "last"
