"""Out of core: a graph in files, larger than memory perhaps, becomes a folder of parts.

Takes: a path that a reader knows. Gives: files, and a summary of what was cut. Runs once per graph.
What grows with the graph lies in mapped files beside the result, but for a few bytes a node.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from vgraph.arguments import FINITE, POSITIVE, WHOLE, checked
from vgraph.distributed.partition.constraints import read_balance
from vgraph.distributed.partition.group_edges import group_edges
from vgraph.distributed.partition.partition_graph import (
    PartitionOptions,
    PartitionSummary,
    assign_parts,
    summary_of,
    write_partition,
)
from vgraph.distributed.partition.raw_graph import RawGraph
from vgraph.distributed.partition.whole_graph import EDGES_AT_ONCE, WholeGraph, new_array
from vgraph.distributed.progress import Progress, no_progress
from vgraph.distributed.readers.read_graph import read_graph
from vgraph.distributed.stored.writer import written_folder
from vgraph.errors import GraphError
from vgraph.graphs.data import EdgeType
from vgraph.ir.topology import Compressed

GIB = 2**30
FIXED_BYTES = 400 << 20  # Python, torch and blocks of a few million edges
BYTES_A_NODE = 12  # its part, marks of halos and classes, and what sorting them takes


@checked(num_parts=POSITIVE, seed=WHOLE, memory=FINITE.or_none())
def partition_files(
    source: str | Path,
    path: str | Path,
    num_parts: int = 64,
    method: str = "ldg",
    balance: str | Sequence[str] | None = None,
    *,
    seed: int = 0,
    both: bool = False,
    memory: float | None = None,
    progress: Progress = no_progress,
) -> PartitionSummary:
    """As ``partition_graph``, of a graph in files, which memory need not hold.

    Args:
        source: OGB's data.npz or its folder, a folder of .npy files (``edge_index``, or ``src`` and ``dst``, and
            features as ``node_NAME`` and ``edge_NAME``), a .npy of edges, a .npz of SciPy's, a .bin of
            ``save_graphs``, DGL's chunked metadata.json, or the JSON file of DistDGL's partitions.
        path: the folder to make; lists of edges lie there meanwhile.
        num_parts: how many parts.
        method: "ldg", "fennel", "hash" or, where memory holds the graph, "metis", as of ``partition_graph``.
        balance: what parts have equal shares of beside nodes, as of ``partition_graph``.
        seed: a whole number, from which whatever is drawn follows.
        both: whether out-edges are stored, too, as ``reverse`` needs them.
        memory: how many GiB may be taken beside mapped files; None: 1 GiB where edges are sorted, and what METIS
            needs.
        progress: a function that is told what is done, how much of it, and of how much.

    Returns:
        A PartitionSummary: the counts of the whole graph, and what was cut.

    Raises:
        DataError: a file is missing, damaged or of another kind, or the folder cannot be written.
        ArgumentError: a number is outside of what it counts or measures.
        GraphError: memory is too little for so many nodes, or for METIS.
        FunctionError, NameLookupError: another method, a balance of numbers that are no classes, or of no name.
        VGraphError: the method is "metis", and pymetis is not installed, or METIS gives up.

    Source: DGL 1.1, ``tools/partition_algo`` and ``tools/dispatch_data.py``.

    Example:
        >>> import tempfile, numpy as np, vgraph.distributed as vd
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     np.save(folder + "/edges.npy", [[0, 1, 2, 3], [1, 0, 3, 2]])
        ...     summary = vd.partition_files(folder + "/edges.npy", folder + "/pairs.vg", num_parts=2)
        >>> summary.num_nodes, summary.num_edges
        (4, 4)
    """
    options = PartitionOptions(num_parts, method, seed, both)
    with written_folder(path) as writer, tempfile.TemporaryDirectory(dir=writer.folder, prefix="lists-") as lists:
        folder = Path(lists)
        raw = read_graph(source, folder / "unpacked")
        whole = _grouped(raw, folder, _budget(raw, memory), progress)
        balanced = read_balance(whole, balance)
        most = None if memory is None else int(memory * GIB)
        parts = assign_parts(whole, options, balanced, most, progress)
        if not both:
            whole = _without_out_edges(whole, folder)
        manifest = write_partition(writer, whole, parts, options, balanced, folder, progress)
    return summary_of(Path(path), manifest)


def _budget(raw: RawGraph, memory: float | None) -> int:
    """Bytes for sorting edges."""
    if memory is None:
        return GIB
    needed = FIXED_BYTES + BYTES_A_NODE * sum(raw.num_nodes.values())
    if memory * GIB < needed + (64 << 20):
        fact = f"{memory:g} GiB are too little for {sum(raw.num_nodes.values())} nodes"
        raise GraphError(fact, cure=f"give {(needed + (64 << 20)) / GIB:.2f} GiB or more")
    return int(memory * GIB) - needed


def _grouped(raw: RawGraph, folder: Path, memory: int, progress: Progress) -> WholeGraph:
    in_edges, out_edges = dict[EdgeType, Compressed](), dict[EdgeType, Compressed]()
    degrees = dict[EdgeType, torch.Tensor]()
    for number, (etype, edges) in enumerate(raw.edges.items()):
        num_src, num_dst = raw.num_nodes[etype[0]], raw.num_nodes[etype[2]]
        own = folder / str(number)
        in_edges[etype] = group_edges(edges, num_dst, num_src, False, own / "in", memory, progress)
        out_edges[etype] = group_edges(edges, num_src, num_dst, True, own / "out", memory, progress)
        degrees[etype] = _lengths(out_edges[etype], own / "degrees")
    return WholeGraph(raw.num_nodes, in_edges, degrees, raw.node_data, raw.edge_data, out_edges)


def _without_out_edges(whole: WholeGraph, folder: Path) -> WholeGraph:
    """Out-edges have served: their room on the disk is free before parts are written."""
    for path in folder.glob("*/out/*"):
        path.unlink()
    return replace(whole, out_edges=None)


def _lengths(lists: Compressed, path: Path) -> torch.Tensor:
    ptr = lists.ptr.numpy()
    found = new_array(path, np.int64, len(ptr) - 1)
    for first in range(0, len(found), EDGES_AT_ONCE):
        last = min(len(found), first + EDGES_AT_ONCE)
        found[first:last] = np.diff(ptr[first : last + 1])
    return torch.from_numpy(found)
