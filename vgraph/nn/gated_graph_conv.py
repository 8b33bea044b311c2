"""GatedGraphConv: a GRU that is told, step by step, what its neighbours hold, with DGL's names.

Takes: a graph, one row a vertex, types of edges. Gives: one row a vertex. Runs at every call.
Source: Li, Tarlow, Brockschmidt and Zemel 2016, equations 2 to 6.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

import vgraph
from vgraph.arguments import COUNT, POSITIVE, checked
from vgraph.errors import FeatureError, GraphError
from vgraph.nn.inputs import check_graph
from vgraph.nn.propagate import send_rows


class GatedGraphConv(nn.Module):
    """``n_steps`` of a GRU whose input is the sum of the senders' states, mapped by the edge's type.

    Args:
        in_feats: the width of a row, at most ``out_feats``; it is filled up with zeros.
        out_feats: the width of a state.
        n_steps: how many steps.
        n_etypes: how many types of edges.
        bias: let the GRU have biases.

    Raises:
        ArgumentError: a number is outside of what it counts or weighs.
        GraphError: in_feats exceeds out_feats.
        FeatureError: types are missing or outside.

    Source: Li et al. 2016, equations 2 to 6.

    Example:
        >>> import torch, vgraph
        >>> from vgraph.nn import GatedGraphConv
        >>> g = vgraph.graph(([0, 1], [1, 2]))
        >>> GatedGraphConv(5, 6, n_steps=2, n_etypes=3)(g, torch.ones(3, 5), torch.tensor([0, 2])).shape
        torch.Size([3, 6])
    """

    @checked(in_feats=COUNT, out_feats=COUNT, n_steps=COUNT, n_etypes=POSITIVE)
    def __init__(self, in_feats: int, out_feats: int, n_steps: int, n_etypes: int, bias: bool = True) -> None:
        super().__init__()
        if in_feats > out_feats:
            fact = f"in_feats {in_feats} exceeds out_feats {out_feats}, which the states are wide"
            raise GraphError(fact, cure="make out_feats as large, or map the feature first")
        self._out_feats, self._n_steps, self._n_etypes = out_feats, n_steps, n_etypes
        self.linears = nn.ModuleList([nn.Linear(out_feats, out_feats) for _ in range(n_etypes)])
        self.gru = nn.GRUCell(out_feats, out_feats, bias=bias)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draws new weights for the GRU, as torch does, and Glorot's normal weights for the maps."""
        self.gru.reset_parameters()
        for linear in self.linears:
            assert isinstance(linear, nn.Linear)
            nn.init.xavier_normal_(linear.weight, gain=nn.init.calculate_gain("relu"))
            nn.init.zeros_(linear.bias)

    def forward(self, graph: vgraph.Graph, feat: Tensor, etypes: Tensor | None = None) -> Tensor:
        """The states after the last step.

        Args:
            graph: a graph with one type of nodes and edges.
            feat: (vertices, in_feats).
            etypes: (edges,) from 0 to n_etypes - 1; None where there is one type.

        Returns:
            (vertices, out_feats).

        Raises:
            FunctionError: it is called without a graph.
            FeatureError: types are missing or outside.
        """
        check_graph(self, graph)
        state = nn.functional.pad(feat, (0, self._out_feats - feat.shape[1]))
        parts = self._parts(graph, etypes)
        for _ in range(self._n_steps):
            told = [send_rows(g, linear(state), w) for (g, w), linear in zip(parts, self.linears, strict=True)]
            state = self.gru(torch.stack(told).sum(0) if len(told) > 1 else told[0], state)
        return state

    def _parts(self, graph: vgraph.Graph, etypes: Tensor | None) -> list[tuple[vgraph.Graph, Tensor | None]]:
        """One graph a type, with all vertices, and weights of edges: maps are applied to vertices, not to edges."""
        if self._n_etypes == 1:
            return [(graph, None)]
        count = graph.topology.num_edges
        if etypes is None or etypes.shape != (count,):
            found = "none" if etypes is None else f"shape {tuple(etypes.shape)}"
            raise FeatureError(f"etypes has {found} for {count} edges", cure="give one type an edge")
        if len(etypes) and not 0 <= int(etypes.min()) <= int(etypes.max()) < self._n_etypes:
            fact = f"types run from {int(etypes.min())} to {int(etypes.max())} where there are {self._n_etypes}"
            raise FeatureError(fact, cure="number the types 0, 1, 2, ...")
        chosen = [etypes == kind for kind in range(self._n_etypes)]
        if graph.topology.halo is not None:  # its edges stay those of all types: others weigh nothing
            return [(graph, is_it.to(self.gru.weight_ih.dtype)) for is_it in chosen]
        src, dst = graph.edges()
        count = graph.num_nodes()
        return [(vgraph.graph((src[is_it], dst[is_it]), num_nodes=count), None) for is_it in chosen]
