"""Pick: which entries of adjacency lists are drawn, and ids renumbered as they are first seen.

Takes: where the lists of some vertices lie. Gives: places in the lists. Runs at every step.
Source: Floyd (Bentley 1987) without replacement; Efraimidis and Spirakis 2006 by weights.
Compiled where there is a compiler, else in NumPy: the same numbers either way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from vgraph.graphs.draw.kernels import address, pool, run
from vgraph.graphs.draw.lists import Lists, Spans
from vgraph.graphs.draw.random_numbers import Array, below, draw, uniform

FROM_0 = "give finite numbers from 0 up"  # what to do about weights that are none
_MOST_RENUMBERED = 2**31  # in the compiled table


def pick_uniform(spans: Spans, fanout: int, key: int, *, replace: bool) -> tuple[Array, Array]:
    """(places, owners): up to ``fanout`` places of every list, all if that is negative.

    Without replacement places ascend; a list that is not longer is taken whole. ``owners`` tells whose a place is:
    the list's number.
    """
    picked = _Picked.empty(spans, fanout, replace=replace)
    if not picked.draw(spans, key, None):
        picked.draw_in_numpy(spans, key)
    return picked.places, picked.owners


def draw_uniform(lists: Lists, spans: Spans, fanout: int, key: int, *, replace: bool) -> tuple[Array, ...]:
    """(other ends, places, owners, ptr): as ``pick_uniform``, and what stands there; ``ptr``: where each list's begin.

    A place is read while those that come after it are still drawn.
    """
    picked = _Picked.empty(spans, fanout, replace=replace)
    other = np.empty(len(picked.places), np.int64)
    if not picked.draw(spans, key, (lists, other)):
        picked.draw_in_numpy(spans, key)
        other = lists.others(picked.places)
    return other, picked.places, picked.owners, picked.ptr


@dataclass(frozen=True, eq=False)
class _Picked:
    """Room for what is drawn from every list: from ``ptr[i]`` up to ``ptr[i + 1]`` for the i-th."""

    fanout: int
    replaces: bool
    ptr: Array
    places: Array
    owners: Array

    @classmethod
    def empty(cls, spans: Spans, fanout: int, *, replace: bool) -> _Picked:
        lengths = spans.lengths
        counts = lengths if fanout < 0 else np.where(lengths > 0, fanout, 0) if replace else np.minimum(lengths, fanout)
        ptr = np.zeros(len(lengths) + 1, np.int64)
        np.cumsum(counts, out=ptr[1:])
        return cls(fanout, bool(replace) and fanout >= 0, ptr, np.empty(ptr[-1], np.int64), np.empty(ptr[-1], np.int64))

    def draw(self, spans: Spans, key: int, reads: tuple[Lists, Array] | None) -> bool:
        """Whether a kernel has drawn, and read what stands at the places in some lists."""
        table, count = (None, 0) if reads is None else reads[0].table()
        words = [signed(key), address(spans.begins), len(spans.begins), address(spans.lengths), self.fanout]
        words += [self.replaces, address(self.ptr), address(self.places), address(self.owners), pool()]
        words += [address(spans.names), address(table), count, 0 if reads is None else address(reads[1])]
        return run("vg_sample", words) is not None

    def draw_in_numpy(self, spans: Spans, key: int) -> None:
        """The same without a compiler."""
        self.owners[:] = np.repeat(np.arange(len(spans.lengths)), np.diff(self.ptr))
        _fill(spans, self.ptr, self.places, self.fanout, key, self.replaces)


def signed(key: int) -> int:
    """A number below 2**64 as its bits read as an int64."""
    return key - (1 << 64) if key >> 63 else key


def _fill(spans: Spans, out_ptr: Array, places: Array, fanout: int, key: int, replaces: bool) -> None:
    """The same in NumPy: one step a slot, over all lists."""
    starts, lengths = spans.begins, spans.lengths
    slots = np.arange(len(places)) - np.repeat(out_ptr[:-1], np.diff(out_ptr))
    if replaces:
        owner = np.repeat(np.arange(len(starts)), np.diff(out_ptr))
        places[:] = starts[owner] + below(draw(key, spans.names[owner], slots), lengths[owner])
        return
    places[:] = np.repeat(starts, np.diff(out_ptr)) + slots
    long = (lengths > fanout).nonzero()[0] if fanout > 0 else np.empty(0, np.int64)
    if len(long):
        places[out_ptr[long][:, None] + np.arange(fanout)] = (
            _choose(spans.names[long], lengths[long], fanout, key) + starts[long, None]
        )


def _choose(vertices: Array, counts: Array, k: int, key: int) -> Array:
    """Floyd's k different numbers below each of ``counts``, ascending, (vertices, k)."""
    chosen = np.empty((len(vertices), k), np.int64)
    for i in range(k):
        last = counts - k + i
        at = below(draw(key, vertices, i), last + 1)
        is_taken = (chosen[:, :i] == at[:, None]).any(1)
        chosen[:, i] = np.where(is_taken, last, at)
    return np.sort(chosen, 1)


def pick_weighted(spans: Spans, own: Array, fanout: int, key: int, *, replace: bool) -> tuple[Array, Array]:
    """As ``pick_uniform``, in proportion to the weights of all entries of the lists, one list after the other.

    Entries of weight 0 are never taken.
    """
    owner, slots = spans.entries
    own, places = own.astype(np.float64), spans.begins[owner] + slots
    first = np.concatenate([[0], np.cumsum(spans.lengths)])
    if replace and fanout >= 0:
        return _pick_weighted_again(spans.names, first, own, places, fanout, key)
    with np.errstate(divide="ignore"):
        waits = np.where(own > 0, -np.log(uniform(draw(key, spans.names[owner], slots))) / own, np.inf)
    order = np.lexsort((waits, owner))
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order)) - first[owner[order]]
    is_taken = (own > 0) & ((rank < fanout) if fanout >= 0 else True)
    return places[is_taken], owner[is_taken]


def _pick_weighted_again(
    names: Array, first: Array, own: Array, places: Array, fanout: int, key: int
) -> tuple[Array, Array]:
    """With replacement: where drawn parts of each list's sum fall among its partial sums."""
    own = scaled_by_list(own, np.diff(first))
    sums = np.concatenate([[0.0], np.cumsum(own)])
    totals = sums[first[1:]] - sums[first[:-1]]
    counts = np.where(totals > 0, fanout, 0)
    out_ptr = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    owner = np.repeat(np.arange(len(names)), counts)
    slots = np.arange(out_ptr[-1]) - out_ptr[owner]
    begin, stop = first[owner], first[owner + 1]
    return places[among_sums(sums, own, begin, stop, draw(key, names[owner], slots))], owner


def are_weights(numbers: Tensor | Array) -> bool:
    """Whether one can draw in proportion to them: they are finite, and from 0 up."""
    return bool(((numbers >= 0) & (numbers < np.inf)).all())


def scaled_by_list(own: Array, lengths: Array) -> Array:
    """Weights of one list after the other, each list's times a power of two that makes its largest about 1.

    Partial sums over all lists then lose no list whose weights are small beside those of others.
    """
    filled = lengths > 0
    largest = np.maximum.reduceat(own, (np.cumsum(lengths) - lengths)[filled])
    return np.ldexp(own, -np.repeat(np.frexp(largest)[1], lengths[filled]))


def among_sums(sums: Array, own: Array, begin: Array, stop: Array, drawn: Array) -> Array:
    """Entries from ``begin`` up to ``stop``, as drawn parts of these entries' sums fall among all partial sums.

    A rounded aim may fall beside its list, or on an entry of weight 0: its neighbour in the list that has weight is
    meant, of which there must be one.
    """
    aims = sums[begin] + uniform(drawn) * (sums[stop] - sums[begin])
    found = np.clip(np.searchsorted(sums, aims, side="left") - 1, begin, np.maximum(stop - 1, begin))
    if (own > 0).all():
        return found
    places = np.arange(len(own))
    before = np.maximum.accumulate(np.where(own > 0, places, -1))[found]
    after = np.minimum.accumulate(np.where(own > 0, places, len(own))[::-1])[::-1][found]
    return np.where(before >= begin, before, np.where(after < stop, after, found))


def renumber(ids: Array, limit: int) -> tuple[Array, Array]:
    """(unique ids as they are first seen, every id's place among them); all are from 0 to ``limit`` - 1."""
    return renumber_all([ids], limit)


def renumber_all(parts: Sequence[Array], limit: int) -> tuple[Array, Array]:
    """As ``renumber`` of several arrays (int64), one behind the other."""
    count = sum(len(part) for part in parts)
    if count < _MOST_RENUMBERED:
        unique, local = np.empty(count, np.int64), np.empty(count, np.int64)
        parts = [np.ascontiguousarray(part) for part in parts]
        table = np.array([[address(part), len(part)] for part in parts], np.int64).reshape(-1, 2)
        words = run("vg_renumber", [address(table), len(parts), address(unique), address(local), 0, limit, count])
        if words is not None:
            return unique[: words[4]].copy(), local
    ids = np.concatenate([np.empty(0, np.int64), *parts])
    found, first, inverse = np.unique(ids, return_index=True, return_inverse=True)
    order = np.argsort(first, kind="stable")
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    return found[order], rank[inverse.reshape(-1)]
