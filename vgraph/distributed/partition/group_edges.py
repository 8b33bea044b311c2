"""Group edges: adjacency lists of a graph that memory does not hold, made by sequential reading and writing.

Takes: edges in segments. Gives: lists in mapped files. Runs twice per graph: by destination, and by source.
Edges are counted, scattered into buckets of nodes whose edges memory holds, and sorted bucket by bucket; a bucket's
file is removed when its lists are written.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch
from numpy.typing import NDArray

from vgraph.distributed.partition.raw_graph import RawEdges
from vgraph.distributed.partition.whole_graph import EDGES_AT_ONCE, new_array
from vgraph.distributed.progress import Progress
from vgraph.distributed.stored.partitioned_graph import ids_dtype
from vgraph.ir.topology import Compressed, stable_argsort

BYTES_AN_EDGE = 64  # of memory, while a bucket is sorted
LEAST_EDGES = 1 << 16  # of a bucket
MOST_BUCKETS = 500  # files that are open at once


def group_edges(
    edges: RawEdges,
    num_groups: int,
    num_others: int,
    by_source: bool,
    folder: Path,
    memory: int,
    progress: Progress,
) -> Compressed:
    """The edges of every destination (or source), in the order of ids, in files below ``folder``.

    ``memory``: the bytes that this may take beside mapped files.
    """
    folder.mkdir(parents=True)
    word = "out-edges" if by_source else "in-edges"
    ptr = _count(edges, num_groups, by_source, folder, lambda done, total: progress(f"count {word}", done, total))
    bounds = _bucket_bounds(ptr, max(LEAST_EDGES, memory // BYTES_AN_EDGE))
    record = np.dtype(
        [("own", _np_dtype(num_groups)), ("other", _np_dtype(num_others)), ("edge", _np_dtype(edges.num_edges))]
    )
    scatter = _Scatter(edges, by_source, bounds, record, folder)
    scatter.run(lambda done, total: progress(f"scatter {word}", done, total))
    others = new_array(folder / "other", record["other"], edges.num_edges)
    ids = new_array(folder / "edge", record["edge"], edges.num_edges)
    for bucket, path in enumerate(scatter.paths):
        _sort_bucket(path, record, (int(bounds[bucket]), int(bounds[bucket + 1])), ptr, others, ids)
        path.unlink()
        progress(f"sort {word}", bucket + 1, len(scatter.paths))
    return Compressed(torch.from_numpy(ptr), torch.from_numpy(others), torch.from_numpy(ids))


def _np_dtype(count: int) -> Any:
    return np.int32 if ids_dtype(count) == torch.int32 else np.int64


def _count(
    edges: RawEdges, num_groups: int, by_source: bool, folder: Path, tell: Callable[[int, int], None]
) -> NDArray[np.int64]:
    """Where every list begins, (num_groups + 1,)."""
    ptr, done = new_array(folder / "ptr", np.int64, num_groups + 1), 0
    for src, dst in edges.blocks():
        own, counts = np.unique((src if by_source else dst).numpy(), return_counts=True)
        ptr[own.astype(np.int64) + 1] += counts
        done += len(src)
        tell(done, edges.num_edges)
    np.cumsum(ptr, out=ptr)
    return ptr


def _bucket_bounds(ptr: NDArray[np.int64], most: int) -> NDArray[np.int64]:
    """First groups of buckets of up to ``most`` edges, or of one group."""
    most = max(most, -(-int(ptr[-1]) // (MOST_BUCKETS // 2)))
    bounds = [0]
    while bounds[-1] < len(ptr) - 1:
        last = int(np.searchsorted(ptr, ptr[bounds[-1]] + most, "right")) - 1
        bounds.append(min(max(last, bounds[-1] + 1), len(ptr) - 1))
    return np.array(bounds, np.int64)


class _Scatter:
    """Records (own end, other end, edge) of every bucket, in the order of edges."""

    def __init__(
        self, edges: RawEdges, by_source: bool, bounds: NDArray[np.int64], record: np.dtype[Any], folder: Path
    ) -> None:
        self.edges, self.by_source, self.bounds, self.record = edges, by_source, bounds, record
        self.paths = [folder / f"bucket-{bucket}" for bucket in range(len(bounds) - 1)]

    def run(self, tell: Callable[[int, int], None]) -> None:
        done = 0
        with ExitStack() as stack:
            files = [stack.enter_context(path.open("wb")) for path in self.paths]
            for src, dst in self.edges.blocks():
                own, other = (src, dst) if self.by_source else (dst, src)
                self._write(own.numpy(), other.numpy(), done, files)
                done += len(src)
                tell(done, self.edges.num_edges)

    def _write(self, own: NDArray[Any], other: NDArray[Any], first: int, files: Sequence[BinaryIO]) -> None:
        bucket = np.searchsorted(self.bounds, own, "right").astype(np.uint16) - 1
        order = np.argsort(bucket, kind="stable")
        records = np.empty(len(own), self.record)
        records["own"], records["other"], records["edge"] = own[order], other[order], first + order
        ends = np.cumsum(np.bincount(bucket, minlength=len(files)))
        for file, begin, end in zip(files, [0, *ends[:-1]], ends, strict=True):
            if end > begin:
                plain: Any = records[begin:end].view(np.uint8)
                file.write(plain.data)


def _sort_bucket(
    path: Path,
    record: np.dtype[Any],
    groups: tuple[int, int],
    ptr: NDArray[np.int64],
    others: NDArray[Any],
    ids: NDArray[Any],
) -> None:
    first, last = int(ptr[groups[0]]), int(ptr[groups[1]])
    if first == last:
        return
    records = np.memmap(path, record, "r", shape=(last - first,))
    if groups[1] - groups[0] == 1:  # one list, perhaps longer than memory: it is in order already
        for begin in range(0, last - first, EDGES_AT_ONCE):
            some = records[begin : begin + EDGES_AT_ONCE]
            others[first + begin : first + begin + len(some)] = some["other"]
            ids[first + begin : first + begin + len(some)] = some["edge"]
        return
    own = torch.from_numpy(records["own"] - record["own"].type(groups[0]))
    order = stable_argsort(own, groups[1] - groups[0]).numpy()
    others[first:last] = records["other"][order]
    ids[first:last] = records["edge"][order]
