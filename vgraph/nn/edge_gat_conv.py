"""EdgeGATConv: graph attention whose scores and messages hold the edge's row, too, with DGL's names.

Takes: a graph, one row a vertex, one row an edge. Gives: one row a head of a vertex. Runs at every call.
Source: Monninger et al. 2023 (SCENE), section III.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import vgraph
from vgraph.arguments import COUNT, POSITIVE, checked
from vgraph.nn.attention import OF_HEADS, attend
from vgraph.nn.heads import finish_of_heads, init_glorot, make_head_vector, mapped_by, residual_rows
from vgraph.nn.inputs import NeedsInEdges, both_ends, check_graph, check_width, pair, receivers_of
from vgraph.nn.propagate import OfRows, in_turn


class EdgeGATConv(NeedsInEdges):
    """Weighs senders' and edges' rows by a softmax of what three vectors make of sender, receiver and edge.

    Args:
        in_feats: the width of a row, or a pair of widths for senders and receivers.
        edge_feats: the width of an edge's row.
        out_feats: the width of a head's row.
        num_heads: how many heads.
        feat_drop: the part of the features that is dropped in training.
        attn_drop: the part of the attention that is dropped in training.
        negative_slope: the slope of leaky_relu below 0.
        residual: add the receiver's own row through a linear map.
        activation: a function of the rows at the end; None: none.
        allow_zero_in_degree: accept vertices without in-edges; nothing reaches them.
        bias: add a vector that is learned.

    Raises:
        ArgumentError: a number is outside of what it counts or weighs.
        GraphError: a vertex has no in-edge, and that is not allowed.

    Source: Monninger et al. 2023, section III; DGL 1.1, ``dgl.nn.EdgeGATConv``.

    Example:
        >>> import torch, vgraph
        >>> from vgraph.nn import EdgeGATConv
        >>> g = vgraph.graph(([0, 1, 2], [1, 2, 0]))
        >>> EdgeGATConv(5, 4, 2, num_heads=3)(g, torch.ones(3, 5), torch.ones(3, 4)).shape
        torch.Size([3, 3, 2])
    """

    bias: nn.Parameter | None

    @checked(in_feats=COUNT.or_pair(), edge_feats=COUNT, out_feats=POSITIVE, **OF_HEADS)
    def __init__(
        self,
        in_feats: int | tuple[int, int],
        edge_feats: int,
        out_feats: int,
        num_heads: int,
        feat_drop: float = 0.0,
        attn_drop: float = 0.0,
        negative_slope: float = 0.2,
        residual: bool = True,
        activation: Callable[[Tensor], Tensor] | None = None,
        allow_zero_in_degree: bool = False,
        bias: bool = True,
    ) -> None:
        super().__init__()
        self._num_heads, self._out_feats = num_heads, out_feats
        self._allow_zero_in_degree, self.activation = allow_zero_in_degree, activation
        (src, dst), width = pair(in_feats), num_heads * out_feats
        if isinstance(in_feats, tuple):
            self.fc_src, self.fc_dst = nn.Linear(src, width, bias=False), nn.Linear(dst, width, bias=False)
        else:
            self.fc = nn.Linear(src, width, bias=False)
        self.attn_l, self.attn_r = make_head_vector(num_heads, out_feats), make_head_vector(num_heads, out_feats)
        self.feat_drop, self.attn_drop = nn.Dropout(feat_drop), nn.Dropout(attn_drop)
        self.leaky_relu = nn.LeakyReLU(negative_slope)
        self.register_parameter("bias", nn.Parameter(torch.empty(width)) if bias else None)
        self.res_fc = nn.Linear(dst, width, bias=False) if residual else None
        self.fc_edge = nn.Linear(edge_feats, width, bias=False)
        self.attn_edge = make_head_vector(num_heads, out_feats)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draws Glorot's normal weights with the gain of relu, and sets the bias to zeros."""
        init_glorot(self, "fc", "fc_src", "fc_dst", "attn_l", "attn_r")
        init_glorot(self, "fc_edge", "attn_edge", "res_fc")
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def _check_widths(self, feat: Tensor | tuple[Tensor, Tensor], edge_feat: Tensor) -> None:
        if isinstance(feat, tuple):
            for rows, fc in zip(feat, self._maps_of_ends(), strict=True):
                check_width(self, rows, fc.in_features)
        else:
            check_width(self, feat, self.fc.in_features)
        check_width(self, edge_feat, self.fc_edge.in_features, "edges' rows")

    @checked()
    def forward(
        self,
        graph: vgraph.Graph,
        feat: Tensor | tuple[Tensor, Tensor],
        edge_feat: Tensor,
        get_attention: bool = False,
        *,
        then: OfRows | None = None,
    ) -> Tensor | tuple[Tensor, Tensor]:
        """The in-neighbours' and in-edges' rows, weighed, by head.

        Args:
            graph: a graph with one type of edges, or a block.
            feat: (vertices, ..., in_feats), or a pair for senders and receivers; a block's receivers are its first
                senders.
            edge_feat: (edges, ..., edge_feats).
            get_attention: give the attention, too.
            then: a function of the result's rows, row by row, in the same loop after the activation; None: none.

        Returns:
            (vertices, ..., num_heads, out_feats); with ``get_attention`` a pair of that and (edges, ..., num_heads,
            1).

        Raises:
            FunctionError: it is called without a graph.
            GraphError: a vertex has no in-edge, and that is not allowed.
        """
        check_graph(self, graph)
        self._check_in_degrees(graph)
        self._check_widths(feat, edge_feat)
        src, dst, own = self._mapped(graph, feat)
        made, slope = mapped_by(self.fc_edge, edge_feat, self._num_heads), self.leaky_relu.negative_slope
        graph = graph.local_var()  # which other threads do not see
        graph.srcdata["ft"], graph.edata["fe"] = src, made
        graph.srcdata["el"], graph.dstdata["er"] = _scores(src, self.attn_l), _scores(dst, self.attn_r)
        graph.edata["ee"] = _scores(made, self.attn_edge)
        rows, attention = attend(
            graph,
            lambda edges: F.leaky_relu(edges.src["el"] + edges.dst["er"] + edges.data["ee"], slope),
            drop=self.attn_drop,
            message=lambda edges: edges.src["ft"] + edges.data["fe"],
            get_attention=get_attention,
            finish=finish_of_heads(self.bias, in_turn(self.activation, then)),
            own=residual_rows(self.res_fc, own, self._out_feats),
        )
        return rows if attention is None else (rows, attention)

    def _mapped(self, graph: vgraph.Graph, feat: Tensor | tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        """Senders and receivers by head, and what the receivers were given."""
        if isinstance(feat, tuple):
            src, own = (self.feat_drop(rows) for rows in feat)
        else:
            src, own = both_ends(graph, self.feat_drop(feat))
        fc_src, fc_dst = self._maps_of_ends()
        made = mapped_by(fc_src, src, self._num_heads)
        if fc_dst is fc_src and not isinstance(feat, tuple):
            return made, receivers_of(graph, made), own
        return made, mapped_by(fc_dst, own, self._num_heads), own

    def _maps_of_ends(self) -> tuple[nn.Linear, nn.Linear]:
        """The layers that map senders and receivers: one for both where ``in_feats`` is one number."""
        return (self.fc_src, self.fc_dst) if hasattr(self, "fc_src") else (self.fc, self.fc)


def _scores(rows: Tensor, vector: Tensor) -> Tensor:
    """Every head's row times the head's vector."""
    return (rows * vector).sum(-1, keepdim=True)
