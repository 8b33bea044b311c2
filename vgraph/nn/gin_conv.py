"""GINConv: as fine as the Weisfeiler-Lehman test, with the names, shapes and defaults of DGL's.

Takes: a graph and one row a vertex. Gives: one row a vertex; tempo: every call.
Source: Xu, Hu, Leskovec and Jegelka 2019, equation 4.1.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

import vgraph
import vgraph.function as fn
from vgraph.nn.inputs import both_ends, check_name, set_message

REDUCERS = {"sum": fn.sum, "max": fn.max, "mean": fn.mean}


class GINConv(nn.Module):
    """``apply_func((1 + eps) * own + aggregated in-neighbours)``.

    Called with a graph and a feature (vertices, width), or one for either end; gives what
    ``apply_func`` makes of (vertices, width). A call may bring ``edge_weight=``, (edges,) or (edges, 1).

    Args:
        apply_func: a module or function of rows; None: the rows themselves.
        aggregator_type: "sum", "max" or "mean".
        init_eps: the first value of ``eps``.
        learn_eps: whether ``eps`` is trained.

    Raises:
        NameLookupError: an unknown aggregator.
        FeatureError: ``edge_weight`` is not one number an edge.

    Source: Xu et al. 2019, equation 4.1.

    >>> import torch, vgraph
    >>> from vgraph.nn import GINConv
    >>> g = vgraph.graph(([0, 1], [2, 2]))
    >>> GINConv()(g, torch.ones(3, 1)).squeeze(1)
    tensor([1., 1., 3.])
    """

    eps: Tensor

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
        eps = torch.tensor([float(init_eps)])
        if learn_eps:
            self.eps = nn.Parameter(eps)
        else:
            self.register_buffer("eps", eps)

    def forward(
        self,
        graph: vgraph.Graph,
        feat: Tensor | tuple[Tensor, Tensor],
        edge_weight: Tensor | None = None,
    ) -> Tensor:
        src, dst = both_ends(graph, feat)
        with graph.local_scope():
            reduce = REDUCERS[self._aggregator_type]("m", "neigh")
            graph.update_all(set_message(graph, src, edge_weight), reduce)
            rows = (1 + self.eps) * dst + graph.dstdata["neigh"]
        rows = rows if self.apply_func is None else self.apply_func(rows)
        return rows if self.activation is None else self.activation(rows)
