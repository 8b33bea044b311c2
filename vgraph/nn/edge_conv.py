"""EdgeConv: the largest of what a vertex and its differences to neighbours are mapped to, with DGL's names.

Takes: a graph and one row a vertex. Gives: one row a vertex. Runs at every call.
Source: Wang et al. 2019 (dynamic graph CNN), equation 7.
"""

from __future__ import annotations

from torch import Tensor, nn

import vgraph
import vgraph.function as fn
from vgraph.arguments import COUNT, checked
from vgraph.nn.inputs import NeedsInEdges, both_ends, check_graph, check_width
from vgraph.nn.propagate import propagate


class EdgeConv(NeedsInEdges):
    """The maximum over in-neighbours of ``theta(v - u) + phi(v)``, elementwise.

    Args:
        in_feat: the width of a row.
        out_feat: the width of a result's row.
        batch_norm: normalise messages over all edges, which stores them.
        allow_zero_in_degree: accept vertices without in-edges.

    Raises:
        ArgumentError: a number is outside of what it counts or weighs.
        GraphError: a vertex has no in-edge, and that is not allowed.

    Source: Wang et al. 2019, equation 7.

    Example:
        >>> import torch, vgraph
        >>> from vgraph.nn import EdgeConv
        >>> EdgeConv(5, 2)(vgraph.graph(([0, 1, 2], [1, 2, 0])), torch.ones(3, 5)).shape
        torch.Size([3, 2])
    """

    @checked(in_feat=COUNT, out_feat=COUNT)
    def __init__(
        self, in_feat: int, out_feat: int, batch_norm: bool = False, allow_zero_in_degree: bool = False
    ) -> None:
        super().__init__()
        self.batch_norm, self._allow_zero_in_degree = batch_norm, allow_zero_in_degree
        self.theta, self.phi = nn.Linear(in_feat, out_feat), nn.Linear(in_feat, out_feat)
        if batch_norm:
            self.bn = nn.BatchNorm1d(out_feat)

    def forward(self, g: vgraph.Graph, feat: Tensor | tuple[Tensor, Tensor]) -> Tensor:
        """The maximum of the messages, elementwise.

        Args:
            g: a graph with one type of edges, or a block.
            feat: (vertices, in_feat), or a pair for senders and receivers.

        Returns:
            (vertices, out_feat); zeros for a vertex without in-edges.

        Raises:
            FunctionError: it is called without a graph.
            ShapeError: rows are of another width than the layer's.
            GraphError: a vertex has no in-edge, and that is not allowed.
        """
        check_graph(self, g)
        self._check_in_degrees(g)
        src, dst = both_ends(g, feat)
        for rows in (src, dst):
            check_width(self, rows, self.theta.in_features)
        g = g.local_var()  # which other threads do not see
        # theta is linear: theta(v - u) + phi(v) is a row of v less one of u
        g.srcdata["u"] = nn.functional.linear(src, self.theta.weight)
        g.dstdata["v"] = self.theta(dst) + self.phi(dst)
        if self.batch_norm:
            g.apply_edges(fn.v_sub_u("v", "u", "e"))
            g.edata["e"] = self.bn(g.edata["e"])
            return propagate(g, fn.copy_e("e", "m"), fn.max("m", "out"), g.srcdata["u"])
        return propagate(g, fn.v_sub_u("v", "u", "m"), fn.max("m", "out"), g.srcdata["u"])
