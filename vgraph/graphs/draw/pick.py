"""Pick: which entries of adjacency lists are drawn, and ids renumbered as they are first seen.

Takes: lists (ptr), the vertices whose lists are drawn from. Gives: places in the lists. Runs at every step.
Source: Floyd (Bentley 1987) without replacement; Efraimidis and Spirakis 2006 by weights.
Compiled where there is a compiler, else in NumPy: the same numbers either way.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import vgraph_kernels
from vgraph.fusion.cpu.build import build_kernels
from vgraph.graphs.draw.random_numbers import Array, below, draw, uniform
from vgraph.ir.topology import Compressed
from vgraph.runtime.cpu.kernels import no_memory, pool_address

_EXPORTS = ("vg_sample", "vg_fetch", "vg_renumber", "vg_walk")
_MOST_RENUMBERED = 2**31  # in the compiled table


@cache
def compiled() -> dict[str, Any] | None:
    """The functions of sampling.h by name; None where nothing compiles."""
    text = (Path(vgraph_kernels.__file__).parent / "sampling.h").read_text().replace("#pragma once", "")
    exports = [f'extern "C" int64_t kernel{i}(int64_t* a) {{ return {name}(a); }}' for i, name in enumerate(_EXPORTS)]
    built = build_kernels("\n".join([text, *exports]), len(exports))
    return None if built is None else dict(zip(_EXPORTS, built, strict=True))


def run(name: str, words: Sequence[int]) -> list[int] | None:
    """Runs a compiled function of one array of numbers; the numbers afterwards, or None without a compiler."""
    functions = compiled()
    if functions is None:
        return None
    array = (ctypes.c_int64 * len(words))(*words)
    if functions[name](ctypes.addressof(array)):  # ctypes lets other threads run meanwhile
        raise no_memory("sampling")
    return list(array)


def address(array: Array | None) -> int:
    """Where an array lies; 0 for none."""
    return 0 if array is None else int(array.ctypes.data)


def pool() -> int:
    """Torch's threads, for the thread of the program; a loader's workers are as many as it was told."""
    return pool_address() if threading.current_thread() is threading.main_thread() else 0


def pick_uniform(ptr: Array, seeds: Array, fanout: int, key: int, *, replace: bool) -> tuple[Array, Array]:
    """(places, owners): for every seed up to ``fanout`` of its list's places, all if that is negative.

    Without replacement places ascend; a list that is not longer is taken whole. ``owners`` tells whose a place is:
    the seed's number.
    """
    degrees = ptr[seeds + 1] - ptr[seeds]
    counts = degrees if fanout < 0 else np.where(degrees > 0, fanout, 0) if replace else np.minimum(degrees, fanout)
    out_ptr = np.zeros(len(seeds) + 1, np.int64)
    np.cumsum(counts, out=out_ptr[1:])
    places, owners = np.empty(out_ptr[-1], np.int64), np.empty(out_ptr[-1], np.int64)
    replaces = replace and fanout >= 0
    words = [signed(key), address(seeds), len(seeds), address(ptr), fanout, replaces, address(out_ptr)]
    if run("vg_sample", [*words, address(places), address(owners), pool()]) is None:
        owners[:] = np.repeat(np.arange(len(seeds)), counts)
        _fill(
            ptr=ptr,
            seeds=seeds,
            degrees=degrees,
            out_ptr=out_ptr,
            places=places,
            fanout=fanout,
            key=key,
            replaces=replaces,
        )
    return places, owners


def fetch(lists: Compressed, places: Array) -> tuple[Array, Array]:
    """The other ends and the edge ids at some places of adjacency lists."""
    other, edge_ids = lists.other.numpy(), None if lists.edge_ids is None else lists.edge_ids.numpy()
    out, out_edges = np.empty(len(places), np.int64), places if edge_ids is None else np.empty(len(places), np.int64)
    words = [address(places), len(places), address(other), other.itemsize, address(edge_ids)]
    if run("vg_fetch", [*words, address(out), address(out_edges), pool()]) is not None:
        return out, out_edges
    return other[places].astype(np.int64, copy=False), places if edge_ids is None else edge_ids[places]


def signed(key: int) -> int:
    """A number below 2**64 as its bits read as an int64."""
    return key - (1 << 64) if key >> 63 else key


def _fill(
    ptr: Array, seeds: Array, degrees: Array, out_ptr: Array, places: Array, fanout: int, key: int, replaces: bool
) -> None:
    """The same in NumPy: one step a slot, over all seeds."""
    starts = ptr[seeds]
    slots = np.arange(len(places)) - np.repeat(out_ptr[:-1], np.diff(out_ptr))
    if replaces:
        owner = np.repeat(np.arange(len(seeds)), np.diff(out_ptr))
        places[:] = starts[owner] + below(draw(key, seeds[owner], slots), degrees[owner])
        return
    places[:] = np.repeat(starts, np.diff(out_ptr)) + slots
    long = (degrees > fanout).nonzero()[0] if fanout > 0 else np.empty(0, np.int64)
    if len(long):
        places[out_ptr[long][:, None] + np.arange(fanout)] = (
            _choose(seeds[long], degrees[long], fanout, key) + starts[long, None]
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


def pick_weighted(
    ptr: Array, weights: Array, seeds: Array, fanout: int, key: int, *, replace: bool
) -> tuple[Array, Array]:
    """As ``pick_uniform``, in proportion to weights (entries of the lists,), of which those of 0 are never taken."""
    lengths = ptr[seeds + 1] - ptr[seeds]
    first = np.zeros(len(seeds) + 1, np.int64)
    np.cumsum(lengths, out=first[1:])
    owner = np.repeat(np.arange(len(seeds)), lengths)
    slots = np.arange(first[-1]) - first[owner]
    places = ptr[seeds][owner] + slots
    own = weights[places].astype(np.float64)
    if replace and fanout >= 0:
        return _pick_weighted_again(seeds, first, own, places, fanout, key)
    with np.errstate(divide="ignore"):
        waits = np.where(own > 0, -np.log(uniform(draw(key, seeds[owner], slots))) / own, np.inf)
    order = np.lexsort((waits, owner))
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order)) - first[owner[order]]
    is_taken = (own > 0) & ((rank < fanout) if fanout >= 0 else True)
    return places[is_taken], owner[is_taken]


def _pick_weighted_again(
    seeds: Array, first: Array, own: Array, places: Array, fanout: int, key: int
) -> tuple[Array, Array]:
    """With replacement: where drawn parts of each list's sum fall among its partial sums."""
    sums = np.concatenate([[0.0], np.cumsum(own)])
    totals = sums[first[1:]] - sums[first[:-1]]
    counts = np.where(totals > 0, fanout, 0)
    out_ptr = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    owner = np.repeat(np.arange(len(seeds)), counts)
    slots = np.arange(out_ptr[-1]) - out_ptr[owner]
    begin, stop = first[owner], first[owner + 1]
    return places[among_sums(sums, own, begin, stop, draw(key, seeds[owner], slots))], owner


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
    if len(ids) < _MOST_RENUMBERED:
        unique, local = np.empty_like(ids), np.empty(len(ids), np.int64)
        words = run("vg_renumber", [address(ids), len(ids), address(unique), address(local), 0, limit])
        if words is not None:
            return unique[: words[4]].copy(), local
    found, first, inverse = np.unique(ids, return_index=True, return_inverse=True)
    order = np.argsort(first, kind="stable")
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    return found[order], rank[inverse.reshape(-1)]
