"""GatedGCNConv: neighbours weighed by gates of their edges, and new rows of the edges, with DGL's names.

Takes: a graph, one row a vertex, one row an edge. Gives: both, new. Runs at every call.
Source: Bresson and Laurent 2017, equation 11; Dwivedi et al. 2023, section 4.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import vgraph
from vgraph.arguments import COUNT, PART, checked
from vgraph.nn.inputs import check_graph, check_width, is_without_edges

TINY = 1e-6  # a vertex may receive nothing


class GatedGCNConv(nn.Module):
    """Neighbours' rows averaged by gates, which are sigmoids of a linear map of sender, receiver and edge.

    Args:
        input_feats: the width of a vertex's row.
        edge_feats: the width of an edge's row.
        output_feats: the width of a result's row, of vertices and of edges.
        dropout: the part of the results that is dropped in training.
        batch_norm: normalise the rows.
        residual: add the rows themselves, where all three widths are the same.
        activation: a function of the rows; None: none.

    Raises:
        ArgumentError: a number is outside of what it counts or weighs.

    Source: Bresson and Laurent 2017, equation 11; DGL 2.0, ``dgl.nn.GatedGCNConv``.

    Example:
        >>> import torch, vgraph
        >>> from vgraph.nn import GatedGCNConv
        >>> g = vgraph.graph(([0, 1, 2], [1, 2, 0]))
        >>> h, e = GatedGCNConv(5, 4, 2)(g, torch.ones(3, 5), torch.ones(3, 4))
        >>> h.shape, e.shape
        (torch.Size([3, 2]), torch.Size([3, 2]))
    """

    @checked(input_feats=COUNT, edge_feats=COUNT, output_feats=COUNT, dropout=PART)
    def __init__(
        self,
        input_feats: int,
        edge_feats: int,
        output_feats: int,
        dropout: float = 0,
        batch_norm: bool = True,
        residual: bool = True,
        activation: Callable[[Tensor], Tensor] | None = F.relu,
    ) -> None:
        super().__init__()
        self.dropout, self.batch_norm, self.activation = nn.Dropout(dropout), batch_norm, activation
        self.residual = residual and input_feats == edge_feats == output_feats
        self.A, self.B, self.D, self.E = (nn.Linear(input_feats, output_feats) for _ in range(4))
        self.C = nn.Linear(edge_feats, output_feats)
        self.bn_node, self.bn_edge = nn.BatchNorm1d(output_feats), nn.BatchNorm1d(output_feats)

    def forward(self, graph: vgraph.Graph, feat: Tensor, edge_feat: Tensor) -> tuple[Tensor, Tensor]:
        """New rows of vertices and edges.

        Args:
            graph: a graph with one type of nodes and edges.
            feat: (vertices, input_feats).
            edge_feat: (edges, edge_feats).

        Returns:
            (vertices, output_feats) and (edges, output_feats).

        Raises:
            FunctionError: it is called without a graph.
            ShapeError: rows are of another width than the layer's.
        """
        check_graph(self, graph)
        check_width(self, feat, self.A.in_features)
        check_width(self, edge_feat, self.C.in_features, "edges' rows")
        graph = graph.local_var()  # which other threads do not see
        graph.ndata["D"], graph.ndata["E"], graph.edata["C"] = self.D(feat), self.E(feat), self.C(edge_feat)
        rows, graph.ndata["B"] = self.A(feat), self.B(feat)
        made = graph.edata["C"]
        if not is_without_edges(graph):
            graph.apply_edges(lambda edges: {"e": edges.src["D"] + edges.dst["E"] + edges.data["C"]})
            made = graph.edata["e"]
            graph.update_all(_message, _reduce)
            rows = rows + graph.ndata["h"]
        return self._finish(rows, feat, self.bn_node), self._finish(made, edge_feat, self.bn_edge)

    def _finish(self, rows: Tensor, given: Tensor, norm: nn.BatchNorm1d) -> Tensor:
        rows = norm(rows) if self.batch_norm else rows
        rows = rows if self.activation is None else self.activation(rows)
        return self.dropout(given + rows if self.residual else rows)


def _message(edges: vgraph.EdgeBatch) -> dict[str, Tensor]:
    gate = torch.sigmoid(edges.data["e"])
    return {"gate": gate, "m": edges.src["B"] * gate}


def _reduce(nodes: vgraph.NodeBatch) -> dict[str, Tensor]:
    return {"h": nodes.mailbox["m"].sum(1) / (nodes.mailbox["gate"].sum(1) + TINY)}
