"""Polynomials of the normalised adjacency: ChebConv, SGConv, TAGConv, APPNPConv, with DGL's names.

Takes: a graph and one row a vertex. Gives: one row a vertex. Runs at every call.
Source: Defferrard et al. 2016; Wu et al. 2019; Du et al. 2017; Gasteiger et al. 2019.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import vgraph
from vgraph.arguments import COUNT, PART, POSITIVE, checked
from vgraph.errors import FeatureError
from vgraph.nn.inputs import NeedsInEdges, check_graph, check_width
from vgraph.nn.norm import EdgeWeightNorm, degree_factor
from vgraph.nn.propagate import send_rows

Hop = Callable[[Tensor], Tensor]


def make_hop(graph: vgraph.Graph, like: Tensor, edge_weight: Tensor | None, *, by_out_degrees: bool = False) -> Hop:
    """One step along the edges, normalised by the roots of degrees or of sums of weights at either end.

    As in DGL, senders are divided by their in-degrees, too, which are their out-degrees where every
    edge has its reverse, unless ``by_out_degrees``.
    """
    weight = None if edge_weight is None else EdgeWeightNorm("both")(graph, edge_weight)

    def weighted(rows: Tensor) -> Tensor:
        return send_rows(graph, rows, weight)

    if weight is not None:
        return weighted
    right = degree_factor(graph.in_degrees(), like)
    left = degree_factor(graph.out_degrees(), like) if by_out_degrees else right
    return lambda rows: send_rows(graph, rows, ahead=left, behind=right)


class ChebConv(nn.Module):
    """Chebyshev polynomials of the scaled Laplacian, of degrees 0 to k - 1, side by side through ``linear``.

    Args:
        in_feats: the width of a row.
        out_feats: the width of a result's row.
        k: how many polynomials.
        activation: a function of the rows at the end; None: none.
        bias: let the linear map have one.

    Raises:
        ArgumentError: a number is outside of what it counts or weighs.
        FeatureError: ``lambda_max`` has not one number a graph.

    Source: Defferrard, Bresson and Vandergheynst 2016, section 2.1.

    Example:
        >>> import torch, vgraph
        >>> from vgraph.nn import ChebConv
        >>> g = vgraph.graph(([0, 1, 1, 2], [1, 0, 2, 1]))
        >>> ChebConv(5, 2, k=3)(g, torch.ones(3, 5)).shape
        torch.Size([3, 2])
    """

    @checked(in_feats=COUNT, out_feats=COUNT, k=POSITIVE)
    def __init__(
        self,
        in_feats: int,
        out_feats: int,
        k: int,
        activation: Callable[[Tensor], Tensor] | None = F.relu,
        bias: bool = True,
    ) -> None:
        super().__init__()
        self._k, self.activation = k, activation
        self.linear = nn.Linear(k * in_feats, out_feats, bias)

    def forward(self, graph: vgraph.Graph, feat: Tensor, lambda_max: list[float] | Tensor | None = None) -> Tensor:
        """The polynomials of the rows, mapped.

        Args:
            graph: a graph, or a batch, with one type of nodes and edges, whose edges go both ways.
            feat: (vertices, in_feats).
            lambda_max: the largest eigenvalue of each graph's Laplacian, (graphs,) or (graphs, 1); None: 2, which
                none exceeds.

        Returns:
            (vertices, out_feats).

        Raises:
            FunctionError: it is called without a graph.
            FeatureError: ``lambda_max`` has not one number a graph.
        """
        check_graph(self, graph)
        check_width(self, feat, self.linear.in_features // self._k)
        scale, hop = self._scale(graph, feat, lambda_max), make_hop(graph, feat, None)

        def laplacian(rows: Tensor) -> Tensor:
            """(2 L / lambda - 1) of rows, where L = 1 - the normalised adjacency."""
            return rows * (scale - 1) - scale * hop(rows)

        terms = [feat]
        if self._k > 1:
            terms.append(laplacian(feat))
        for _ in range(2, self._k):
            terms.append(2 * laplacian(terms[-1]) - terms[-2])
        rows = self.linear(torch.cat(terms, 1))
        return rows if self.activation is None else self.activation(rows)

    def _scale(self, graph: vgraph.Graph, feat: Tensor, lambda_max: list[float] | Tensor | None) -> Tensor | float:
        """2 / lambda for every vertex."""
        if lambda_max is None:
            return 1.0
        given = torch.as_tensor(lambda_max, dtype=feat.dtype, device=feat.device).reshape(-1)
        if given.shape[0] != graph.batch_size:
            fact = f"lambda_max has {given.shape[0]} numbers for {graph.batch_size} graphs"
            raise FeatureError(fact, cure="give the largest eigenvalue of every graph of the batch")
        if len(given) == 1:
            return 2 / given.unsqueeze(1)
        counts = graph.batch_num_nodes().long()
        return 2 / given.repeat_interleave(counts, output_size=feat.shape[0]).unsqueeze(1)


class SGConv(NeedsInEdges):
    """``k`` steps of the normalised adjacency, then one linear map.

    Args:
        in_feats: the width of a row.
        out_feats: the width of a result's row.
        k: how many steps.
        cached: keep the steps of the first call for all others, whatever their graph and feature.
        bias: let the linear map have one.
        norm: a function of the rows before the map; None: none.
        allow_zero_in_degree: accept vertices without in-edges.

    Raises:
        ArgumentError: a number is outside of what it counts or weighs.
        GraphError: a vertex has no in-edge, and that is not allowed.
        FeatureError: weights are not one number above 0 an edge.

    Source: Wu et al. 2019, equation 8.

    Example:
        >>> import torch, vgraph
        >>> from vgraph.nn import SGConv
        >>> g = vgraph.add_self_loop(vgraph.graph(([0, 1], [1, 2])))
        >>> SGConv(5, 2, k=2)(g, torch.ones(3, 5)).shape
        torch.Size([3, 2])
    """

    @checked(in_feats=COUNT, out_feats=COUNT, k=COUNT)
    def __init__(
        self,
        in_feats: int,
        out_feats: int,
        k: int = 1,
        cached: bool = False,
        bias: bool = True,
        norm: Callable[[Tensor], Tensor] | None = None,
        allow_zero_in_degree: bool = False,
    ) -> None:
        super().__init__()
        self._k, self._cached, self.norm, self._allow_zero_in_degree = k, cached, norm, allow_zero_in_degree
        self._cached_h: Tensor | None = None
        self.fc = nn.Linear(in_feats, out_feats, bias=bias)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draws Glorot's uniform weights, and sets the bias to zeros."""
        nn.init.xavier_uniform_(self.fc.weight)
        if self.fc.bias is not None:  # pyright: ignore[reportUnnecessaryComparison]
            nn.init.zeros_(self.fc.bias)

    def forward(self, graph: vgraph.Graph, feat: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        """The rows after the steps, mapped.

        Args:
            graph: a graph with one type of nodes and edges.
            feat: (vertices, in_feats).
            edge_weight: (edges,) above 0, which are normalised as by ``EdgeWeightNorm``; None: all edges alike.

        Returns:
            (vertices, out_feats).

        Raises:
            FunctionError: it is called without a graph.
            GraphError: a vertex has no in-edge, and that is not allowed.
            FeatureError: weights are not one number above 0 an edge.
        """
        check_graph(self, graph)
        self._check_in_degrees(graph)
        if self._cached_h is not None:
            return self.fc(self._cached_h)
        check_width(self, feat, self.fc.in_features)
        hop = make_hop(graph, feat, edge_weight)
        for _ in range(self._k):
            feat = hop(feat)
        feat = feat if self.norm is None else self.norm(feat)
        if self._cached:
            self._cached_h = feat
        return self.fc(feat)


class TAGConv(nn.Module):
    """The rows and their 1 to k steps of the normalised adjacency, side by side through ``lin``.

    Args:
        in_feats: the width of a row.
        out_feats: the width of a result's row.
        k: how many steps.
        bias: let the linear map have one.
        activation: a function of the rows at the end; None: none.

    Raises:
        ArgumentError: a number is outside of what it counts or weighs.
        FeatureError: weights are not one number above 0 an edge.

    Source: Du et al. 2017, equation 6.

    Example:
        >>> import torch, vgraph
        >>> from vgraph.nn import TAGConv
        >>> TAGConv(5, 2)(vgraph.graph(([0, 1], [1, 2])), torch.ones(3, 5)).shape
        torch.Size([3, 2])
    """

    @checked(in_feats=COUNT, out_feats=COUNT, k=COUNT)
    def __init__(
        self,
        in_feats: int,
        out_feats: int,
        k: int = 2,
        bias: bool = True,
        activation: Callable[[Tensor], Tensor] | None = None,
    ) -> None:
        super().__init__()
        self._k, self._activation = k, activation
        self.lin = nn.Linear(in_feats * (k + 1), out_feats, bias=bias)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draws Glorot's normal weights with the gain of relu."""
        nn.init.xavier_normal_(self.lin.weight, gain=nn.init.calculate_gain("relu"))

    def forward(self, graph: vgraph.Graph, feat: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        """The rows after 0 to k steps, mapped.

        Args:
            graph: a graph with one type of nodes and edges.
            feat: (vertices, in_feats).
            edge_weight: (edges,) above 0, which are normalised as by ``EdgeWeightNorm``; None: all edges alike.

        Returns:
            (vertices, out_feats).

        Raises:
            FunctionError: it is called without a graph.
            FeatureError: weights are not one number above 0 an edge.
        """
        check_graph(self, graph)
        check_width(self, feat, self.lin.in_features // (self._k + 1))
        hop, steps = make_hop(graph, feat, edge_weight), [feat]
        for _ in range(self._k):
            steps.append(hop(steps[-1]))
        rows = self.lin(torch.cat(steps, -1))
        return rows if self._activation is None else self._activation(rows)


class APPNPConv(nn.Module):
    """Personalised PageRank: k steps, each of which mixes in ``alpha`` of the feature that came in.

    Args:
        k: how many steps.
        alpha: how much of the feature that came in, from 0 to 1.
        edge_drop: the part of the edges that is dropped in training, anew in every step.

    Raises:
        ArgumentError: a number is outside of what it counts or weighs.
        FeatureError: weights are not one number above 0 an edge.

    Source: Gasteiger, Bojchevski and Guennemann 2019, equation 4.

    Example:
        >>> import torch, vgraph
        >>> from vgraph.nn import APPNPConv
        >>> APPNPConv(k=3, alpha=0.1)(vgraph.graph(([0, 1], [1, 2])), torch.ones(3, 5)).shape
        torch.Size([3, 5])
    """

    @checked(k=COUNT, alpha=PART, edge_drop=PART)
    def __init__(self, k: int, alpha: float, edge_drop: float = 0.0) -> None:
        super().__init__()
        self._k, self._alpha, self.edge_drop = k, alpha, nn.Dropout(edge_drop)

    def forward(self, graph: vgraph.Graph, feat: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        """The rows after the steps.

        Args:
            graph: a graph with one type of nodes and edges.
            feat: (vertices, ...).
            edge_weight: (edges,) above 0, which are normalised as by ``EdgeWeightNorm``; None: all edges alike.

        Returns:
            (vertices, ...), as ``feat``.

        Raises:
            FunctionError: it is called without a graph.
            FeatureError: weights are not one number above 0 an edge.
        """
        check_graph(self, graph)
        rows, hop = feat, self._hop(graph, feat, edge_weight)
        for _ in range(self._k):
            rows = (1 - self._alpha) * hop(rows) + self._alpha * feat
        return rows

    def _hop(self, graph: vgraph.Graph, feat: Tensor, edge_weight: Tensor | None) -> Hop:
        if not (self.training and self.edge_drop.p):
            return make_hop(graph, feat, edge_weight, by_out_degrees=True)
        if edge_weight is not None:
            weight = EdgeWeightNorm("both")(graph, edge_weight)
            return lambda rows: send_rows(graph, rows, self.edge_drop(weight))
        ones = feat.new_ones(graph.topology.num_edges)
        left, right = (degree_factor(d, feat) for d in (graph.out_degrees(), graph.in_degrees()))
        return lambda rows: send_rows(graph, rows, self.edge_drop(ones), ahead=left, behind=right)
