"""GCN2Conv: a convolution that keeps the first layer's rows and maps near the identity, with DGL's names.

Takes: a graph, rows of the layer before and of the first one. Gives: one row a vertex. Runs at every call.
Source: Chen, Wei, Huang, Ding and Li 2020, equation 5.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

import vgraph
from vgraph.arguments import COUNT, FROM_ZERO, PART, POSITIVE, checked
from vgraph.nn.inputs import NeedsInEdges, check_graph, check_width
from vgraph.nn.polynomial_conv import make_hop


class GCN2Conv(NeedsInEdges):
    """``(1 - beta) P + beta P W``, where ``P`` is a normalised step of the rows with ``alpha`` of the first rows in it.

    Args:
        in_feats: the width of a row, and of a result's row.
        layer: which layer this is, from 1 up: ``beta = log(lambda_ / layer + 1)``.
        alpha: how much of the first rows is mixed in, from 0 to 1.
        lambda_: how far maps are from the identity.
        project_initial_features: one matrix for the step and the first rows; False: one each.
        allow_zero_in_degree: accept vertices without in-edges.
        bias: add a vector (in_feats,) that is learned.
        activation: a function of the rows at the end; None: none.

    Raises:
        ArgumentError: a number is outside of what it counts or weighs.
        GraphError: a vertex has no in-edge, and that is not allowed.
        FeatureError: weights are not one number above 0 an edge.

    Source: Chen et al. 2020, equation 5.

    Example:
        >>> import torch, vgraph
        >>> from vgraph.nn import GCN2Conv
        >>> g = vgraph.add_self_loop(vgraph.graph(([0, 1], [1, 2])))
        >>> GCN2Conv(5, layer=1)(g, torch.ones(3, 5), torch.ones(3, 5)).shape
        torch.Size([3, 5])
    """

    weight2: nn.Parameter | None
    bias: nn.Parameter | None

    @checked(in_feats=COUNT, layer=POSITIVE, alpha=PART, lambda_=FROM_ZERO)
    def __init__(
        self,
        in_feats: int,
        layer: int,
        alpha: float = 0.1,
        lambda_: float = 1,
        project_initial_features: bool = True,
        allow_zero_in_degree: bool = False,
        bias: bool = True,
        activation: Callable[[Tensor], Tensor] | None = None,
    ) -> None:
        super().__init__()
        self._in_feats, self._project_initial_features = in_feats, project_initial_features
        self.alpha, self.beta = alpha, math.log(lambda_ / layer + 1)
        self._allow_zero_in_degree, self._activation = allow_zero_in_degree, activation
        self.weight1 = nn.Parameter(torch.empty(in_feats, in_feats))
        second = None if project_initial_features else nn.Parameter(torch.empty(in_feats, in_feats))
        self.register_parameter("weight2", second)
        self.register_parameter("bias", nn.Parameter(torch.empty(in_feats)) if bias else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draws standard normal weights, and sets the bias to zeros."""
        nn.init.normal_(self.weight1)
        if self.weight2 is not None:
            nn.init.normal_(self.weight2)
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def forward(self, graph: vgraph.Graph, feat: Tensor, feat_0: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        """The step, mixed and mapped.

        Args:
            graph: a graph with one type of nodes and edges, whose edges go both ways.
            feat: (vertices, in_feats), what the layer before gave.
            feat_0: (vertices, in_feats), what the first layer was given.
            edge_weight: (edges,) above 0, which are normalised as by ``EdgeWeightNorm``; None: all edges alike.

        Returns:
            (vertices, in_feats).

        Raises:
            FunctionError: it is called without a graph.
            GraphError: a vertex has no in-edge, and that is not allowed.
            FeatureError: weights are not one number above 0 an edge.
        """
        check_graph(self, graph)
        self._check_in_degrees(graph)
        for rows in (feat, feat_0):
            check_width(self, rows, self._in_feats)
        step = make_hop(graph, feat, edge_weight)(feat) * (1 - self.alpha)
        first = feat_0[: len(step)] * self.alpha
        both = step + first
        if self.weight2 is None:
            mapped = both @ self.weight1
        else:
            mapped = step @ self.weight1 + first @ self.weight2
        rows = (1 - self.beta) * both + self.beta * mapped
        rows = rows if self.bias is None else rows + self.bias
        return rows if self._activation is None else self._activation(rows)

    def extra_repr(self) -> str:
        """What ``repr`` shows of the layer.

        Returns:
            Its width, and how much it mixes and maps.
        """
        return f"in={self._in_feats}, alpha={self.alpha}, beta={self.beta}"
