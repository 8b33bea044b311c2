"""EGATConv: attention that reads the edges' features, and gives them new ones, with DGL's names.

Takes: a graph, one row a vertex and one an edge. Gives: both by head. Runs at every call.
Source: Kaminski, Ludwiczak, Jasinski et al. 2021 (Rossmann-toolbox), section 2.3.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import vgraph
import vgraph.function as fn
from vgraph.arguments import COUNT, POSITIVE, checked
from vgraph.nn.attention import attend
from vgraph.nn.heads import init_glorot, make_head_vector, split_heads
from vgraph.nn.inputs import check_edge_weight, check_graph, check_in_degrees, check_width, pair


class EGATConv(nn.Module):
    """New edges' rows from both ends and the old ones; attention is a softmax of ``attn`` times them.

    Args:
        in_node_feats: the width of a vertex's row, or a pair of widths for senders and receivers.
        in_edge_feats: the width of an edge's row.
        out_node_feats: the width of a head's row of a vertex.
        out_edge_feats: the width of a head's row of an edge.
        num_heads: how many heads.
        bias: add a vector that is learned to edges' rows.

    Raises:
        ArgumentError: a number is outside of what it counts or weighs.
        GraphError: a vertex has no in-edge.
        FeatureError: ``edge_weight`` is not one number an edge.

    Source: Kaminski et al. 2021, section 2.3.

    Example:
        >>> import torch, vgraph
        >>> from vgraph.nn import EGATConv
        >>> g = vgraph.graph(([0, 1, 2], [1, 2, 0]))
        >>> h, e = EGATConv(5, 4, 2, 6, num_heads=3)(g, torch.ones(3, 5), torch.ones(3, 4))
        >>> h.shape, e.shape
        (torch.Size([3, 3, 2]), torch.Size([3, 3, 6]))
    """

    bias: nn.Parameter | None

    @checked(
        in_node_feats=COUNT.or_pair(),
        in_edge_feats=COUNT,
        out_node_feats=COUNT,
        out_edge_feats=POSITIVE,
        num_heads=POSITIVE,
    )
    def __init__(
        self,
        in_node_feats: int | tuple[int, int],
        in_edge_feats: int,
        out_node_feats: int,
        out_edge_feats: int,
        num_heads: int,
        bias: bool = True,
    ) -> None:
        super().__init__()
        self._num_heads = num_heads
        src, dst = pair(in_node_feats)
        width = out_edge_feats * num_heads
        self.fc_node_src = nn.Linear(src, out_node_feats * num_heads, bias=False)
        self.fc_ni, self.fc_nj = nn.Linear(src, width, bias=False), nn.Linear(dst, width, bias=False)
        self.fc_fij = nn.Linear(in_edge_feats, width, bias=False)
        self.attn = make_head_vector(num_heads, out_edge_feats)
        self.register_parameter("bias", nn.Parameter(torch.empty(width)) if bias else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draws Glorot's normal weights with the gain of relu, and sets the bias to zeros."""
        init_glorot(self, "fc_node_src", "fc_ni", "fc_fij", "fc_nj", "attn")
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    @checked()
    def forward(
        self,
        graph: vgraph.Graph,
        nfeats: Tensor | tuple[Tensor, Tensor],
        efeats: Tensor,
        edge_weight: Tensor | None = None,
        get_attention: bool = False,
    ) -> tuple[Tensor, ...]:
        """New rows of vertices and edges, by head.

        Args:
            graph: a graph with one type of edges, or a block.
            nfeats: (vertices, in_node_feats), or a pair for senders and receivers.
            efeats: (edges, in_edge_feats).
            edge_weight: (edges,), which multiplies the attention; None: nothing does.
            get_attention: give the attention, too.

        Returns:
            (vertices, num_heads, out_node_feats) and (edges, num_heads, out_edge_feats), and with ``get_attention``
            (edges, num_heads, 1).

        Raises:
            FunctionError: it is called without a graph.
            GraphError: a vertex has no in-edge.
            FeatureError: ``edge_weight`` is not one number an edge.
        """
        check_graph(self, graph)
        check_in_degrees(graph, may_be_allowed=False)
        weight = None if edge_weight is None else check_edge_weight(graph, edge_weight)
        src, dst = nfeats if isinstance(nfeats, tuple) else (nfeats, nfeats)
        check_width(self, src, self.fc_ni.in_features)
        check_width(self, dst, self.fc_nj.in_features)
        check_width(self, efeats, self.fc_fij.in_features, "edges' rows")
        graph = graph.local_var()  # which other threads do not see
        graph.srcdata["ni"], graph.dstdata["nj"] = self.fc_ni(src), self.fc_nj(dst)
        graph.apply_edges(fn.u_add_v("ni", "nj", "f"))
        made = graph.edata.pop("f") + self.fc_fij(efeats)
        made = split_heads(F.leaky_relu(made if self.bias is None else made + self.bias), self._num_heads)
        graph.edata["s"] = (made * self.attn).sum(-1, keepdim=True)
        graph.srcdata["ft"] = split_heads(self.fc_node_src(src), self._num_heads)
        rows, attention = attend(
            graph, lambda edges: edges.data["s"], drop=nn.Identity(), weight=weight, get_attention=get_attention
        )
        return (rows, made) if attention is None else (rows, made, attention)
