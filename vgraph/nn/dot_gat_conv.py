"""DotGatConv: attention by scaled dot products along the edges, with DGL's names and shapes.

Takes: a graph and one row a vertex. Gives: one row a head of a vertex. Runs at every call.
Source: Vaswani et al. 2017, equation 1, with a graph for a mask.
"""

from __future__ import annotations

from torch import Tensor, nn

import vgraph
from vgraph.arguments import COUNT, POSITIVE, checked
from vgraph.nn.attention import attend
from vgraph.nn.heads import mapped_by
from vgraph.nn.inputs import both_ends, check_graph, check_in_degrees, check_width, pair, receivers_of


class DotGatConv(nn.Module):
    """Weighs in-neighbours by a softmax of ``Wu . Wv / sqrt(out_feats)``, head by head.

    Args:
        in_feats: the width of a row, or a pair of widths for senders and receivers.
        out_feats: the width of a head's row.
        num_heads: how many heads.
        allow_zero_in_degree: accept vertices without in-edges; their rows are zeros.

    Raises:
        ArgumentError: a number is outside of what it counts or weighs.
        GraphError: a vertex has no in-edge, and that is not allowed.

    Source: Vaswani et al. 2017, equation 1.

    Example:
        >>> import torch, vgraph
        >>> from vgraph.nn import DotGatConv
        >>> g = vgraph.add_self_loop(vgraph.graph(([0, 1, 2], [1, 2, 0])))
        >>> DotGatConv(5, 2, num_heads=3)(g, torch.ones(3, 5)).shape
        torch.Size([3, 3, 2])
    """

    @checked(in_feats=COUNT.or_pair(), out_feats=POSITIVE, num_heads=POSITIVE)
    def __init__(
        self, in_feats: int | tuple[int, int], out_feats: int, num_heads: int, allow_zero_in_degree: bool = False
    ) -> None:
        super().__init__()
        self._num_heads, self._out_feats, self._allow_zero_in_degree = num_heads, out_feats, allow_zero_in_degree
        self._in_src_feats, self._in_dst_feats = pair(in_feats)
        width = num_heads * out_feats
        if isinstance(in_feats, tuple):
            self.fc_src = nn.Linear(self._in_src_feats, width, bias=False)
            self.fc_dst = nn.Linear(self._in_dst_feats, width, bias=False)
        else:
            self.fc = nn.Linear(self._in_src_feats, width, bias=False)

    @checked()
    def forward(
        self, graph: vgraph.Graph, feat: Tensor | tuple[Tensor, Tensor], get_attention: bool = False
    ) -> Tensor | tuple[Tensor, Tensor]:
        """The in-neighbours' rows, weighed, by head.

        Args:
            graph: a graph with one type of edges, or a block.
            feat: (vertices, in_feats), or a pair for senders and receivers; a block's receivers are its first
                senders.
            get_attention: give the attention, too.

        Returns:
            (vertices, num_heads, out_feats); with ``get_attention`` a pair of that and (edges, num_heads, 1).

        Raises:
            FunctionError: it is called without a graph.
            ShapeError: rows are of another width than the layer's.
            GraphError: a vertex has no in-edge, and that is not allowed.
        """
        check_graph(self, graph)
        if not self._allow_zero_in_degree:
            check_in_degrees(graph)
        widths = (self._in_src_feats, self._in_dst_feats)
        for rows, width in zip(feat if isinstance(feat, tuple) else (feat,), widths, strict=False):
            check_width(self, rows, width)
        sent, received = self._mapped(graph, feat)
        graph = graph.local_var()  # which other threads do not see
        graph.srcdata["ft"] = sent
        graph.dstdata["q"] = received * self._out_feats**-0.5
        rows, attention = attend(
            graph,
            lambda edges: (edges.src["ft"] * edges.dst["q"]).sum(-1, keepdim=True),
            drop=nn.Identity(),
            get_attention=get_attention,
        )
        return rows if attention is None else (rows, attention)

    def _mapped(self, graph: vgraph.Graph, feat: Tensor | tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        heads = self._num_heads
        if not isinstance(feat, tuple) and hasattr(self, "fc_src"):
            feat = both_ends(graph, feat)
        if isinstance(feat, tuple):
            fc_src, fc_dst = (self.fc_src, self.fc_dst) if hasattr(self, "fc_src") else (self.fc, self.fc)
            return mapped_by(fc_src, feat[0], heads), mapped_by(fc_dst, feat[1], heads)
        mapped = mapped_by(self.fc, feat, heads)
        return mapped, receivers_of(graph, mapped)
