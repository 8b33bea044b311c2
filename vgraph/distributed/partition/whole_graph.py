"""WholeGraph: the graph that is to be partitioned, as adjacency lists and features in memory or on disk.

Takes: a ``Graph``, or arrays of a reader. Gives: in-edges of every node, in the original order. Runs once per graph.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vgraph.errors import FeatureError, GraphError
from vgraph.graphs.data import EdgeType
from vgraph.graphs.graph_data import GraphData
from vgraph.ir.topology import Compressed

EDGES_AT_ONCE = 1 << 22  # what passes over all edges hold in memory


def new_array(path: Path, dtype: Any, count: int) -> NDArray[Any]:
    """An array in a file, all 0: its pages are the system's, not this process's memory."""
    if not count:
        return np.zeros(0, dtype)
    return np.memmap(path, dtype, "w+", shape=(count,))


@dataclass(frozen=True)
class WholeGraph:
    """Edges of every type, grouped by destination; ``out_edges`` by source, where somebody needs them.

    ``out_degrees``: how many edges of a type begin at every node.

    Features are tensors over files or in memory; each has one row a node, or one an edge in the original order.
    """

    num_nodes: Mapping[str, int]
    in_edges: Mapping[EdgeType, Compressed]
    out_degrees: Mapping[EdgeType, Tensor]
    node_data: Mapping[str, Mapping[str, Tensor]] = field(default_factory=dict[str, Mapping[str, Tensor]])
    edge_data: Mapping[EdgeType, Mapping[str, Tensor]] = field(default_factory=dict[EdgeType, Mapping[str, Tensor]])
    out_edges: Mapping[EdgeType, Compressed] | None = None

    @property
    def starts(self) -> dict[str, int]:
        """The first number of every type where nodes of all types are numbered one after the other."""
        found, first = dict[str, int](), 0
        for ntype, count in self.num_nodes.items():
            found[ntype] = first
            first += count
        return found

    @property
    def total_nodes(self) -> int:
        return sum(self.num_nodes.values())

    @property
    def total_edges(self) -> int:
        return sum(lists.other.shape[0] for lists in self.in_edges.values())


def whole_graph(g: GraphData) -> WholeGraph:
    """What a graph in memory consists of, on the CPU.

    Raises:
        GraphError: it is a block, or a batch with features of its graphs.
        FeatureError: a feature is sparse.
    """
    if g.is_block:
        raise GraphError("a block is a part of a graph already", cure="partition the graph that it was drawn from")
    if len(g.gdata):
        names = ", ".join(map(repr, g.gdata))
        fact = f"the graph has features of whole graphs ({names}), which no part would have"
        raise GraphError(fact, cure="remove them from gdata, or load batches of graphs with DistGraphLoader")
    topologies = {e: g[e].topology.on_host for e in g.canonical_etypes}
    return WholeGraph(
        {t: frame.num_rows for t, frame in g.src_frames.items()},
        {e: t.csc for e, t in topologies.items()},
        {e: t.out_degrees for e, t in topologies.items()},
        {t: {n: _stored(n, c) for n, c in frame.items()} for t, frame in g.src_frames.items()},
        {e: {n: _stored(n, c) for n, c in frame.items()} for e, frame in g.edge_frames.items()},
        {e: t.csr for e, t in topologies.items()},
    )


def _stored(name: str, column: Tensor) -> Tensor:
    if column.layout != torch.strided:
        fact = f"the feature {name!r} has the layout {column.layout}"
        raise FeatureError(fact, cure="pass column.to_dense()")
    return column.detach().cpu()


def blocks_of_rows(ptr: Tensor, most: int = EDGES_AT_ONCE) -> Iterator[tuple[int, int]]:
    """Ranges of rows with up to ``most`` entries each, and at least one row."""
    row, count = 0, ptr.shape[0] - 1
    while row < count:
        last = int(torch.searchsorted(ptr, ptr[row] + most, right=True)) - 1
        last = min(max(last, row + 1), count)
        yield row, last
        row = last
