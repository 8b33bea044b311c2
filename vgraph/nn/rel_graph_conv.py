"""RelGraphConv: graph convolution with a linear map for every type of edge, with DGL's names.

Takes: a graph, one row a vertex, types of edges. Gives: one row a vertex. Runs at every call.
Source: Schlichtkrull, Kipf, Bloem et al. 2018, equation 2.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

import vgraph
from vgraph.arguments import COUNT, PART, POSITIVE, checked
from vgraph.nn.inputs import check_graph, check_width, receivers_of
from vgraph.nn.typed_linear import TypedLinear


class RelGraphConv(nn.Module):
    """The sum of in-neighbours, each mapped by its edge's type, plus the vertex itself by ``loop_weight``.

    Args:
        in_feat: the width of a row.
        out_feat: the width of a result's row.
        num_rels: how many types of edges.
        regularizer: how the maps are regularised: None, "basis" or "bdd", see ``TypedLinear``.
        num_bases: how many bases or blocks; None: as many as types.
        bias: add a vector that is learned.
        activation: a function of the rows at the end; None: none.
        self_loop: add the vertex itself, mapped.
        dropout: the part of the result that is dropped in training.
        layer_norm: normalise rows before bias and self-loop.

    Raises:
        ArgumentError: a number is outside of what it counts or weighs.
        FeatureError: types are outside, or not one an edge.

    Source: Schlichtkrull et al. 2018, equation 2.

    Example:
        >>> import torch, vgraph
        >>> from vgraph.nn import RelGraphConv
        >>> g = vgraph.graph(([0, 1, 2], [1, 2, 0]))
        >>> RelGraphConv(5, 2, num_rels=3)(g, torch.ones(3, 5), torch.tensor([0, 2, 2])).shape
        torch.Size([3, 2])
    """

    @checked(in_feat=POSITIVE, out_feat=POSITIVE, num_rels=POSITIVE, num_bases=POSITIVE.or_none(), dropout=PART)
    def __init__(
        self,
        in_feat: int,
        out_feat: int,
        num_rels: int,
        regularizer: str | None = None,
        num_bases: int | None = None,
        bias: bool = True,
        activation: Callable[[Tensor], Tensor] | None = None,
        self_loop: bool = True,
        dropout: float = 0.0,
        layer_norm: bool = False,
    ) -> None:
        super().__init__()
        if regularizer is not None and num_bases is None:
            num_bases = num_rels
        self.linear_r = TypedLinear(in_feat, out_feat, num_rels, regularizer, num_bases)
        self.bias, self.activation, self.self_loop, self.layer_norm = bias, activation, self_loop, layer_norm
        if bias:
            self.h_bias = nn.Parameter(torch.zeros(out_feat))
        if layer_norm:
            self.layer_norm_weight = nn.LayerNorm(out_feat, elementwise_affine=True)
        if self_loop:
            self.loop_weight = nn.Parameter(torch.empty(in_feat, out_feat))
            nn.init.xavier_uniform_(self.loop_weight, gain=nn.init.calculate_gain("relu"))
        self.dropout = nn.Dropout(dropout)

    @checked()
    def forward(
        self, g: vgraph.Graph, feat: Tensor, etypes: Tensor, norm: Tensor | None = None, *, presorted: bool = False
    ) -> Tensor:
        """New rows of the vertices.

        Args:
            g: a graph with one type of edges, or a block.
            feat: (vertices, in_feat); a block's receivers are its first senders.
            etypes: (edges,) from 0 to num_rels - 1.
            norm: (edges, 1), which multiplies messages; None: nothing does.
            presorted: ignored, as which rows are mapped together is found once a graph.

        Returns:
            (vertices, out_feat).

        Raises:
            FunctionError: it is called without a graph.
            ShapeError: rows are of another width than the layer's.
        """
        check_graph(self, g)
        check_width(self, feat, self.linear_r.in_size)
        rows = vgraph.ops.typed_sum(g, feat, self.linear_r.get_matrices(), etypes, norm)
        if self.layer_norm:
            rows = self.layer_norm_weight(rows)
        if self.bias:
            rows = rows + self.h_bias
        if self.self_loop:
            rows = rows + receivers_of(g, feat) @ self.loop_weight
        rows = rows if self.activation is None else self.activation(rows)
        return self.dropout(rows)


class RelGraphEmbedding(nn.Module):
    """The first layer of R-GCN where vertices have no features: a vector for each vertex and relation.

    It is ``RelGraphConv`` with bases on one-hot rows, but nothing is as large as relations times vertices: each
    vertex has ``num_bases`` vectors, and a relation takes sums of them.

    Args:
        num_nodes: how many vertices send messages.
        out_feat: the width of a result's row.
        num_rels: how many types of edges.
        num_bases: how many vectors a vertex has.
        bias: add a vector that is learned.

    Raises:
        ArgumentError: a number is outside of what it counts or weighs.
        FeatureError: types are outside, or not one an edge; the graph has other vertices.

    Source: Schlichtkrull et al. 2018, equations 2 and 3, section 2.1 (one-hot input).

    Example:
        >>> import torch, vgraph
        >>> from vgraph.nn import RelGraphEmbedding
        >>> g = vgraph.graph(([0, 1, 2], [1, 2, 0]))
        >>> RelGraphEmbedding(3, 2, num_rels=3, num_bases=2)(g, torch.tensor([0, 2, 2])).shape
        torch.Size([3, 2])
    """

    @checked(num_nodes=COUNT, out_feat=COUNT, num_rels=POSITIVE, num_bases=POSITIVE)
    def __init__(self, num_nodes: int, out_feat: int, num_rels: int, num_bases: int, bias: bool = True) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(num_nodes, num_bases, out_feat))
        self.coeff = nn.Parameter(torch.empty(num_rels, num_bases))
        self.h_bias = nn.Parameter(torch.zeros(out_feat)) if bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draws Glorot's uniform matrices from one-hot rows to ``out_feat``, and coefficients."""
        limit = (6 / (self.weight.shape[0] + self.weight.shape[2])) ** 0.5
        nn.init.uniform_(self.weight, -limit, limit)
        nn.init.xavier_uniform_(self.coeff)

    def forward(self, g: vgraph.Graph, etypes: Tensor, norm: Tensor | None = None) -> Tensor:
        """Rows of the vertices.

        Args:
            g: a graph with one type of edges, whose senders number ``num_nodes``.
            etypes: (edges,) from 0 to num_rels - 1.
            norm: (edges, 1), which multiplies messages; None: nothing does.

        Returns:
            (vertices, out_feat).

        Raises:
            FunctionError: it is called without a graph.
        """
        check_graph(self, g)
        rows = vgraph.ops.typed_sum(g, self.weight, self.coeff, etypes, norm)
        return rows if self.h_bias is None else rows + self.h_bias
