"""Counts: how many nodes and edges there are, in all and in each graph of a batch.

Takes: names of types. Gives: numbers. Runs once per topology.
Source: DGL section 3; its words (num_nodes, batch_num_nodes) are kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor

from vgraph.graphs.data import EdgeType, Relations
from vgraph.graphs.frame import Frame
from vgraph.graphs.types import EType
from vgraph.ir.topology import Topology


class Counts(Relations):
    """The part of a Graph that counts; what no type is named for is counted in all types."""

    def num_nodes(self, ntype: str | None = None) -> int:
        """The number of nodes of a type, or of all types together; ``number_of_nodes`` is the same.

        Args:
            ntype: the type of nodes; None counts all, in a block those of both sides. Of a type that a block has on
                both sides the sources are counted; ``"SRC/name"`` and ``"DST/name"`` say which side is meant.

        Returns:
            A number from 0 up.

        Raises:
            GraphError: the name could mean several types.
            NameLookupError: there is no such type.

        Example:
            >>> import vgraph
            >>> vgraph.graph(([0, 1], [2, 2]), num_nodes=5).num_nodes()
            5
        """
        if self._single is not None and ntype is None and self._src is self._dst and len(self._src) == 1:
            return self._single.num_dst
        if ntype is None:
            return _num_rows(self._src.values()) + (_num_rows(self._dst.values()) if self.is_block else 0)
        if self.is_block and ntype in self._src:
            return self._src[ntype].num_rows
        return self.node_frame(ntype).num_rows

    def num_src_nodes(self, ntype: str | None = None) -> int:
        """The number of nodes where edges may begin; ``number_of_src_nodes`` is the same.

        Args:
            ntype: the type of nodes; None counts those of all ``srctypes``.

        Returns:
            A number from 0 up. Nodes without edges are counted.

        Raises:
            NameLookupError: there is no such type.

        Example:
            >>> import vgraph
            >>> vgraph.to_block(vgraph.graph(([0, 1], [2, 2])), [2]).num_src_nodes()
            3
        """
        return self._count(self._src, self.srctypes, ntype)

    def num_dst_nodes(self, ntype: str | None = None) -> int:
        """The number of nodes where edges may end; ``number_of_dst_nodes`` is the same.

        Args:
            ntype: the type of nodes; None counts those of all ``dsttypes``.

        Returns:
            A number from 0 up. Nodes without edges are counted.

        Raises:
            NameLookupError: there is no such type.

        Example:
            >>> import vgraph
            >>> vgraph.to_block(vgraph.graph(([0, 1], [2, 2])), [2]).num_dst_nodes()
            1
        """
        return self._count(self._dst, self.dsttypes, ntype)

    def _count(self, side: Mapping[str, Frame], ntypes: Iterable[str], ntype: str | None) -> int:
        """The nodes of one side of the edges: of a type, or of all that edges of the graph have there."""
        return _num_rows(side[t] for t in (ntypes if ntype is None else [self._node_type(ntype, side)]))

    def num_edges(self, etype: EType = None) -> int:
        """The number of edges of a type, or of all types together; ``number_of_edges`` is the same.

        Args:
            etype: the type of edges, a name or a triple; None counts all.

        Returns:
            A number from 0 up; edges between the same two nodes are counted one by one.

        Raises:
            GraphError: there are several types of that name.
            NameLookupError: there is no such type.

        Example:
            >>> import vgraph
            >>> vgraph.graph(([0, 0], [2, 2])).num_edges()
            2
        """
        if etype is None:
            if self._single is not None:
                return self._single.num_edges
            return sum(t.num_edges for t in self._topologies.values())
        return self._topology(etype).num_edges

    number_of_nodes, number_of_edges = num_nodes, num_edges
    number_of_src_nodes, number_of_dst_nodes = num_src_nodes, num_dst_nodes

    # ------------------------------------------------------------ batches
    @property
    def batch_size(self) -> int:
        """The number of graphs that were batched; 1 of a graph that is no batch.

        Example:
            >>> import vgraph
            >>> tree = vgraph.graph(([0, 1], [2, 2]))
            >>> vgraph.batch([tree, tree]).batch_size
            2
        """
        return 1 if self._sizes is None else len(next(iter(self._sizes.values())))

    def batch_num_nodes(self, ntype: str | None = None) -> Tensor:
        """The number of nodes of every graph of the batch.

        Args:
            ntype: the type of nodes, or None where there is one.

        Returns:
            (batch_size,) int64, whatever ids are; one entry where the graph is no batch.

        Raises:
            GraphError: there are several types and none is named, or the graph is a block.
            NameLookupError: there is no such type.

        Example:
            >>> import vgraph
            >>> vgraph.batch([vgraph.graph(([0, 1], [2, 2])), vgraph.graph(([0], [1]))]).batch_num_nodes()
            tensor([3, 2])
        """
        name = self._node_type(ntype)
        sizes = (self.node_frame(name).num_rows,) if self._sizes is None else self._sizes[name]
        return torch.tensor(sizes, dtype=torch.int64, device=self.device)

    def batch_num_edges(self, etype: EType = None) -> Tensor:
        """The number of edges of every graph of the batch; an edge belongs to the graph of its destination.

        Args:
            etype: the type of edges: a name, a triple (type of sources, name, type of destinations), or None where
                there is one.

        Returns:
            (batch_size,) int64, whatever ids are; one entry where the graph is no batch.

        Raises:
            GraphError: there are several such types, and none of them is named.
            NameLookupError: there is no such type.

        Example:
            >>> import vgraph
            >>> vgraph.batch([vgraph.graph(([0, 1], [2, 2])), vgraph.graph(([0], [1]))]).batch_num_edges()
            tensor([2, 1])
        """
        return torch.tensor(self._edge_sizes(self._edge_type(etype)), dtype=torch.int64, device=self.device)

    def _edge_sizes(self, etype: EdgeType) -> tuple[int, ...]:
        """An edge belongs to the graph of its destination."""
        t = self._topologies[etype]
        if self._sizes is None:
            return (t.num_edges,)
        return t.keep("edges by graph", lambda: count_edges(t))


def count_edges(topology: Topology) -> tuple[int, ...]:
    """The number of edges of every graph of a batch."""
    if topology.parts is not None and len(topology.parts) == len(topology.graph_sizes or ()):
        return tuple(part.num_edges for part in topology.parts)
    graphs = topology.graph_ids.index_select(0, topology.dst)
    return tuple(torch.bincount(graphs, minlength=len(topology.graph_sizes or (1,))).tolist())


def _num_rows(frames: Iterable[Frame]) -> int:
    return sum(frame.num_rows for frame in frames)
