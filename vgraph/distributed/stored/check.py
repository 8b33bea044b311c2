"""Check: a partitioned graph compared with its manifest, file by file, and its arrays with one another.

Takes: a folder. Gives: nothing, or a DataError that names the file. Runs when somebody asks for it.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path, PurePosixPath

import torch
from torch import Tensor

from vgraph.distributed.progress import Progress, no_progress
from vgraph.distributed.stored.file_names import edge_file, halo_file, new_ids_file, orig_ids_file, part_folder
from vgraph.distributed.stored.manifest import CURE, FileRecord
from vgraph.distributed.stored.partitioned_graph import PartitionedGraph, StoredPart
from vgraph.errors import DataError
from vgraph.files import unreadable
from vgraph.graphs.data import EdgeType

BLOCK = 1 << 24


def check_graph(path: str | Path, parts: Iterable[int] | None = None, *, progress: Progress = no_progress) -> None:
    """Compares every file with its checksum, ids with bounds, and counts with what is there.

    Args:
        path: a folder of ``partition_graph``.
        parts: the numbers of those that this machine has; None: all.
        progress: a function that is told how many bytes and parts are compared: (what, how much of it, of how much).

    Raises:
        DataError: a file is missing, cut short or changed, or does not fit the others; it names the file.
        GraphError: there is no such part.

    Source: none (checksums are SHA-256, as the manifest holds them).

    Example:
        >>> import tempfile, vgraph
        >>> import vgraph.distributed as vd
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     summary = vd.partition_graph(vgraph.graph(([0], [1])), folder, num_parts=1)
        ...     vd.check_graph(folder)
    """
    stored = PartitionedGraph.open(path)
    chosen = range(stored.num_parts) if parts is None else sorted(set(parts))
    folders = {part_folder(part) for part in chosen}
    files = {
        name: record
        for name, record in stored.manifest.files.items()
        if not name.startswith("part-") or PurePosixPath(name).parts[0] in folders
    }
    total, done = sum(record.num_bytes for record in files.values()), 0
    for name, record in files.items():
        _check_file(stored.path, name, record)
        done += record.num_bytes
        progress("checksums", done, total)
    seen = {etype: torch.zeros(stored.num_edges(etype), dtype=torch.bool) for etype in stored.canonical_etypes}
    for number, part in enumerate(chosen):
        _check_part(stored, stored.part(part), seen)
        progress("ids and counts", number + 1, len(chosen))
    if len(chosen) == stored.num_parts:
        _check_whole(stored, seen)


def _check_file(folder: Path, name: str, record: FileRecord) -> None:
    path = folder / name
    if PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts:
        raise DataError(f"the manifest names a file outside the folder: {name[:100]!r}", line=str(folder), cure=CURE)
    digest, num_bytes = sha256(), 0
    try:
        with path.open("rb") as file:
            while block := file.read(BLOCK):
                digest.update(block)
                num_bytes += len(block)
    except OSError as error:
        raise unreadable(path, error) from error
    if num_bytes != record.num_bytes:
        fact = f"it has {num_bytes} bytes, and was written with {record.num_bytes}"
        raise DataError(fact, line=str(path), cure=CURE)
    if digest.hexdigest() != record.digest:
        raise DataError("it is not what was written: the checksum differs", line=str(path), cure=CURE)


def _check_part(stored: PartitionedGraph, part: StoredPart, seen: dict[EdgeType, Tensor]) -> None:
    halo = {t: torch.zeros(stored.num_nodes(t), dtype=torch.bool) for t in stored.ntypes}
    for ntype in stored.ntypes:
        own, first = part.orig(ntype).long(), int(stored.bounds(ntype)[part.number])
        expected = torch.arange(first, first + len(own))
        if not torch.equal(stored.new_ids(ntype).index_select(0, own).long(), expected):
            _refuse(stored, part, orig_ids_file(ntype), f"does not turn back {new_ids_file(ntype)}")
        for name in stored.node_schemes(ntype):
            part.node_data(ntype, name)
    for etype in stored.canonical_etypes:
        for read in (part.ptr, part.outdeg):
            read(etype)
        edges = part.eid(etype).long()
        if bool(seen[etype].index_select(0, edges).any()) or len(edges.unique()) != len(edges):
            _refuse(stored, part, edge_file(etype, "eid"), "names an edge that is there already")
        seen[etype][edges] = True
        halo[etype[0]][part.src(etype).long()] = True
        for name in stored.edge_schemes(etype):
            part.edge_data(etype, name)
        if stored.manifest.edges[etype].out_bounds:
            for read in (part.out_ptr, part.out_dst, part.out_eid):
                read(etype)
    for ntype, marks in halo.items():
        bounds = stored.bounds(ntype)
        marks[int(bounds[part.number]) : int(bounds[part.number + 1])] = False
        counts = torch.diff(torch.searchsorted(marks.nonzero().squeeze(1), bounds))
        if not torch.equal(counts, stored.halo_rows(ntype)[part.number]):
            fact = f"part {part.number} reads other rows than it says"
            raise DataError(fact, line=str(stored.path / halo_file(ntype)), cure=CURE)


def _check_whole(stored: PartitionedGraph, seen: dict[EdgeType, Tensor]) -> None:
    """What no part knows alone."""
    if not all(bool(marks.all()) for marks in seen.values()):
        raise DataError("some edges are in no part", line=str(stored.path), cure=CURE)
    if sum(int(stored.halo_rows(ntype).sum()) for ntype in stored.ntypes) != stored.manifest.halo_rows:
        raise DataError("the manifest counts other halo rows than there are", line=str(stored.path), cure=CURE)


def _refuse(stored: PartitionedGraph, part: StoredPart, name: str, fact: str) -> None:
    path = stored.path / part_folder(part.number) / name
    raise DataError(f"it {fact}", line=str(path), cure=CURE)
