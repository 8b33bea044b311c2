"""DGNConv: aggregators with a direction, which eigenvectors of the graph give, with DGL's names.

Takes: a graph, one row a vertex, eigenvectors. Gives: one row a vertex. Runs at every call.
Source: Beaini, Passaro, Letourneau, Hamilton, Corso and Lio 2021, equations 3 to 5.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

import vgraph
from vgraph.arguments import ABOVE_ZERO, COUNT, NAMES, PART, POSITIVE, checked
from vgraph.errors import FeatureError
from vgraph.nn.inputs import check_graph
from vgraph.nn.pna_conv import AGGREGATORS, TINY, PNAConv, PNATower

DIRECTIONS = {f"dir{k}-{kind}": k - 1 for k in range(1, 4) for kind in ("av", "dx")}


class DGNTower(PNATower):
    """A tower some of whose aggregators weigh messages by how an eigenvector changes along their edges."""

    known = (*AGGREGATORS, *DIRECTIONS)

    def _message(self, edges: vgraph.EdgeBatch) -> dict[str, Tensor]:
        return self._with_slope(edges, super()._message(edges))

    def _message_with_edge(self, edges: vgraph.EdgeBatch) -> dict[str, Tensor]:
        return self._with_slope(edges, super()._message_with_edge(edges))

    def _with_slope(self, edges: vgraph.EdgeBatch, made: dict[str, Tensor]) -> dict[str, Tensor]:
        if not DIRECTIONS.keys() & set(self.aggregators):
            return made
        return {**made, "slope": edges.src["eig"] - edges.dst["eig"]}

    def _reduce(self, nodes: vgraph.NodeBatch) -> dict[str, Tensor]:
        found = [self._directed(nodes, name) if name in DIRECTIONS else AGGREGATORS[name](nodes.mailbox["m"])
                 for name in self.aggregators]  # fmt: skip
        return {"found": torch.cat(found, 1)}

    def _directed(self, nodes: vgraph.NodeBatch, name: str) -> Tensor:
        m, k = nodes.mailbox["m"], DIRECTIONS[name]
        slope = nodes.mailbox["slope"][:, :, k : k + 1]
        total = slope.abs().sum(1) + TINY
        if name.endswith("av"):
            return (m * slope.abs()).sum(1) / total
        return ((m * slope).sum(1) / total - slope.sum(1) / total * nodes.data["h"]).abs()


class DGNConv(PNAConv):
    """``PNAConv`` with directional aggregators beside the others: averages and derivatives along eigenvectors.

    Args:
        in_size: the width of a row.
        out_size: the width of a result's row.
        aggregators: those of ``PNAConv``, and "dir1-av" to "dir3-av" (averages) and "dir1-dx" to "dir3-dx"
            (derivatives) along the first to third eigenvector.
        scalers: some of "identity", "amplification" (by log(degree + 1) / delta), "attenuation".
        delta: the mean of log(degree + 1) over the training set.
        dropout: the part of a tower's result that is dropped in training.
        num_towers: how many towers; it divides both widths.
        edge_feat_size: the width of an edge's row; 0: edges have none.
        residual: add the rows themselves, where both widths are the same.

    Raises:
        ArgumentError: a number is outside of what it counts or weighs; there is no aggregator or no scaler.
        NameLookupError: an unknown aggregator or scaler.
        GraphError: ``num_towers`` does not divide a width.
        FeatureError: the edges' feature is missing, or not asked for; eigenvectors are missing.

    Source: Beaini et al. 2021, equations 3 to 5.

    Example:
        >>> import torch, vgraph
        >>> from vgraph.nn import DGNConv
        >>> g = vgraph.graph(([0, 1, 2, 1], [1, 2, 0, 0]))
        >>> layer = DGNConv(4, 4, ["dir1-av", "dir1-dx", "sum"], ["identity"], delta=2.5)
        >>> layer(g, torch.ones(3, 4), eig_vec=torch.rand(3, 1)).shape
        torch.Size([3, 4])
    """

    tower = DGNTower

    @checked(
        in_size=COUNT,
        out_size=COUNT,
        aggregators=NAMES,
        scalers=NAMES,
        delta=ABOVE_ZERO,
        dropout=PART,
        num_towers=POSITIVE,
        edge_feat_size=COUNT,
    )
    def __init__(
        self,
        in_size: int,
        out_size: int,
        aggregators: Sequence[str],
        scalers: Sequence[str],
        delta: float,
        dropout: float = 0.0,
        num_towers: int = 1,
        edge_feat_size: int = 0,
        residual: bool = True,
    ) -> None:
        sizes, kinds = (in_size, out_size), (aggregators, scalers, delta, dropout)
        super().__init__(*sizes, *kinds, num_towers, edge_feat_size, residual)
        # DGL draws the towers a second time: the same seed gives the same start.
        sizes = self.tower_in_size, out_size // num_towers
        self.towers = nn.ModuleList(DGNTower(*sizes, *kinds, edge_feat_size) for _ in range(num_towers))
        self.use_eig_vec = bool(DIRECTIONS.keys() & set(aggregators))

    def forward(
        self, graph: vgraph.Graph, node_feat: Tensor, edge_feat: Tensor | None = None, eig_vec: Tensor | None = None
    ) -> Tensor:
        """New rows of the vertices.

        Args:
            graph: a graph, or a batch, with one type of nodes and edges.
            node_feat: (vertices, in_size).
            edge_feat: (edges, edge_feat_size); None, or no column, where that is 0.
            eig_vec: (vertices, eigenvectors), those of the Laplacian without the constant one; None where no
                aggregator has a direction.

        Returns:
            (vertices, out_size).

        Raises:
            FunctionError: it is called without a graph.
            FeatureError: the edges' feature is missing, or not asked for; eigenvectors are missing.
        """
        check_graph(self, graph)
        graph = graph.local_var()  # which other threads do not see
        if self.use_eig_vec:
            if eig_vec is None:
                raise FeatureError("directions without eigenvectors", cure="pass eig_vec, as of vgraph.lap_pe")
            graph.ndata["eig"] = eig_vec
        return super().forward(graph, node_feat, edge_feat)
