"""``dgl._sparse_ops``: products of structures of graphs, as structures.

Takes: structures, weights of edges. Gives: a structure, its weights. Runs at every call.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from vgraph.compat import backend_graphs
from vgraph.compat.backend_graphs import Index
from vgraph.compat.graph_index import HeteroGraphIndex


def csrmm(A: Index, A_weights: Tensor, B: Index, B_weights: Tensor, num_vtypes: int) -> tuple[HeteroGraphIndex, Tensor]:
    """The product of two matrices of weights."""
    made, weights = backend_graphs.csrmm(A, A_weights, B, B_weights, num_vtypes)
    return HeteroGraphIndex(made), weights


def csrsum(As: Sequence[Index], A_weights: Sequence[Tensor]) -> tuple[HeteroGraphIndex, Tensor]:
    """The sum of matrices of weights."""
    made, weights = backend_graphs.csrsum(As, A_weights)
    return HeteroGraphIndex(made), weights


csrmask = backend_graphs.csrmask
_csrmm, _csrsum, _csrmask = csrmm, csrsum, csrmask
__all__ = ["_csrmask", "_csrmm", "_csrsum"]
