"""Numbering: parts that share many edges get numbers near to one another, and nodes ids by part.

Takes: a part for every node. Gives: parts in another order, bounds, new ids. Runs once per graph.
Ranks take parts whose numbers follow one another; what these share need not travel.
Source: spectral ordering (Fiedler 1973) of the graph whose vertices are parts.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.csgraph import connected_components

from vgraph.distributed.partition.whole_graph import EDGES_AT_ONCE, WholeGraph, blocks_of_rows, new_array


@dataclass(frozen=True)
class Numbering:
    """Of every type: bounds (P + 1,), the new id of every original one, and the original of every new one."""

    num_parts: int
    bounds: dict[str, NDArray[np.int64]]
    new_ids: dict[str, NDArray[np.generic]]
    originals: dict[str, NDArray[np.generic]]


def number_nodes(whole: WholeGraph, parts: NDArray[np.int32], num_parts: int, folder: Path | None) -> Numbering:
    """New ids: by part, then as the nodes stood; ``parts`` (nodes of all types,) is renumbered in place.

    With a folder the ids lie in files there.
    """
    rank = order_parts(edges_between(whole, parts, num_parts))
    for first in range(0, len(parts), EDGES_AT_ONCE):
        parts[first : first + EDGES_AT_ONCE] = rank[parts[first : first + EDGES_AT_ONCE]]
    found = Numbering(num_parts, {}, {}, {})
    for ntype, first in whole.starts.items():
        own = parts[first : first + whole.num_nodes[ntype]]
        dtype, number = np.int32 if len(own) < 2**31 else np.int64, len(found.bounds)
        new_ids, originals = (_array(folder, f"{word}-{number}", dtype, len(own)) for word in ("new", "orig"))
        found.bounds[ntype] = _number_type(own, num_parts, new_ids, originals)
        found.new_ids[ntype], found.originals[ntype] = new_ids, originals
    return found


def _array(folder: Path | None, name: str, dtype: Any, count: int) -> NDArray[np.generic]:
    return np.zeros(count, dtype) if folder is None else new_array(folder / name, dtype, count)


def _number_type(
    parts: NDArray[np.int32], num_parts: int, new_ids: NDArray[np.generic], originals: NDArray[np.generic]
) -> NDArray[np.int64]:
    """Fills the ids of one type, some million nodes at a time; gives the bounds of parts."""
    bounds = np.zeros(num_parts + 1, np.int64)
    for first in range(0, len(parts), EDGES_AT_ONCE):
        bounds[1:] += np.bincount(parts[first : first + EDGES_AT_ONCE], minlength=num_parts)
    np.cumsum(bounds, out=bounds)
    following = bounds[:-1].copy()  # the next new id of every part
    for first in range(0, len(parts), EDGES_AT_ONCE):
        some = parts[first : first + EDGES_AT_ONCE]
        order = np.argsort(some, kind="stable")
        counts = np.bincount(some, minlength=num_parts)
        ids = np.repeat(following - (np.cumsum(counts) - counts), counts) + np.arange(len(some))
        new_ids[first + order], originals[ids] = ids, first + order
        following += counts
    return bounds


def edges_between(whole: WholeGraph, parts: NDArray[np.int32], num_parts: int) -> NDArray[np.int64]:
    """Edges from part (column) to part (row), (P, P)."""
    counts, starts = np.zeros(num_parts * num_parts, np.int64), whole.starts
    for (src_type, _, dst_type), lists in whole.in_edges.items():
        for row, last in blocks_of_rows(lists.ptr):
            begin, stop = int(lists.ptr[row]), int(lists.ptr[last])
            degrees = torch.diff(lists.ptr[row : last + 1]).numpy()
            own = np.repeat(parts[starts[dst_type] + row : starts[dst_type] + last].astype(np.int64), degrees)
            sources = parts[lists.other[begin:stop].numpy() + starts[src_type]]
            counts += np.bincount(own * num_parts + sources, minlength=len(counts))
    return counts.reshape(num_parts, num_parts)


def order_parts(between: NDArray[np.int64]) -> NDArray[np.int32]:
    """A new number for every part: connected ones first by component, then along the Fiedler vector."""
    joint = (between + between.T).astype(np.float64)
    np.fill_diagonal(joint, 0.0)
    rank, first = np.empty(len(joint), np.int32), 0
    count, component = connected_components(sparse.csr_array(joint), directed=False)
    for number in range(count):
        members = np.flatnonzero(component == number)
        order = members[_along_fiedler(joint[np.ix_(members, members)])]
        rank[order] = np.arange(first, first + len(order), dtype=np.int32)
        first += len(order)
    return rank


def _along_fiedler(joint: NDArray[np.float64]) -> NDArray[np.intp]:
    if len(joint) < 3:
        return np.arange(len(joint))
    scale = 1.0 / np.sqrt(joint.sum(1))
    laplacian = np.eye(len(joint)) - scale[:, None] * joint * scale[None, :]
    vector = np.linalg.eigh(laplacian)[1][:, 1] * scale
    if vector[np.abs(vector).argmax()] < 0:  # an eigenvector has no sign of its own
        vector = -vector
    return np.argsort(vector, kind="stable")
