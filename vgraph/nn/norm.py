"""Normalisation by degree, plain or weighted: factors for rows, weights for edges.

Takes: a graph, weights of edges. Gives: one number a vertex or an edge. Runs at every call.
Source: Kipf and Welling 2017, equation 2 (the symmetric form).
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

import vgraph
import vgraph.function as fn
from vgraph.arguments import NUMBER, checked
from vgraph.errors import FeatureError, FunctionError
from vgraph.nn.inputs import check_edge_weight, check_graph


def kept_factor(graph: vgraph.Graph, rows: Tensor, *, out: bool, is_root: bool) -> Tensor:
    """``degree_factor`` of a graph's out-degrees or in-degrees, made once for a topology and rows of one kind."""

    def make() -> Tensor:
        return degree_factor(graph.out_degrees() if out else graph.in_degrees(), rows, is_root=is_root)

    if torch.compiler.is_compiling():
        return make()
    return graph.topology.keep(("degree_factor", out, is_root, rows.dtype, rows.dim()), make)


def degree_factor(degrees: Tensor, rows: Tensor, *, is_root: bool = True) -> Tensor:
    """1 over the degrees or over their roots, where 0 counts as 1; broadcasts over the rows' dims."""
    degrees = degrees.to(rows.dtype).clamp(min=1)
    factor = degrees.rsqrt() if is_root else degrees.reciprocal()
    return factor.reshape(-1, *(1,) * (rows.dim() - 1))


class EdgeWeightNorm(nn.Module):
    """Weights of edges divided by sums of weights: "both" by their roots at either end, "right" where edges end.

    Args:
        norm: "both", "right" or "none".
        eps: a number that is added to the sums.

    Raises:
        ArgumentError: a number is outside of what it counts or weighs.
        FunctionError: an unknown ``norm``.
        FeatureError: not one number an edge; with "both", one that is not above 0.

    Source: Kipf and Welling 2017, equation 2.

    Example:
        >>> import torch, vgraph
        >>> from vgraph.nn import EdgeWeightNorm
        >>> g = vgraph.graph(([0, 1], [2, 2]))
        >>> EdgeWeightNorm("right")(g, torch.tensor([1.0, 3.0]))
        tensor([0.2500, 0.7500])
    """

    @checked(eps=NUMBER)
    def __init__(self, norm: str = "both", eps: float = 0.0) -> None:
        super().__init__()
        if norm not in ("both", "right", "none"):
            raise FunctionError(f"there is no norm {norm!r}", cure="one of both, right, none")
        self._norm, self._eps = norm, eps

    def forward(self, graph: vgraph.Graph, edge_weight: Tensor) -> Tensor:
        """The weights, normalised.

        Args:
            graph: a graph with one type of edges, or a block.
            edge_weight: (edges,).

        Returns:
            (edges,).

        Raises:
            FunctionError: it is called without a graph.
            FeatureError: there is not one number an edge; with "both", one is not above 0.
        """
        check_graph(self, graph)
        self._check(graph, edge_weight)
        if self._norm == "none":
            return edge_weight
        graph = graph.local_var()  # which other threads do not see
        graph.edata["w"] = edge_weight
        graph.update_all(fn.copy_e("w", "w"), fn.sum("w", "in"))
        total = graph.dstdata["in"] + self._eps
        if self._norm == "right":
            graph.dstdata["in"] = total.reciprocal()
            graph.apply_edges(fn.e_mul_v("w", "in", "w"))
            return graph.edata["w"]
        graph.dstdata["in"] = total.rsqrt()
        graph.srcdata["out"] = (_sum_of_out_edges(graph, edge_weight) + self._eps).rsqrt()
        graph.apply_edges(lambda edges: {"w": edges.src["out"] * edges.dst["in"] * edges.data["w"]})
        return graph.edata["w"]

    def _check(self, graph: vgraph.Graph, edge_weight: Tensor) -> None:
        if edge_weight.dim() != 1:
            fact = f"edge_weight has shape {tuple(edge_weight.shape)}"
            raise FeatureError(fact, cure="give one number for every edge, (edges,)")
        check_edge_weight(graph, edge_weight)
        if self._norm == "both" and bool((edge_weight <= 0).any()):
            first = int((edge_weight <= 0).nonzero()[0])
            fact = f"edge {first} weighs {float(edge_weight[first])}, and roots are taken of sums of weights"
            raise FeatureError(fact, cure='give weights above 0, or norm="right"')


def _sum_of_out_edges(graph: vgraph.Graph, edge_weight: Tensor) -> Tensor:
    ends = graph.topology
    total = edge_weight.new_zeros(ends.num_src).index_add(0, ends.src.long(), edge_weight)
    return total if ends.halo is None else ends.halo.folded(total)
