"""Messages that a small network makes from the edge: NNConv, CFConv, GMMConv, with DGL's names.

Takes: a graph, one row a vertex, one row an edge. Gives: one row a vertex. Runs at every call.
Source: Gilmer et al. 2017; Schuett et al. 2017; Monti et al. 2017.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

import vgraph
import vgraph.function as fn
from vgraph.arguments import COUNT, POSITIVE, checked
from vgraph.errors import FeatureError
from vgraph.nn.inputs import NeedsInEdges, both_ends, check_graph, check_name, check_width, pair
from vgraph.nn.propagate import propagate

REDUCERS = {"sum": fn.sum, "mean": fn.mean, "max": fn.max}


class NNConv(nn.Module):
    """Each sender's row times the matrix that ``edge_func`` makes of its edge.

    Args:
        in_feats: the width of a row, or a pair of widths for senders and receivers.
        out_feats: the width of a result's row.
        edge_func: a module or function of (edges, ...) that gives (edges, in_feats * out_feats).
        aggregator_type: "sum", "mean" or "max"; "max" is taken before the sum over in_feats, as in DGL.
        residual: add the receiver's own row, through a linear map where widths differ.
        bias: add a vector that is learned.

    Raises:
        ArgumentError: a number is outside of what it counts or weighs.
        NameLookupError: an unknown aggregator.
        FeatureError: ``edge_func`` gives another number of columns.

    Source: Gilmer et al. 2017, section 5.1 (edge network).

    Example:
        >>> import torch, vgraph
        >>> from vgraph.nn import NNConv
        >>> g = vgraph.graph(([0, 1], [1, 2]))
        >>> NNConv(5, 2, torch.nn.Linear(3, 10))(g, torch.ones(3, 5), torch.ones(2, 3)).shape
        torch.Size([3, 2])
    """

    bias: nn.Parameter | None

    @checked(in_feats=COUNT.or_pair(), out_feats=COUNT)
    def __init__(
        self,
        in_feats: int | tuple[int, int],
        out_feats: int,
        edge_func: Callable[[Tensor], Tensor],
        aggregator_type: str = "mean",
        residual: bool = False,
        bias: bool = True,
    ) -> None:
        super().__init__()
        self._aggre_type = check_name(aggregator_type, REDUCERS, "aggregator")
        self._in_src_feats, in_dst_feats = pair(in_feats)
        self._out_feats, self.edge_func = out_feats, edge_func
        self.res_fc = make_residual(in_dst_feats, out_feats) if residual else None
        self.register_parameter("bias", nn.Parameter(torch.empty(out_feats)) if bias else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Sets the bias to zeros and draws Glorot's normal weights, with the gain of relu, for the residual's map."""
        init_residual(self.res_fc, self.bias)

    def forward(self, graph: vgraph.Graph, feat: Tensor | tuple[Tensor, Tensor], efeat: Tensor) -> Tensor:
        """What the matrices make of the senders, aggregated.

        Args:
            graph: a graph with one type of edges, or a block.
            feat: (vertices, in_feats), or a pair for senders and receivers; a block's receivers are its first
                senders.
            efeat: (edges, ...), what ``edge_func`` takes.

        Returns:
            (vertices, out_feats).

        Raises:
            FunctionError: it is called without a graph.
            FeatureError: ``edge_func`` gives another number of columns.
        """
        check_graph(self, graph)
        src, dst = both_ends(graph, feat)
        check_width(self, src, self._in_src_feats)
        shape, made = (self._in_src_feats, self._out_feats), self.edge_func(efeat)
        if made.shape[1:].numel() != shape[0] * shape[1]:
            fact = f"edge_func gives {tuple(made.shape)} for matrices of {shape[0]} x {shape[1]}"
            raise FeatureError(fact, cure=f"let it give (edges, {shape[0] * shape[1]})")
        graph = graph.local_var()  # which other threads do not see
        graph.srcdata["h"] = src.unsqueeze(-1)
        graph.edata["w"], empty = made.view(-1, *shape), src.new_empty(0, *shape)
        if self._aggre_type == "max":
            found = propagate(graph, fn.u_mul_e("h", "w", "m"), fn.max("m", "out"), empty)
            rows = found.sum(1)
        else:  # summed over in_feats where the message is made: it is the narrower
            message = lambda edges: {"m": (edges.src["h"] * edges.data["w"]).sum(1)}  # noqa: E731
            rows = propagate(graph, message, REDUCERS[self._aggre_type]("m", "out"), empty[:, 0])
        return finish(rows, dst, self.res_fc, self.bias)


class ShiftedSoftplus(nn.Module):
    """softplus(x) - log(shift), which is 0 at 0 for the shift 2."""

    def __init__(self, beta: float = 1, shift: float = 2, threshold: float = 20) -> None:
        super().__init__()
        self.shift, self.softplus = shift, nn.Softplus(beta=beta, threshold=threshold)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.softplus(inputs) - math.log(self.shift)


class CFConv(nn.Module):
    """Continuous filters: senders' rows times what a network makes of their edges, elementwise.

    Args:
        node_in_feats: the width of a vertex's row.
        edge_in_feats: the width of an edge's row.
        hidden_feats: the width in between.
        out_feats: the width of a result's row.

    Raises:
        ArgumentError: a number is outside of what it counts or weighs.
        FeatureError: there is not one row a sender, or one an edge.

    Source: Schuett et al. 2017, equation 2.

    Example:
        >>> import torch, vgraph
        >>> from vgraph.nn import CFConv
        >>> g = vgraph.graph(([0, 1], [1, 2]))
        >>> CFConv(5, 3, 8, 2)(g, torch.ones(3, 5), torch.ones(2, 3)).shape
        torch.Size([3, 2])
    """

    @checked(node_in_feats=COUNT, edge_in_feats=COUNT, hidden_feats=COUNT, out_feats=COUNT)
    def __init__(self, node_in_feats: int, edge_in_feats: int, hidden_feats: int, out_feats: int) -> None:
        super().__init__()
        self._edge_in_feats = edge_in_feats
        self.project_edge = nn.Sequential(
            nn.Linear(edge_in_feats, hidden_feats),
            ShiftedSoftplus(),
            nn.Linear(hidden_feats, hidden_feats),
            ShiftedSoftplus(),
        )
        self.project_node = nn.Linear(node_in_feats, hidden_feats)
        self.project_out = nn.Sequential(nn.Linear(hidden_feats, out_feats), ShiftedSoftplus())

    def forward(self, g: vgraph.Graph, node_feats: Tensor | tuple[Tensor, Tensor], edge_feats: Tensor) -> Tensor:
        """The filtered rows, summed.

        Args:
            g: a graph with one type of edges, or a block.
            node_feats: (vertices, node_in_feats), or a pair, of which the senders' is used.
            edge_feats: (edges, edge_in_feats).

        Returns:
            (vertices, out_feats).

        Raises:
            FunctionError: it is called without a graph.
            FeatureError: there is not one row a sender, or one an edge.
        """
        check_graph(self, g)
        src = node_feats[0] if isinstance(node_feats, tuple) else node_feats
        check_width(self, src, self.project_node.in_features)
        check_width(self, edge_feats, self._edge_in_feats, "edges' rows")
        g = g.local_var()  # which other threads do not see
        g.srcdata["h"], g.edata["w"] = self.project_node(src), self.project_edge(edge_feats)
        return self.project_out(propagate(g, fn.u_mul_e("h", "w", "m"), fn.sum("m", "out"), g.srcdata["h"]))


class GMMConv(NeedsInEdges):
    """Gaussian mixtures: maps of the senders' rows, weighed by Gaussians of the edges' pseudo-coordinates.

    Args:
        in_feats: the width of a row, or a pair of widths for senders and receivers.
        out_feats: the width of a result's row.
        dim: how many pseudo-coordinates an edge has.
        n_kernels: how many Gaussians.
        aggregator_type: "sum", "mean" or "max" (of each kernel's messages; kernels are summed).
        residual: add the receiver's own row, through a linear map where widths differ.
        bias: add a vector that is learned.
        allow_zero_in_degree: accept vertices without in-edges.

    Raises:
        ArgumentError: a number is outside of what it counts or weighs.
        NameLookupError: an unknown aggregator.
        GraphError: a vertex has no in-edge, and that is not allowed.

    Source: Monti et al. 2017, equation 11.

    Example:
        >>> import torch, vgraph
        >>> from vgraph.nn import GMMConv
        >>> g = vgraph.graph(([0, 1, 2], [1, 2, 0]))
        >>> GMMConv(5, 2, dim=3, n_kernels=4)(g, torch.ones(3, 5), torch.ones(3, 3)).shape
        torch.Size([3, 2])
    """

    bias: nn.Parameter | None

    @checked(in_feats=COUNT.or_pair(), out_feats=COUNT, dim=COUNT, n_kernels=POSITIVE)
    def __init__(
        self,
        in_feats: int | tuple[int, int],
        out_feats: int,
        dim: int,
        n_kernels: int,
        aggregator_type: str = "sum",
        residual: bool = False,
        bias: bool = True,
        allow_zero_in_degree: bool = False,
    ) -> None:
        super().__init__()
        self._aggre_type = check_name(aggregator_type, REDUCERS, "aggregator")
        self._n_kernels, self._allow_zero_in_degree = n_kernels, allow_zero_in_degree
        in_src_feats, in_dst_feats = pair(in_feats)
        self.mu = nn.Parameter(torch.empty(n_kernels, dim))
        self.inv_sigma = nn.Parameter(torch.empty(n_kernels, dim))
        self.fc = nn.Linear(in_src_feats, n_kernels * out_feats, bias=False)
        self.res_fc = make_residual(in_dst_feats, out_feats) if residual else None
        self.register_parameter("bias", nn.Parameter(torch.empty(out_feats)) if bias else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draws Glorot's normal weights and centres near 0; widths are 1 and the bias is zeros."""
        nn.init.xavier_normal_(self.fc.weight, gain=nn.init.calculate_gain("relu"))
        init_residual(self.res_fc, self.bias)
        nn.init.normal_(self.mu, 0, 0.1)
        nn.init.ones_(self.inv_sigma)

    def forward(self, graph: vgraph.Graph, feat: Tensor | tuple[Tensor, Tensor], pseudo: Tensor) -> Tensor:
        """The weighed rows, aggregated and summed over Gaussians.

        Args:
            graph: a graph with one type of edges, or a block.
            feat: (vertices, in_feats), or a pair for senders and receivers; a block's receivers are its first
                senders.
            pseudo: (edges, dim), pseudo-coordinates.

        Returns:
            (vertices, out_feats).

        Raises:
            FunctionError: it is called without a graph.
            ShapeError: rows are of another width than the layer's.
            GraphError: a vertex has no in-edge, and that is not allowed.
        """
        check_graph(self, graph)
        self._check_in_degrees(graph)
        src, dst = both_ends(graph, feat)
        check_width(self, src, self.fc.in_features)
        check_width(self, pseudo, self.mu.shape[1], "edges' rows")
        away = (pseudo.unsqueeze(1) - self.mu) * self.inv_sigma
        graph = graph.local_var()  # which other threads do not see
        graph.srcdata["h"] = self.fc(src).unflatten(1, (self._n_kernels, -1))
        graph.edata["w"] = torch.exp(-0.5 * away.square().sum(-1, keepdim=True))
        if self._aggre_type == "max":
            rows = propagate(graph, fn.u_mul_e("h", "w", "m"), fn.max("m", "out"), graph.srcdata["h"]).sum(1)
        else:
            message = lambda edges: {"m": (edges.src["h"] * edges.data["w"]).sum(1)}  # noqa: E731
            rows = propagate(graph, message, REDUCERS[self._aggre_type]("m", "out"), graph.srcdata["h"][:, 0])
        return finish(rows, dst, self.res_fc, self.bias)


def make_residual(in_size: int, out_size: int) -> nn.Module:
    """A linear map where widths differ."""
    return nn.Identity() if in_size == out_size else nn.Linear(in_size, out_size, bias=False)


def init_residual(res_fc: nn.Module | None, bias: Tensor | None) -> None:
    """Glorot's normal weights with the gain of relu, and a bias of zeros."""
    if isinstance(res_fc, nn.Linear):
        nn.init.xavier_normal_(res_fc.weight, gain=nn.init.calculate_gain("relu"))
    if bias is not None:
        nn.init.zeros_(bias)


def finish(rows: Tensor, own: Tensor, res_fc: nn.Module | None, bias: Tensor | None) -> Tensor:
    """Rows with the residual and the bias."""
    rows = rows if res_fc is None else rows + res_fc(own)
    return rows if bias is None else rows + bias
