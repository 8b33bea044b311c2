"""partition_graph: a graph in memory becomes a folder of parts.

Takes: a ``Graph``, a path. Gives: files, and a summary of what was cut. Runs once per graph.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from vgraph.distributed.partition.constraints import Balance, read_balance, weights_of
from vgraph.distributed.partition.metis import metis_parts
from vgraph.distributed.partition.numbering import number_nodes
from vgraph.distributed.partition.whole_graph import WholeGraph, whole_graph
from vgraph.distributed.partition.write_parts import write_parts
from vgraph.distributed.stored.manifest import Manifest
from vgraph.distributed.stored.partitioned_graph import PartitionedGraph
from vgraph.distributed.stored.writer import FolderWriter, write_manifest, written_folder
from vgraph.errors import FunctionError, GraphError
from vgraph.graphs.graph_data import GraphData

METHODS = ("metis", "hash")


@dataclass(frozen=True)
class PartitionSummary:
    """What a partition has become.

    ``cut``: edges whose ends are in two parts. ``halo_rows``: nodes that parts read of others, each once a part that
    reads it. ``largest``: of every constraint, the largest part's share over the mean.
    """

    path: Path
    num_parts: int
    num_nodes: int
    num_edges: int
    cut: int
    halo_rows: int
    largest: dict[str, float]

    def __str__(self) -> str:
        share = self.cut / max(1, self.num_edges)
        largest = ", ".join(f"{word} {value:.2f}" for word, value in self.largest.items())
        return (
            f"{self.path}: {self.num_parts} parts of {self.num_nodes} nodes; {self.cut} of {self.num_edges} edges cut "
            f"({share:.1%}), {self.halo_rows} halo rows; largest part over the mean: {largest}"
        )


def partition_graph(
    g: GraphData,
    path: str | Path,
    num_parts: int = 6,
    method: str = "metis",
    balance: str | Sequence[str] | None = None,
    *,
    seed: int = 0,
    both: bool = False,
) -> PartitionSummary:
    """Divides a graph, with its features, into parts on disk that ``DistGraph`` trains on.

    A part has some nodes and all edges that end there. More parts than ranks are fine: ranks take several.
    The folder is there when all of it is written; a partitioned graph that was there before is replaced then.

    Args:
        g: the graph, with one or several types of nodes and edges.
        path: the folder to make.
        num_parts: how many parts.
        method: "metis" (fewest edges between parts; needs pymetis) or "hash" (at random).
        balance: what parts have equal shares of beside nodes: "edges", "types", or names of features of nodes that
            hold truth values or classes ("train" finds "train_mask"), in a list or joined by commas.
        seed: of whatever is drawn.
        both: whether out-edges are stored, too, as ``reverse`` needs them.

    Raises:
        GraphError: a number of parts below 1, a block, a graph that METIS has no memory for.
        FunctionError: another method, or a balance of numbers that are no classes.
        NameLookupError: a balance that names nothing.
        DataError: the folder cannot be written, or something else is there.

    Source: DGL 1.1, ``dgl.distributed.partition_graph``.

    >>> import tempfile, vgraph
    >>> import vgraph.distributed as vd
    >>> g = vgraph.graph(([0, 1, 2, 3], [1, 0, 3, 2]))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     summary = vd.partition_graph(g, folder + "/pairs.vg", num_parts=2)
    >>> summary.cut, summary.halo_rows
    (0, 0)
    """
    check_parts(num_parts, method)
    whole = whole_graph(g)
    balanced = read_balance(whole, balance)
    parts = assign_parts(whole, num_parts, method, balanced, seed)
    with written_folder(path) as writer:
        write_partition(writer, whole, parts, num_parts, method, balanced, seed=seed, both=both)
    return summary_of(Path(path), whole, parts, num_parts, balanced)


def check_parts(num_parts: int, method: str) -> None:
    """FunctionError: there is no such method; GraphError: no such number of parts."""
    if method not in METHODS:
        raise FunctionError(f"there is no method {method!r}", cure=f"take one of {', '.join(METHODS)}")
    if num_parts < 1:
        raise GraphError(f"num_parts is {num_parts}", cure="divide the graph into 1 part or more")


def assign_parts(whole: WholeGraph, num_parts: int, method: str, balance: Balance, seed: int) -> NDArray[np.int32]:
    """The part of every node, nodes of all types numbered one after the other."""
    if method == "metis":
        return metis_parts(whole, num_parts, weights_of(whole, balance), seed)
    return hash_parts(whole.total_nodes, num_parts, seed)


def hash_parts(count: int, num_parts: int, seed: int) -> NDArray[np.int32]:
    """Parts at random, a function of seed and id alone."""
    words = np.arange(count, dtype=np.uint64) + (np.uint64(seed) << np.uint64(40))
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        words = (words ^ (words >> np.uint64(shift))) * np.uint64(factor)
    return ((words ^ (words >> np.uint64(31))) % np.uint64(num_parts)).astype(np.int32)


def write_partition(
    writer: FolderWriter,
    whole: WholeGraph,
    parts: NDArray[np.int32],
    num_parts: int,
    method: str,
    balance: Balance,
    *,
    seed: int,
    both: bool,
    tell: Callable[[], None] = lambda: None,
) -> Manifest:
    """Numbers the nodes and writes every file; ``parts`` is renumbered in place."""
    written = write_parts(writer, whole, number_nodes(whole, parts, num_parts), both, tell)
    manifest = Manifest(
        num_parts=num_parts,
        method=method,
        seed=seed,
        balance=balance.words,
        halo_rows=written.halo_rows,
        nodes=written.nodes,
        edges=written.edges,
        files=writer.files,
    )
    write_manifest(writer, manifest)
    return manifest


def summary_of(
    path: Path, whole: WholeGraph, parts: NDArray[np.int32], num_parts: int, balance: Balance
) -> PartitionSummary:
    """Counts of the folder that was written."""
    manifest = PartitionedGraph.open(path).manifest
    words = ["nodes", *(["edges"] if balance.edges else [])]
    words += [
        f"{c.word}={value}" if c.num_classes > 1 else c.word for c in balance.classes for value in range(c.num_classes)
    ]
    weights = weights_of(whole, balance)
    loads = np.stack([np.bincount(parts, column, num_parts) for column in weights.T])
    largest = loads.max(1) * num_parts / np.maximum(weights.sum(0), 1)
    return PartitionSummary(
        path=path,
        num_parts=num_parts,
        num_nodes=whole.total_nodes,
        num_edges=whole.total_edges,
        cut=manifest.cut,
        halo_rows=manifest.halo_rows,
        largest=dict(zip(words, largest.tolist(), strict=True)),
    )
