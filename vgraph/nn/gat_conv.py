"""GATConv: graph attention, with the names, shapes and defaults of DGL's.

Takes: a graph and one row a vertex. Gives: one row a head of a vertex. Runs at every call.
Source: Velickovic et al. 2018, equations 1 to 4.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import vgraph
from vgraph.arguments import COUNT, POSITIVE, checked
from vgraph.nn.attention import OF_HEADS, attend, widened
from vgraph.nn.heads import (
    by_head,
    finish_of_heads,
    init_glorot,
    is_linear,
    make_head_vector,
    mapped_by,
    residual_rows,
)
from vgraph.nn.inputs import NeedsInEdges, both_ends, check_edge_weight, check_graph, check_width, pair, receivers_of
from vgraph.nn.propagate import OfRows, in_turn


class GATConv(NeedsInEdges):
    """Weighs in-neighbours by a softmax of ``leaky_relu(attn_l . Wu + attn_r . Wv)``, head by head.

    Args:
        in_feats: the width of a row, or a pair of widths for senders and receivers.
        out_feats: the width of a head's row.
        num_heads: how many heads.
        feat_drop: the part of the features that is dropped in training.
        attn_drop: the part of the attention that is dropped in training.
        negative_slope: the slope of leaky_relu below 0.
        residual: add the receiver's own row, through a linear map where widths differ.
        activation: a function of the rows at the end; None: none.
        allow_zero_in_degree: accept vertices without in-edges; nothing reaches them.
        bias: add a vector that is learned.

    Raises:
        ArgumentError: a number is outside of what it counts or weighs.
        GraphError: a vertex has no in-edge, and that is not allowed.
        FeatureError: ``edge_weight`` is not one number an edge.

    Source: Velickovic et al. 2018, equations 1 to 4.

    Example:
        >>> import torch, vgraph
        >>> from vgraph.nn import GATConv
        >>> g = vgraph.add_self_loop(vgraph.graph(([0, 1, 2], [1, 2, 0])))
        >>> GATConv(5, 2, num_heads=3)(g, torch.ones(3, 5)).shape
        torch.Size([3, 3, 2])
    """

    bias: nn.Parameter | None

    @checked(in_feats=COUNT.or_pair(), out_feats=POSITIVE, **OF_HEADS)
    def __init__(
        self,
        in_feats: int | tuple[int, int],
        out_feats: int,
        num_heads: int,
        feat_drop: float = 0.0,
        attn_drop: float = 0.0,
        negative_slope: float = 0.2,
        residual: bool = False,
        activation: Callable[[Tensor], Tensor] | None = None,
        allow_zero_in_degree: bool = False,
        bias: bool = True,
    ) -> None:
        super().__init__()
        self._num_heads, self._out_feats = num_heads, out_feats
        self._in_src_feats, self._in_dst_feats = pair(in_feats)
        self._allow_zero_in_degree, self.activation = allow_zero_in_degree, activation
        width = num_heads * out_feats
        if isinstance(in_feats, tuple):
            self.fc_src = nn.Linear(self._in_src_feats, width, bias=False)
            self.fc_dst = nn.Linear(self._in_dst_feats, width, bias=False)
        else:
            self.fc = nn.Linear(self._in_src_feats, width, bias=False)
        self.attn_l, self.attn_r = make_head_vector(num_heads, out_feats), make_head_vector(num_heads, out_feats)
        self.feat_drop, self.attn_drop = nn.Dropout(feat_drop), nn.Dropout(attn_drop)
        self.leaky_relu = nn.LeakyReLU(negative_slope)
        is_mapped = residual and self._in_dst_feats != width
        self.res_fc = nn.Linear(self._in_dst_feats, width, bias=bias) if is_mapped else None
        if residual and not is_mapped:
            self.res_fc = nn.Identity()
        has_own_bias = bias and not is_mapped
        self.register_parameter("bias", nn.Parameter(self.attn_l.new_empty(width)) if has_own_bias else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draws Glorot's normal weights with the gain of relu, and sets biases to zeros."""
        init_glorot(self, "fc", "fc_src", "fc_dst", "attn_l", "attn_r", "res_fc")
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    @checked()
    def forward(
        self,
        graph: vgraph.Graph,
        feat: Tensor | tuple[Tensor, Tensor],
        edge_weight: Tensor | None = None,
        get_attention: bool = False,
        *,
        then: OfRows | None = None,
    ) -> Tensor | tuple[Tensor, Tensor]:
        """The in-neighbours' rows, weighed, by head.

        Args:
            graph: a graph with one type of edges, or a block.
            feat: (vertices, ..., in_feats), or a pair for senders and receivers; a block's receivers are its first
                senders.
            edge_weight: (edges,), which multiplies the attention; None: nothing does.
            get_attention: give the attention, too.
            then: a function of the result's rows, row by row, in the same loop after the activation; None: none.

        Returns:
            (vertices, ..., num_heads, out_feats); with ``get_attention`` a pair of that and (edges, ..., num_heads,
            1).

        Raises:
            FunctionError: it is called without a graph.
            GraphError: a vertex has no in-edge, and that is not allowed.
            FeatureError: ``edge_weight`` is not one number an edge.
        """
        check_graph(self, graph)
        self._check_in_degrees(graph)
        weight = None if edge_weight is None else check_edge_weight(graph, edge_weight)
        feat_src, feat_dst, own = self._mapped(graph, feat)
        slope = self.leaky_relu.negative_slope
        graph = graph.local_var()  # which other threads do not see
        graph.srcdata["ft"] = widened(feat_src)
        left, right = self._scores(feat_src, feat_dst, own)
        graph.srcdata["el"], graph.dstdata["er"] = widened(left), widened(right)
        rows, attention = attend(
            graph,
            lambda edges: F.leaky_relu(edges.src["el"] + edges.dst["er"], slope),
            drop=self.attn_drop,
            weight=weight,
            get_attention=get_attention,
            finish=finish_of_heads(self.bias, in_turn(self.activation, then), feat_src.dtype),
            own=residual_rows(self.res_fc, own, self._out_feats),
            joins=widened(feat_src) is feat_src,  # gradients of scores all but cancel: they are not of rounded sums
        )
        return rows if attention is None else (rows, attention.to(feat_src.dtype))

    def _scores(self, src: Tensor, dst: Tensor, given: Tensor) -> tuple[Tensor, Tensor]:
        """Every head's row times the head's vector; as matrices, so that no products of their size are stored.

        Where what was given has no gradient they are made of that: rows by head then get no second gradient.
        """
        left, right = by_head(self.attn_l), by_head(self.attn_r)
        if src is not dst:
            return (src.flatten(-2) @ left).unsqueeze(-1), (dst.flatten(-2) @ right).unsqueeze(-1)
        vectors = torch.cat([left, right], 1)
        if self._maps_alone and not given.requires_grad:
            both = vgraph.linear(given, vectors.t() @ self.fc.weight)
        else:
            both = vgraph.linear(src.flatten(-2), vectors.t())
        el, er = both.unsqueeze(-1).chunk(2, -2)
        return el, er

    @property
    def _maps_alone(self) -> bool:
        return is_linear(self.fc) and len(list(self.fc.parameters())) == 1

    def _mapped(self, graph: vgraph.Graph, feat: Tensor | tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        """Senders and receivers by head, and what the receivers were given."""
        check_width(self, feat[0] if isinstance(feat, tuple) else feat, self._in_src_feats)
        heads = self._num_heads
        if not isinstance(feat, tuple) and hasattr(self, "fc_src"):
            feat = both_ends(graph, feat)
        if isinstance(feat, tuple):
            src, dst = (self.feat_drop(rows) for rows in feat)
            fc_src, fc_dst = (self.fc_src, self.fc_dst) if hasattr(self, "fc_src") else (self.fc, self.fc)
            return mapped_by(fc_src, src, heads), mapped_by(fc_dst, dst, heads), dst
        rows = self.feat_drop(feat)
        mapped = mapped_by(self.fc, rows, heads)
        return mapped, receivers_of(graph, mapped), receivers_of(graph, rows)
