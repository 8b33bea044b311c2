"""GATv2Conv: graph attention whose ranking depends on the receiver, with DGL's names and shapes.

Takes: a graph and one row a vertex. Gives: one row a head of a vertex. Runs at every call.
Source: Brody, Alon and Yahav 2022, equation 7.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import vgraph
from vgraph.arguments import COUNT, POSITIVE, checked
from vgraph.nn.attention import OF_HEADS, attend, widened
from vgraph.nn.heads import finish_of_heads, init_glorot, make_head_vector, mapped_by, residual_rows
from vgraph.nn.inputs import NeedsInEdges, check_graph, check_width, pair, receivers_of
from vgraph.nn.propagate import OfRows, in_turn


class GATv2Conv(NeedsInEdges):
    """Weighs in-neighbours by a softmax of ``attn . leaky_relu(W_src u + W_dst v)``, head by head.

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
        bias: let the linear maps have biases.
        share_weights: map both ends by one matrix.

    Raises:
        ArgumentError: a number is outside of what it counts or weighs.
        GraphError: a vertex has no in-edge, and that is not allowed.

    Source: Brody et al. 2022, equation 7.

    Example:
        >>> import torch, vgraph
        >>> from vgraph.nn import GATv2Conv
        >>> g = vgraph.add_self_loop(vgraph.graph(([0, 1, 2], [1, 2, 0])))
        >>> GATv2Conv(5, 2, num_heads=3)(g, torch.ones(3, 5)).shape
        torch.Size([3, 3, 2])
    """

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
        share_weights: bool = False,
    ) -> None:
        super().__init__()
        self._num_heads, self._out_feats = num_heads, out_feats
        self._in_src_feats, self._in_dst_feats = pair(in_feats)
        self._allow_zero_in_degree, self.activation = allow_zero_in_degree, activation
        self.bias, self.share_weights = bias, share_weights
        width = num_heads * out_feats
        self.fc_src = nn.Linear(self._in_src_feats, width, bias=bias)
        is_shared = share_weights and not isinstance(in_feats, tuple)
        self.fc_dst = self.fc_src if is_shared else nn.Linear(self._in_dst_feats, width, bias=bias)
        self.attn = make_head_vector(num_heads, out_feats)
        self.feat_drop, self.attn_drop = nn.Dropout(feat_drop), nn.Dropout(attn_drop)
        self.leaky_relu = nn.LeakyReLU(negative_slope)
        is_mapped = residual and self._in_dst_feats != width
        self.res_fc = nn.Linear(self._in_dst_feats, width, bias=bias) if is_mapped else None
        if residual and not is_mapped:
            self.res_fc = nn.Identity()
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draws Glorot's normal weights with the gain of relu, and sets biases to zeros."""
        init_glorot(self, "fc_src", *(() if self.share_weights else ("fc_dst",)), "attn", "res_fc")

    @checked()
    def forward(
        self,
        graph: vgraph.Graph,
        feat: Tensor | tuple[Tensor, Tensor],
        get_attention: bool = False,
        *,
        then: OfRows | None = None,
    ) -> Tensor | tuple[Tensor, Tensor]:
        """The in-neighbours' rows, weighed, by head.

        Args:
            graph: a graph with one type of edges, or a block.
            feat: (vertices, in_feats), or a pair for senders and receivers; a block's receivers are its first
                senders.
            get_attention: give the attention, too.
            then: a function of the result's rows, row by row, in the same loop after the activation; None: none.

        Returns:
            (vertices, num_heads, out_feats); with ``get_attention`` a pair of that and (edges, num_heads, 1).

        Raises:
            FunctionError: it is called without a graph.
            GraphError: a vertex has no in-edge, and that is not allowed.
        """
        check_graph(self, graph)
        self._check_in_degrees(graph)
        feat_src, feat_dst, own = self._mapped(graph, feat)
        slope, attn = self.leaky_relu.negative_slope, self.attn
        sent = widened(feat_src)

        def score(edges: Any) -> Tensor:
            return (F.leaky_relu(edges.src["ft"] + edges.dst["fr"], slope) * attn).sum(-1, keepdim=True)

        graph = graph.local_var()  # which other threads do not see
        graph.srcdata["ft"], graph.dstdata["fr"] = sent, sent if feat_dst is feat_src else widened(feat_dst)
        kind = torch.promote_types(feat_src.dtype, attn.dtype)
        rows, attention = attend(
            graph,
            score,
            drop=self.attn_drop,
            get_attention=get_attention,
            finish=finish_of_heads(None, in_turn(self.activation, then), kind),
            own=residual_rows(self.res_fc, own, self._out_feats),
            joins=sent is feat_src,
        )
        return rows if attention is None else (rows, attention.to(kind))

    def _mapped(self, graph: vgraph.Graph, feat: Tensor | tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        """Senders and receivers by head, and what the receivers were given."""
        check_width(self, feat[0] if isinstance(feat, tuple) else feat, self._in_src_feats)
        if isinstance(feat, tuple):
            src, dst = (self.feat_drop(rows) for rows in feat)
        else:
            src = self.feat_drop(feat)
            dst = receivers_of(graph, src)
        sent = mapped_by(self.fc_src, src, self._num_heads)
        if self.fc_dst is self.fc_src and not isinstance(feat, tuple):
            return sent, receivers_of(graph, sent), dst
        return sent, mapped_by(self.fc_dst, dst, self._num_heads), dst
