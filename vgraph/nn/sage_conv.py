"""SAGEConv: a vertex and what its neighbours sum up to, with the names, shapes and defaults of DGL's.

Takes: a graph and one row a vertex. Gives: one row a vertex. Runs at every call.
Source: Hamilton, Ying and Leskovec 2017, algorithm 1 and section 3.3.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

import vgraph
import vgraph.function as fn
from vgraph.arguments import COUNT, PART, checked
from vgraph.errors import FeatureError
from vgraph.nn.inputs import both_ends, check_graph, check_name, check_width, pair
from vgraph.nn.propagate import OfRows, in_turn, send_rows

AGGREGATORS = ("mean", "gcn", "pool", "lstm")


class SAGEConv(nn.Module):
    """``fc_self`` of a vertex plus ``fc_neigh`` of what its in-neighbours are aggregated to.

    Args:
        in_feats: the width of a row, or a pair of widths for senders and receivers.
        out_feats: the width of a result's row.
        aggregator_type: "mean"; "gcn": the mean of neighbours and vertex, which has no ``fc_self``; "pool": the
            maximum of ``relu(fc_pool)``; "lstm": the last state of an LSTM that reads the neighbours in the order of
            the edges.
        feat_drop: the part of the features that is dropped in training.
        bias: add a vector that is learned.
        norm: a function of the result, after the activation; None: none.
        activation: a function of the rows at the end; None: none.

    Raises:
        ArgumentError: a number is outside of what it counts or weighs.
        NameLookupError: an unknown aggregator.
        FeatureError: "gcn" with features of two widths; ``edge_weight`` is not one number an edge.

    Source: Hamilton et al. 2017, algorithm 1.

    Example:
        >>> import torch, vgraph
        >>> from vgraph.nn import SAGEConv
        >>> g = vgraph.graph(([0, 1, 2], [1, 2, 0]))
        >>> SAGEConv(5, 2, "pool")(g, torch.ones(3, 5)).shape
        torch.Size([3, 2])
    """

    bias: nn.Parameter | None

    @checked(in_feats=COUNT.or_pair(), out_feats=COUNT, feat_drop=PART)
    def __init__(
        self,
        in_feats: int | tuple[int, int],
        out_feats: int,
        aggregator_type: str,
        feat_drop: float = 0.0,
        bias: bool = True,
        norm: Callable[[Tensor], Tensor] | None = None,
        activation: Callable[[Tensor], Tensor] | None = None,
    ) -> None:
        super().__init__()
        self._aggre_type = check_name(aggregator_type, AGGREGATORS, "aggregator")
        self._in_src_feats, self._in_dst_feats = pair(in_feats)
        self._out_feats, self.norm, self.activation = out_feats, norm, activation
        self.feat_drop = nn.Dropout(feat_drop)
        width = self._in_src_feats
        if aggregator_type == "pool":
            self.fc_pool = nn.Linear(width, width)
        if aggregator_type == "lstm":
            self.lstm = nn.LSTM(width, width, batch_first=True)
        self.fc_neigh = nn.Linear(width, out_feats, bias=False)
        if aggregator_type != "gcn":
            self.fc_self = nn.Linear(self._in_dst_feats, out_feats, bias=bias)
        else:
            self.register_parameter("bias", nn.Parameter(torch.zeros(out_feats)) if bias else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draws Glorot's uniform weights with the gain of relu, and new weights for the LSTM, as torch does."""
        gain = nn.init.calculate_gain("relu")
        if self._aggre_type == "lstm":
            self.lstm.reset_parameters()
        for name in ("fc_pool", "fc_self", "fc_neigh"):
            if hasattr(self, name):
                nn.init.xavier_uniform_(getattr(self, name).weight, gain=gain)

    def forward(
        self,
        graph: vgraph.Graph,
        feat: Tensor | tuple[Tensor, Tensor],
        edge_weight: Tensor | None = None,
        *,
        then: OfRows | None = None,
    ) -> Tensor:
        """New rows of the vertices.

        Args:
            graph: a graph with one type of edges, or a block.
            feat: (vertices, in_feats), or a pair for senders and receivers; a block's receivers are its first
                senders.
            edge_weight: (edges,) or (edges, 1), which multiplies messages; None: nothing does.
            then: a function of the result's rows, row by row, in the same loop after activation and norm; None: none.

        Returns:
            (vertices, out_feats).

        Raises:
            FunctionError: it is called without a graph.
            FeatureError: "gcn" has features of two widths; ``edge_weight`` is not one number an edge.
            ShapeError: rows are of another width than the layer's.
        """
        check_graph(self, graph)
        if isinstance(feat, tuple):
            src, dst = (self.feat_drop(rows) for rows in feat)
        else:
            src, dst = both_ends(graph, self.feat_drop(feat))
        check_width(self, src, self._in_src_feats)
        end = in_turn(self.activation, self.norm, then)
        if self._aggre_type == "gcn":
            return self._gcn(graph, src, dst, edge_weight, end)
        check_width(self, dst, self._in_dst_feats, "receivers' rows")
        own = self.fc_self(dst)
        if self._aggre_type == "lstm":  # which reads a mailbox in its order: no loop of sums that could go on
            rows = own + self._lstm(graph, src, edge_weight)
            return rows if end is None else end(rows)
        if self._aggre_type == "mean" and self._is_narrowing and not self._sums_first(graph, src):
            sent, reduce, mapped = self.fc_neigh(src), fn.mean, nn.Identity()
        elif self._aggre_type == "mean":
            sent, reduce, mapped = src, fn.mean, self.fc_neigh
        else:
            sent, reduce, mapped = torch.relu(self.fc_pool(src)), fn.max, self.fc_neigh

        def finish(told: Tensor, own: Tensor) -> Tensor:
            rows = own + mapped(told)
            return rows if end is None else end(rows)

        return send_rows(graph, sent, edge_weight, reduce, finish=finish, own=(own,))

    def _gcn(
        self, graph: vgraph.Graph, src: Tensor, dst: Tensor, edge_weight: Tensor | None, end: OfRows | None
    ) -> Tensor:
        if src.shape[1:] != dst.shape[1:]:
            fact = f"senders are {tuple(src.shape[1:])} wide and receivers {tuple(dst.shape[1:])}"
            raise FeatureError(fact, cure='make them equally wide, or choose another aggregator than "gcn"')
        narrows = self._is_narrowing
        if narrows:
            own = self.fc_neigh(src)
            src, dst = own, own if dst is src else self.fc_neigh(dst)

        def finish(told: Tensor, own: Tensor, count: Tensor) -> Tensor:
            rows = (told + own) / count
            rows = rows if narrows else self.fc_neigh(rows)
            rows = rows if self.bias is None else rows + self.bias
            return rows if end is None else end(rows)

        count = (graph.in_degrees().to(src.dtype) + 1).unsqueeze(-1)
        return send_rows(graph, src, edge_weight, finish=finish, own=(dst, count))

    def _lstm(self, graph: vgraph.Graph, src: Tensor, edge_weight: Tensor | None) -> Tensor:
        def read(nodes: Any) -> dict[str, Tensor]:
            _, (last, _) = self.lstm(nodes.mailbox["m"])
            return {"out": last.squeeze(0)}

        return self.fc_neigh(send_rows(graph, src, edge_weight, lambda msg, out: read))

    def _sums_first(self, graph: vgraph.Graph, src: Tensor) -> bool:
        """Whether it costs less to sum wide rows up, and to make the sums alone narrower.

        That may be where fewer receive than send, as in a block, and nobody wants the gradient of what is sent: the
        sums then need no backward. A number that travels costs about as much as four products.
        """
        more = graph.num_src_nodes() - graph.num_dst_nodes()
        if more <= 0 or (src.requires_grad and torch.is_grad_enabled()):
            return False
        passes = 2 if torch.is_grad_enabled() else 1
        travels = graph.num_edges() * (self._in_src_feats - passes * self._out_feats)
        return 4 * travels < passes * more * self._in_src_feats * self._out_feats

    @property
    def _is_narrowing(self) -> bool:
        """Whether rows travel along the edges after ``fc_neigh``, which makes them narrower."""
        return self._in_src_feats > self._out_feats
