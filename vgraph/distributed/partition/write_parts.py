"""Write parts: every array of a partitioned graph, part by part, in blocks of a few million edges.

Takes: a ``WholeGraph`` and a ``Numbering``. Gives: files and the manifest. Runs once per graph.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vgraph.distributed.partition.numbering import Numbering
from vgraph.distributed.partition.whole_graph import EDGES_AT_ONCE, WholeGraph, blocks_of_rows
from vgraph.distributed.progress import Progress
from vgraph.distributed.stored.file_names import (
    edge_feature_file,
    edge_file,
    halo_file,
    new_ids_file,
    node_feature_file,
    orig_ids_file,
    part_folder,
)
from vgraph.distributed.stored.manifest import EdgeEnds, NodeType
from vgraph.distributed.stored.partitioned_graph import ids_dtype
from vgraph.distributed.stored.writer import ArrayWriter, FolderWriter
from vgraph.graphs.adjacency import runs
from vgraph.graphs.data import EdgeType
from vgraph.graphs.frame import Scheme
from vgraph.ir.topology import Compressed

BYTES_AT_ONCE = 1 << 26  # of features


@dataclass(frozen=True)
class Written:
    """What the manifest says of nodes and edges, and all halo rows."""

    nodes: Mapping[str, NodeType]
    edges: Mapping[EdgeType, EdgeEnds]
    halo_rows: int


def write_parts(
    writer: FolderWriter, whole: WholeGraph, numbering: Numbering, both: bool, progress: Progress
) -> Written:
    """Writes all files but the manifest."""
    halos = {t: np.zeros((numbering.num_parts,) * 2, np.int64) for t in whole.num_nodes}
    counts: dict[EdgeType, list[tuple[int, int, int]]] = {e: [] for e in whole.in_edges}  # edges, cut, out-edges
    seen = {t: np.zeros(count, np.bool_) for t, count in whole.num_nodes.items()}
    for part in range(numbering.num_parts):
        files = _PartWriter(writer, whole, numbering, part, seen)
        files.write_nodes()
        for etype in whole.in_edges:
            counts[etype].append((*files.write_in_edges(etype), files.write_out_edges(etype) if both else 0))
        for ntype, halo in halos.items():
            halo[part] = files.halo_rows(ntype)
        progress("write parts", part + 1, numbering.num_parts)
    for ntype, halo in halos.items():
        writer.write(new_ids_file(ntype), torch.from_numpy(numbering.new_ids[ntype]))
        writer.write(halo_file(ntype), torch.from_numpy(halo))
    return Written(
        {t: NodeType(tuple(numbering.bounds[t].tolist()), _schemes(whole.node_data.get(t, {}))) for t in halos},
        {e: _edge_ends(found, both, _schemes(whole.edge_data.get(e, {}))) for e, found in counts.items()},
        sum(int(halo.sum()) for halo in halos.values()),
    )


def _edge_ends(counts: list[tuple[int, int, int]], both: bool, schemes: Mapping[str, Scheme]) -> EdgeEnds:
    own, cut, out = (np.array(column, np.int64) for column in zip(*counts, strict=True))
    bounds, out_bounds = (tuple(np.concatenate([[0], np.cumsum(found)]).tolist()) for found in (own, out))
    return EdgeEnds(bounds, int(cut.sum()), out_bounds if both else (), schemes)


def _schemes(data: Mapping[str, Tensor]) -> dict[str, Scheme]:
    return {name: Scheme(tuple(column.shape[1:]), column.dtype) for name, column in data.items()}


class _PartWriter:
    """The files of one part. ``seen``: a mark for every new id, all clear before and after."""

    def __init__(
        self,
        writer: FolderWriter,
        whole: WholeGraph,
        numbering: Numbering,
        part: int,
        seen: dict[str, NDArray[np.bool_]],
    ) -> None:
        self.writer, self.whole, self.numbering = writer, whole, numbering
        self.folder, self.seen = part_folder(part), seen
        self.bounds = {t: (int(b[part]), int(b[part + 1])) for t, b in numbering.bounds.items()}
        self.orig = {t: torch.from_numpy(numbering.originals[t][a:b]) for t, (a, b) in self.bounds.items()}

    def write_nodes(self) -> None:
        for ntype, orig in self.orig.items():
            self._write(orig_ids_file(ntype), orig)
            for name, column in self.whole.node_data.get(ntype, {}).items():
                self._write_rows(node_feature_file(ntype, name), column, len(orig), iter([orig]))

    def write_in_edges(self, etype: EdgeType) -> tuple[int, int]:
        """How many edges end here, and how many of these come from another part."""
        lists = _OwnLists(self.whole.in_edges[etype], self.orig[etype[2]])
        self._write(edge_file(etype, "ptr"), lists.ptr)
        cut = self._write_sources(etype, lists)
        self._write_edge_ids(edge_file(etype, "eid"), lists)
        degrees = self.whole.out_degrees[etype].index_select(0, self.orig[etype[0]])
        self._write(edge_file(etype, "outdeg"), degrees.to(ids_dtype(lists.whole.other.shape[0] + 1)))
        for name, column in self.whole.edge_data.get(etype, {}).items():
            ids = (lists.edge_ids(places) for places in lists.places())
            self._write_rows(edge_feature_file(etype, name), column, lists.num_edges, ids)
        return lists.num_edges, cut

    def write_out_edges(self, etype: EdgeType) -> int:
        """How many edges begin here."""
        assert self.whole.out_edges is not None
        lists = _OwnLists(self.whole.out_edges[etype], self.orig[etype[0]])
        self._write(edge_file(etype, "out_ptr"), lists.ptr)
        new_ids = torch.from_numpy(self.numbering.new_ids[etype[2]])
        with self._array(edge_file(etype, "out_dst"), new_ids.dtype, lists.num_edges) as file:
            for places in lists.places():
                file.write(new_ids.index_select(0, lists.whole.other.index_select(0, places)))
        self._write_edge_ids(edge_file(etype, "out_eid"), lists)
        return lists.num_edges

    def _write_sources(self, etype: EdgeType, lists: _OwnLists) -> int:
        """Writes the new ids of sources, marks them, and counts those that other parts have."""
        new_ids = torch.from_numpy(self.numbering.new_ids[etype[0]])
        first, last = self.bounds[etype[0]]
        seen, cut = torch.from_numpy(self.seen[etype[0]]), 0
        with self._array(edge_file(etype, "src"), new_ids.dtype, lists.num_edges) as file:
            for places in lists.places():
                sources = new_ids.index_select(0, lists.whole.other.index_select(0, places))
                file.write(sources)
                seen[sources.long()] = True
                cut += int(((sources < first) | (sources >= last)).sum())
        return cut

    def _write_edge_ids(self, name: str, lists: _OwnLists) -> None:
        with self._array(name, ids_dtype(lists.whole.other.shape[0]), lists.num_edges) as file:
            for places in lists.places():
                file.write(lists.edge_ids(places))

    def halo_rows(self, ntype: str) -> NDArray[np.int64]:
        """How many nodes of every part were sources of edges that end here, but for this one; clears the marks."""
        seen, bounds = self.seen[ntype], self.numbering.bounds[ntype]
        first, last = self.bounds[ntype]
        seen[first:last] = False
        sources = np.flatnonzero(seen)
        seen[sources] = False
        return np.diff(np.searchsorted(sources, bounds)).astype(np.int64)

    def _write(self, name: str, rows: Tensor) -> None:
        self.writer.write(f"{self.folder}/{name}", rows)

    def _array(self, name: str, dtype: torch.dtype, *shape: int) -> AbstractContextManager[ArrayWriter]:
        return self.writer.array(f"{self.folder}/{name}", dtype, shape)

    def _write_rows(self, name: str, column: Tensor, count: int, ids: Iterator[Tensor]) -> None:
        """Rows of a feature by ids, a block of bytes at a time."""
        at_once = max(1, BYTES_AT_ONCE // max(1, column[:1].nbytes))
        with self._array(name, column.dtype, count, *column.shape[1:]) as file:
            for some in ids:
                for chosen in some.split(at_once):
                    file.write(column.index_select(0, chosen))


class _OwnLists:
    """The lists of some rows of all, in the rows' order."""

    def __init__(self, whole: Compressed, rows: Tensor) -> None:
        self.whole, self.rows = whole, rows.long()
        degrees = whole.ptr.index_select(0, self.rows + 1) - whole.ptr.index_select(0, self.rows)
        self.ptr = torch.zeros(len(rows) + 1, dtype=torch.int64)
        torch.cumsum(degrees, 0, out=self.ptr[1:])

    @property
    def num_edges(self) -> int:
        return int(self.ptr[-1])

    def places(self) -> Iterator[Tensor]:
        """Where the entries stand among all, some millions at a time."""
        for first, last in blocks_of_rows(self.ptr):
            begins = self.whole.ptr.index_select(0, self.rows[first:last])
            yield from runs(begins, torch.diff(self.ptr[first : last + 1])).split(EDGES_AT_ONCE)

    def edge_ids(self, places: Tensor) -> Tensor:
        return places if self.whole.edge_ids is None else self.whole.edge_ids.index_select(0, places)
