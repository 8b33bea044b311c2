"""EGNNConv: features and positions, of which the latter turn and move with the input, with DGL's names.

Takes: a graph, one row and one position a vertex. Gives: both, new. Runs at every call.
Source: Satorras, Hoogeboom and Welling 2021, equations 3 to 6.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

import vgraph
from vgraph.arguments import COUNT, checked
from vgraph.nn.inputs import check_edge_feat, check_graph, check_width, is_without_edges

TINY = 1e-30  # a vertex may stand where its neighbour stands


class EGNNConv(nn.Module):
    """A message of both ends and their squared distance; positions move along the edges' directions.

    Args:
        in_size: the width of a vertex's row.
        hidden_size: the width of messages and of layers in between.
        out_size: the width of a result's row.
        edge_feat_size: the width of an edge's row; 0: edges have none.

    Raises:
        ArgumentError: a number is outside of what it counts or weighs.
        FeatureError: the edges' feature is missing, or not asked for.

    Source: Satorras et al. 2021, equations 3 to 6.

    Example:
        >>> import torch, vgraph
        >>> from vgraph.nn import EGNNConv
        >>> g = vgraph.graph(([0, 1, 2], [1, 2, 0]))
        >>> h, x = EGNNConv(5, 8, 2)(g, torch.ones(3, 5), torch.rand(3, 3))
        >>> h.shape, x.shape
        (torch.Size([3, 2]), torch.Size([3, 3]))
    """

    @checked(in_size=COUNT, hidden_size=COUNT, out_size=COUNT, edge_feat_size=COUNT)
    def __init__(self, in_size: int, hidden_size: int, out_size: int, edge_feat_size: int = 0) -> None:
        super().__init__()
        self.in_size, self.hidden_size, self.edge_feat_size = in_size, hidden_size, edge_feat_size
        act = nn.SiLU()
        self.edge_mlp = nn.Sequential(
            nn.Linear(2 * in_size + edge_feat_size + 1, hidden_size), act, nn.Linear(hidden_size, hidden_size), act
        )
        self.node_mlp = nn.Sequential(
            nn.Linear(in_size + hidden_size, hidden_size), act, nn.Linear(hidden_size, out_size)
        )
        self.coord_mlp = nn.Sequential(nn.Linear(hidden_size, hidden_size), act, nn.Linear(hidden_size, 1, bias=False))

    def forward(
        self, graph: vgraph.Graph, node_feat: Tensor, coord_feat: Tensor, edge_feat: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """New rows and positions.

        Args:
            graph: a graph with one type of nodes and edges.
            node_feat: (vertices, in_size).
            coord_feat: positions, (vertices, dims).
            edge_feat: (edges, edge_feat_size); None, or no column, where that is 0.

        Returns:
            (vertices, out_size) and positions (vertices, dims).

        Raises:
            FunctionError: it is called without a graph.
            FeatureError: the edges' feature is missing, or not asked for.
        """
        check_graph(self, graph)
        check_width(self, node_feat, self.in_size)
        edge_feat = check_edge_feat(self, edge_feat, self.edge_feat_size)
        graph = graph.local_var()  # which other threads do not see
        graph.ndata["h"], graph.ndata["x"] = node_feat, coord_feat
        if edge_feat is not None:
            graph.edata["a"] = edge_feat
        if is_without_edges(graph):
            sent, moved = node_feat.new_zeros(len(node_feat), self.hidden_size), torch.zeros_like(coord_feat)
        else:
            graph.update_all(self._message if edge_feat is None else self._message_with_edge, _reduce)
            sent, moved = graph.ndata["sent"], graph.ndata["moved"]
        return self.node_mlp(torch.cat([node_feat, sent], -1)), coord_feat + moved

    def _message(self, edges: Any) -> dict[str, Tensor]:
        away, square = _direction(edges)
        return self._made(away, [edges.src["h"], edges.dst["h"], square])

    def _message_with_edge(self, edges: Any) -> dict[str, Tensor]:
        away, square = _direction(edges)
        return self._made(away, [edges.src["h"], edges.dst["h"], square, edges.data["a"]])

    def _made(self, away: Tensor, parts: list[Tensor]) -> dict[str, Tensor]:
        sent = self.edge_mlp(torch.cat(parts, -1))
        return {"sent": sent, "moved": self.coord_mlp(sent) * away}


def _direction(edges: Any) -> tuple[Tensor, Tensor]:
    """From receiver to sender, of length 1, and the square of the distance."""
    away = edges.src["x"] - edges.dst["x"]
    square = away.square().sum(1, keepdim=True)
    length = torch.where(square > 0, square, 1.0).sqrt()  # at 0, as of a self-loop, the root has no derivative
    return away / (length + TINY), square


def _reduce(nodes: Any) -> dict[str, Tensor]:
    return {"sent": nodes.mailbox["sent"].sum(1), "moved": nodes.mailbox["moved"].mean(1)}
