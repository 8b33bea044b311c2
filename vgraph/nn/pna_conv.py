"""PNAConv: several aggregators of one message in one pass, scaled by degree, with DGL's names.

Takes: a graph and one row a vertex. Gives: one row a vertex. Runs at every call.
Source: Corso, Cavalleri, Beaini, Lio and Velickovic 2020, equations 5 to 8.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

import torch
from torch import Tensor, nn

import vgraph
from vgraph.arguments import ABOVE_ZERO, COUNT, NAMES, PART, POSITIVE, checked
from vgraph.errors import GraphError
from vgraph.nn.inputs import check_edge_feat, check_graph, check_name, check_width, is_without_edges

TINY = 1e-30  # keeps the derivative of a root finite


def _var(m: Tensor) -> Tensor:
    return torch.relu((m * m).mean(1) - m.mean(1) ** 2)


def _moment(order: int) -> Callable[[Tensor], Tensor]:
    def moment(m: Tensor) -> Tensor:
        found = ((m - m.mean(1, keepdim=True)) ** order).mean(1)
        return torch.sign(found) * (found.abs() + TINY) ** (1 / order)

    return moment


AGGREGATORS: dict[str, Callable[[Tensor], Tensor]] = {
    "mean": lambda m: m.mean(1),
    "sum": lambda m: m.sum(1),
    "max": lambda m: torch.max(m, 1).values,
    "min": lambda m: torch.min(m, 1).values,
    "std": lambda m: torch.sqrt(_var(m) + TINY),
    "var": _var,
    "moment3": _moment(3),
    "moment4": _moment(4),
    "moment5": _moment(5),
}
SCALERS: dict[str, Callable[[Tensor, float], Tensor]] = {
    "identity": lambda log_degree, delta: torch.ones_like(log_degree),
    "amplification": lambda log_degree, delta: log_degree / delta,
    "attenuation": lambda log_degree, delta: delta / log_degree,
}


class PNATower(nn.Module):
    """One message, all its aggregators by all its scalers, and what a vertex makes of them."""

    known: Collection[str] = AGGREGATORS

    def __init__(
        self,
        in_size: int,
        out_size: int,
        aggregators: Sequence[str],
        scalers: Sequence[str],
        delta: float,
        dropout: float,
        edge_feat_size: int,
    ) -> None:
        super().__init__()
        self.aggregators = [check_name(name, self.known, "aggregator") for name in aggregators]
        self.scalers = [check_name(name, SCALERS, "scaler") for name in scalers]
        self.delta, self.edge_feat_size = delta, edge_feat_size
        self.M = nn.Linear(2 * in_size + edge_feat_size, in_size)
        self.U = nn.Linear((len(self.aggregators) * len(self.scalers) + 1) * in_size, out_size)
        self.dropout, self.batchnorm = nn.Dropout(dropout), nn.BatchNorm1d(out_size)

    def forward(self, graph: vgraph.Graph, node_feat: Tensor, edge_feat: Tensor | None = None) -> Tensor:
        graph = graph.local_var()  # which other threads do not see
        graph.ndata["h"] = node_feat
        if edge_feat is not None:
            graph.edata["a"] = edge_feat
        if is_without_edges(graph):
            found = node_feat.new_zeros(len(node_feat), len(self.aggregators) * self.M.out_features)
        else:
            graph.update_all(self._message if edge_feat is None else self._message_with_edge, self._reduce)
            found = graph.ndata["found"]
        log_degree = torch.log(graph.in_degrees().clamp(min=1).to(found.dtype) + 1).unsqueeze(1)
        scaled = [found * SCALERS[name](log_degree, self.delta) for name in self.scalers]
        rows = self.U(torch.cat([node_feat, *scaled], -1)) * _root_of_share(graph, node_feat)
        return self.dropout(self.batchnorm(rows))

    def _message(self, edges: Any) -> dict[str, Tensor]:
        return {"m": self.M(torch.cat([edges.src["h"], edges.dst["h"]], -1))}

    def _message_with_edge(self, edges: Any) -> dict[str, Tensor]:
        return {"m": self.M(torch.cat([edges.src["h"], edges.dst["h"], edges.data["a"]], -1))}

    def _reduce(self, nodes: Any) -> dict[str, Tensor]:
        m = nodes.mailbox["m"]
        return {"found": torch.cat([AGGREGATORS[name](m) for name in self.aggregators], 1)}


def _root_of_share(graph: vgraph.Graph, like: Tensor) -> Tensor:
    """The root of one over the number of vertices of a vertex's graph, (vertices, 1); (1, 1) where there is one."""
    counts = graph.batch_num_nodes()
    share = counts.to(like.dtype).rsqrt()
    if len(share) == 1:
        return share.unsqueeze(1)
    return share.repeat_interleave(counts.long(), output_size=like.shape[0]).unsqueeze(1)


class PNAConv(nn.Module):
    """Towers of principal neighbourhood aggregation side by side, and a layer that mixes them.

    A tower's message is a linear map of sender, receiver and edge.

    Args:
        in_size: the width of a row.
        out_size: the width of a result's row.
        aggregators: some of "mean", "sum", "max", "min", "std", "var", "moment3", "moment4", "moment5".
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
        FeatureError: the edges' feature is missing, or not asked for.

    Source: Corso et al. 2020, equation 8.

    Example:
        >>> import torch, vgraph
        >>> from vgraph.nn import PNAConv
        >>> g = vgraph.graph(([0, 1, 2], [1, 2, 0]))
        >>> layer = PNAConv(4, 4, ["mean", "max", "std"], ["identity", "amplification"], delta=2.5)
        >>> layer(g, torch.ones(3, 4)).shape
        torch.Size([3, 4])
    """

    tower: type[PNATower] = PNATower

    @checked(
        in_size=COUNT,
        out_size=POSITIVE,
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
        super().__init__()
        for name, size in (("in_size", in_size), ("out_size", out_size)):
            if size % num_towers:
                fact = f"{name} {size} is not divisible by num_towers {num_towers}"
                raise GraphError(fact, cure="choose sizes that are")
        self.edge_feat_size, self.residual = edge_feat_size, residual and in_size == out_size
        self.tower_in_size = in_size // num_towers
        sizes = (self.tower_in_size, out_size // num_towers)
        kinds = aggregators, scalers, delta, dropout, edge_feat_size
        self.towers = nn.ModuleList(self.tower(*sizes, *kinds) for _ in range(num_towers))
        self.mixing_layer = nn.Sequential(nn.Linear(out_size, out_size), nn.LeakyReLU())

    def forward(self, graph: vgraph.Graph, node_feat: Tensor, edge_feat: Tensor | None = None) -> Tensor:
        """New rows of the vertices.

        Args:
            graph: a graph, or a batch, with one type of nodes and edges.
            node_feat: (vertices, in_size).
            edge_feat: (edges, edge_feat_size); None, or no column, where that is 0.

        Returns:
            (vertices, out_size).

        Raises:
            FunctionError: it is called without a graph.
            FeatureError: the edges' feature is missing, or not asked for.
        """
        check_graph(self, graph)
        check_width(self, node_feat, self.tower_in_size * len(self.towers))
        edge_feat = check_edge_feat(self, edge_feat, self.edge_feat_size)
        parts = node_feat.split(self.tower_in_size, 1)
        rows = [tower(graph, part, edge_feat) for tower, part in zip(self.towers, parts, strict=True)]
        mixed = self.mixing_layer(torch.cat(rows, 1))
        return mixed + node_feat if self.residual else mixed
