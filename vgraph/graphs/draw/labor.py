"""LABOR: in-edges that are drawn so that those of different vertices begin at the same sources.

Takes: a graph, vertices, one number for every possible source. Gives: edges and their weights. Runs at every step.
Source: Balin and Catalyurek 2023 (layer-neighbor sampling), sections 3 and 4; numbers that change little from batch to
batch: Balin, LaSalle and Catalyurek 2023 (cooperative minibatching), section 3.2.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from vgraph.graphs.draw.neighbors import (
    Drawn,
    Fanout,
    Seeds,
    excluded_by_type,
    feature_of,
    seeds_by_type,
    weights_at,
)
from vgraph.graphs.draw.pick import renumber
from vgraph.graphs.draw.random_numbers import Array, draw, mix, uniform
from vgraph.graphs.graph_data import GraphData
from vgraph.graphs.ids_by_type import nodes_by_type
from vgraph.graphs.types import Edges, EdgeType, Nodes

_SETTLED = 1 - 1e-4  # rounds end where the expected number of sources falls by less


@dataclass(frozen=True)
class Variates:
    """One number, above 0 and at most 1, for every vertex: all edges that begin there are drawn by it.

    Those of two keys are mixed: with ``share`` 0 they are the first key's, and as it grows they turn into the second's.
    """

    first: int
    second: int = 0
    share: float = 0.0

    def of(self, vertices: Array, type_number: int) -> Array:
        """The numbers of some vertices of one type."""
        numbers = uniform(draw(mix(self.first + type_number), vertices, 0))
        if not self.share:
            return numbers
        others = uniform(draw(mix(self.second + type_number), vertices, 0))
        angle = self.share * np.pi / 2  # normal numbers stay normal as they turn
        one, other = (torch.special.ndtri(torch.from_numpy(some)) for some in (numbers, others))
        return torch.special.ndtr(np.cos(angle) * one + np.sin(angle) * other).numpy()


@dataclass(frozen=True)
class Labor:
    """How edges are drawn; ``rounds``: how often chances are improved, below 0: until they settle."""

    fanout: Fanout
    prob: str | None
    rounds: int
    variates: Variates

    @property
    def gives_weights(self) -> bool:
        """Whether a mean needs weights: else all edges of a vertex have one chance."""
        return self.rounds != 0 or self.prob is not None


@dataclass(frozen=True)
class _Entries:
    """Edges to draw from, list after list: whose each is, its other end, its id, its part of its list's weight."""

    owners: Array
    far: Array
    edge_ids: Array
    parts: Array
    num_lists: int

    def sums(self, values: Array) -> Array:
        """Sums over each list, (lists,)."""
        return np.bincount(self.owners, values, self.num_lists)

    def where(self, stays: Array) -> _Entries:
        """Some of the edges."""
        return _Entries(self.owners[stays], self.far[stays], self.edge_ids[stays], self.parts[stays], self.num_lists)


def draw_labor(
    g: GraphData, nodes: Nodes, labor: Labor, edge_dir: str = "in", exclude: Edges | None = None
) -> tuple[dict[EdgeType, Drawn], dict[EdgeType, Array]]:
    """Edges of every type that end (begin) in some vertices; their weights, whose mean is 1 at every vertex.

    Edges of ``exclude`` are not among those to draw from. There are weights where chances differ.
    """
    found: dict[EdgeType, Drawn] = {}
    weights: dict[EdgeType, Array] = {}
    excluded = excluded_by_type(g, exclude)
    for seeds in seeds_by_type(g, nodes_by_type(g, nodes), labor.fanout, edge_dir):
        prob = feature_of(g, labor.prob, seeds)
        entries = _entries(seeds, prob, excluded.get(seeds.etype))
        chances = _chances(entries, seeds.fanout, labor.rounds, is_even=prob is None)
        is_drawn = labor.variates.of(entries.far, g.ntypes.index(seeds.far_type)) <= chances
        mine = entries.where(is_drawn)
        found[seeds.etype] = seeds.drawn(mine.far, mine.edge_ids, mine.owners)
        if labor.gives_weights:
            own = mine.parts / chances[is_drawn]
            means = mine.sums(own) / np.maximum(mine.sums(np.ones_like(own)), 1)
            weights[seeds.etype] = own / means[mine.owners]
    return found, weights


def _entries(seeds: Seeds, prob: str | None, excluded: Array | None) -> _Entries:
    lists = seeds.lists
    spans = lists.spans(seeds.ids)
    owners, slots = spans.entries
    places = spans.begins[owners] + slots
    far, edge_ids = lists.fetch(places)
    own = np.ones(len(far)) if prob is None else weights_at(seeds.frame, prob, lists)(places)
    stays = own > 0
    if excluded is not None:
        stays &= ~np.isin(edge_ids, excluded)
    kept = _Entries(owners, far, edge_ids, own, len(seeds.ids)).where(stays)
    return _Entries(
        kept.owners, kept.far, kept.edge_ids, kept.parts / kept.sums(kept.parts)[kept.owners], len(seeds.ids)
    )


def _chances(entries: _Entries, fanout: int, rounds: int, *, is_even: bool) -> Array:
    """The chance of every edge, by which each list's mean varies as one of ``fanout`` edges drawn without replacement.

    In each round the chances of a source come nearer to the largest that some list needs: what is drawn for one list
    is then drawn for others, too.
    """
    if fanout < 0:
        return np.ones(len(entries.far))
    leaning = entries.parts
    if rounds == 0 and is_even:
        return np.minimum(1.0, fanout * leaning)
    scales = _scales(entries, leaning, fanout)
    unique, local = renumber(entries.far, int(entries.far.max(initial=-1)) + 1)
    expected, done = np.inf, 0
    while done != rounds:
        most = np.zeros(len(unique))
        np.maximum.at(most, local, scales[entries.owners] * leaning)
        leaning = most[local]
        scales, before = _scales(entries, leaning, fanout), expected
        expected, done = np.minimum(1.0, most).sum(), done + 1
        if expected >= before * _SETTLED:
            break
    return np.minimum(1.0, scales[entries.owners] * leaning)


def _scales(entries: _Entries, leaning: Array, fanout: int) -> Array:
    """For every list the c with chances min(1, c * leaning) that give its mean the variance that it should have.

    The sum of parts squared over chances is to be 1 / fanout - 1 / length more than with chances of 1. The edges that
    lean most have chances of 1; the c is found exactly, as every number of such edges is tried at once.
    """
    lengths = entries.sums(np.ones(len(leaning))).astype(np.int64)
    more = np.maximum(1 / fanout - 1 / np.maximum(lengths, 1), 0)
    order = np.lexsort((-leaning, entries.owners))
    squares, ranked = entries.parts[order] ** 2, leaning[order]
    tried = _sums_to_end(squares / ranked, lengths) / (_sums_to_end(squares, lengths) + more[entries.owners])
    fits = ((tried * ranked <= 1) & (more > 0)[entries.owners]).nonzero()[0]
    least = np.full(len(lengths), np.inf)
    np.minimum.at(least, entries.owners, leaning)
    scales = 1 / least  # where a list is not longer than the fanout, all of it is drawn
    lists, first = np.unique(entries.owners[fits], return_index=True)
    scales[lists] = tried[fits[first]]
    return scales


def _sums_to_end(values: Array, lengths: Array) -> Array:
    """The sum of each list's values from each on."""
    whole = np.concatenate([np.cumsum(values[::-1])[::-1], [0.0]])
    return whole[:-1] - np.repeat(whole[np.cumsum(lengths)], lengths)
