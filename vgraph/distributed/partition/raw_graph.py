"""RawGraph: what a reader finds in files: edges as pairs of ends in segments, features by type, all of them mapped.

Takes: tensors over files. Gives: edges some millions at a time, every id compared first. Runs once per graph.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from torch import Tensor

from vgraph.distributed.partition.whole_graph import EDGES_AT_ONCE
from vgraph.errors import DataError
from vgraph.graphs.data import EdgeType


@dataclass(frozen=True)
class EdgeSegment:
    """Sources and destinations (edges,) of some edges; ``path``: the file that they come from."""

    src: Tensor
    dst: Tensor
    path: Path


@dataclass(frozen=True)
class RawEdges:
    """Edges of one type, numbered from the first segment's first to the last one's last."""

    segments: Sequence[EdgeSegment]

    @property
    def num_edges(self) -> int:
        return sum(segment.src.shape[0] for segment in self.segments)

    def blocks(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Some millions of (sources, destinations) at a time."""
        for segment in self.segments:
            yield from zip(segment.src.split(EDGES_AT_ONCE), segment.dst.split(EDGES_AT_ONCE), strict=True)

    def check(self, num_src: int, num_dst: int) -> None:
        """DataError: an end is no node; kernels trust them."""
        for segment in self.segments:
            for ends, count, word in ((segment.src, num_src, "source"), (segment.dst, num_dst, "destination")):
                for some in ends.split(EDGES_AT_ONCE):
                    _refuse_others(some, count, word, segment.path)


@dataclass(frozen=True)
class RawGraph:
    """Numbers of nodes, edges and features by type; one row of a feature a node, or an edge in order."""

    num_nodes: Mapping[str, int]
    edges: Mapping[EdgeType, RawEdges]
    node_data: Mapping[str, Mapping[str, Tensor]] = field(default_factory=dict[str, Mapping[str, Tensor]])
    edge_data: Mapping[EdgeType, Mapping[str, Tensor]] = field(default_factory=dict[EdgeType, Mapping[str, Tensor]])

    def check(self, path: Path) -> None:
        """DataError: ends that are no nodes, or features with other numbers of rows."""
        for (src_type, _, dst_type), edges in self.edges.items():
            edges.check(self.num_nodes[src_type], self.num_nodes[dst_type])
        rows = [(data, self.num_nodes[ntype], "nodes") for ntype, data in self.node_data.items()]
        rows += [(data, self.edges[etype].num_edges, "edges") for etype, data in self.edge_data.items()]
        for data, count, word in rows:
            for name, column in data.items():
                if column.ndim == 0 or column.shape[0] != count:
                    fact = f"the feature {name!r} is {tuple(column.shape)}, and there are {count} {word}"
                    raise DataError(fact, line=str(path), cure=f"give one row for each of the {word}")


def _refuse_others(ends: Tensor, count: int, word: str, path: Path) -> None:
    if ends.is_floating_point() or ends.is_complex():
        raise DataError(f"a {word} is {ends.dtype}", line=str(path), cure="give whole numbers")
    if ends.numel() and not 0 <= int(ends.min()) <= int(ends.max()) < count:
        wrong = int(ends.min()) if int(ends.min()) < 0 else int(ends.max())
        raise DataError(f"{word} {wrong} is none of {count} nodes", line=str(path), cure="number nodes from 0")
