"""partition_files: a graph in files, larger than memory perhaps, becomes a folder of parts.

Takes: a path that a reader knows. Gives: files, and a summary of what was cut. Runs once per graph.
What grows with the graph lies in mapped files beside the result, but for a few bytes a node.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from vgraph.distributed.partition.constraints import read_balance
from vgraph.distributed.partition.group_edges import group_edges
from vgraph.distributed.partition.partition_graph import (
    PartitionSummary,
    assign_parts,
    check_parts,
    summary_of,
    write_partition,
)
from vgraph.distributed.partition.raw_graph import RawGraph
from vgraph.distributed.partition.whole_graph import EDGES_AT_ONCE, Progress, WholeGraph, new_array, no_progress
from vgraph.distributed.stored.writer import written_folder
from vgraph.errors import GraphError
from vgraph.graphs.data import EdgeType
from vgraph.ir.topology import Compressed

GIB = 2**30
FIXED_BYTES = 400 << 20  # Python, torch and blocks of a few million edges
BYTES_A_NODE = 12  # its part, marks of halos and classes, and what sorting them takes


def partition_raw(
    raw: RawGraph,
    path: str | Path,
    num_parts: int,
    method: str = "ldg",
    balance: str | Sequence[str] | None = None,
    *,
    seed: int = 0,
    both: bool = False,
    memory: float | None = None,
    progress: Progress = no_progress,
) -> PartitionSummary:
    """As ``partition_graph``, of a graph in mapped files; ``memory``: GiB that may be taken beside these.

    Raises:
        GraphError: memory is too little for so many nodes, or for METIS.
    """
    check_parts(num_parts, method)
    budget = _budget(raw, memory)
    target = Path(path)
    with written_folder(target) as writer, tempfile.TemporaryDirectory(dir=writer.folder, prefix="lists-") as folder:
        whole = _grouped(raw, Path(folder), budget, progress)
        balanced = read_balance(whole, balance)
        parts = assign_parts(
            whole,
            num_parts,
            method,
            balanced,
            seed,
            None if memory is None else int(memory * GIB),
            progress,
        )
        manifest = write_partition(
            writer,
            whole,
            parts,
            num_parts,
            method,
            balanced,
            seed=seed,
            both=both,
            folder=Path(folder),
            progress=progress,
        )
    return summary_of(target, manifest)


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


def _lengths(lists: Compressed, path: Path) -> torch.Tensor:
    ptr = lists.ptr.numpy()
    found = new_array(path, np.int64, len(ptr) - 1)
    for first in range(0, len(found), EDGES_AT_ONCE):
        last = min(len(found), first + EDGES_AT_ONCE)
        found[first:last] = np.diff(ptr[first : last + 1])
    return torch.from_numpy(found)
