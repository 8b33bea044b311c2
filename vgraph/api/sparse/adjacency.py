"""The adjacency of a graph as a sparse matrix.

Takes: a graph. Gives: a matrix over its own topology. Runs at every call.
"""

from __future__ import annotations

from typing import Any

import torch

from vgraph.api.sparse.matrix import SparseMatrix
from vgraph.api.sparse.pattern import Pattern
from vgraph.arguments import checked
from vgraph.graphs.graph_data import GraphData
from vgraph.graphs.types import Device, EType


class SparseAdjacency(GraphData):
    """The part of a Graph that gives its adjacency as a sparse matrix; rows are sources, columns destinations."""

    @checked()
    def adj(
        self,
        etype: EType | bool = None,
        eweight_name: str | None = None,
        *,
        transpose: bool | None = None,
        ctx: Device = None,
        scipy_fmt: str | None = None,
    ) -> Any:
        """The adjacency as a sparse matrix, its entries in order of edge ids; ``adjacency_matrix`` is the same.

        What DGL had before 1.0, ``adj(transpose, ctx, scipy_fmt, etype)``, gives what it gave then: a sparse tensor of
        torch, or a SciPy matrix (``adj_external``).

        Args:
            etype: the type of edges: a name, a triple (type of sources, name, type of destinations), or None where
                there is one.
            eweight_name: the edge feature, (num_edges,) or (num_edges, k), that gives the entries; None: float32
                ones.
            transpose: make destinations the rows, of a tensor of torch.
            ctx: the device of a tensor of torch.
            scipy_fmt: "coo", "csr" or "csc" for a SciPy matrix instead.

        Returns:
            A ``vgraph.sparse.SparseMatrix`` (num_src, num_dst). ``g.adj().T @ x`` sums over in-edges. Edges between the
            same nodes are entries of their own until it is coalesced.

        Raises:
            GraphError: ``scipy_fmt`` is another word, or there are several types of edges and none is named.
            FeatureError: rows of ``eweight_name`` have several dims.
            NameLookupError: there is no such type or feature.

        Example:
            >>> import vgraph
            >>> vgraph.graph(([0, 1], [2, 2])).adj().to_dense()
            tensor([[0., 0., 1.],
                    [0., 0., 1.],
                    [0., 0., 0.]])
        """
        if isinstance(etype, bool):
            etype, transpose = None, etype
        if transpose is not None or ctx is not None or scipy_fmt is not None:
            return self.adj_external(bool(transpose), ctx, scipy_fmt, etype, eweight_name)
        t, _, _, frame = self.relation(etype)
        entries = torch.ones(t.num_edges, device=self.device) if eweight_name is None else frame[eweight_name]
        return SparseMatrix(Pattern(t).transposed, entries)

    adjacency_matrix = adj
