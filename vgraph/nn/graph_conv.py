"""GraphConv: the graph convolution, with the names, shapes and defaults of DGL's.

Takes: a graph and one row a vertex. Gives: one row a vertex. Runs at every call.
Source: Kipf and Welling 2017, equation 2.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

import vgraph
from vgraph.arguments import COUNT, checked
from vgraph.errors import FunctionError
from vgraph.nn.inputs import NeedsInEdges, check_graph, check_width
from vgraph.nn.norm import kept_factor
from vgraph.nn.propagate import OfRows, in_turn, send_rows

NORMS = ("none", "both", "right", "left")


class GraphConv(NeedsInEdges):
    """Sums what the in-neighbours hold, normalised by degrees, times ``weight``, plus ``bias``.

    Args:
        in_feats: the width of a row.
        out_feats: the width of a result's row.
        norm: "both" divides by the roots of the degrees at either end, "left" by the sender's out-degree, "right" by
            the receiver's in-degree, "none" by nothing.
        weight: learn a matrix (in_feats, out_feats); False: calls may bring one.
        bias: add a vector (out_feats,) that is learned.
        activation: a function of the rows at the end; None: none.
        allow_zero_in_degree: accept vertices without in-edges; their rows are the bias.

    Raises:
        ArgumentError: a number is outside of what it counts or weighs.
        GraphError: a vertex has no in-edge, and that is not allowed.
        FunctionError: an unknown ``norm``; a weight given twice.
        FeatureError: ``edge_weight`` is not one number an edge.

    Source: Kipf and Welling 2017, equation 2.

    Example:
        >>> import torch, vgraph
        >>> from vgraph.nn import GraphConv
        >>> g = vgraph.add_self_loop(vgraph.graph(([0, 1, 2], [1, 2, 0])))
        >>> GraphConv(5, 2)(g, torch.ones(3, 5)).shape
        torch.Size([3, 2])
    """

    weight: nn.Parameter | None
    bias: nn.Parameter | None

    @checked(in_feats=COUNT, out_feats=COUNT)
    def __init__(
        self,
        in_feats: int,
        out_feats: int,
        norm: str = "both",
        weight: bool = True,
        bias: bool = True,
        activation: Callable[[Tensor], Tensor] | None = None,
        allow_zero_in_degree: bool = False,
    ) -> None:
        super().__init__()
        if norm not in NORMS:
            raise FunctionError(f"there is no norm {norm!r}", cure=f"one of {', '.join(NORMS)}")
        self._in_feats, self._out_feats, self._norm = in_feats, out_feats, norm
        self._allow_zero_in_degree, self._activation = allow_zero_in_degree, activation
        for name, shape in (("weight", (in_feats, out_feats)), ("bias", (out_feats,))):
            wanted = weight if name == "weight" else bias
            self.register_parameter(name, nn.Parameter(torch.empty(shape)) if wanted else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draws Glorot's uniform weights, and sets the bias to zeros."""
        if self.weight is not None:
            nn.init.xavier_uniform_(self.weight)
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def forward(
        self,
        graph: vgraph.Graph,
        feat: Tensor | tuple[Tensor, Tensor],
        weight: Tensor | None = None,
        edge_weight: Tensor | None = None,
        *,
        then: OfRows | None = None,
    ) -> Tensor:
        """The in-neighbours' rows, summed and mapped.

        Args:
            graph: a graph with one type of edges, or a block.
            feat: (vertices, in_feats), or a pair, of which the senders' is used.
            weight: (in_feats, out_feats), where the layer was made with ``weight=False``; None: its own, or none.
            edge_weight: (edges,) or (edges, 1), which multiplies messages; None: nothing does.
            then: a function of the result's rows, row by row, in the same loop after the activation; None: none.

        Returns:
            (vertices, out_feats).

        Raises:
            GraphError: a vertex has no in-edge, and that is not allowed.
            FunctionError: a weight is passed to a layer that has its own.
            FeatureError: ``edge_weight`` is not one number an edge.
        """
        check_graph(self, graph)
        self._check_in_degrees(graph)
        weight = self._chosen(weight)
        rows = feat[0] if isinstance(feat, tuple) else feat
        if weight is not None:
            check_width(self, rows, weight.shape[0])
        if weight is not None and rows.layout != torch.strided:  # only torch reads those
            rows, weight = rows @ weight, None
        # The narrower side travels along the edges. Rows are scaled where they are narrow, too:
        # scaling a row commutes with multiplying it by the weight.
        is_first = self._in_feats > self._out_feats
        ahead, behind = self._scales(graph, rows)
        end = in_turn(self._activation, then)
        start = None if weight is None or not is_first else lambda rows: rows @ weight

        def finish(rows: Tensor) -> Tensor:
            rows = rows if weight is None or is_first else rows @ weight
            rows = rows if self.bias is None else rows + self.bias
            return rows if end is None else end(rows)

        return send_rows(graph, rows, edge_weight, ahead=ahead, behind=behind, start=start, finish=finish)

    def _scales(self, graph: vgraph.Graph, rows: Tensor) -> tuple[Tensor | None, Tensor | None]:
        is_root = self._norm == "both"
        ahead = kept_factor(graph, rows, out=True, is_root=is_root) if self._norm in ("left", "both") else None
        behind = kept_factor(graph, rows, out=False, is_root=is_root) if self._norm in ("right", "both") else None
        return ahead, behind

    def _chosen(self, weight: Tensor | None) -> Tensor | None:
        if weight is not None and self.weight is not None:
            fact = "a weight is passed to a GraphConv that has its own"
            raise FunctionError(fact, cure="make the layer with weight=False")
        return self.weight if weight is None else weight

    def extra_repr(self) -> str:
        """What ``repr`` shows of the layer.

        Returns:
            Its widths, its norm and its activation.
        """
        shown = f"in={self._in_feats}, out={self._out_feats}, normalization={self._norm}"
        return shown if self._activation is None else f"{shown}, activation={self._activation}"
