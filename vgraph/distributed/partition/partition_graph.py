"""partition_graph: a graph in memory becomes a folder of parts.

Takes: a ``Graph``, a path. Gives: files, and a summary of what was cut. Runs once per graph.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from vgraph.arguments import POSITIVE, WHOLE, checked
from vgraph.distributed.partition.constraints import Balance, loads_of, read_balance, training_nodes
from vgraph.distributed.partition.metis import metis_parts
from vgraph.distributed.partition.numbering import number_nodes
from vgraph.distributed.partition.streaming import streamed_parts
from vgraph.distributed.partition.whole_graph import EDGES_AT_ONCE, WholeGraph, whole_graph
from vgraph.distributed.partition.write_parts import write_parts
from vgraph.distributed.progress import Progress, no_progress
from vgraph.distributed.stored.manifest import Manifest
from vgraph.distributed.stored.writer import FolderWriter, write_manifest, written_folder
from vgraph.errors import FunctionError
from vgraph.graphs.draw.random_numbers import below, draw, mix
from vgraph.graphs.given import GRAPH
from vgraph.graphs.graph_data import GraphData

METHODS = ("metis", "ldg", "fennel", "hash")


@dataclass(frozen=True)
class PartitionOptions:
    """What a partition shall be; FunctionError: there is no such method.

    ``both``: whether out-edges are stored, too.
    """

    num_parts: int
    method: str
    seed: int
    both: bool

    def __post_init__(self) -> None:
        if self.method not in METHODS:
            raise FunctionError(f"there is no method {self.method!r}", cure=f"take one of {', '.join(METHODS)}")


@dataclass(frozen=True)
class PartitionSummary:
    """What a partition has become; ``str`` tells it in a line.

    Attributes:
        path: the folder.
        num_parts: the number of parts.
        num_nodes: the number of nodes, of all types.
        num_edges: the number of edges, of all types.
        cut: how many edges have their ends in two parts.
        halo_rows: how many nodes parts read of others, each once a part that reads it.
        largest: the largest part over the mean, of "nodes", "edges" and every constraint, by name.

    Source: none (what ``gpmetis`` of METIS prints, the edge cut and the balance, and the halo rows).

    Example:
        >>> import tempfile, vgraph, vgraph.distributed as vd
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     summary = vd.partition_graph(vgraph.graph(([0, 1], [2, 2])), folder, num_parts=1)
        >>> summary.num_nodes, summary.num_edges, summary.cut, summary.largest
        (3, 2, 0, {'nodes': 1.0, 'edges': 1.0})
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


@checked(g=GRAPH, num_parts=POSITIVE, seed=WHOLE)
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
        method: "metis" (fewest edges between parts; needs pymetis), "ldg" or "fennel" (passes over the edges, little
            memory) or "hash" (at random).
        balance: what parts have equal shares of beside nodes: "edges", "types", or names of features of nodes that
            hold truth values or classes ("train" finds "train_mask"), in a list or joined by commas.
        seed: a whole number, from which whatever is drawn follows.
        both: whether out-edges are stored, too, as ``reverse`` needs them.

    Returns:
        A PartitionSummary: the counts of the whole graph, and what was cut.

    Raises:
        ArgumentError: ``num_parts`` is no whole number from 1 up, or ``seed`` none.
        GraphError: a block, features of whole graphs, a graph that METIS has no memory for.
        FeatureError: a feature is sparse.
        FunctionError: another method, or a balance of numbers that are no classes.
        NameLookupError: a balance that names nothing.
        DataError: the folder cannot be written, or something else is there.
        VGraphError: the method is "metis", and pymetis is not installed, or METIS gives up.

    Source: DGL 1.1, ``dgl.distributed.partition_graph``.

    Example:
        >>> import tempfile, vgraph
        >>> import vgraph.distributed as vd
        >>> g = vgraph.graph(([0, 1, 2, 3], [1, 0, 3, 2]))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     summary = vd.partition_graph(g, folder + "/pairs.vg", num_parts=2)
        >>> summary.cut, summary.halo_rows
        (0, 0)
    """
    options = PartitionOptions(num_parts, method, seed, both)
    whole = whole_graph(g)
    balanced = read_balance(whole, balance)
    parts = assign_parts(whole, options, balanced)
    with written_folder(path) as writer:
        manifest = write_partition(writer, whole, parts, options, balanced)
    return summary_of(Path(path), manifest)


def assign_parts(
    whole: WholeGraph,
    options: PartitionOptions,
    balance: Balance,
    memory: int | None = None,
    progress: Progress = no_progress,
) -> NDArray[np.int32]:
    """The part of every node, nodes of all types numbered one after the other.

    ``memory``: the bytes that METIS may take.
    """
    num_parts, seed = options.num_parts, options.seed
    if options.method == "metis":
        return metis_parts(whole, num_parts, balance, seed, memory)
    if options.method == "hash":
        return hash_parts(whole.total_nodes, num_parts, seed)
    return streamed_parts(whole, num_parts, options.method, balance, seed, progress=progress)


def hash_parts(count: int, num_parts: int, seed: int) -> NDArray[np.int32]:
    """Parts at random, a function of seed and id alone."""
    found = np.empty(count, np.int32)
    for first in range(0, count, EDGES_AT_ONCE):
        ids = np.arange(first, min(count, first + EDGES_AT_ONCE))
        found[first : first + len(ids)] = below(draw(mix(seed), ids, 0), num_parts)
    return found


def write_partition(
    writer: FolderWriter,
    whole: WholeGraph,
    parts: NDArray[np.int32],
    options: PartitionOptions,
    balance: Balance,
    folder: Path | None = None,
    progress: Progress = no_progress,
) -> Manifest:
    """Numbers the nodes and writes every file; ``parts`` is renumbered in place.

    ``folder``: where what grows with the graph may lie meanwhile, if not in memory.
    """
    numbers = number_nodes(whole, parts, options.num_parts, folder)
    written = write_parts(writer, whole, numbers, options.both, progress)
    loads = {"nodes": _sums(n.bounds for n in written.nodes.values())}
    loads["edges"] = _sums(e.bounds for e in written.edges.values())
    for classes in (*training_nodes(whole, balance), *balance.classes):
        loads |= loads_of(classes, parts, options.num_parts)
    manifest = Manifest(
        num_parts=options.num_parts,
        method=options.method,
        seed=options.seed,
        balance=balance.words,
        halo_rows=written.halo_rows,
        loads=loads,
        nodes=written.nodes,
        edges=written.edges,
        files=writer.files,
    )
    write_manifest(writer, manifest)
    return manifest


def _sums(bounds: Iterable[tuple[int, ...]]) -> tuple[int, ...]:
    """How many every part has over all types."""
    return tuple(np.diff(np.array(list(bounds)).sum(0)).tolist())


def summary_of(path: Path, manifest: Manifest) -> PartitionSummary:
    """What a manifest says, in short."""
    shares = {word: max(loads) * len(loads) / max(1, sum(loads)) for word, loads in manifest.loads.items()}
    return PartitionSummary(
        path=path,
        num_parts=manifest.num_parts,
        num_nodes=manifest.num_nodes,
        num_edges=manifest.num_edges,
        cut=manifest.cut,
        halo_rows=manifest.halo_rows,
        largest=shares,
    )
