"""GINConv and GINEConv: as fine as the Weisfeiler-Lehman test, with DGL's names, shapes and defaults.

Takes: a graph and one row a vertex. Gives: one row a vertex. Runs at every call.
Source: Xu, Hu, Leskovec and Jegelka 2019, equation 4.1; Hu et al. 2020, appendix C.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

import vgraph
import vgraph.function as fn
from vgraph.arguments import NUMBER, checked
from vgraph.nn.inputs import both_ends, check_graph, check_name
from vgraph.nn.propagate import OfRows, in_turn, propagate, send_rows

REDUCERS = {"sum": fn.sum, "max": fn.max, "mean": fn.mean}


class GINConv(nn.Module):
    """What a function makes of ``(1 + eps) * own + aggregated in-neighbours``.

    Args:
        apply_func: a module or function of (vertices, width); None: the rows themselves.
        aggregator_type: "sum", "max" or "mean".
        init_eps: the first value of ``eps``.
        learn_eps: train ``eps``.
        activation: a function of the rows at the end; None: none.

    Raises:
        ArgumentError: a number is outside of what it counts or weighs.
        NameLookupError: an unknown aggregator.
        FeatureError: ``edge_weight`` is not one number an edge.

    Source: Xu et al. 2019, equation 4.1.

    Example:
        >>> import torch, vgraph
        >>> from vgraph.nn import GINConv
        >>> g = vgraph.graph(([0, 1], [2, 2]))
        >>> GINConv()(g, torch.ones(3, 1)).squeeze(1)
        tensor([1., 1., 3.])
    """

    eps: Tensor

    @checked(init_eps=NUMBER)
    def __init__(
        self,
        apply_func: Callable[[Tensor], Tensor] | None = None,
        aggregator_type: str = "sum",
        init_eps: float = 0,
        learn_eps: bool = False,
        activation: Callable[[Tensor], Tensor] | None = None,
    ) -> None:
        super().__init__()
        self._aggregator_type = check_name(aggregator_type, REDUCERS, "aggregator")
        self.apply_func, self.activation = apply_func, activation
        _set_eps(self, init_eps, is_learned=learn_eps)

    def forward(
        self,
        graph: vgraph.Graph,
        feat: Tensor | tuple[Tensor, Tensor],
        edge_weight: Tensor | None = None,
        *,
        then: OfRows | None = None,
    ) -> Tensor:
        """What ``apply_func`` makes of a vertex and its in-neighbours.

        Args:
            graph: a graph with one type of edges, or a block.
            feat: (vertices, width), or a pair for senders and receivers of one width.
            edge_weight: (edges,) or (edges, 1), which multiplies messages; None: nothing does.
            then: a function of the result's rows, row by row, after the activation; in the same loop where there is no
                ``apply_func``. None: none.

        Returns:
            What ``apply_func`` makes of (vertices, width).

        Raises:
            FunctionError: it is called without a graph.
            FeatureError: ``edge_weight`` is not one number an edge.
        """
        check_graph(self, graph)
        src, dst = both_ends(graph, feat)
        end = in_turn(self.activation, then)
        inside = None if self.apply_func is not None else end  # a network has products, and often norms

        def finish(told: Tensor, own: Tensor) -> Tensor:
            rows = (1 + self.eps) * own + told
            return rows if inside is None else inside(rows)

        rows = send_rows(graph, src, edge_weight, REDUCERS[self._aggregator_type], finish=finish, own=(dst,))
        if self.apply_func is None:
            return rows
        rows = self.apply_func(rows)
        return rows if end is None else end(rows)


class GINEConv(nn.Module):
    """What a function makes of ``(1 + eps) * own + sum of relu(sender + edge)``.

    Args:
        apply_func: a module or function of (vertices, width); None: the rows themselves.
        init_eps: the first value of ``eps``.
        learn_eps: train ``eps``.

    Raises:
        ArgumentError: a number is outside of what it counts or weighs.
        FeatureError: there is not one row a sender, or one an edge.

    Source: Hu et al. 2020, appendix C.

    Example:
        >>> import torch, vgraph
        >>> from vgraph.nn import GINEConv
        >>> g = vgraph.graph(([0, 1], [2, 2]))
        >>> GINEConv()(g, torch.ones(3, 1), torch.tensor([[1.0], [-3.0]])).squeeze(1)
        tensor([1., 1., 3.])
    """

    eps: Tensor

    @checked(init_eps=NUMBER)
    def __init__(
        self,
        apply_func: Callable[[Tensor], Tensor] | None = None,
        init_eps: float = 0,
        learn_eps: bool = False,
    ) -> None:
        super().__init__()
        self.apply_func = apply_func
        _set_eps(self, init_eps, is_learned=learn_eps)

    def forward(self, graph: vgraph.Graph, node_feat: Tensor | tuple[Tensor, Tensor], edge_feat: Tensor) -> Tensor:
        """What ``apply_func`` makes of a vertex, its in-neighbours and their edges.

        Args:
            graph: a graph with one type of edges, or a block.
            node_feat: (vertices, width), or a pair for senders and receivers of one width.
            edge_feat: (edges, width).

        Returns:
            What ``apply_func`` makes of (vertices, width).

        Raises:
            FunctionError: it is called without a graph.
            FeatureError: there is not one row a sender, or one an edge.
        """
        check_graph(self, graph)
        src, dst = both_ends(graph, node_feat)
        graph = graph.local_var()  # which other threads do not see
        graph.srcdata["h"], graph.edata["e"] = src, edge_feat
        message = lambda edges: {"m": torch.relu(edges.src["h"] + edges.data["e"])}  # noqa: E731
        rows = (1 + self.eps) * dst + propagate(graph, message, fn.sum("m", "out"), src)
        return rows if self.apply_func is None else self.apply_func(rows)


def _set_eps(layer: nn.Module, value: float, *, is_learned: bool) -> None:
    """(1,), as a parameter or as a buffer."""
    eps = torch.tensor([float(value)])
    if is_learned:
        layer.register_parameter("eps", nn.Parameter(eps))
    else:
        layer.register_buffer("eps", eps)
