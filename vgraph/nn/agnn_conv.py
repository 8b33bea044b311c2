"""AGNNConv: attention by the cosine of neighbours' features, with DGL's names.

Takes: a graph and one row a vertex. Gives: one row a vertex. Runs at every call.
Source: Thekumparampil, Wang, Oh and Li 2018, section 4.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import vgraph
from vgraph.arguments import NUMBER, checked
from vgraph.nn.attention import attend
from vgraph.nn.inputs import NeedsInEdges, both_ends, check_graph


class AGNNConv(NeedsInEdges):
    """In-neighbours weighed by a softmax of ``beta * cos(u, v)``; nothing else is learned.

    Args:
        init_beta: the first value of ``beta``.
        learn_beta: train ``beta``.
        allow_zero_in_degree: accept vertices without in-edges.

    Raises:
        ArgumentError: a number is outside of what it counts or weighs.
        GraphError: a vertex has no in-edge, and that is not allowed.

    Source: Thekumparampil et al. 2018, section 4.

    Example:
        >>> import torch, vgraph
        >>> from vgraph.nn import AGNNConv
        >>> g = vgraph.add_self_loop(vgraph.graph(([0, 1], [1, 2])))
        >>> AGNNConv()(g, torch.ones(3, 5)).shape
        torch.Size([3, 5])
    """

    beta: Tensor

    @checked(init_beta=NUMBER)
    def __init__(self, init_beta: float = 1.0, learn_beta: bool = True, allow_zero_in_degree: bool = False) -> None:
        super().__init__()
        self._allow_zero_in_degree = allow_zero_in_degree
        beta = torch.tensor([float(init_beta)])
        if learn_beta:
            self.beta = nn.Parameter(beta)
        else:
            self.register_buffer("beta", beta)

    def forward(self, graph: vgraph.Graph, feat: Tensor | tuple[Tensor, Tensor]) -> Tensor:
        """The in-neighbours' rows, weighed.

        Args:
            graph: a graph with one type of edges, or a block.
            feat: (vertices, width), or a pair for senders and receivers of one width.

        Returns:
            (vertices, width); zeros for a vertex without in-edges.

        Raises:
            FunctionError: it is called without a graph.
            GraphError: a vertex has no in-edge, and that is not allowed.
        """
        check_graph(self, graph)
        self._check_in_degrees(graph)
        src, dst = both_ends(graph, feat)
        graph = graph.local_var()  # which other threads do not see
        graph.srcdata["ft"] = src
        graph.srcdata["k"] = F.normalize(src, dim=-1)
        graph.dstdata["q"] = F.normalize(dst, dim=-1) * self.beta
        score = lambda edges: (edges.src["k"] * edges.dst["q"]).sum(-1, keepdim=True)  # noqa: E731
        return attend(graph, score, drop=nn.Identity())[0]
